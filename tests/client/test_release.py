"""Releases and compensations (spec 10): five seconds in all, one try at most 1.5 s, every outcome told."""

from __future__ import annotations

import asyncio
import gc
import warnings

import pytest

from tests.client.conftest import MakeBroker, MakeServer
from tests.client.scripted import Server, Time, turns
from tests.client.test_acquire import acquiring
from tests.client.test_retry import two_nodes
from ticketing.client import Ticket, TicketBroker, TicketError, release
from ticketing.protocol import frames


async def held(server: Server, broker: TicketBroker, token: int = 7, lease: float = 30) -> Ticket:
    call = asyncio.ensure_future(acquiring(broker, lease=lease))
    (await server.next(frames.Q)).grant(token)
    return await call


async def test_false_says_that_it_was_not_held_any_more(
    new_server: MakeServer, new_broker: MakeBroker
) -> None:
    server = await new_server()
    broker = new_broker(server)
    ticket = await held(server, broker)
    call = asyncio.ensure_future(ticket.release())
    (await server.next(frames.RELEASE)).not_held()
    assert await call is False
    assert ticket.lost
    assert await ticket.release() is False


async def test_an_unanswered_try_is_repeated_until_five_seconds_after_the_call(
    new_server: MakeServer, new_broker: MakeBroker, clock: Time
) -> None:
    server = await new_server()
    broker = new_broker(server)
    ticket = await held(server, broker)
    call = asyncio.ensure_future(ticket.release())
    tries = 0
    for _ in range(16):
        await clock.pass_by(0.3, server)
        while not server.quiet:
            assert (await server.next(frames.RELEASE)).ident == 7
            tries += 1
    assert not call.done()
    assert tries == 4
    await clock.pass_by(0.3, server)
    with pytest.raises(TicketError) as caught:
        await call
    assert caught.value.kind == "io"
    # It can be repeated, and what still comes for the first tries is dropped.
    call = asyncio.ensure_future(ticket.release())
    asked = await server.next(frames.RELEASE)
    asked.released()
    assert await call is True
    asked.not_held()
    await turns()
    assert not asked.session.lost


async def test_a_session_that_ends_lets_the_release_go_on_over_another(
    new_server: MakeServer, new_broker: MakeBroker
) -> None:
    first, second, broker = await two_nodes(new_server, new_broker)
    ticket = await held(first, broker)
    call = asyncio.ensure_future(ticket.release())
    (await first.next(frames.RELEASE)).session.send(frames.encode_moved(second.address))
    (await second.next(frames.RELEASE)).released()
    assert await call is True


async def test_without_any_server_the_release_fails_after_five_seconds_and_works_later(
    new_server: MakeServer, new_broker: MakeBroker, clock: Time
) -> None:
    server = await new_server()
    broker = new_broker(server)
    ticket = await held(server, broker)
    server.refuse_connections = True
    for session in server.open_sessions:
        session.end()
    await turns()
    call = asyncio.ensure_future(ticket.release())
    await clock.pass_by(4.9)
    assert not call.done()
    await clock.pass_by(0.2)
    with pytest.raises(TicketError) as caught:
        await call
    assert caught.value.kind == "io"
    server.refuse_connections = False
    call = asyncio.ensure_future(ticket.release())
    await clock.jump(3.3)
    (await server.next(frames.RELEASE)).released()
    assert await call is True


async def test_a_cancelled_release_goes_on_and_gives_its_result_to_the_next_call(
    new_server: MakeServer, new_broker: MakeBroker
) -> None:
    server = await new_server()
    broker = new_broker(server)
    ticket = await held(server, broker)
    call = asyncio.ensure_future(ticket.release())
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    again = asyncio.ensure_future(ticket.release())
    asked = await server.next(frames.RELEASE)
    await turns()
    assert server.quiet
    asked.released()
    assert await again is True


async def test_calls_made_at_once_share_one_release(new_server: MakeServer, new_broker: MakeBroker) -> None:
    server = await new_server()
    broker = new_broker(server)
    ticket = await held(server, broker)
    calls = [asyncio.ensure_future(ticket.release()) for _ in range(3)]
    (await server.next(frames.RELEASE)).released()
    assert [await call for call in calls] == [True] * 3
    assert server.quiet


