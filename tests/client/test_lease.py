"""What is left of a lease: the conservative end, `lost`, `extend` (spec 10)."""

from __future__ import annotations

import asyncio
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.client.conftest import MakeBroker, MakeServer
from tests.client.scripted import Time, turns
from tests.client.test_release import held
from ticketing.client import TicketError
from ticketing.client.acquire import conservative_end_ns
from ticketing.client.clock import MILLISECOND, SECOND, sum_clock
from ticketing.protocol import frames

RATE = Fraction(1, 1000)
"""The greatest rate error of an elapsed clock."""

rates = st.fractions(1 - RATE, 1 + RATE, max_denominator=10**6)


@given(
    way=st.integers(0, 20 * SECOND),
    wait=st.integers(0, 255 * SECOND),
    back=st.integers(0, 20 * SECOND),
    lease=st.integers(1, 250),
    client=rates,
    leader=rates,
)
def test_the_conservative_end_is_never_after_the_leaders(
    way: int, wait: int, back: int, lease: int, client: Fraction, leader: Fraction
) -> None:
    """True times in ns from the first byte on; each clock runs at a rate of its own within its bounds."""
    granted = way + wait
    leaders_end = granted + Fraction(lease * SECOND) / leader
    waited_ms = int(wait * leader) // MILLISECOND
    sent_ns = 1_000_000
    read_ns = sent_ns + int((granted + back) * client)
    end_ns = conservative_end_ns(sent_ns, read_ns, lease, waited_ms)
    assert Fraction(end_ns - sent_ns) / client <= leaders_end


@given(lease=st.integers(1, 250), elapsed=st.integers(0, 300 * SECOND), waited_ms=st.integers(0, 2**32 - 1))
def test_a_wrong_waited_adds_nothing_beyond_the_moment_of_the_answer(
    lease: int, elapsed: int, waited_ms: int
) -> None:
    end_ns = conservative_end_ns(0, elapsed, lease, waited_ms)
    assert end_ns <= elapsed + lease * SECOND * 998 // 1000
    assert end_ns >= lease * SECOND * 998 // 1000


async def test_what_is_left_is_counted_from_the_first_byte_and_what_was_waited(
    new_server: MakeServer, new_broker: MakeBroker, clock: Time
) -> None:
    server = await new_server()
    broker = new_broker(server)
    assert await broker.wait_ready(5)
    call = asyncio.ensure_future(broker.acquire("key", 10, 30, 0))
    asked = await server.next(frames.Q)
    await clock.pass_by(6, server)
    asked.grant(5, waited_ms=4000)
    ticket = await call
    left = ticket.conservative_remaining()
    assert (30 + 4) * 0.998 - 6 - 1 < left <= (30 + 4) * 0.998 - 6
    await clock.pass_by(20, server)
    assert ticket.conservative_remaining() <= left - 20
    assert not ticket.lost
    await clock.pass_by(8, server)
    assert ticket.conservative_remaining() == 0.0
    assert ticket.lost


async def test_the_end_of_the_lease_reaches_whoever_awaits_it_without_any_network(
    new_server: MakeServer, new_broker: MakeBroker, clock: Time
) -> None:
    server = await new_server()
    broker = new_broker(server)
    ticket = await held(server, broker, lease=2)
    told = asyncio.ensure_future(ticket.lost.wait())
    await clock.jump(1.9)
    assert not told.done()
    await clock.jump(0.1)
    assert await told is True
    assert await ticket.lost is True


async def test_awaiting_lost_ends_with_the_release(new_server: MakeServer, new_broker: MakeBroker) -> None:
    server = await new_server()
    broker = new_broker(server)
    ticket = await held(server, broker)
    told = asyncio.ensure_future(ticket.lost.wait())
    release = asyncio.ensure_future(ticket.release())
    (await server.next(frames.RELEASE)).released()
    assert await release is True
    assert await told is False
    assert not ticket.lost
    assert ticket.conservative_remaining() == 0.0


async def test_an_extension_is_counted_from_its_own_first_byte(
    new_server: MakeServer, new_broker: MakeBroker, clock: Time
) -> None:
    server = await new_server()
    broker = new_broker(server)
    ticket = await held(server, broker, lease=30)
    await clock.pass_by(20, server)
    call = asyncio.ensure_future(ticket.extend())
    asked = await server.next(frames.EXTEND)
    assert (asked.ident, asked.lease, asked.key) == (7, 30, b"key")
    await clock.pass_by(1, server)
    before = ticket.conservative_remaining()
    assert before < 10
    asked.extended()
    assert await call is True
    assert 28 < ticket.conservative_remaining() <= 30 * 0.998 - 1
    await release(server, ticket)


async def release(server: object, ticket: object) -> None:
    call = asyncio.ensure_future(ticket.release())  # type: ignore[attr-defined]
    (await server.next(frames.RELEASE)).released()  # type: ignore[attr-defined]
    await call


