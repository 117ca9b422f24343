"""Cancelling (spec 10): nothing acquired is ever lost on the way, at whatever moment the caller leaves."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import pytest

from tests.client.conftest import MakeBroker, MakeServer
from tests.client.locking import LockServer
from tests.client.scripted import Time, turns
from tests.client.test_acquire import acquiring
from ticketing.client import IndeterminateCancelledError, Ticket, TicketBroker, TicketError
from ticketing.protocol import frames

MakeLocks = Callable[..., LockServer]


async def test_before_any_byte_may_have_left_it_is_a_plain_cancellation_and_nothing_is_sent(
    new_server: MakeServer, new_broker: MakeBroker
) -> None:
    server = await new_server()
    broker = new_broker(server)
    call = asyncio.ensure_future(acquiring(broker))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await call
    assert not isinstance(caught.value, TicketError)
    assert await broker.wait_ready(5)
    # The same in the turn of the loop in which it was queued behind another.
    first = asyncio.ensure_future(broker.acquire("first", 5, 30, 0))
    second = asyncio.ensure_future(acquiring(broker))
    third = asyncio.ensure_future(broker.acquire("third", 5, 30, 0))
    await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await second
    assert not isinstance(caught.value, TicketError)
    for key in (b"first", b"third"):
        asked = await server.next(frames.Q)
        assert asked.key == key
        asked.timeout()
    for call in (first, third):
        with pytest.raises(TicketError):
            await call


async def test_after_that_it_is_indeterminate_and_cancelled_at_the_server_on_the_same_session(
    new_server: MakeServer, new_broker: MakeBroker
) -> None:
    server = await new_server()
    broker = new_broker(server)
    call = asyncio.ensure_future(acquiring(broker, wait=100))
    asked = await server.next(frames.Q)
    call.cancel()
    with pytest.raises(IndeterminateCancelledError) as caught:
        await call
    assert call.cancelled()
    assert isinstance(caught.value, TicketError)
    assert isinstance(caught.value, asyncio.CancelledError)
    assert caught.value.kind == "indeterminate"
    cancel = await server.next(frames.CANCEL)
    assert (cancel.session, cancel.ident, cancel.key) == (asked.session, asked.ident, b"key")
    cancel.released()
    await turns()
    assert server.quiet
    assert not asked.session.lost


async def test_a_cancel_without_an_answer_for_three_seconds_closes_its_session(
    new_server: MakeServer, new_broker: MakeBroker, clock: Time
) -> None:
    server = await new_server()
    broker = new_broker(server)
    call = asyncio.ensure_future(acquiring(broker, wait=100))
    asked = await server.next(frames.Q)
    call.cancel()
    await asyncio.wait([call])
    await server.next(frames.CANCEL)
    await clock.pass_by(2.9, server)
    assert not asked.session.lost
    await clock.pass_by(0.2, server)
    assert asked.session not in server.sessions
    # The server may still have it: the cancel goes on over the next session.
    cancel = await server.next(frames.CANCEL)
    assert cancel.ident == asked.ident
    assert cancel.session is not asked.session
    cancel.not_held()


async def test_a_grant_that_crosses_the_cancel_is_given_back_by_its_token(
    new_server: MakeServer, new_broker: MakeBroker
) -> None:
    server = await new_server()
    broker = new_broker(server)
    call = asyncio.ensure_future(acquiring(broker, wait=100))
    asked = await server.next(frames.Q)
    call.cancel()
    await asyncio.wait([call])
    cancel = await server.next(frames.CANCEL)
    asked.grant(5)
    given_back = await server.next(frames.RELEASE)
    assert given_back.ident == 5
    cancel.released()
    given_back.not_held()
    await turns()
    assert not asked.session.lost


@pytest.mark.parametrize("late", ["timeout", "grant"])
async def test_an_answer_after_the_answer_to_its_cancel_is_no_fault(
    new_server: MakeServer, new_broker: MakeBroker, late: str
) -> None:
    server = await new_server()
    broker = new_broker(server)
    call = asyncio.ensure_future(acquiring(broker, wait=100))
    asked = await server.next(frames.Q)
    call.cancel()
    await asyncio.wait([call])
    (await server.next(frames.CANCEL)).not_held()
    await turns()
    if late == "timeout":
        asked.timeout()
    else:
        asked.grant(6)
        given_back = await server.next(frames.RELEASE)
        assert given_back.ident == 6
        given_back.not_held()
    await turns()
    assert not asked.session.lost


async def test_a_grant_that_was_read_and_not_returned_yet_is_given_back(
    new_server: MakeServer, new_broker: MakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await new_server()
    broker = new_broker(server)
    call = asyncio.ensure_future(acquiring(broker))
    asked = await server.next(frames.Q)
    cluster = broker._cluster
    assert cluster is not None
    (session,) = [session for session in cluster._sessions if session.requests()]
    read = session.data_received

    def read_and_leave(data: bytes) -> None:
        read(data)
        call.cancel()

    monkeypatch.setattr(session, "data_received", read_and_leave)
    asked.grant(5)
    with pytest.raises(IndeterminateCancelledError):
        await call
    given_back = await server.next(frames.RELEASE)
    assert given_back.ident == 5
    given_back.released()


async def test_on_a_published_server_the_session_is_closed(
    new_server: MakeServer, new_broker: MakeBroker
) -> None:
    server = await new_server(extended=False)
    broker = new_broker(server)
    call = asyncio.ensure_future(acquiring(broker))
    asked = await server.next(frames.ACQUIRE)
    call.cancel()
    with pytest.raises(IndeterminateCancelledError):
        await call
    await turns()
    assert asked.session.lost


async def test_wait_for_and_task_group_see_a_cancellation(
    new_server: MakeServer, new_broker: MakeBroker
) -> None:
    server = await new_server()
    server.answer = lambda asked: asked.released() if asked.opcode == frames.CANCEL else None
    broker = new_broker(server)
    assert await broker.wait_ready(5)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(acquiring(broker), 0.01)

    async def group_with_an_error() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(acquiring(broker))
            await turns()
            raise ValueError

    with pytest.raises(ExceptionGroup) as caught:
        await group_with_an_error()
    assert caught.group_contains(ValueError)
    assert not caught.group_contains(TicketError)


async def holds_after_cancelling_at(step: int, locks: LockServer, broker: TicketBroker) -> bool:
    """Runs acquire and release as a task that is cancelled after `step` turns of the loop; then nothing may be
    held, and the broker must work. False once the task was done before.
    """

    async def work() -> None:
        ticket = await broker.acquire("key", 5, 200, 0)
        assert locks.holder(b"key") == ticket.token
        await ticket.release()

    task = asyncio.ensure_future(work())
    for _ in range(step):
        await asyncio.sleep(0)
    reached = not task.done()
    task.cancel()
    result = (await asyncio.gather(task, return_exceptions=True))[0]
    assert result is None or isinstance(result, asyncio.CancelledError), result
    async with asyncio.timeout(5):
        assert await broker.settled(5)
    assert locks.holder(b"key") is None
    assert not locks.waiting(b"key")
    assert broker._cluster is not None
    assert not len(broker._cluster.errands)
    assert not any(session.requests() for session in broker._cluster._sessions)
    async with await broker.acquire("key", 0, 200, 0) as ticket:
        assert locks.holder(b"key") == ticket.token
    return reached


async def test_cancelled_at_any_turn_of_the_loop_nothing_stays_held(
    new_server: MakeServer, new_broker: MakeBroker
) -> None:
    server = await new_server()
    locks = LockServer(server)
    broker = new_broker(server)
    assert await broker.wait_ready(5)
    steps = 0
    while await holds_after_cancelling_at(steps, locks, broker):
        steps += 1
        assert steps < 100
    assert steps > 3


async def test_cancelled_at_any_turn_while_it_connects_nothing_stays_held(
    new_server: MakeServer, new_broker: MakeBroker
) -> None:
    server = await new_server()
    locks = LockServer(server)
    steps = 0
    reached = True
    while reached:
        async with new_broker(server) as broker:
            task = asyncio.ensure_future(broker.acquire("key", 5, 200, 0))
            for _ in range(steps):
                await asyncio.sleep(0)
            reached = not task.done()
            task.cancel()
            result = (await asyncio.gather(task, return_exceptions=True))[0]
            if isinstance(result, Ticket):
                await result.release()
            assert await broker.wait_ready(5)
            assert await broker.settled(5)
            assert locks.holder(b"key") is None
        steps += 1
        assert steps < 100
    assert steps > 6


async def test_cancelled_while_it_waits_in_the_queue_it_leaves_the_queue(
    new_server: MakeServer, new_broker: MakeBroker
) -> None:
    server = await new_server()
    locks = LockServer(server)
    broker = new_broker(server)
    async with await acquiring(broker):
        waiters = [asyncio.ensure_future(acquiring(broker, wait=100)) for _ in range(20)]
        await turns()
        assert locks.waiting(b"key") == 20
        for waiter in waiters:
            waiter.cancel()
        for waiter in waiters:
            with pytest.raises(IndeterminateCancelledError):
                await waiter
        assert await broker.settled(5)
        assert locks.waiting(b"key") == 0
    assert locks.holder(b"key") is None


async def test_random_cancellations_and_cuts_leave_no_stuck_key(
    new_server: MakeServer, new_broker: MakeBroker
) -> None:
    """Callers come and go at random while sessions are cut; in the end every key is free."""
    rng = random.Random(20)
    server = await new_server()
    locks = LockServer(server)
    broker = new_broker(server)
    assert await broker.wait_ready(5)
    outcomes: dict[str, int] = {}

    async def caller() -> None:
        for _ in range(80):
            key = f"key-{rng.randrange(4)}"
            try:
                async with asyncio.timeout(5):
                    ticket = await asyncio.wait_for(
                        broker.acquire(key, 3, 200, 0), rng.choice((0.0005, 0.002, 0.01, 3))
                    )
                assert locks.holder(key.encode()) == ticket.token
                await ticket.release()
                outcome = "held"
            except TimeoutError:
                outcome = "left"
            except TicketError as error:
                outcome = str(error.kind)
            outcomes[outcome] = outcomes.get(outcome, 0) + 1

    async def cutter() -> None:
        while any(not one.done() for one in callers):
            await asyncio.sleep(0.03)
            if server.open_sessions:
                rng.choice(server.open_sessions).end()

    callers = [asyncio.ensure_future(caller()) for _ in range(20)]
    await asyncio.gather(cutter(), *callers)
    assert await broker.settled(6)
    assert all(locks.holder(b"key-%d" % number) is None for number in range(4))
    assert outcomes["held"] > 50
    assert outcomes["left"] > 20


async def test_a_grant_is_never_lost_between_wait_for_and_its_timeout(
    new_server: MakeServer, new_broker: MakeBroker
) -> None:
    server = await new_server()
    locks = LockServer(server)
    broker = new_broker(server)
    assert await broker.wait_ready(5)
    for number in range(300):
        try:
            ticket = await asyncio.wait_for(broker.acquire("key", 9, 200, 0), number * 0.000_005)
        except TimeoutError:
            assert await broker.settled(5)
        else:
            await ticket.release()
        assert locks.holder(b"key") is None


async def test_closing_the_broker_ends_what_waits_and_leaves_the_queue(
    new_server: MakeServer, new_broker: MakeBroker
) -> None:
    server = await new_server()
    locks = LockServer(server)
    broker = new_broker(server)
    other = new_broker(server)
    async with await acquiring(other):
        sent = asyncio.ensure_future(acquiring(broker, wait=100))
        await turns()
        assert locks.waiting(b"key") == 1
        await broker.aclose()
        with pytest.raises(TicketError) as caught:
            await sent
        assert caught.value.kind == "indeterminate"
        assert locks.waiting(b"key") == 0
    await turns()
    assert len(server.open_sessions) == 2
    for call in (acquiring(broker), broker.wait_ready(1), broker.release("key", 1)):
        with pytest.raises(TicketError) as caught:
            await call
        assert caught.value.kind == "closed"
    await broker.aclose()


async def test_closing_the_broker_ends_what_was_not_sent(
    new_server: MakeServer, new_broker: MakeBroker
) -> None:
    server = await new_server(leader=None)
    broker = new_broker(server)
    call = asyncio.ensure_future(acquiring(broker))
    ready = asyncio.ensure_future(broker.wait_ready(100))
    await asyncio.sleep(0)
    await broker.aclose()
    for waiting in (call, ready):
        with pytest.raises(TicketError) as caught:
            await waiting
        assert caught.value.kind == "closed"
    assert not server.log
