"""Checksums of whole states at one index, on nodes that go on applying (spec 6, table equality)."""

from __future__ import annotations

import pytest

from tests.node.fake_shell import OWNER, Cluster, Machine, formed
from ticketing.node.asked import CannotError
from ticketing.node.checksums import ASKED_MAX, REACH_NS, StateChecksum
from ticketing.node.settings import S
from ticketing.protocol import frames
from ticketing.raft.types import MS

Told = dict[str, StateChecksum | None]


def ask(cluster: Cluster, index: int) -> Told:
    told: Told = {}

    def ask_one(machine: Machine) -> None:
        machine.call(
            lambda: machine.up.operations.checksum(
                index, lambda found: told.__setitem__(machine.place.name, found)
            )
        )

    for machine in cluster.machines:
        ask_one(machine)
    return told


def state_of(machine: Machine) -> tuple[int, int]:
    state = machine.up.state
    assert state is not None
    return state.applied_index, state.checksum()


def grants(cluster: Cluster, count: int) -> None:
    """So many locks, each an entry of its own."""
    client = cluster.connect(cluster.leader)
    for number in range(count):
        client.send(frames.encode_acquire(0, 60, OWNER | number + 1, b"key-%d" % number))
        cluster.world.run(3 * MS)


def test_idle_nodes_tell_of_where_they_stand() -> None:
    cluster = formed()
    grants(cluster, 5)
    cluster.world.run(S)
    told = ask(cluster, 0)
    cluster.world.until(lambda: len(told) == 3)
    ((index, checksum),) = {state_of(machine) for machine in cluster.machines}
    assert set(told.values()) == {StateChecksum(index, checksum, 5)}


def test_nodes_that_go_on_tell_of_the_index_that_was_asked_for() -> None:
    cluster = formed()
    grants(cluster, 3)
    before = max(state_of(machine)[0] for machine in cluster.machines)
    told = ask(cluster, before + 5)
    cluster.world.run(2 * MS)
    assert told == {}
    grants(cluster, 20)
    cluster.world.until(lambda: len(told) == 3)
    (found,) = set(told.values())
    assert found is not None
    assert found.applied_index == before + 5
    assert all(state_of(machine)[1] != found.checksum for machine in cluster.machines), "they are further now"


def test_an_index_that_does_not_come_is_waited_for_for_a_while_only() -> None:
    cluster = formed()
    index, checksum = state_of(cluster.leader)
    told = ask(cluster, index + 1000)
    cluster.world.run(REACH_NS - 100 * MS)
    assert told == {}
    seen_ns = cluster.world.now_ns
    assert cluster.leader.up.next_deadline_ns() > seen_ns + MS, "who only waits for an index costs nothing"
    cluster.world.run(S)
    assert set(told.values()) == {StateChecksum(index, checksum, 0)}


def test_a_state_that_is_another_has_another_checksum() -> None:
    cluster = formed()
    grants(cluster, 3)
    cluster.world.run(S)
    odd = cluster.followers[0]
    state = odd.up.state
    assert state is not None
    next(iter(state.table.held.values())).granted_wall_ms += 1
    told = ask(cluster, 0)
    cluster.world.until(lambda: len(told) == 3)
    assert len({found.applied_index for found in told.values() if found is not None}) == 1
    sums = {place: found.checksum for place, found in told.items() if found is not None}
    assert sums.pop(odd.place.name) not in sums.values()
    assert len(set(sums.values())) == 1


def test_a_few_at_a_time_and_without_a_state_none() -> None:
    cluster = formed()
    operations = cluster.leader.up.operations
    told: list[StateChecksum | None] = []
    for _ in range(ASKED_MAX):
        operations.checksum(1 << 60, told.append)
    with pytest.raises(CannotError, match="ask again in a moment"):
        operations.checksum(0, told.append)
    cluster.leader.up.leave_domain()
    assert told == [None] * ASKED_MAX
    with pytest.raises(CannotError, match="no member of a domain"):
        operations.checksum(0, told.append)