async def test_a_full_queue_is_an_error_at_once(
    new_server: MakeServer, new_broker: MakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await new_server()
    broker = new_broker(server)
    monkeypatch.setattr(release, "ERRANDS_MAX", 1)
    tickets = [await held(server, broker, token) for token in (1, 2)]
    first = asyncio.ensure_future(tickets[0].release())
    await turns()
    with pytest.raises(TicketError) as caught:
        await tickets[1].release()
    assert caught.value.kind == "io"
    (await server.next(frames.RELEASE)).released()
    assert await first
    second = asyncio.ensure_future(tickets[1].release())
    (await server.next(frames.RELEASE)).released()
    assert await second


async def test_a_ticket_that_is_collected_is_released_with_a_warning(
    new_server: MakeServer, new_broker: MakeBroker
) -> None:
    server = await new_server()
    broker = new_broker(server)
    ticket = await held(server, broker, 33)
    await turns()  # the loop lets go of what it has just run
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del ticket
        gc.collect()
    assert [warning.category for warning in caught] == [ResourceWarning]
    assert "'key'" in str(caught[0].message)
    asked = await server.next(frames.RELEASE)
    assert asked.ident == 33
    asked.released()


@pytest.mark.parametrize(
    "kind", [ValueError, KeyboardInterrupt, asyncio.CancelledError, SystemExit, GeneratorExit]
)
async def test_a_body_that_raises_anything_releases(
    new_server: MakeServer, new_broker: MakeBroker, kind: type[BaseException]
) -> None:
    server = await new_server()
    server.answer = lambda asked: asked.grant(5) if asked.opcode == frames.Q else asked.released()
    broker = new_broker(server)
    with pytest.raises(kind):
        async with await acquiring(broker):
            raise kind
    assert server.log[-1].opcode == frames.RELEASE


async def test_the_error_of_a_release_is_raised_only_where_the_body_raised_none(
    new_server: MakeServer, new_broker: MakeBroker, clock: Time
) -> None:
    server = await new_server()
    server.answer = lambda asked: asked.grant(5) if asked.opcode == frames.Q else None
    broker = new_broker(server)

    async def body(fails: bool) -> None:
        async with await acquiring(broker):
            if fails:
                raise ValueError("of the body")

    fine = asyncio.ensure_future(body(False))
    failing = asyncio.ensure_future(body(True))
    await turns()
    await clock.pass_by(5.1, server)
    with pytest.raises(TicketError):
        await fine
    with pytest.raises(ValueError, match="of the body") as caught:
        await failing
    assert "could not be released" in caught.value.__notes__[0]


async def test_a_grant_with_less_left_than_the_budget_is_not_handed_out_and_given_back(
    new_server: MakeServer, new_broker: MakeBroker, clock: Time
) -> None:
    server = await new_server()
    broker = new_broker(server)
    assert await broker.wait_ready(5)
    call = asyncio.ensure_future(broker.acquire("key", 5, 5, 3))
    asked = await server.next(frames.Q)
    await clock.pass_by(2.5, server)
    asked.grant(8)
    with pytest.raises(TicketError) as caught:
        await call
    assert caught.value.kind == "insufficient_lease"
    given_back = await server.next(frames.RELEASE)
    assert given_back.ident == 8
    given_back.released()


async def test_a_release_by_token_needs_no_ticket(new_server: MakeServer, new_broker: MakeBroker) -> None:
    server = await new_server()
    broker = new_broker(server)
    call = asyncio.ensure_future(broker.release("key", 99))
    asked = await server.next(frames.RELEASE)
    assert (asked.ident, asked.key) == (99, b"key")
    asked.not_held()
    assert await call is False
    with pytest.raises(TicketError):
        await broker.release("key", 1 << 62)


async def test_releases_of_one_token_that_meet_share_one_answer(
    new_server: MakeServer, new_broker: MakeBroker
) -> None:
    server = await new_server()
    broker = new_broker(server)
    ticket = await held(server, broker, 7)
    calls = [asyncio.ensure_future(call) for call in (ticket.release(), broker.release("key", 7))]
    other_key = asyncio.ensure_future(broker.release("other", 7))
    first, second = await server.next(frames.RELEASE), await server.next(frames.RELEASE)
    assert {first.key, second.key} == {b"key", b"other"}
    for asked in (first, second):
        if asked.key == b"key":
            asked.released()
        else:
            asked.not_held()
    assert [await call for call in calls] == [True, True]
    assert await other_key is False
    await turns()
    assert server.quiet


async def test_releases_that_share_a_try_go_on_together_when_it_fails(
    new_server: MakeServer, new_broker: MakeBroker, clock: Time
) -> None:
    server = await new_server()
    broker = new_broker(server)
    ticket = await held(server, broker, 7)
    calls = [asyncio.ensure_future(call) for call in (ticket.release(), broker.release("key", 7))]
    await server.next(frames.RELEASE)
    await clock.pass_by(1.6, server)
    asked = await server.next(frames.RELEASE)
    assert server.quiet
    asked.session.end()
    asked = await server.next(frames.RELEASE)
    asked.released()
    assert [await call for call in calls] == [True, True]


async def test_settled_tells_when_everything_given_back_was_answered(
    new_server: MakeServer, new_broker: MakeBroker
) -> None:
    server = await new_server()
    broker = new_broker(server)
    ticket = await held(server, broker)
    assert await broker.settled(0)
    ticket.close()
    asked = await server.next(frames.RELEASE)
    assert not await broker.settled(0)
    waiting = asyncio.ensure_future(broker.settled(5))
    await turns()
    assert not waiting.done()
    asked.released()
    assert await waiting
