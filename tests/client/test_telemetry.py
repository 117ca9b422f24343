"""Events for those who count: what they say, and that a callback cannot hurt."""

from __future__ import annotations

import asyncio
import gc
import logging
import warnings

import pytest

from tests.client.conftest import MakeBroker, MakeServer
from tests.client.locking import LockServer
from tests.client.scripted import Time, turns, until
from tests.client.test_bridge import Serving
from ticketing.client import Counters, Event, EventKind, TicketBroker, TicketError


async def test_waits_holds_and_timeouts_are_counted(
    new_server: MakeServer, new_broker: MakeBroker, clock: Time
) -> None:
    server = await new_server()
    LockServer(server)
    counters = Counters()
    broker = new_broker(server, on_event=counters)
    assert await broker.wait_ready(5)
    await until(lambda: counters.sessions == 2)
    async with await broker.acquire("key", 5, 30, 0) as ticket:
        assert (counters.waiting, counters.holding, counters.acquired) == (0, 1, 1)
        with pytest.raises(TicketError):
            await broker.acquire("key", 0, 30, 0)
        assert counters.failed == {"timeout": 1}
        waiting = asyncio.ensure_future(broker.acquire("key", 20, 30, 0))
        await turns()
        assert counters.waiting == 1
        await clock.pass_by(4, server)
        assert await ticket.extend() is True
    second = await waiting
    assert (counters.waiting, counters.holding, counters.acquired) == (0, 1, 2)
    assert 4 <= counters.waited_s < 6
    assert 4 <= counters.held_s < 6
    assert counters.extended == {"extended": 1}
    await second.release()
    await second.release()
    assert counters.ended == {"released": 2}
    assert counters.holding == 0
    await broker.aclose()
    assert counters.sessions == 0


async def test_a_hold_ends_once_however_it_ends(
    new_server: MakeServer, new_broker: MakeBroker, clock: Time
) -> None:
    server = await new_server()
    locks = LockServer(server)
    counters = Counters()
    broker = new_broker(server, on_event=counters)
    ticket = await broker.acquire("key", 5, 30, 0)
    locks.free(b"key")
    assert await ticket.release() is False
    assert counters.ended == {"not_held": 1}
    ticket = await broker.acquire("key", 5, 30, 0)
    answer, server.answer = server.answer, lambda asked: None
    call = asyncio.ensure_future(ticket.release())
    await turns()
    await clock.pass_by(5.1, server)
    with pytest.raises(TicketError):
        await call
    server.answer = answer
    assert await ticket.release() is True
    assert counters.ended == {"not_held": 1, "unanswered": 1}
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        del ticket
        await broker.acquire("key", 5, 30, 0)
        gc.collect()
    await turns()
    assert counters.ended == {"not_held": 1, "unanswered": 1, "collected": 1}
    assert counters.holding == 0
    # A release by key and token is no hold of this broker's.
    assert await broker.release("key", 99) is False
    assert counters.ended["not_held"] == 1


async def test_waits_that_are_left_are_told_with_their_reason(
    new_server: MakeServer, new_broker: MakeBroker
) -> None:
    server = await new_server()
    LockServer(server)
    counters = Counters()
    broker = new_broker(server, on_event=counters)
    plain = asyncio.ensure_future(broker.acquire("key", 5, 30, 0))
    await asyncio.sleep(0)
    plain.cancel()
    await asyncio.wait([plain])
    assert counters.failed == {"cancelled": 1}
    async with await broker.acquire("key", 5, 30, 0):
        sent = asyncio.ensure_future(broker.acquire("key", 5, 30, 0))
        await turns()
        sent.cancel()
        await asyncio.wait([sent])
    assert counters.failed == {"cancelled": 1, "indeterminate": 1}
    with pytest.raises(TicketError):
        await broker.acquire("key", -1, 30, 0)
    # Input that is refused was no wait.
    assert counters.waiting == 0
    assert sum(counters.failed.values()) == 2


async def test_a_callback_that_raises_is_logged_and_breaks_nothing(
    new_server: MakeServer, new_broker: MakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    server = await new_server()
    locks = LockServer(server)
    seen: list[Event] = []

    def bad(event: Event) -> None:
        seen.append(event)
        raise ValueError(event.kind)

    broker = new_broker(server, on_event=bad)
    with caplog.at_level(logging.WARNING, "ticketing.client"):
        assert await broker.wait_ready(5)
        for number in range(5):
            async with await broker.acquire(f"key-{number}", 5, 30, 0):
                pass
    assert locks.holder(b"key-0") is None
    kinds = [event.kind for event in seen if event.key]
    assert kinds == [EventKind.ASKED, EventKind.ACQUIRED, EventKind.ENDED] * 5
    assert sum("callback raised" in record.message for record in caplog.records) == 1


async def test_what_is_no_callback_is_refused() -> None:
    with pytest.raises(TicketError, match="on_event") as caught:
        TicketBroker(["127.0.0.1:1"], on_event=7)  # type: ignore[arg-type]
    assert caught.value.kind == "invalid_input"


def test_calls_from_threads_are_told_as_well() -> None:
    serving = Serving()
    counters = Counters()
    try:
        with TicketBroker([serving.address], on_event=counters) as broker:
            with broker.acquire_sync("key", 5, 30, 0):
                assert counters.holding == 1
            assert counters.ended == {"released": 1}
    finally:
        serving.stop()