async def test_an_extension_with_a_shorter_lease_never_shortens(
    new_server: MakeServer, new_broker: MakeBroker
) -> None:
    server = await new_server()
    broker = new_broker(server)
    ticket = await held(server, broker, lease=30)
    before = ticket.conservative_remaining()
    call = asyncio.ensure_future(ticket.extend(2))
    (await server.next(frames.EXTEND)).extended()
    assert await call is True
    assert ticket.conservative_remaining() > before - 1
    await release(server, ticket)


async def test_an_answer_counts_from_the_earliest_try_without_one_and_its_least_lease(
    new_server: MakeServer, new_broker: MakeBroker, clock: Time
) -> None:
    server = await new_server()
    broker = new_broker(server)
    ticket = await held(server, broker, lease=10)
    first = asyncio.ensure_future(ticket.extend(60))
    await server.next(frames.EXTEND)
    await clock.pass_by(1, server)
    second = asyncio.ensure_future(ticket.extend(100))
    await server.next(frames.EXTEND)
    await clock.pass_by(1, server)
    for session in server.open_sessions:
        if session is server.log[-1].session:
            session.send(frames.encode_extended(7, b"key"))
    assert await first is True
    assert 56 < ticket.conservative_remaining() <= 60 * 0.998 - 2
    assert not second.done()
    await turns()
    while not server.quiet:
        await server.next(frames.EXTEND)
    server.log[-1].extended()
    assert await second is True
    assert ticket.conservative_remaining() <= 100 * 0.998 - 1
    await release(server, ticket)


async def test_an_n_makes_the_ticket_lost(new_server: MakeServer, new_broker: MakeBroker) -> None:
    server = await new_server()
    broker = new_broker(server)
    ticket = await held(server, broker)
    told = asyncio.ensure_future(ticket.lost.wait())
    call = asyncio.ensure_future(ticket.extend(100))
    (await server.next(frames.EXTEND)).not_held()
    assert await call is False
    await asyncio.sleep(0)
    assert told.done()
    assert ticket.lost
    assert ticket.conservative_remaining() == 0.0
    # Nothing revives it, and nothing is asked.
    assert await ticket.extend() is False
    assert server.quiet


async def test_an_unanswered_extension_leaves_the_end_as_it_was(
    new_server: MakeServer, new_broker: MakeBroker, clock: Time
) -> None:
    server = await new_server()
    broker = new_broker(server)
    ticket = await held(server, broker, lease=30)
    call = asyncio.ensure_future(ticket.extend())
    await turns()
    await clock.pass_by(5.1, server)
    with pytest.raises(TicketError) as caught:
        await call
    assert caught.value.kind == "io"
    assert ticket.conservative_remaining() <= 30 * 0.998 - 5
    while not server.quiet:
        await server.next(frames.EXTEND)
    await release(server, ticket)


async def test_a_ticket_that_is_released_is_not_extended(
    new_server: MakeServer, new_broker: MakeBroker
) -> None:
    server = await new_server()
    broker = new_broker(server)
    ticket = await held(server, broker)
    call = asyncio.ensure_future(ticket.release())
    asked = await server.next(frames.RELEASE)
    with pytest.raises(TicketError) as caught:
        await ticket.extend()
    assert caught.value.kind == "invalid_input"
    asked.released()
    await call
    with pytest.raises(TicketError):
        await ticket.extend()
    assert server.quiet


async def test_an_n_with_extension_and_release_under_way_belongs_to_the_one_sent_first(
    new_server: MakeServer, new_broker: MakeBroker
) -> None:
    server = await new_server()
    broker = new_broker(server)
    ticket = await held(server, broker)
    extending = asyncio.ensure_future(ticket.extend())
    asked = await server.next(frames.EXTEND)
    releasing = asyncio.ensure_future(ticket.release())
    asked_release = await server.next(frames.RELEASE)
    assert asked.session is asked_release.session
    asked.not_held()
    assert await extending is False
    assert not releasing.done()
    asked_release.not_held()
    assert await releasing is False


def test_the_clock_counts_what_was_slept_and_is_not_ahead_of_a_stop_between_readings() -> None:
    now = 0
    slept = 0
    stops: list[int] = []

    def monotonic() -> int:
        nonlocal now
        now += 10
        return now

    def raw() -> int:
        return now

    def boottime() -> int:
        nonlocal now
        value = now + slept
        if stops:
            now += stops.pop()
        return value

    clock = sum_clock(monotonic, raw, boottime)
    first = clock()
    slept += 5 * SECOND
    second = clock()
    assert 5 * SECOND <= second - first <= 5 * SECOND + 100
    # A stop bends one reading; it is made anew.
    stops.append(SECOND)
    third = clock()
    assert SECOND <= third - second <= SECOND + 100
    assert clock() >= third
