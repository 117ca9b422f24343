"""What is left of a lease: the conservative end, `lost`, extensions (section 10)."""

from __future__ import annotations

import asyncio

from tests.conformance import wire
from tests.conformance.play import Play, Ticket, now, scenario

RATE = 0.998
SLACK = 0.002
"""Readings of two processes are not the same instant, and are rounded."""


async def bounds(ticket: Ticket) -> tuple[float, float, float]:
    """What is left, and the moments between which it was read."""
    before = now()
    left = await ticket.remaining()
    return left, before, now()


@scenario("10: end = first byte that could leave + 0.998 * (lease + waited)")
async def the_end_is_counted_from_the_first_byte_and_what_was_waited(play: Play) -> None:
    server = await play.server()
    broker = await play.ready_broker(server)
    began = now()
    acquire = broker.acquire(wait=60, lease=30)
    asked = await server.next("Q")
    await asyncio.sleep(2)
    asked.grant(5, waited_ms=1500)
    left, before, after = await bounds(await acquire.ticket())
    # The first byte left between the call and its arrival here.
    assert left <= asked.at + RATE * (30 + 1.5) - before + SLACK
    assert left >= began + RATE * (30 + 1.5) - after - SLACK


@scenario("10: end at most the moment the answer was read + 0.998 * lease")
async def the_end_is_never_later_than_the_answer_and_the_lease(play: Play) -> None:
    server = await play.server()
    broker = await play.ready_broker(server)
    acquire = broker.acquire(wait=60, lease=250)
    asked = await server.next("Q")
    await asyncio.sleep(2)
    asked.grant(5, waited_ms=2000)
    ticket = await acquire.ticket()
    answered = now()
    left, before, _ = await bounds(ticket)
    assert left <= answered + RATE * 250 - before + SLACK
    assert left > 240


@scenario("10: below the budget: `insufficient_lease`, not handed out, released")
async def a_grant_with_less_left_than_the_budget_is_released(play: Play) -> None:
    server = await play.server()
    broker = await play.ready_broker(server)
    acquire = broker.acquire(wait=60, lease=3, budget=2)
    asked = await server.next("Q")
    await asyncio.sleep(1.5)
    asked.grant(81)
    assert await acquire.kind() == "insufficient_lease"
    release = await server.next("R")
    assert release.frame.raw == wire.numbered("R", 81, b"key")
    release.answer("R")


@scenario("10: what was waited before the grant does not count against the lease")
async def a_grant_that_waited_in_the_queue_has_its_whole_lease(play: Play) -> None:
    server = await play.server()
    broker = await play.ready_broker(server)
    acquire = broker.acquire(wait=60, lease=30, budget=27)
    asked = await server.next("Q")
    await asyncio.sleep(5)
    asked.grant(81, waited_ms=4900)
    assert (await acquire.ticket()).token == 81


@scenario("10: a grant whose lease is over is `insufficient_lease` with a budget of 0, too")
async def a_grant_whose_lease_is_over_is_released(play: Play) -> None:
    server = await play.server()
    broker = await play.ready_broker(server)
    acquire = broker.acquire(wait=60, lease=1, budget=0)
    asked = await server.next("Q")
    await asyncio.sleep(1.1)
    asked.grant(82)
    assert await acquire.kind() == "insufficient_lease"
    release = await server.next("R")
    assert release.frame.number == 82
    release.answer("N")


@scenario("10: a whole lease can never be left when the answer is read")
async def a_budget_of_the_whole_lease_is_never_met(play: Play) -> None:
    server = await play.server()
    broker = await play.ready_broker(server)
    acquire = broker.acquire(wait=60, lease=2, budget=2)
    (await server.next("Q")).grant(83)
    assert await acquire.kind() == "insufficient_lease"
    (await server.next("R")).answer("R")


@scenario("10: `lost` is true once the end was seen, and can be awaited")
async def a_ticket_is_lost_at_its_end_without_any_network(play: Play) -> None:
    server = await play.server()
    broker = await play.ready_broker(server)
    began = now()
    ticket = await play.held(server, broker, lease=3)
    lost = ticket.begin("wait_lost")
    assert not await ticket.lost()
    assert await lost.answer() == {"lost": True}
    assert 2.9 < now() - began < 18
    assert await ticket.lost()
    assert await ticket.remaining() == 0


@scenario("10: awaiting `lost` ends with the release")
async def a_ticket_that_was_released_is_not_lost(play: Play) -> None:
    server = await play.server()
    broker = await play.ready_broker(server)
    ticket = await play.held(server, broker, lease=4)
    lost = ticket.begin("wait_lost")
    release = ticket.begin("release")
    (await server.next("R")).answer("R")
    assert await release.answer() == {"released": True}
    assert await lost.answer() == {"lost": False}
    assert await ticket.remaining() == 0
    await asyncio.sleep(4.2)
    assert not await ticket.lost()


