"""A broker that is left: dropped, closed twice, or in a loop that ends. What its holders gave back by then is sent."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import subprocess
import sys
import threading
import warnings
import weakref
from collections.abc import Iterator

import pytest

from tests.client.conftest import MakeBroker, MakeServer
from tests.client.scripted import Time, turns
from tests.client.test_bridge import Serving
from tests.client.test_release import held
from ticketing.client import Ticket, TicketBroker, TicketError, TicketErrorKind, bridge
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


FORGETFUL = """
import sys
from ticketing.client import TicketBroker

def work():
    broker = TicketBroker([sys.argv[1]])
    return [broker.acquire_sync(f"key-{number}", 5, 30, 0) for number in range(6)]

work()
"""


def test_a_program_that_forgets_broker_and_tickets_as_its_last_step_leaves_no_key_held(
    serving: Serving,
) -> None:
    done = subprocess.run([sys.executable, "-c", FORGETFUL, serving.address], check=False, timeout=30)
    assert done.returncode == 0
    serving.wait_until(lambda: not serving.server.sessions)
    assert nothing_is_held(serving)


async def test_a_release_from_another_loop_keeps_no_broker_once_it_is_answered(serving: Serving) -> None:
    broker = TicketBroker([serving.address])
    ticket = await asyncio.to_thread(broker.acquire_sync, "key-0", 5, 30, 0)
    gc.disable()
    try:
        assert await ticket.release() is True
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            left = weakref.ref(broker)
            del broker, ticket
            for _ in range(100):
                if left() is None:
                    break
                await asyncio.sleep(0.01)
        assert left() is None
    finally:
        gc.enable()
    serving.wait_until(lambda: not serving.server.sessions)


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


def test_tasks_that_are_cancelled_with_their_loop_give_back_what_they_hold(
    serving: Serving, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker is nobody's to close: `asyncio.run` cancels its connections in any order with those who hold."""
    brokers = []

    async def hold(broker: TicketBroker, key: str, held: asyncio.Event) -> None:
        async with await broker.acquire(key, 5, 30, 0):
            held.set()
            await asyncio.get_running_loop().create_future()

    async def work() -> None:
        broker = TicketBroker([serving.address])
        brokers.append(broker)
        events = [asyncio.Event() for _ in KEYS]
        pairs = zip(KEYS, events, strict=True)
        holding = [asyncio.ensure_future(hold(broker, key, event)) for key, event in pairs]
        await asyncio.gather(*(event.wait() for event in events))
        assert not any(call.done() for call in holding)

    with caplog.at_level(logging.ERROR, "asyncio"):
        asyncio.run(work())
        brokers.clear()
        gc.collect()
    assert not caplog.records
    serving.wait_until(lambda: not serving.server.sessions)
    assert nothing_is_held(serving)


async def test_a_close_on_another_loop_ends_the_broker_s_thread_though_it_is_cancelled(
    serving: Serving,
) -> None:
    before = set(threading.enumerate())
    broker = TicketBroker([serving.address])
    ticket = await asyncio.to_thread(broker.acquire_sync, "key-0", 5, 30, 0)
    (thread,) = [t for t in set(threading.enumerate()) - before if t.name == "ticketing-loop"]
    for session in serving.server.sessions:
        session.mute = True
    ticket.close()
    closing = asyncio.ensure_future(broker.aclose())
    await turns()
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    thread.join(5)
    assert not thread.is_alive()


async def test_a_socket_is_known_to_a_fork_before_it_is_connected(new_server: MakeServer) -> None:
    server = await new_server()
    loop = asyncio.get_running_loop()
    connect = loop.sock_connect
    known: list[bool] = []
    with pytest.MonkeyPatch.context() as patch:

        async def watched(sock: object, address: object) -> None:
            cluster = broker._cluster
            assert cluster is not None
            known.append(sock in cluster.sockets)
            await connect(sock, address)  # type: ignore[arg-type]

        patch.setattr(loop, "sock_connect", watched)
        async with TicketBroker([server.address]) as broker:
            assert await broker.wait_ready(5)
    assert known
    assert all(known)


def test_a_thread_does_not_wait_for_a_loop_that_nobody_runs(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bridge, "_POLL_S", 0.01)
    loop = asyncio.new_event_loop()
    with contextlib.closing(loop):
        broker = TicketBroker([serving.address])
        loop.run_until_complete(broker.wait_ready(5))
        call: bridge.Call[bool] = bridge.Call(loop, lambda: broker.wait_ready(5), None)
        with pytest.raises(TicketError, match="stopped running; nothing was sent") as caught:
            call.wait()
        assert caught.value.kind == TicketErrorKind.CLOSED
        loop.run_until_complete(broker.aclose())


def test_a_release_on_a_new_loop_is_answered_though_one_was_left_in_the_old(serving: Serving) -> None:
    def work() -> None:
        broker = TicketBroker([serving.address])
        old = asyncio.new_event_loop()
        ticket = old.run_until_complete(broker.acquire("key-0", 5, 30, 0))
        for session in serving.server.sessions:
            session.mute = True
        left = old.create_task(ticket.release())
        old.run_until_complete(asyncio.sleep(0))
        assert not left.done()
        left._log_destroy_pending = False  # type: ignore[attr-defined]
        old.close()

        async def again() -> None:
            async with asyncio.timeout(5):
                await ticket.release()
            await broker.aclose()

        asyncio.run(again())

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        work()  # its first loop leaves sockets behind
        gc.collect()
    assert nothing_is_held(serving)


async def test_a_session_that_is_reset_while_it_ends_is_over_all_the_same(
    new_server: MakeServer, new_broker: MakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its loop has yet to hear of the reset, and shutting the socket down fails."""
    server = await new_server()
    broker = new_broker(server)
    ticket = await held(server, broker)
    ticket.close()
    await server.next(frames.RELEASE)
    cluster = broker._cluster
    assert cluster is not None
    sessions = list(cluster._sessions)

    def fails() -> None:
        raise OSError(107, "not connected")

    for session in sessions:
        monkeypatch.setattr(session._transport, "write_eof", fails)
    cluster.leave()
    assert sessions
    assert all(session.ended.done() for session in sessions)
    await turns()
    assert not server.open_sessions
