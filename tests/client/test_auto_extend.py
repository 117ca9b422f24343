"""Automatic extension while the block runs: when it asks, when it stops, and that nothing of it is left behind."""

from __future__ import annotations

import asyncio
import gc
import time
import warnings
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.client.conftest import MakeBroker, MakeServer
from tests.client.locking import LockServer
from tests.client.scripted import Server, Time, turns
from tests.client.test_bridge import Serving
from ticketing.client import Ticket, TicketBroker, TicketError
from ticketing.client.auto_extend import AutoExtension, extend_at_ns, pause_ns
from ticketing.client.clock import SECOND
from ticketing.client.cluster import Cluster
from ticketing.protocol import frames


async def acquired(
    server: Server, broker: TicketBroker, lease: int = 30, auto: bool | float = True
) -> Ticket:
    call = asyncio.ensure_future(broker.acquire("key", 5, lease, 0, auto_extend=auto))
    (await server.next(frames.Q)).grant(7)
    return await call


def extensions(server: Server) -> int:
    return sum(asked.opcode == frames.EXTEND for asked in server.log)


def cluster_of(broker: TicketBroker) -> Cluster:
    assert broker._cluster is not None
    return broker._cluster


def timers() -> list[asyncio.TimerHandle]:
    """Those of automatic extensions that are still to fire."""
    scheduled: list[asyncio.TimerHandle] = asyncio.get_running_loop()._scheduled  # type: ignore[attr-defined]
    return [
        timer
        for timer in scheduled
        if not timer.cancelled() and isinstance(getattr(timer._callback, "__self__", None), AutoExtension)  # type: ignore[attr-defined]
    ]


@given(end_ns=st.integers(0, 1 << 60), lease=st.integers(1, 250))
def test_it_asks_when_a_third_is_over_and_again_often_enough(end_ns: int, lease: int) -> None:
    left = end_ns - extend_at_ns(end_ns, lease)
    assert abs(left - lease * 998_000_000 * 2 / 3) <= 1
    # Several tries fit into what is left.
    assert left >= 6 * pause_ns(lease)


async def test_the_lease_goes_on_while_the_block_runs(
    new_server: MakeServer, new_broker: MakeBroker, clock: Time
) -> None:
    server = await new_server()
    locks = LockServer(server)
    broker = new_broker(server)
    async with await broker.acquire("key", 5, 3, 0, auto_extend=True) as ticket:
        for _ in range(20):
            await clock.pass_by(1, server)
            assert not ticket.lost
            assert ticket.conservative_remaining() > 0.9
    assert 10 <= extensions(server) <= 21
    assert all(asked.lease == 3 for asked in server.log if asked.opcode == frames.EXTEND)
    assert locks.holder(b"key") is None
    asked = len(server.log)
    await clock.pass_by(6, server)
    assert len(server.log) == asked
    assert not timers()


async def test_without_it_and_outside_of_a_block_nothing_is_extended(
    new_server: MakeServer, new_broker: MakeBroker, clock: Time
) -> None:
    server = await new_server()
    LockServer(server)
    broker = new_broker(server)
    for auto, entered in ((False, True), (True, False)):
        ticket = await broker.acquire("key", 5, 3, 0, auto_extend=auto)
        if entered:
            await ticket.__aenter__()
        await clock.pass_by(4, server)
        assert ticket.lost
        await ticket.release()
    assert extensions(server) == 0


async def test_the_first_is_asked_for_when_a_third_is_over(
    new_server: MakeServer, new_broker: MakeBroker, clock: Time
) -> None:
    server = await new_server()
    broker = new_broker(server)
    ticket = await acquired(server, broker, lease=30)
    async with ticket:
        await clock.pass_by(9.9, server)
        assert server.quiet
        await clock.pass_by(0.4, server)
        (await server.next(frames.EXTEND)).extended()
        await turns()
        assert ticket.conservative_remaining() > 29
        await clock.pass_by(9.5, server)
        assert server.quiet
        server.answer = lambda asked: asked.released()


async def test_an_unanswered_one_is_asked_for_again_and_nothing_after_the_end(
    new_server: MakeServer, new_broker: MakeBroker, clock: Time
) -> None:
    server = await new_server()
    broker = new_broker(server)
    ticket = await acquired(server, broker, lease=9)
    async with ticket:
        told = asyncio.ensure_future(ticket.lost.wait())
        for _ in range(35):
            await clock.pass_by(0.25, server)
        await clock.pass_by(0.15, server)
        tries = extensions(server)
        assert tries >= 4
        await clock.pass_by(0.5, server)
        assert ticket.lost
        assert await told is True
        await clock.pass_by(10, server)
        assert extensions(server) == tries
        assert not timers()
        assert not cluster_of(broker).extending
        assert not len(cluster_of(broker).errands)
        # The server wakes up and answers all of it, in order.
        for asked in [asked for asked in server.log if asked.opcode == frames.EXTEND]:
            asked.not_held()
        server.answer = lambda asked: asked.not_held()
    assert await ticket.release() is False


async def test_an_answer_after_the_end_does_not_revive_the_ticket(
    new_server: MakeServer, new_broker: MakeBroker, clock: Time
) -> None:
    server = await new_server()
    broker = new_broker(server)
    ticket = await acquired(server, broker, lease=3, auto=False)
    call = asyncio.ensure_future(ticket.extend())
    asked = await server.next(frames.EXTEND)
    await clock.jump(1)
    server.keep_alive()
    await clock.jump(2.1)
    # Not looked at in between: it could have been.
    for session in server.open_sessions:
        if session is asked.session:
            asked.extended()
    assert await call is False
    assert ticket.lost
    assert ticket.conservative_remaining() == 0.0
    server.answer = lambda asked: asked.released()
    assert await ticket.release() is True
    assert ticket.lost


