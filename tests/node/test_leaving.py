"""Processes that stop, start again, are replaced, and are told so (spec 9)."""

from __future__ import annotations

import msgspec
import pytest

from tests.node.fake_shell import OWNER, Cluster, Machine, formed
from ticketing.node.link import PeerKind, encode_frame
from ticketing.node.membership_messages import JoinTaken, encode
from ticketing.node.settings import OperatorCommand, Place, S
from ticketing.protocol import frames
from ticketing.raft.types import MS


def voter(machine: Machine) -> bool:
    raft = machine.up.raft
    return raft is not None and raft.configuration.is_voter(raft.me) and not raft.configuration.joint


def ended(machine: Machine) -> bool:
    return machine.node is None


def status(machine: Machine) -> int:
    assert machine.stopped is not None
    return machine.stopped[0]


def why(machine: Machine) -> str:
    assert machine.stopped is not None
    return machine.stopped[1]


def stopping(cluster: Cluster, *machines: Machine) -> None:
    for machine in machines:
        machine.call(machine.up.begin_stop)
    cluster.world.run(0)


# --- stopping


def test_a_leader_that_stops_gives_its_lead_away_asks_for_leave_and_ends_with_status_0() -> None:
    cluster = formed()
    leader = cluster.leader
    client = cluster.connect(leader)
    holder = cluster.connect(leader)
    cluster.ask(holder, frames.encode_q(0, 200, OWNER + 1, b"k"), b"G")
    client.send(frames.encode_q(99, 5, OWNER + 2, b"k"))
    cluster.world.run(5 * MS)
    stopping(cluster, leader)
    cluster.world.until(lambda: leader.node is None, 5 * S)
    cluster.world.run(5 * MS)
    assert status(leader) == 0
    assert "leave was given" in why(leader)
    assert client.word()[0] == "V"
    assert client.word()[-1] == "E"
    assert cluster.serving() != []


def test_a_node_that_stops_accepts_no_new_session() -> None:
    cluster = formed()
    follower = cluster.followers[0]
    halfway = follower.connect()
    cluster.world.run(0)
    stopping(cluster, follower)
    late = follower.connect()
    cluster.world.run(20 * MS)
    assert late.handshake.outcome == "shutting_down"
    assert halfway.handshake.outcome == "shutting_down"


def test_two_voters_that_stop_at_once_do_not_hand_the_lead_to_each_other() -> None:
    cluster = formed()
    leader, (other, stays) = cluster.leader, cluster.followers
    stopping(cluster, leader, other)
    cluster.world.run(5 * S)
    assert cluster.serving() == [stays]
    left = [machine for machine in (leader, other) if machine.node is None]
    assert len(left) == 1  # the second one waits until the place of the first is filled
    left[0].start()
    cluster.world.until(lambda: voter(left[0]), 20 * S)
    second = other if left[0] is leader else leader
    cluster.world.until(lambda: second.node is None, 10 * S)
    assert "leave was given" in why(second)


def test_the_last_majority_gets_no_leave_and_says_what_stopping_may_have_done() -> None:
    cluster = formed()
    leader, (follower, dead) = cluster.leader, cluster.followers
    dead.kill()
    cluster.world.run(2 * S)
    stopping(cluster, follower)
    cluster.world.run(24 * S)
    assert not ended(follower)
    cluster.world.run(2 * S)
    assert ended(follower)
    assert "may have ended the domain" in why(follower)
    assert not ended(leader)


def test_a_second_word_stops_at_once() -> None:
    cluster = formed()
    follower = cluster.followers[0]
    stopping(cluster, follower)
    stopping(cluster, follower)
    assert ended(follower)
    assert status(follower) == 0


