"""Asking a cluster that changes while it is asked."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.tui.fake_cluster import FIRST_TOKEN, FakeCluster, Lock, crowd
from ticketing.cli.admin_client import AdminAccess, AdminError
from ticketing.tui.planes import Planes, key_path
from ticketing.tui.reader import Reader
from ticketing.tui.want import Want


class Clock:
    def __init__(self) -> None:
        self.now_ns = 1_000_000_000

    def __call__(self) -> int:
        return self.now_ns


@asynccontextmanager
async def reading(cluster: FakeCluster, clock: Clock | None = None) -> AsyncIterator[Reader]:
    reader = Reader(cluster.access(), patience_s=0.2, **({"clock_ns": clock} if clock is not None else {}))
    try:
        yield reader
    finally:
        await reader.aclose()


def asked(cluster: FakeCluster, word: str) -> int:
    return sum(word in path for node in cluster.nodes.values() for path in node.asked)


async def test_one_reading_has_every_node_and_the_longest_queues_first() -> None:
    async with FakeCluster() as cluster, reading(cluster) as reader:
        cluster.hold(crowd("b", FIRST_TOKEN + 5, 3), Lock("old", FIRST_TOKEN), Lock("new", FIRST_TOKEN + 9))
        found = await reader.read(Want())
        assert [node.place for node in found.nodes] == ["node-1", "node-2", "node-3"]
        assert all(node.answers for node in found.nodes)
        assert found.locks is not None
        assert [row.key for row in found.locks.locks] == ["b", "old", "new"]


async def test_locks_are_asked_of_the_leader_alone() -> None:
    async with FakeCluster() as cluster, reading(cluster) as reader:
        cluster.leader = "node-3"
        await reader.read(Want())
        assert not any("/v1/locks" in path for n in (1, 2) for path in cluster.nodes[f"node-{n}"].asked)


async def test_a_lead_that_moves_between_two_questions_is_followed() -> None:
    async with FakeCluster() as cluster, reading(cluster) as reader:
        cluster.hold(Lock("k", FIRST_TOKEN))
        cluster.odd = {"serving": True, "place": "node-1"}
        stale = cluster.status(cluster.nodes["node-1"])
        cluster.odd = {}
        cluster.elect("node-2")
        cluster.odd = {**stale, "place": "node-1"}
        found = await reader.read(Want())
        assert found.locks is not None
        assert [row.key for row in found.locks.locks] == ["k"]


async def test_without_a_leader_the_last_list_stays_with_the_reason() -> None:
    async with FakeCluster() as cluster, reading(cluster) as reader:
        cluster.hold(Lock("k", FIRST_TOKEN))
        await reader.read(Want())
        cluster.leader = None
        found = await reader.read(Want())
        assert found.locks is not None
        assert [row.key for row in found.locks.locks] == ["k"]
        assert found.locks.error == "no leader serves"
        assert found.leader_address == ""
        assert found.fresh_ns < found.taken_ns


async def test_another_order_does_not_show_the_former_ones_rows() -> None:
    async with FakeCluster() as cluster, reading(cluster) as reader:
        cluster.hold(Lock("k", FIRST_TOKEN))
        await reader.read(Want())
        cluster.leader = None
        found = await reader.read(Want(order="key"))
        assert found.locks is not None
        assert found.locks.locks == ()


async def test_a_list_by_key_of_a_large_table_is_asked_for_rarely() -> None:
    clock = Clock()
    async with FakeCluster() as cluster, reading(cluster, clock) as reader:
        cluster.hold_many(60_000)
        want = Want(order="key")
        for _ in range(3):
            await reader.read(want)
            clock.now_ns += 1_000_000_000
        assert asked(cluster, "/v1/locks?") == 1
        await reader.read(want)
        assert asked(cluster, "/v1/locks?") == 2
        await reader.read(want, hurry=True)
        assert asked(cluster, "/v1/locks?") == 3
        await reader.read(Want(order="key", after="event/000100"))
        assert asked(cluster, "/v1/locks?") == 4


async def test_a_list_by_queue_is_asked_for_every_time() -> None:
    async with FakeCluster() as cluster, reading(cluster) as reader:
        cluster.hold_many(60_000)
        for _ in range(2):
            await reader.read(Want())
        found = await reader.read(Want())
        assert asked(cluster, "order=queue") == 3
        assert found.locks is not None
        assert len(found.locks.locks) == 100, "no more than what is wanted"


async def test_a_key_in_full_whatever_is_in_it() -> None:
    async with FakeCluster() as cluster, reading(cluster) as reader:
        for key in ("a/b?c#d&e=f%2f", "..", ".", "좌석", "\u202e", "+", "\\", "'\""):
            cluster.hold(crowd(key, FIRST_TOKEN, 2))
            found = await reader.read(Want(key=key))
            assert found.detail is not None
            assert found.detail.error == ""
            assert found.detail.waiting == 2, key


async def test_an_older_node_that_lists_no_locks_is_told() -> None:
    async with FakeCluster() as cluster, reading(cluster) as reader:
        for node in cluster.nodes.values():
            assert node.runner is not None
        await cluster.nodes["node-1"].stop()
        await cluster.nodes["node-1"].start(
            port=int(reader._nodes["node-1"].address.rpartition(":")[2]), lists=False
        )
        found = await reader.read(Want())
        assert found.locks is not None
        assert found.locks.error == "this node's version does not list locks"


async def test_a_silent_node_is_asked_once_and_counts_when_it_answers() -> None:
    async with FakeCluster() as cluster, reading(cluster) as reader:
        cluster.nodes["node-2"].deaf.clear()
        for _ in range(3):
            await reader.read(Want())
        found = await reader.read(Want())
        assert cluster.nodes["node-2"].asked == ["/v1/status"]
        assert found.nodes[1].error == "no answer for 0 s"
        cluster.nodes["node-2"].deaf.set()
        for _ in range(20):
            found = await reader.read(Want())
            if found.nodes[1].answers:
                break
        assert found.nodes[1].answers


async def test_an_address_that_a_node_tells_is_used_on_loopback_or_over_verified_tls_alone() -> None:
    assert Planes("t").may_learn("127.0.0.1:7225")
    assert not Planes("t").may_learn("10.0.0.1:7225")
    assert not Planes("t", "insecure-skip-verify").may_learn("10.0.0.1:7225")
    assert Planes("t", "system-roots").may_learn("10.0.0.1:7225")
    assert not Planes("t").may_learn("no address")
    async with FakeCluster() as cluster, reading(cluster) as reader:
        await reader.read(Want())
        cluster.nodes["node-2"].address = "10.255.255.1:7225"
        found = await reader.read(Want())
        assert found.nodes[1].address.startswith("127.0.0.1:")


async def test_a_place_that_no_file_names_is_found_by_its_leader() -> None:
    async with FakeCluster() as cluster:
        access = cluster.access()
        reader = Reader(AdminAccess(access.nodes[:1], access.token))
        try:
            await reader.read(Want())
            found = await reader.read(Want())
            assert [node.place for node in found.nodes] == ["node-1", "node-2", "node-3"]
        finally:
            await reader.aclose()


def test_a_ca_file_that_is_none_is_told_at_once() -> None:
    with pytest.raises(AdminError) as told:
        Planes("t", "/no/such/file.pem")
    assert told.value.code == "tls"


def test_keys_stand_percent_encoded_in_addresses() -> None:
    assert key_path("a/b c") == "/v1/locks/a%2Fb%20c"
    assert key_path("..") == "/v1/locks/%2E%2E"


async def test_answers_without_end_or_sense_are_errors() -> None:
    async with FakeCluster() as cluster:
        planes = Planes("wrong")
        try:
            with pytest.raises(AdminError) as told:
                await planes.call(cluster.nodes["node-1"].address, "GET", "/v1/status")
            assert told.value.code == "unauthorized"
            await cluster.nodes["node-1"].stop()
            with pytest.raises(AdminError) as told:
                await planes.call(cluster.nodes["node-1"].address, "GET", "/v1/status")
            assert str(told.value) == "connection refused"
        finally:
            await planes.aclose()