@scenario("10: `X`: an answer counts from the first byte of the extension")
async def an_extension_is_counted_from_its_own_first_byte(play: Play) -> None:
    server = await play.server()
    broker = await play.ready_broker(server)
    ticket = await play.held(server, broker, lease=30)
    await asyncio.sleep(2)
    began = now()
    extend = ticket.begin("extend", lease_ms=None)
    asked = await server.next("X")
    assert (asked.frame.number, asked.frame.lease) == (7, 30)
    await asyncio.sleep(0.5)
    asked.answer("X")
    assert await extend.answer() == {"extended": True}
    left, before, after = await bounds(ticket)
    assert left <= asked.at + RATE * 30 - before + SLACK
    assert left >= began + RATE * 30 - after - SLACK


@scenario("10: the end is the later of the old and the new; 3: `X` never shortens")
async def an_extension_with_a_shorter_lease_shortens_nothing(play: Play) -> None:
    server = await play.server()
    broker = await play.ready_broker(server)
    ticket = await play.held(server, broker, lease=30)
    granted = server.log[-1].at
    extend = ticket.begin("extend", lease_ms=2000)
    (await server.next("X")).answer("X")
    assert await extend.answer() == {"extended": True}
    left, _, after = await bounds(ticket)
    assert left >= granted + RATE * 30 - after - 1


@scenario("10: an answer `X` counts from the first byte of the earliest still unanswered `X` of that token")
async def pipelined_extensions_count_from_the_earliest(play: Play) -> None:
    server = await play.server()
    broker = await play.ready_broker(server)
    ticket = await play.held(server, broker, lease=10)
    first = ticket.begin("extend", lease_ms=60_000)
    earlier = await server.next("X")
    await asyncio.sleep(1)
    second = ticket.begin("extend", lease_ms=100_000)
    later = await server.next("X")
    while later.frame.lease != 100:  # on a busy machine the first may have been tried once more
        later = await server.next("X")
    assert earlier.session is later.session
    later.answer("X")
    assert await first.answer() == {"extended": True}
    left, before, _ = await bounds(ticket)
    # It might be the answer to either: no more than the earlier one, with its lease, is proved.
    assert left <= earlier.at + RATE * 60 - before + SLACK
    assert left > 40
    for request in [frame for frame in server.unread if frame.opcode == "X"]:
        assert request.number == 7
    later.answer("X")
    assert await second.answer() == {"extended": True}
    left, before, _ = await bounds(ticket)
    assert left <= later.at + RATE * 100 - before + SLACK
    assert left > 40


@scenario("3: else `N`; 10: `lost` is true once an `N` was seen")
async def an_extension_answered_n_makes_the_ticket_lost(play: Play) -> None:
    server = await play.server()
    broker = await play.ready_broker(server)
    ticket = await play.held(server, broker)
    lost = ticket.begin("wait_lost")
    extend = ticket.begin("extend", lease_ms=None)
    (await server.next("X")).answer("N")
    assert await extend.answer() == {"extended": False}
    assert await lost.answer() == {"lost": True}
    assert await ticket.lost()
    assert await ticket.remaining() == 0
    # Nothing revives it, and nothing is asked.
    assert not await ticket.extended()
    assert not [frame for frame in server.unread if frame.opcode == "X"]


@scenario("10: an extension without an answer within 5 s: `io`, the end as before; one try at most 1.5 s")
async def an_extension_without_an_answer_changes_nothing(play: Play) -> None:
    server = await play.server()
    broker = await play.ready_broker(server)
    ticket = await play.held(server, broker, lease=30)
    granted = server.log[-1].at
    began = now()
    assert (await ticket.begin("extend", lease_ms=200_000).failure()).kind == "io"
    assert 4.8 < now() - began < 20
    left, before, _ = await bounds(ticket)
    assert left <= granted + RATE * 30 - before + SLACK
    assert not await ticket.lost()
    tries = [frame for frame in server.unread if frame.opcode == "X"]
    assert 2 <= len(tries) <= 5, tries


@scenario("3: `X` never revives: an answer that is read after the end changes nothing")
async def an_extension_answered_after_the_end_revives_nothing(play: Play) -> None:
    server = await play.server()
    broker = await play.ready_broker(server)
    ticket = await play.held(server, broker, lease=3)
    extend = ticket.begin("extend", lease_ms=100_000)
    asked = await server.next("X")
    await asyncio.sleep(3.1)
    asked.answer("X")
    assert await extend.answer() == {"extended": False}
    assert await ticket.lost()
    assert await ticket.remaining() == 0


@scenario("10: extending a released ticket is `invalid_input`, nothing sent")
async def a_ticket_that_was_released_is_not_extended(play: Play) -> None:
    server = await play.server()
    broker = await play.ready_broker(server)
    ticket = await play.held(server, broker)
    release = ticket.begin("release")
    (await server.next("R")).answer("R")
    await release.answer()
    assert (await ticket.begin("extend", lease_ms=None).failure()).kind == "invalid_input"
    await server.nothing(0.3)


@scenario("3: `Q C X H G V` only where the banner says `+x`")
async def a_published_server_is_never_asked_to_extend(play: Play) -> None:
    server = await play.server(extended=False)
    broker = await play.ready_broker(server)
    acquire = broker.acquire(lease=30)
    (await server.next("A")).grant(5)
    ticket = await acquire.ticket()
    assert (await ticket.begin("extend", lease_ms=None).failure()).kind == "io"
    assert not server.unread
