"""What operators do to a cluster."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.node.fake_shell import OWNER, Cluster, Machine
from ticketing.node.asked import CannotError
from ticketing.node.settings import OperatorCommand, S
from ticketing.protocol import frames
from ticketing.raft.types import MS


def formed(count: int = 3) -> Cluster:
    cluster = Cluster(count)
    cluster.start()
    cluster.settle()
    return cluster


def audits(machine: Machine, event: str) -> list[dict[str, object]]:
    return [facts for level, name, facts in machine.lines if (level, name) == ("audit", event)]


def revoke(cluster: Cluster, key: bytes, token: int, ident: str = "one") -> list[dict[str, Any] | None]:
    told: list[dict[str, Any] | None] = []
    machine = cluster.leader
    machine.call(
        lambda: machine.up.operations.revoke(
            key, token, command_id=ident, who="ana", why="stuck", told=told.append
        )
    )
    cluster.world.run(200 * MS)
    return told


class TestRevoke:
    def test_it_ends_the_grant_and_every_node_has_the_audit_line(self) -> None:
        cluster = formed()
        client = cluster.connect(cluster.leader)
        client.send(frames.encode_q(9, 60, OWNER, b"k") + frames.encode_q(99, 60, OWNER + 1, b"k"))
        cluster.world.run(100 * MS)
        token = client.token()
        assert revoke(cluster, b"k", token) == [{"revoked": True, "next_token": str(token + 1)}]
        assert [reply[1] for reply in client.said(frames.GRANTED_WAITED)] == [token, token + 1]
        for machine in cluster.machines:
            (line,) = audits(machine, "lock revoked")
            assert (line["who"], line["why"], line["key"]) == ("ana", "stuck", "k")
            assert (line["token"], line["owner"]) == (str(token), str(OWNER))

    def test_what_is_not_held_by_that_token_any_more_is_told_apart(self) -> None:
        cluster = formed()
        assert revoke(cluster, b"k", 77) == [{"revoked": False, "next_token": None}]
        assert audits(cluster.leader, "lock revoked") == []

    def test_an_id_acts_once_whoever_leads(self) -> None:
        cluster = formed()
        client = cluster.connect(cluster.leader)
        client.send(frames.encode_q(9, 60, OWNER, b"k"))
        cluster.world.run(100 * MS)
        token = client.token()
        revoke(cluster, b"k", token)
        cluster.leader.kill()
        cluster.world.until(lambda: len(cluster.serving()) == 1)
        assert revoke(cluster, b"k", token) == [{"revoked": None, "repeated": True}]

    def test_an_id_that_another_command_had_is_refused(self) -> None:
        cluster = formed()
        client = cluster.connect(cluster.leader)
        revoke(cluster, b"other", 5)
        client.send(frames.encode_q(9, 60, OWNER, b"k"))
        cluster.world.run(100 * MS)
        leader = cluster.leader
        with pytest.raises(CannotError) as refused:
            leader.up.operations.revoke(
                b"k", client.token(), command_id="one", who="", why="", told=lambda _answer: None
            )
        leader.end_turn()
        assert refused.value.code == "id_used"

    def test_a_lead_that_is_lost_meanwhile_leaves_it_open(self) -> None:
        cluster = formed()
        client = cluster.connect(cluster.leader)
        client.send(frames.encode_q(9, 60, OWNER, b"k"))
        cluster.world.run(100 * MS)
        leader = cluster.leader
        leader.cut = True
        assert revoke(cluster, b"k", client.token()) == []
        told: list[dict[str, Any] | None] = []
        leader.call(
            lambda: leader.up.operations.revoke(
                b"k", client.token(), command_id="two", who="", why="", told=told.append
            )
        )
        cluster.world.run(2 * S)
        assert told == [None]


def replace(cluster: Cluster, place: str, ident: str = "r1", **more: Any) -> dict[str, Any]:
    leader = cluster.leader
    try:
        return leader.up.operations.replace(place, command_id=ident, who="ana", why="new host", **more)
    finally:
        leader.end_turn()


class TestReplace:
    def test_a_living_voter_is_replaced_by_a_process_that_names_the_command(self) -> None:
        cluster = formed()
        leader, old = cluster.leader, cluster.followers[0]
        change = replace(cluster, old.place.name)["change"]
        assert (change["place"], change["state"], change["command_id"]) == (old.place.name, "announced", "r1")
        assert leader.up.reports.members()["changes"] == [change]
        fresh = self.newcomer(cluster, old, "r1")
        cluster.world.until(lambda: old.stopped is not None)
        assert old.stopped is not None
        assert old.stopped[0] == 12
        cluster.world.until(lambda: leader.up.reports.members()["changes"] == [])
        voters = leader.up.reports.members()["members"]
        assert {member["node_id"] for member in voters} == {"4", *(n for n in "123" if n != self.number(old))}
        assert fresh.disk.get("replace.json") is None
        (line,) = audits(leader, "replacement announced")
        assert (line["who"], line["why"], line["of"]) == ("ana", "new host", old.place.name)

    @staticmethod
    def number(machine: Machine) -> str:
        return str("abc".index(machine.place.name) + 1)

    @staticmethod
    def newcomer(cluster: Cluster, old: Machine, ident: str) -> Machine:
        """A process on another host, in a folder that names the command."""
        place = old.place._replace(client="n:5225", peer="n:6225", admin="n:7225")
        places = tuple(place if known.name == place.name else known for known in old.settings.places)
        settings = msgspec.structs.replace(
            old.settings,
            places=places,
            permit="",
            operator_command=OperatorCommand(command_id=ident, who="ana", why="new host"),
        )
        fresh = Machine(cluster.world, settings, 77)
        fresh.disk["replace.json"] = b"{}"
        cluster.machines.append(fresh)
        fresh.start()
        return fresh

    def test_an_announced_one_can_be_undone_and_its_process_is_not_taken(self) -> None:
        cluster = formed()
        old = cluster.followers[0]
        replace(cluster, old.place.name)
        leader = cluster.leader
        assert leader.up.operations.undo(old.place.name, command_id="", who="ana", why="no") == {
            "undone": True
        }
        leader.end_turn()
        cluster.world.run(200 * MS)
        assert leader.up.reports.members()["changes"] == []
        fresh = self.newcomer(cluster, old, "r1")
        cluster.world.until(lambda: fresh.stopped is not None)
        assert fresh.stopped is not None
        assert fresh.stopped[0] == 12
        assert old.stopped is None
        with pytest.raises(CannotError, match="undone"):
            replace(cluster, old.place.name)

    def test_a_command_that_another_leader_announced_is_undone_by_its_id(self) -> None:
        cluster = formed()
        old = cluster.followers[0]
        leader = cluster.leader
        with pytest.raises(CannotError) as refused:
            leader.up.operations.undo(old.place.name, command_id="", who="", why="")
        assert refused.value.code == "no_undo"
        assert leader.up.operations.undo(old.place.name, command_id="r9", who="", why="") == {"undone": True}
        leader.end_turn()
        cluster.world.run(200 * MS)
        assert leader.up.state is not None
        assert leader.up.state.members.undone == ("r9",)

    def test_what_would_endanger_the_majority_is_refused_with_the_reason(self) -> None:
        cluster = formed()
        lost, other = cluster.followers
        lost.kill()
        cluster.world.run(3 * S)
        with pytest.raises(CannotError, match=f"{lost.place.name} is not heard from") as refused:
            replace(cluster, other.place.name)
        assert refused.value.code == "no_replace"
        assert replace(cluster, lost.place.name)["change"]["state"] == "announced"

    def test_unknown_places_and_addresses_of_others_are_refused(self) -> None:
        cluster = formed()
        first, second = cluster.followers
        with pytest.raises(CannotError) as refused:
            replace(cluster, "z")
        assert refused.value.code == "not_found"
        with pytest.raises(CannotError, match=f"those of {second.place.name}"):
            replace(cluster, first.place.name, addresses=(second.place.client,))

    def test_only_the_leader_takes_it(self) -> None:
        cluster = formed()
        follower = cluster.followers[0]
        with pytest.raises(CannotError) as refused:
            follower.up.operations.replace("a", command_id="r", who="", why="")
        follower.end_turn()
        assert refused.value.code == "not_leader"

    def test_a_standalone_node_has_nothing_to_replace(self) -> None:
        cluster = formed(1)
        with pytest.raises(CannotError, match="standalone"):
            replace(cluster, "a")


class TestStopping:
    def test_whether_one_may_stop_is_told_without_its_being_given_leave(self) -> None:
        cluster = formed()
        cluster.world.run(2 * S)
        operations = cluster.leader.up.operations
        for machine in cluster.machines * 2:
            assert operations.can_stop(machine.place.name) == {
                "can_stop": True,
                "reason": None,
                "redundancy_after": 0,
            }

    def test_the_last_that_must_stay_may_not(self) -> None:
        cluster = formed()
        cluster.world.run(2 * S)
        lost, other = cluster.followers
        lost.kill()
        cluster.world.run(3 * S)
        operations = cluster.leader.up.operations
        for machine in (other, cluster.leader):
            answer = operations.can_stop(machine.place.name)
            assert answer["can_stop"] is False
            assert "1 of 3 voters" in answer["reason"]
            assert answer["redundancy_after"] == -1

    @staticmethod
    def leave(machine: Machine) -> list[tuple[bool, str]]:
        told: list[tuple[bool, str]] = []
        machine.call(lambda: machine.up.operations.leave(None, lambda given, why: told.append((given, why))))
        return told

    @pytest.mark.parametrize("who", ["leader", "follower"])
    @pytest.mark.parametrize("led_for_ns", [0, 2 * S])
    def test_a_node_leaves_with_the_leaders_leave(self, who: str, led_for_ns: int) -> None:
        cluster = formed()
        cluster.world.run(led_for_ns)
        machine = cluster.leader if who == "leader" else cluster.followers[0]
        told = self.leave(machine)
        cluster.world.until(lambda: machine.stopped is not None)
        assert [given for given, _ in told] == [True]
        assert machine.stopped is not None
        assert machine.stopped[0] == 0

    def test_a_node_that_is_given_no_leave_stays_and_serves_on(self) -> None:
        cluster = formed()
        cluster.world.run(2 * S)
        lost, stays = cluster.followers
        lost.kill()
        cluster.world.run(3 * S)
        told = self.leave(stays)
        cluster.world.until(lambda: bool(told))
        ((given, why),) = told
        assert not given
        assert "voters would be left living" in why
        cluster.world.run(30 * S)
        assert stays.stopped is None
        assert not stays.up.membership.departure.stopping
        assert not stays.up.clients.stopping
        client = cluster.connect(stays)
        assert client.ready

    def test_a_leader_that_would_be_given_no_leave_keeps_its_lead(self) -> None:
        cluster = formed()
        cluster.world.run(2 * S)
        leader = cluster.leader
        cluster.followers[0].kill()
        cluster.world.run(3 * S)
        term = leader.up.raft.term if leader.up.raft is not None else 0
        told = self.leave(leader)
        cluster.world.run(100 * MS)
        ((given, why),) = told
        assert not given
        assert "voters would be left living" in why
        cluster.world.run(10 * S)
        assert cluster.serving() == [leader]
        assert leader.up.raft is not None
        assert leader.up.raft.term == term

    def test_a_stop_while_it_waits_for_leave_is_no_second_stop(self) -> None:
        cluster = formed()
        cluster.world.run(2 * S)
        lost, stops = cluster.followers
        lost.kill()
        cluster.world.run(3 * S)
        self.leave(stops)
        cluster.world.run(S)
        stops.call(stops.up.begin_stop)
        cluster.world.run(10 * S)
        assert stops.stopped is None, "it asks for leave for as long as a signal has it ask"
        cluster.world.until(lambda: stops.stopped is not None)

    def test_another_place_is_named_to_whoever_asks_the_wrong_node(self) -> None:
        cluster = formed()
        with pytest.raises(CannotError) as refused:
            cluster.machines[0].up.operations.leave("b", lambda *_: None)
        cluster.machines[0].end_turn()
        assert refused.value.code == "other_place"
        assert refused.value.node == {"place": "b", "client": "b:5225", "admin": "b:7225"}

    def test_an_end_at_once_asks_nobody(self) -> None:
        cluster = formed()
        machine = cluster.followers[0]
        machine.call(lambda: machine.up.operations.stop_at_once(None))
        cluster.world.until(lambda: machine.stopped is not None)
        assert machine.stopped == (0, "stopped at once")


def test_a_transfer_goes_to_the_named_place_or_says_why_not() -> None:
    cluster = formed()
    leader, target = cluster.leader, cluster.followers[0]
    with pytest.raises(CannotError) as refused:
        leader.up.operations.transfer("z")
    leader.end_turn()
    assert refused.value.code == "no_transfer"
    leader.call(lambda: leader.up.operations.transfer(target.place.name))
    cluster.world.until(lambda: cluster.serving() == [target])
