"""Release and compensation: bounded, by the exact token, within 5 s (section 10)."""

from __future__ import annotations

import asyncio

from tests.conformance import wire
from tests.conformance.play import Play, now, scenario


@scenario("10: `R` true; a second `release()` gives the first one's result")
async def a_second_release_gives_the_result_of_the_first(play: Play) -> None:
    for answer, released in (("R", True), ("N", False)):
        server = await play.server()
        broker = await play.ready_broker(server)
        ticket = await play.held(server, broker)
        first = ticket.begin("release")
        (await server.next("R")).answer(answer)
        assert await first.answer() == {"released": released}
        assert await ticket.released() is released
        await server.nothing(0.2)


@scenario("10: `N` false; `lost` is true once an `N` was seen")
async def a_release_answered_n_makes_the_ticket_lost(play: Play) -> None:
    server = await play.server()
    broker = await play.ready_broker(server)
    ticket = await play.held(server, broker)
    release = ticket.begin("release")
    (await server.next("R")).answer("N")
    assert await release.answer() == {"released": False}
    assert await ticket.lost()
    assert await ticket.remaining() == 0


@scenario("10: releases made together share one answer")
async def releases_made_together_share_one_answer(play: Play) -> None:
    server = await play.server()
    broker = await play.ready_broker(server)
    ticket = await play.held(server, broker)
    releases = [ticket.begin("release") for _ in range(3)]
    request = await server.next("R")
    await asyncio.sleep(0.3)
    request.answer("R")
    for release in releases:
        assert await release.answer() == {"released": True}


@scenario("10: absolute deadline 5 s from the call, one try at most 1.5 s; no answer by then an error")
async def a_release_without_an_answer_is_io_after_five_seconds(play: Play) -> None:
    server = await play.server()
    broker = await play.ready_broker(server)
    ticket = await play.held(server, broker, token=91)
    began = now()
    assert (await ticket.begin("release").failure()).kind == "io"
    assert 4.8 < now() - began < 20
    tries = server.unread
    assert {frame.raw for frame in tries} == {wire.numbered("R", 91, b"key")}
    assert 2 <= len(tries) <= 5, tries


@scenario("10: a failed release can be repeated")
async def a_release_that_failed_can_be_repeated(play: Play) -> None:
    server = await play.server(answers=lambda request: None)
    broker = await play.ready_broker(server)
    server.answers = None
    ticket = await play.held(server, broker)
    server.answers = lambda request: None
    assert (await ticket.begin("release").failure()).kind == "io"
    server.answers = lambda request: request.answer("R")
    assert await ticket.released()


@scenario("10: a cancelled release can be repeated")
async def a_release_that_was_dropped_can_be_repeated(play: Play) -> None:
    server = await play.server()
    broker = await play.ready_broker(server)
    ticket = await play.held(server, broker, token=92)
    release = ticket.begin("release")
    await server.next("R")
    await broker.driver.begin("drop", call=release.number).answer()
    assert (await release.failure()).kind == "dropped"
    server.answers = lambda request: request.answer("R")
    again = ticket.begin("release")
    for request in server.log:
        if request.frame.opcode == "R":
            request.answer("R")
    assert await again.answer() == {"released": True}


@scenario("10: a late answer to a try that was given up is no fault")
async def a_late_answer_to_an_earlier_try_counts_or_is_dropped(play: Play) -> None:
    server = await play.server()
    broker = await play.ready_broker(server)
    ticket = await play.held(server, broker)
    release = ticket.begin("release")
    first = await server.next("R")
    second = await server.next("R")
    first.answer("R")
    second.answer("N")
    # Either is a fact: it was released, and then it was not held.
    await release.answer()
    await asyncio.sleep(0.3)
    for session in (first.session, second.session):
        assert session.open
    again = broker.acquire()
    (await server.next("Q")).answer("B")
    assert await again.kind() == "busy"


@scenario("4: the holder may release over another session")
async def a_release_goes_over_another_session_when_its_own_is_gone(play: Play) -> None:
    first, second = await play.two_nodes()
    broker = await play.ready_broker(first, second)
    ticket = await play.held(first, broker, token=93)
    first.refuses_connections = True
    for session in first.open_sessions:
        session.end()
    second.name_leader(second.address)
    release = ticket.begin("release")
    request = await second.next("R")
    assert request.frame.raw == wire.numbered("R", 93, b"key")
    request.answer("R")
    assert await release.answer() == {"released": True}


@scenario("10: a release under way when its session ends is tried on the next")
async def a_release_whose_session_ends_is_tried_on_the_next(play: Play) -> None:
    server = await play.server()
    broker = await play.ready_broker(server)
    ticket = await play.held(server, broker)
    release = ticket.begin("release")
    (await server.next("R")).session.end()
    again = await server.next("R")
    again.answer("R")
    assert await release.answer() == {"released": True}


@scenario("3: `R` stands outside of who leads: an `M` in answer to a release sends it on")
async def a_release_answered_m_is_tried_where_it_points(play: Play) -> None:
    first, second = await play.two_nodes()
    broker = await play.ready_broker(first, second)
    ticket = await play.held(first, broker)
    release = ticket.begin("release")
    first.leader = second.address
    (await first.next("R")).session.send(wire.text("M", second.address))
    (await second.next("R")).answer("R")
    assert await release.answer() == {"released": True}


@scenario("10: an unreleased ticket that is dropped is released")
async def a_ticket_that_is_dropped_is_released_by_its_token(play: Play) -> None:
    server = await play.server()
    broker = await play.ready_broker(server)
    ticket = await play.held(server, broker, token=94)
    await ticket.abandon()
    request = await server.next("R")
    assert request.frame.raw == wire.numbered("R", 94, b"key")
    request.answer("R")
    await server.nothing(0.3)


@scenario("10: compensation: absolute deadline 5 s from when it was queued, one try at most 1.5 s")
async def the_release_of_a_dropped_ticket_is_bounded(play: Play) -> None:
    server = await play.server()
    broker = await play.ready_broker(server)
    ticket = await play.held(server, broker)
    await ticket.abandon()
    await server.next("R")
    await asyncio.sleep(6.5)
    tries = server.unread
    assert 2 <= len(tries) <= 4, tries
    before = len(server.unread)
    await asyncio.sleep(2)
    assert len(server.unread) == before


@scenario("10: a ticket that was released is not released again when it is dropped")
async def a_released_ticket_that_is_dropped_sends_nothing(play: Play) -> None:
    server = await play.server()
    broker = await play.ready_broker(server)
    ticket = await play.held(server, broker)
    release = ticket.begin("release")
    (await server.next("R")).answer("R")
    await release.answer()
    await ticket.abandon()
    await server.nothing(0.5)


@scenario("10: a release needs no more than what the wire needs")
async def many_releases_are_under_way_together(play: Play) -> None:
    server = await play.server()
    broker = await play.ready_broker(server)
    tickets = [
        await play.held(server, broker, token=1000 + number, key=f"key-{number}") for number in range(50)
    ]
    releases = [ticket.begin("release") for ticket in tickets]
    requests = [await server.next("R") for _ in releases]
    for request in reversed(requests):
        request.answer("R" if request.frame.number % 2 else "N")
    for ticket, release in zip(tickets, releases, strict=True):
        assert await release.answer() == {"released": bool(ticket.token % 2)}
