"""Nothing of a key is kept once it was released: the short form of `benchmarks/client_memory.py`."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections import Counter
from pathlib import Path

import pytest

from tests.client.conftest import MakeBroker, MakeServer
from tests.client.locking import LockServer
from tests.client.scripted import Server, turns
from ticketing import client
from ticketing.client import TicketBroker, TicketError

ROOM = Path(client.__file__).parent


def objects() -> Counter[str]:
    """The client's own, by class."""
    gc.collect()
    kinds = (type(thing) for thing in gc.get_objects())
    return Counter(kind.__qualname__ for kind in kinds if str(kind.__module__).startswith("ticketing."))


def client_bytes() -> int:
    """Allocated by lines of the client and of the protocol, and still there."""
    files = [tracemalloc.Filter(True, f"{room}/*") for room in (ROOM, ROOM.parent / "protocol")]
    statistics = tracemalloc.take_snapshot().filter_traces(files).statistics("filename")
    return sum(statistic.size for statistic in statistics)


async def use_new_keys(server: Server, broker: TicketBroker, first: int, count: int) -> None:
    async def work(number: int) -> None:
        async with await broker.acquire(f"key-{number}", 5, 30, 0, auto_extend=True) as ticket:
            if number % 5 == 0:
                await ticket.extend()
            if number % 5 == 1:
                with pytest.raises(TicketError):
                    await broker.acquire(ticket.key, 0, 30, 0)
            if number % 5 == 2:
                waiting = asyncio.ensure_future(broker.acquire(ticket.key, 5, 30, 0))
                await turns(2)
                waiting.cancel()
                await asyncio.wait([waiting])

    for number in range(first, first + count, 25):
        await asyncio.gather(*[work(number + offset) for offset in range(25)])
    assert await broker.settled(5)
    await turns()
    server.log.clear()
    gc.collect()


async def test_thousands_of_new_keys_leave_nothing(new_server: MakeServer, new_broker: MakeBroker) -> None:
    server = await new_server()
    LockServer(server)
    broker = new_broker(server)
    await use_new_keys(server, broker, 0, 500)
    before = objects()
    tracemalloc.start()
    try:
        await use_new_keys(server, broker, 500, 500)
        allocated = client_bytes()
        await use_new_keys(server, broker, 1000, 2000)
        # What was given up is remembered for a while, within a bound: its owners, a few dozen bytes each.
        assert client_bytes() - allocated < 2000 // 5 * 400 + 10_000
    finally:
        tracemalloc.stop()
    after = objects()
    assert after - before == Counter()
