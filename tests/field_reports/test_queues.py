"""What became of queues elsewhere: entries left behind, order lost, leases eaten by the wait.

Field reports F001, F002, F008, F041, F047, F160.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time

import pytest

from tests.e2e.cluster import NodeProcess
from tests.field_reports.conftest import OpenSession
from tests.field_reports.queueing import until_waiting, waiters
from ticketing.client import TicketBroker, TicketError


async def test_connections_cut_right_behind_their_acquire_leave_no_entry(
    node: NodeProcess, broker: TicketBroker, open_session: OpenSession
) -> None:
    held = await broker.acquire("F001", 0, 60, 0)
    for number in range(200):
        session = await open_session()
        session.acquire(b"F001", 0 if number % 2 else 200, 250)
        if number % 3:
            await asyncio.sleep(0)
        await session.close()
    await until_waiting(node, "F001", 0)
    assert await held.release() is True
    # Nobody of them holds it, nobody of them will: a single try has it.
    async with await broker.acquire("F001", 0, 30, 0) as ticket:
        assert ticket.token > held.token


async def test_a_wait_that_ran_out_leaves_no_entry(node: NodeProcess, broker: TicketBroker) -> None:
    held = await broker.acquire("F002", 0, 60, 0)
    began = time.monotonic()
    ends = await asyncio.gather(
        *(broker.acquire("F002", 1, 250, 0) for _ in range(3)), return_exceptions=True
    )
    assert time.monotonic() - began >= 1
    assert [isinstance(end, TicketError) and str(end.kind) for end in ends] == ["timeout"] * 3
    assert await waiters(node, "F002") == 0
    assert await held.release() is True
    async with await broker.acquire("F002", 0, 30, 0):
        pass


async def test_the_wait_takes_nothing_from_the_lease(broker: TicketBroker, other: TicketBroker) -> None:
    first = await broker.acquire("F008", 0, 2, 0)
    # Two seconds of waiting behind a lease that is never released; a lease of two seconds all the same.
    second = await other.acquire("F008", 30, 2, 1.5)
    granted = time.monotonic()
    assert second.token > first.token
    assert first.lost
    third = await broker.acquire("F008", 30, 2, 0)
    assert time.monotonic() - granted >= 1.5
    assert second.lost
    assert await third.release() is True
    assert await first.release() is False
    assert await second.release() is False


async def test_whoever_releases_and_asks_again_stands_last(
    node: NodeProcess, open_session: OpenSession
) -> None:
    sessions = [await open_session() for _ in range(8)]
    held = await sessions[0].acquire(b"F041", 60, 60)
    waiting = []
    for number, session in enumerate(sessions[1:], 1):
        waiting.append(session.acquire(b"F041", 60, 60))
        await until_waiting(node, "F041", number)
    order = []
    for turn in itertools.islice(itertools.cycle(range(8)), 80):
        session = sessions[turn]
        # In one piece: nobody can come in between, and still the one asking again goes to the end.
        released = session.release(held.token, b"F041")
        waiting.append(session.acquire(b"F041", 60, 60))
        assert (await released).what == "R"
        following = waiting.pop(0)
        granted = await following
        assert granted.what == "G"
        assert not any(future.done() for future in waiting)
        order.append(granted.token)
        held = granted
    assert order == sorted(order)
    assert order[-1] - order[0] == len(order) - 1  # and nothing was granted in between


async def test_two_keys_in_opposite_order_end_by_the_wait_and_give_back(
    broker: TicketBroker, other: TicketBroker
) -> None:
    rng = random.Random(160)
    ended = {"both": 0, "timeout": 0}

    async def pairs(who: TicketBroker, first: str, second: str) -> None:
        for _ in range(4):
            try:
                async with await who.acquire(first, 5, 30, 0):
                    await asyncio.sleep(rng.uniform(0, 0.02))
                    async with await who.acquire(second, 1, 30, 0):
                        ended["both"] += 1
            except TicketError as error:
                if error.kind != "timeout":
                    raise
                ended["timeout"] += 1

    async with asyncio.timeout(30):
        await asyncio.gather(pairs(broker, "F160a", "F160b"), pairs(other, "F160b", "F160a"))
    assert sum(ended.values()) == 8
    for key in ("F160a", "F160b"):
        async with await broker.acquire(key, 0, 30, 0):
            pass


@pytest.mark.parametrize("held", ["job1", "job/1", "JOB", "jo\u0308b"])
async def test_keys_are_equal_or_independent(broker: TicketBroker, held: str) -> None:
    async with await broker.acquire(held, 0, 30, 0):
        for key in ("job", "job/", "j\u00f6b"):
            async with await broker.acquire(key, 0, 30, 0):
                pass
