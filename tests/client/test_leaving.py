"""A broker that is left: dropped, closed twice, or in a loop that ends. What its holders gave back by then is sent."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Iterator

import pytest

from tests.client.conftest import MakeBroker, MakeServer
from tests.client.scripted import Time, turns
from tests.client.test_bridge import Serving
from tests.client.test_release import held
from ticketing.client import Ticket, TicketBroker
from ticketing.protocol import frames

KEYS = [f"key-{number}" for number in range(6)]


@pytest.fixture
def serving() -> Iterator[Serving]:
    serving = Serving()
    yield serving
    serving.stop()


def nothing_is_held(serving: Serving) -> bool:
    return all(serving.locks.holder(key.encode()) is None for key in KEYS)


async def test_releases_queued_in_the_turn_in_which_the_broker_is_left_are_written(
    new_server: MakeServer, new_broker: MakeBroker
) -> None:
    server = await new_server()
    broker = new_broker(server)
    tickets = [await held(server, broker, token) for token in range(1, 7)]
    cluster = broker._cluster
    assert cluster is not None
    for ticket in tickets:
        ticket.close()
    cluster.leave()
    released = [(await server.next(frames.RELEASE)).ident for _ in tickets]
    assert sorted(released) == list(range(1, 7))


async def test_an_acquire_queued_in_that_turn_is_not(new_server: MakeServer, new_broker: MakeBroker) -> None:
    server = await new_server()
    broker = new_broker(server)
    ticket = await held(server, broker, 3)
    cluster = broker._cluster
    assert cluster is not None
    waiting = [asyncio.ensure_future(broker.acquire(key, 5, 30, 0)) for key in KEYS]
    asyncio.get_running_loop().call_soon(ticket.close)
    asyncio.get_running_loop().call_soon(cluster.leave)
    await asyncio.gather(*waiting, return_exceptions=True)
    await turns()
    sent = [asked.key for asked in server.log if asked.opcode == frames.Q]
    cancelled = [asked.key for asked in server.log if asked.opcode == frames.CANCEL]
    assert sent[1:] == cancelled == [b"key-0"]
    assert server.log[-1].ident == 3 or server.log[-2].ident == 3


def test_a_function_that_forgets_broker_and_tickets_leaves_no_key_held(serving: Serving) -> None:
    def work() -> list[Ticket]:
        broker = TicketBroker([serving.address])
        return [broker.acquire_sync(key, 5, 30, 0) for key in KEYS]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        assert len(work()) == len(KEYS)
        gc.collect()
        serving.wait_until(lambda: not serving.server.sessions)
    assert nothing_is_held(serving)


async def test_two_who_close_at_once_are_both_done_with_the_last_answer(
    new_server: MakeServer, new_broker: MakeBroker, clock: Time
) -> None:
    server = await new_server()
    broker = new_broker(server)
    ticket = await held(server, broker)
    ticket.close()
    asked = await server.next(frames.RELEASE)
    closing = [asyncio.ensure_future(broker.aclose()) for _ in range(2)]
    await turns()
    assert not any(call.done() for call in closing)
    asked.released()
    async with asyncio.timeout(2):
        await asyncio.gather(*closing)
    assert await ticket.release() is True


async def test_a_close_that_is_cancelled_ends_all_at_once_and_the_other_one_without_an_error(
    new_server: MakeServer, new_broker: MakeBroker
) -> None:
    server = await new_server()
    broker = new_broker(server)
    ticket = await held(server, broker)
    ticket.close()
    await server.next(frames.RELEASE)
    closing = [asyncio.ensure_future(broker.aclose()) for _ in range(2)]
    await turns()
    closing[0].cancel()
    await closing[1]
    with pytest.raises(asyncio.CancelledError):
        await closing[0]
    await turns()
    assert not server.open_sessions
