"""The client on real nodes: rounds of cancels and cut connections, a leader that dies, leases that go on or end."""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from tests.client.proxy import Proxy
from tests.client.rounds import Rounds, left_behind
from tests.client.scripted import turns
from tests.e2e.cluster import Cluster
from ticketing.client import Counters, Ticket, TicketBroker, TicketError, connection

pytestmark = pytest.mark.process

KEYS = [f"seat/{number}" for number in range(6)]


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    cluster = Cluster(tmp_path / "cluster")
    try:
        cluster.start()
        await cluster.leader()
        yield cluster
    finally:
        cluster.end()


@pytest.fixture(autouse=True)
async def nothing_unheard() -> AsyncIterator[None]:
    """What reaches the exception handler, or a task that is left, fails the test."""
    heard: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: heard.append(context))
    before = asyncio.all_tasks()
    yield
    await turns()
    gc.collect()
    assert not heard, heard[:3]
    left = asyncio.all_tasks() - before - {asyncio.current_task()}
    assert {task.get_name() for task in left} == set()


async def nothing_stays_held(cluster: Cluster, broker: TicketBroker) -> None:
    """Judged by another client: whatever was held is free long before a lease could have ended."""
    # Only while there is no leader can it take longer than the tries of one release have.
    assert await broker.settled(6) or await broker.settled(6)
    assert not left_behind(broker)
    async with TicketBroker(cluster.addresses, token=cluster.token) as judge:
        assert await judge.wait_ready(10)
        for key in KEYS:
            ticket = await judge.acquire(key, 3, 5, 0)
            assert await ticket.release() is True


async def test_random_cancels_and_cuts_leave_no_key_held(cluster: Cluster) -> None:
    rng = random.Random(11)
    proxies = [Proxy(address) for address in cluster.addresses]
    for proxy in proxies:
        await proxy.start()
    calm = False

    async def cutter() -> None:
        while not calm:
            await asyncio.sleep(rng.uniform(0, 0.1))
            rng.choice(proxies).cut_one(rng)

    with mock.patch.multiple(connection, BACKOFF_MIN_S=0.005, BACKOFF_MAX_S=0.02):
        async with TicketBroker([proxy.address for proxy in proxies], token=cluster.token) as broker:
            assert await broker.wait_ready(10)
            rounds = Rounds(broker, KEYS, rng, leave_s=0.02)
            cutting = asyncio.ensure_future(cutter())
            await asyncio.gather(rounds.run(3000), asyncio.to_thread(rounds.run_in_thread, 50))
            calm = True
            await cutting
            await nothing_stays_held(cluster, broker)
    assert not rounds.faults, rounds.faults[:5]
    assert rounds.outcomes["held"] > 100, rounds.outcomes
    assert rounds.outcomes["left"] > 100, rounds.outcomes
    for proxy in proxies:
        await proxy.stop()


async def test_a_leader_that_dies_takes_no_grant_along_and_leaves_no_ghost(cluster: Cluster) -> None:
    rng = random.Random(12)
    leader = await cluster.leader()
    async with TicketBroker(cluster.addresses, token=cluster.token) as broker:
        assert await broker.wait_ready(10)
        kept = await broker.acquire("kept", 5, 60, 0)
        rounds = Rounds(broker, KEYS, rng, leave_s=0.02)
        running = asyncio.ensure_future(rounds.run(3000))
        await asyncio.sleep(0.3)
        leader.kill()
        assert not running.done()
        await running
        await cluster.leader(cluster.others(leader))
        assert await broker.wait_ready(10)
        await nothing_stays_held(cluster, broker)
        assert not rounds.faults, rounds.faults[:5]
        assert rounds.outcomes["held"] > 100, rounds.outcomes
        # What was held before is held after, and can be extended and released.
        with pytest.raises(TicketError):
            await broker.acquire("kept", 0, 5, 0)
        assert await kept.extend() is True
        assert not kept.lost
        assert await kept.release() is True


async def test_a_lease_goes_on_while_the_block_runs_and_ends_without(cluster: Cluster) -> None:
    counters = Counters()
    async with TicketBroker(cluster.addresses, token=cluster.token, on_event=counters) as broker:
        assert await broker.wait_ready(10)

        async def without() -> Ticket:
            async with await broker.acquire("without", 5, 1, 0) as ticket:
                assert await ticket.lost.wait() is True
                # Until the leader's own end the key is nobody else's; then it is the next one's.
                async with await broker.acquire("without", 5, 5, 0) as second:
                    assert second.token > ticket.token
            return ticket

        async with await broker.acquire("with", 5, 1, 0, auto_extend=True) as ticket:
            other = asyncio.ensure_future(without())
            await asyncio.sleep(2.2)
            assert not ticket.lost
            with pytest.raises(TicketError):
                await broker.acquire("with", 0, 5, 0)
        assert await ticket.release() is True
        assert await (await other).release() is False
    assert counters.holding == 0
    assert counters.extended["extended"] >= 4
    assert counters.ended == {"released": 2, "not_held": 1}