def test_answers_that_may_not_leave_do_not_leave_because_the_process_stops() -> None:
    cluster = formed()
    leader = cluster.leader
    client = cluster.connect(leader)
    client.send(frames.encode_q(0, 100, OWNER + 1, b"k"))
    cluster.world.run(2 * MS + MS // 2)
    leader.pause()
    cluster.world.run(MS)
    leader.drops = lambda _place, _kind, _payload: True
    cluster.world.run(450 * MS)
    leader.resume()
    assert leader.up.state is not None
    assert leader.up.state.table.held
    leader.call(lambda: leader.up.begin_stop(force=True))
    cluster.world.run(50 * MS)
    assert client.word() == "E"


# --- coming back


def test_a_machine_that_lost_its_power_takes_its_place_again_soon_after_it_is_back() -> None:
    cluster = formed()
    follower = cluster.followers[0]
    follower.cut = True
    follower.kill()
    cluster.world.run(2 * S)
    follower.cut = False
    follower.start()
    cluster.world.until(lambda: voter(follower), 8 * S)


def test_every_place_can_be_restarted_one_after_the_other_and_locks_outlive_it() -> None:
    cluster = formed()
    client = cluster.connect(cluster.leader)
    token = cluster.ask(client, frames.encode_q(0, 200, OWNER + 1, b"k"), b"G")[1]
    for machine in cluster.machines:
        stopping(cluster, machine)
        cluster.world.until(lambda machine=machine: machine.node is None, 10 * S)  # type: ignore[misc]
        assert "leave was given" in why(machine)
        machine.start()
        cluster.world.until(lambda machine=machine: voter(machine), 20 * S)  # type: ignore[misc]
        cluster.settle()
    for machine in cluster.machines:
        assert machine.up.state is not None
        assert machine.up.state.table.held[b"k"].token == token
    late = cluster.connect(cluster.leader)
    assert cluster.ask(late, frames.encode_release(token, b"k"), b"RN")[0] == frames.RELEASED


def test_a_process_that_is_told_not_to_rejoin_takes_part_in_nothing() -> None:
    cluster = formed()
    follower = cluster.followers[0]
    follower.kill()
    follower.settings = msgspec.structs.replace(follower.settings, rejoin=False)
    node = follower.start()
    cluster.world.run(0)
    assert status(follower) == 2
    assert node.membership.forming is None


def test_a_process_that_was_replaced_while_it_stood_still_stops_with_status_12() -> None:
    cluster = formed()
    old = cluster.followers[0]
    old.pause()
    old.cut = True
    cluster.world.run(5 * S)
    # Another process of the same place, somewhere else on the same addresses.
    new = Machine(cluster.world, msgspec.structs.replace(old.settings, permit=""), 77)
    new.start()
    cluster.world.until(lambda: voter(new), 30 * S)
    assert not ended(old)
    old.cut = False
    old.resume()
    cluster.world.run(10 * S)
    assert ended(old)
    assert status(old) == 12
    assert voter(new)


@pytest.mark.parametrize("times", [1, 2])
def test_a_process_that_is_taken_in_records_it_before_it_acts(times: int) -> None:
    cluster = formed()
    follower = cluster.followers[0]
    follower.kill()
    cluster.world.run(2 * S)
    follower.stores_after_ns = 400 * MS
    follower.start()
    cluster.world.until(lambda: bool(follower.up.membership._joining), 10 * S)
    leader = cluster.leader
    assert leader.up.state is not None
    domain = leader.up.state.domain
    taken = JoinTaken(
        follower.up.incarnation, follower.place.name, 4, domain.domain_id, domain.first_token, 0
    )
    link = next(
        link
        for link in follower.links
        if link.inbound and link.logic.peer is not None and link.logic.peer.place == leader.place.name
    )
    frame = encode_frame(PeerKind.MEMBERSHIP, encode(taken))
    follower.call(lambda: follower.up.link_data(link, frame * times))
    cluster.world.run(300 * MS)
    assert follower.up.raft is None
    assert 'node_id":"4' not in follower.disk["record.json"].decode()
    cluster.world.until(lambda: voter(follower), 20 * S)
    assert msgspec.json.decode(follower.disk["record.json"])["node_id"] == "4"


# --- clocks


def test_a_leader_whose_own_clock_is_outside_gives_its_lead_to_a_voter_inside() -> None:
    cluster = formed()
    leader = cluster.leader
    cluster.world.run(2 * S)
    leader.wall_offset_ns = 2 * S
    cluster.world.until(lambda: cluster.serving() not in ([], [leader]), 10 * S)
    cluster.settle()
    client = cluster.connect(cluster.leader)
    assert cluster.ask(client, frames.encode_q(0, 5, OWNER + 1, b"k"), b"GB")[0] == frames.GRANTED_WAITED


def test_while_the_gate_is_closed_nothing_is_granted_and_releases_go_on() -> None:
    cluster = formed()
    leader = cluster.leader
    client = cluster.connect(leader)
    token = cluster.ask(client, frames.encode_q(0, 200, OWNER + 1, b"k"), b"G")[1]
    for number, machine in enumerate(cluster.machines):
        machine.wall_offset_ns = number * 2 * S
    cluster.world.run(2 * S)
    client = cluster.connect(cluster.leader)
    assert cluster.ask(client, frames.encode_q(0, 5, OWNER + 2, b"x"), b"GBTV")[0] == frames.BUSY
    client.send(frames.encode_q(50, 5, OWNER + 3, b"k"))
    assert cluster.ask(client, frames.encode_release(token, b"k"), b"RN")[0] == frames.RELEASED
    cluster.world.run(3 * S)
    assert client.said(frames.GRANTED_WAITED) == []
    for machine in cluster.machines:
        machine.wall_offset_ns = 0
    cluster.world.until(lambda: client.said(frames.GRANTED_WAITED), 5 * S)


# --- replacing


def replacement_of(cluster: Cluster, old: Machine) -> Machine:
    """A process for the place of `old` at other addresses, prepared by an operator's command."""
    name = old.place.name
    places = tuple(
        Place(name, f"{name}2:5225", f"{name}2:6225", f"{name}2:7225") if place.name == name else place
        for place in old.settings.places
    )
    settings = msgspec.structs.replace(
        old.settings, places=places, permit="", operator_command=OperatorCommand(command_id="move-1")
    )
    return Machine(cluster.world, settings, 99)


def test_a_leader_that_is_to_be_replaced_gives_its_lead_away_first_and_its_process_ends_with_12() -> None:
    cluster = formed()
    old = cluster.leader
    client = cluster.connect(old)
    token = cluster.ask(client, frames.encode_q(0, 200, OWNER + 1, b"k"), b"G")[1]
    new = replacement_of(cluster, old)
    new.start()
    cluster.world.until(lambda: voter(new), 20 * S)
    cluster.world.run(S)
    assert ended(old)
    assert status(old) == 12
    cluster.machines[cluster.machines.index(old)] = new
    cluster.settle()
    assert new.up.state is not None
    assert new.up.state.table.held[b"k"].token == token
    late = cluster.connect(cluster.leader)
    assert cluster.ask(late, frames.encode_release(token, b"k"), b"RN")[0] == frames.RELEASED
    assert all(machine.up.peers.missing() == [] for machine in cluster.machines if machine is new)


def test_a_member_that_did_not_hear_of_its_removal_is_told_when_it_speaks() -> None:
    cluster = formed()
    old = cluster.followers[0]
    new = replacement_of(cluster, old)
    deaf_until_ns = cluster.world.now_ns + 10 * S
    old.drops = lambda _place, kind, _payload: (
        kind in (PeerKind.MEMBERSHIP, PeerKind.RAFT) and cluster.world.now_ns < deaf_until_ns
    )
    new.start()
    cluster.world.until(lambda: voter(new), 9 * S)
    cluster.world.until(lambda: ended(old), 20 * S)
    assert status(old) == 12


def test_a_learner_that_is_given_up_ends_with_a_failure_and_its_next_process_is_taken() -> None:
    cluster = formed()
    follower = cluster.followers[0]
    follower.kill()
    cluster.world.run(2 * S)
    follower.start()
    cluster.world.until(lambda: follower.up.raft is not None, 10 * S)
    follower.cut = True
    follower.pause()
    cluster.world.run(14 * S)
    leader_raft = cluster.leader.up.raft
    assert leader_raft is not None
    assert leader_raft.configuration.learners == ()
    follower.cut = False
    follower.resume()
    cluster.world.until(lambda: ended(follower), 10 * S)
    assert status(follower) == 1
    follower.start()
    cluster.world.until(lambda: voter(follower), 20 * S)
