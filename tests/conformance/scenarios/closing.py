"""The end of a broker (section 10)."""

from __future__ import annotations

import asyncio

from tests.conformance.play import Play, now, scenario
from tests.conformance.scenarios.tls import context
from tests.conformance.scenarios.waiting import NOBODY
from tests.conformance.server import Request


@scenario("10: close: drain, end connections")
async def closing_waits_for_what_is_being_given_back(play: Play) -> None:
    server = await play.server()
    broker = await play.ready_broker(server)
    ticket = await play.held(server, broker, token=95)
    await ticket.abandon()
    close = broker.begin("close")
    request = await server.next("R")
    assert request.frame.number == 95
    await asyncio.sleep(1)
    assert not close.done
    request.answer("R")
    await close.answer()
    for session in server.sessions:
        await session.over()


@scenario("10: an unreleased ticket that is dropped is released: by whatever way its broker is left")
async def releases_said_just_before_the_broker_is_left_are_written(play: Play) -> None:
    ways = (("close", False), ("leave", False), ("return", False), ("return", True))
    for way, secured in ways:
        for blocking in (False, True) if play.library.blocking else (False,):
            await _left(play, way, secured=secured, blocking=blocking)


async def _left(play: Play, way: str, *, secured: bool, blocking: bool) -> None:
    authority = play.authority(f"ca-{way}-{secured}-{blocking}")
    server = await play.server(tls=context(authority) if secured else None)
    driver = await play.own_driver()
    broker = await play.ready_broker(
        server, driver=driver, tls=str(authority.ca) if secured else "off", blocking=blocking
    )
    tokens = range(1, 9)
    tickets = [await play.held(server, broker, token=token, key=f"key-{token}") for token in tokens]
    # A call under way keeps a broker that is left; a blocking one is over before its program returns.
    called = not blocking and way != "leave"
    # In one piece, so that little or nothing is done in between.
    for ticket in tickets:
        if called and ticket.token % 3 == 0:
            ticket.begin("release")
        ticket.begin("abandon")
    if way == "return":
        driver.begin("return")
    else:
        broker.begin(way)
    if way != "close":
        play.left(broker)
    # Answered once all are there: what a connection that is gone does to answers is not what this is about.
    requests: dict[int, Request] = {}
    while len(requests) < len(tickets):
        request = await server.next("R")
        requests[request.frame.number] = request
    for request in requests.values():
        request.answer("R")
    assert set(requests) == set(tokens)
    for session in server.sessions:
        await session.over()


@scenario("10: close: drain at most 5 s")
async def closing_drains_for_five_seconds_at_most(play: Play) -> None:
    server = await play.server()
    broker = await play.ready_broker(server)
    ticket = await play.held(server, broker)
    await ticket.abandon()
    await server.next("R")
    began = now()
    await broker.close()
    assert 3 < now() - began < 21
    for session in server.sessions:
        await session.over()


@scenario("10: close: end connections, workers, thread")
async def closing_leaves_no_task_behind(play: Play) -> None:
    server = await play.server(answers=lambda request: request.answer("T"))
    driver = await play.own_driver()

    async def tasks() -> int:
        alive: int = (await driver.begin("tasks").answer())["tasks"]
        return alive

    before = await tasks()
    for _ in range(3):
        broker = await play.ready_broker(server, driver=driver)
        assert await broker.acquire().kind() == "timeout"
        assert await tasks() > before
        await broker.close()
    assert await tasks() == before
    assert not server.open_sessions or await server.open_sessions[0].over()


@scenario("10: a broker that is closed while it dials leaves nothing behind")
async def closing_while_dialling_leaves_no_task_behind(play: Play) -> None:
    silent = await play.server(silent=True)
    driver = await play.own_driver()
    before = (await driver.begin("tasks").answer())["tasks"]
    broker = await play.broker(addrs=[silent.address, NOBODY], driver=driver)
    assert not await broker.ready(0.1)
    began = now()
    await broker.close()
    assert now() - began < 4
    assert (await driver.begin("tasks").answer())["tasks"] == before
    await (await silent.session()).over()


@scenario("10: `TicketError.kind` `closed`: not sent")
async def a_closed_broker_takes_nothing_new(play: Play) -> None:
    server = await play.server()
    broker = await play.ready_broker(server)
    await broker.close()
    assert await broker.acquire().kind() == "closed"
    assert (await broker.begin("wait_ready", timeout_ms=1000).failure()).kind == "closed"
    await broker.close()
    assert not server.log


@scenario("10: close: what was not sent is `closed`; what was sent is `indeterminate` and cancelled")
async def closing_ends_the_acquires_under_way(play: Play) -> None:
    server = await play.server()
    broker = await play.ready_broker(server)
    sent = broker.acquire("sent", wait=200)
    asked = await server.next("Q")
    close = broker.begin("close")
    assert await sent.kind() == "indeterminate"
    cancel = await server.next("C")
    assert cancel.frame.number == asked.frame.number
    cancel.answer("R")
    await close.answer()

    waiting = await play.server(leader=NOBODY)
    broker = await play.broker(waiting)
    unsent = broker.acquire("unsent", wait=200)
    await waiting.opened(2)
    await broker.close()
    assert await unsent.kind() == "closed"
    assert not waiting.log


@scenario("10: a ticket outlives its broker's end: its lease goes on, it is not lost by the close")
async def a_ticket_of_a_closed_broker_keeps_its_end(play: Play) -> None:
    server = await play.server()
    broker = await play.ready_broker(server)
    ticket = await play.held(server, broker, lease=30)
    await broker.close()
    assert not await ticket.lost()
    assert 20 < await ticket.remaining() <= 30
    assert (await ticket.begin("release").failure()).kind == "closed"