async def test_not_held_ends_it_and_reaches_the_holder(
    new_server: MakeServer, new_broker: MakeBroker, clock: Time
) -> None:
    server = await new_server()
    broker = new_broker(server)
    ticket = await acquired(server, broker, lease=30)
    async with ticket:
        told = asyncio.ensure_future(ticket.lost.wait())
        await clock.pass_by(11, server)
        (await server.next(frames.EXTEND)).not_held()
        assert await told is True
        await clock.pass_by(30, server)
        assert server.quiet
        assert not timers()
        server.answer = lambda asked: asked.not_held()


async def test_a_release_withdraws_what_is_being_asked_for(
    new_server: MakeServer, new_broker: MakeBroker, clock: Time
) -> None:
    server = await new_server()
    broker = new_broker(server)
    ticket = await acquired(server, broker, lease=30)
    async with ticket:
        await clock.pass_by(11, server)
        asked = await server.next(frames.EXTEND)
        call = asyncio.ensure_future(ticket.release())
        released = await server.next(frames.RELEASE)
        released.released()
        assert await call is True
        before = len(server.log)
        await clock.pass_by(3, server)
        # Not asked again; and an answer to the first time is of no interest any more.
        asked.not_held()
        await clock.pass_by(60, server)
        assert not asked.session.lost
        assert len(server.log) == before
        assert not timers()
        assert not ticket.lost


async def test_a_limit_ends_the_extensions_and_the_lease_runs_out(
    new_server: MakeServer, new_broker: MakeBroker, clock: Time
) -> None:
    server = await new_server()
    LockServer(server)
    broker = new_broker(server)
    async with await broker.acquire("key", 5, 6, 0, auto_extend=10) as ticket:
        await clock.pass_by(10, server)
        asked = extensions(server)
        assert 3 <= asked <= 5
        assert not ticket.lost
        await clock.pass_by(7, server)
        assert ticket.lost
        assert extensions(server) == asked


@pytest.mark.parametrize("limit", [-1, float("nan"), "long"])
async def test_a_limit_that_is_no_time_is_refused(new_broker: MakeBroker, limit: float) -> None:
    broker = TicketBroker(["127.0.0.1:1"])
    with pytest.raises(TicketError, match="auto_extend") as caught:
        await broker.acquire("key", 5, 30, 0, auto_extend=limit)
    assert caught.value.kind == "invalid_input"


async def test_a_block_that_is_dropped_half_way_is_not_extended_for_ever(
    new_server: MakeServer, new_broker: MakeBroker, clock: Time
) -> None:
    server = await new_server()
    locks = LockServer(server)
    broker = new_broker(server)
    ticket: Ticket | None = await broker.acquire("key", 5, 3, 0, auto_extend=True)
    assert ticket is not None
    await ticket.__aenter__()
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        ticket = None
        gc.collect()
    await turns()
    assert not timers()
    assert not cluster_of(broker).extending
    assert locks.holder(b"key") is None


async def test_closing_the_broker_ends_it(new_server: MakeServer, new_broker: MakeBroker) -> None:
    server = await new_server()
    LockServer(server)
    broker = new_broker(server)
    ticket = await broker.acquire("key", 5, 30, 0, auto_extend=True)
    await ticket.__aenter__()
    assert len(timers()) == 1
    ticket.close()
    assert not timers()
    other = await broker.acquire("other", 5, 30, 0, auto_extend=True)
    await other.__aenter__()
    await broker.aclose()
    assert not timers()
    with pytest.raises(TicketError):
        await other.release()


async def test_thousands_of_blocks_at_once_leave_no_timer_no_task_and_no_extension(
    new_server: MakeServer, new_broker: MakeBroker, clock: Time
) -> None:
    server = await new_server()
    locks = LockServer(server)
    broker = new_broker(server)
    assert await broker.wait_ready(5)
    tasks = len(asyncio.all_tasks())

    async def work(key: str) -> None:
        for _ in range(500):
            async with await broker.acquire(key, 5, 1, 0, auto_extend=True):
                pass

    await asyncio.gather(*[work(f"key-{number}") for number in range(20)])
    assert not timers()
    assert not cluster_of(broker).extending
    assert len(asyncio.all_tasks()) == tasks
    before = len(server.log)
    await clock.pass_by(2, server)
    assert len(server.log) == before
    assert all(locks.holder(b"key-%d" % number) is None for number in range(20))


@pytest.fixture
def serving() -> Iterator[Serving]:
    serving = Serving()
    yield serving
    serving.stop()


def test_a_thread_without_a_loop_is_extended_as_well(serving: Serving) -> None:
    with TicketBroker([serving.address]) as broker:
        with broker.acquire_sync("key", 5, 1, 0, auto_extend=True) as ticket:
            serving.wait_until(lambda: extensions(serving.server))
            time.sleep(0.02)
            assert ticket.conservative_remaining() > 0.7
        assert serving.locks.holder(b"key") is None
        assert not cluster_of(broker).extending


def test_the_pause_after_a_failure_is_a_twelfth_at_least_a_tenth_of_a_second() -> None:
    assert pause_ns(1) == SECOND // 10
    assert pause_ns(240) == 20 * SECOND
