"""The list of events that all readers share, and what a node says in it."""

from __future__ import annotations

from typing import Any

from tests.node.fake_shell import OWNER, Cluster, Machine
from ticketing.node.events import EVENTS_MAX, EventLog
from ticketing.node.settings import Limits, S
from ticketing.protocol import frames


def log() -> EventLog:
    return EventLog(lambda: 7_000_000)


def test_a_reader_gets_what_came_after_its_number_oldest_first() -> None:
    events = log()
    for place in "abc":
        events.add("member", place=place)
    read = events.read(1, 10)
    assert [event["place"] for event in read.events] == ["b", "c"]
    assert read.lost == 0
    assert read.events[0] == {"number": 2, "time_ms": 7, "kind": "member", "place": "b"}
    assert [event["place"] for event in events.read(0, 2).events] == ["a", "b"]
    assert events.read(3, 10) == ([], 0)


def test_a_reader_that_falls_behind_is_told_how_much_it_has_missed() -> None:
    events = log()
    for _ in range(EVENTS_MAX + 5):
        events.add("lock")
    read = events.read(2, 1)
    assert read.lost == 3
    assert read.events[0]["number"] == 6


def test_a_number_of_another_process_life_is_known_as_such() -> None:
    events = log()
    events.add("lock")
    assert events.read(9, 10) == ([], None)


def test_listeners_are_told_until_they_leave() -> None:
    events = log()
    told: list[int] = []

    def tell() -> None:
        told.append(events.newest)

    events.listen(tell)
    events.add("gate")
    events.unlisten(tell)
    events.add("gate")
    assert told == [1]


def formed() -> Cluster:
    cluster = Cluster()
    cluster.start()
    cluster.settle()
    cluster.world.run(S)
    return cluster


def events_of(machine: Machine, kind: str, after: int = 0) -> list[dict[str, Any]]:
    return [event for event in machine.up.events.read(after, EVENTS_MAX).events if event["kind"] == kind]


def test_a_new_leader_is_an_event_on_every_node() -> None:
    cluster = formed()
    old = cluster.leader
    marks = {machine: machine.up.events.newest for machine in cluster.followers}
    old.kill()
    cluster.world.until(lambda: len(cluster.serving()) == 1)
    cluster.world.run(S)
    new = cluster.leader
    for machine, mark in marks.items():
        last = events_of(machine, "leader", mark)[-1]
        assert last["leader"]["place"] == new.place.name
        assert last["serving"] is (machine is new)
        assert machine.up.watch.leader_changes == 2


def test_a_closed_gate_says_which_node_is_off_and_an_opened_one_that_it_is() -> None:
    cluster = formed()
    leader = cluster.leader
    mark = leader.up.events.newest
    for machine in cluster.followers:
        machine.wall_offset_ns = 2 * S
    cluster.world.run(3 * S)
    odd = next(machine for machine in cluster.machines if machine.wall_offset_ns == 0)
    closed = next(event for event in events_of(odd, "gate", mark) if event.get("gate") == "closed")
    assert len(closed["outside"]) == 2
    assert "2000" in closed["outside"][0]
    odd.wall_offset_ns = 2 * S
    cluster.world.run(3 * S)
    assert events_of(odd, "gate", mark)[-1]["gate"] == "open"
    assert [event["step_ms"] for event in events_of(odd, "gate", mark) if event["what"] == "step"] == [2_000]
    assert odd.up.clock.steps == 1


def test_a_lost_voter_shows_in_the_redundancy_and_its_successor_in_the_stages_of_its_coming() -> None:
    cluster = formed()
    leader, lost = cluster.leader, cluster.followers[0]
    mark = leader.up.events.newest
    lost.kill()
    cluster.world.run(4 * S)
    lost.start()
    cluster.world.until(lambda: lost.up.raft is not None)
    lost.pause()  # otherwise it has caught up before anybody looks
    cluster.world.run(S)
    lost.resume()
    cluster.world.until(
        lambda: lost.up.raft is not None and lost.up.raft.configuration.is_voter(lost.up.raft.me)
    )
    cluster.world.run(3 * S)
    member = events_of(leader, "member", mark)
    figures = [event["redundancy"] for event in member if event["what"] == "redundancy"]
    assert figures[0] == 0
    assert figures[-1] == 1
    assert {"voter", "removed", "change"} <= {event["what"] for event in member}
    stages = [event["stage"] for event in member if event["what"] == "change"]
    assert "catching_up" in stages


def test_what_comes_in_numbers_is_summed_up_once_a_second() -> None:
    cluster = formed()
    leader = cluster.leader
    client = cluster.connect(leader)
    mark = leader.up.events.newest
    client.send(b"".join(frames.encode_q(9, 9, OWNER + n, b"k%d" % n) for n in range(1, 51)))
    cluster.world.run(2 * S)
    (event,) = events_of(leader, "lock", mark)
    assert event["counts"] == {"granted": 50}
    assert events_of(leader, "session", mark)[-1]["open"] == 1


def test_a_node_that_nothing_happens_to_says_nothing() -> None:
    cluster = formed()
    cluster.world.run(5 * S)
    marks = [machine.up.events.newest for machine in cluster.machines]
    cluster.world.run(60 * S)
    assert [machine.up.events.newest for machine in cluster.machines] == marks


def test_refusals_by_a_bound_are_an_overload_with_their_reasons() -> None:
    cluster = Cluster(limits=Limits(waiters=1))
    cluster.start()
    cluster.settle()
    leader = cluster.leader
    client = cluster.connect(leader)
    mark = leader.up.events.newest
    client.send(b"".join(frames.encode_q(9, 9, OWNER + n, b"k") for n in range(1, 6)))
    cluster.world.run(2 * S)
    (event,) = events_of(leader, "overload", mark)
    assert event["counts"] == {"busy_waiters": 3}


def test_a_loop_that_stood_still_is_an_overload() -> None:
    cluster = formed()
    machine = cluster.followers[0]
    mark = machine.up.events.newest
    machine.pause()
    cluster.world.run(S)
    machine.resume()
    cluster.world.run(2 * S)
    assert [event["what"] for event in events_of(machine, "overload", mark)] == ["loop"]
