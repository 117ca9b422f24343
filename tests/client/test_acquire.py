from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from tests.client.conftest import MakeBroker, MakeServer
from tests.client.scripted import DOMAIN, Time, turns
from ticketing.client import Ticket, TicketBroker, TicketError
from ticketing.protocol import frames


async def acquiring(broker: TicketBroker, wait: float = 5, lease: float = 30, budget: float = 0) -> Ticket:
    return await broker.acquire("key", wait, lease, budget)


async def test_a_grant_becomes_a_ticket_and_its_release_is_answered(
    new_server: MakeServer, new_broker: MakeBroker
) -> None:
    server = await new_server()
    broker = new_broker(server)
    call = asyncio.ensure_future(acquiring(broker))
    asked = await server.next(frames.Q)
    assert (asked.wait, asked.lease, asked.key) == (5, 30, b"key")
    assert asked.ident >> 63 == 1
    asked.grant(77)
    ticket = await call
    assert (ticket.key, ticket.token, ticket.domain) == ("key", 77, DOMAIN)
    assert 29 < ticket.conservative_remaining() <= 30 * 0.998
    assert not ticket.lost
    release = asyncio.ensure_future(ticket.release())
    asked = await server.next(frames.RELEASE)
    assert (asked.ident, asked.key) == (77, b"key")
    asked.released()
    assert await release is True
    assert await ticket.release() is True
    assert server.quiet


async def test_answers_are_matched_by_owner_and_key_not_by_order(
    new_server: MakeServer, new_broker: MakeBroker
) -> None:
    server = await new_server()
    broker = new_broker(server)
    assert await broker.wait_ready(5)
    calls = [asyncio.ensure_future(broker.acquire(f"k{n}", 5, 30, 0)) for n in range(4)]
    asked = [await server.next(frames.Q) for _ in range(4)]
    assert len({one.ident for one in asked}) == 4
    assert len({one.session for one in asked}) == 1
    for number, one in reversed(list(enumerate(asked))):
        one.grant(100 + number)
    tickets = [await call for call in calls]
    assert [(ticket.key, ticket.token) for ticket in tickets] == [(f"k{n}", 100 + n) for n in range(4)]
    for ticket in tickets:
        ticket.close()
    for _ in tickets:
        (await server.next(frames.RELEASE)).released()


@pytest.mark.parametrize(("answer", "kind"), [("timeout", "timeout"), ("busy", "busy")])
async def test_a_refusal_is_the_callers_at_once(
    new_server: MakeServer, new_broker: MakeBroker, answer: str, kind: str
) -> None:
    server = await new_server()
    broker = new_broker(server)
    call = asyncio.ensure_future(acquiring(broker))
    getattr(await server.next(frames.Q), answer)()
    with pytest.raises(TicketError) as caught:
        await call
    assert caught.value.kind == kind
    assert server.quiet


async def test_the_context_releases_and_waits_for_the_answer(
    new_server: MakeServer, new_broker: MakeBroker
) -> None:
    server = await new_server()
    broker = new_broker(server)

    async def work() -> None:
        async with await acquiring(broker) as ticket:
            assert ticket.token == 5
            raise ValueError("of the body")

    call = asyncio.ensure_future(work())
    (await server.next(frames.Q)).grant(5)
    asked = await server.next(frames.RELEASE)
    await turns()
    assert not call.done()
    asked.released()
    with pytest.raises(ValueError, match="of the body"):
        await call


async def test_what_is_left_of_the_wait_goes_on_the_wire_rounded_up(
    new_server: MakeServer, new_broker: MakeBroker, clock: Time
) -> None:
    server = await new_server(leader=None)
    broker = new_broker(server)
    assert not await broker.wait_ready(0)
    await turns()
    for session in server.open_sessions:
        session.send(frames.encode_leader("127.0.0.1:1"))
    await turns()
    call = asyncio.ensure_future(acquiring(broker, wait=5))
    await clock.pass_by(2.3, server)
    assert server.quiet
    server.tell(frames.encode_leader(server.address))
    asked = await server.next(frames.Q)
    assert asked.wait == 3
    asked.timeout()
    with pytest.raises(TicketError):
        await call


async def test_times_are_rounded_up_to_wire_seconds(new_server: MakeServer, new_broker: MakeBroker) -> None:
    server = await new_server()
    broker = new_broker(server)
    assert await broker.wait_ready(5)
    call = asyncio.ensure_future(broker.acquire("key", timedelta(milliseconds=1500), 0.2, timedelta(0)))
    asked = await server.next(frames.Q)
    assert (asked.wait, asked.lease) == (2, 1)
    asked.timeout()
    with pytest.raises(TicketError):
        await call
