"""How long is waited, and for what (section 10)."""

from __future__ import annotations

import asyncio

from tests.conformance.play import Play, now, scenario

NOBODY = "127.0.0.1:1"
"""Where nobody listens."""


@scenario("10: wire wait = what is left of the wait at the moment of writing, rounded up")
async def the_wait_on_the_wire_is_what_is_left_of_it(play: Play) -> None:
    server = await play.server(leader=NOBODY)
    broker = await play.broker(server)
    began = now()
    acquire = broker.acquire(wait=20)
    await server.opened(2)
    await asyncio.sleep(2.2 - (now() - began))
    server.name_leader(server.address)
    request = await server.next("Q")
    assert 20 - (request.at - began) <= request.frame.wait <= 18
    request.answer("T")
    assert await acquire.kind() == "timeout"


@scenario("10: nothing left of the wait: `timeout`, nothing sent")
async def without_a_leader_the_wait_runs_out_and_nothing_is_sent(play: Play) -> None:
    server = await play.server(leader=NOBODY)
    broker = await play.broker(server)
    began = now()
    acquire = broker.acquire(wait=1.5)
    assert await acquire.kind() == "timeout"
    assert 1.4 < now() - began < 16
    server.name_leader(server.address)
    await server.nothing(0.5)


@scenario("10: connections are the broker's business: nobody listening is no error before the wait is over")
async def an_acquire_waits_for_a_server_that_is_not_there(play: Play) -> None:
    broker = await play.broker(addrs=[NOBODY])
    began = now()
    assert await broker.acquire(wait=1).kind() == "timeout"
    assert 0.9 < now() - began < 16
    assert not await broker.ready(0.1)


@scenario("10: wait=0 without a session to the leader: `not_connected`")
async def a_try_without_wait_and_without_a_leader_is_not_connected(play: Play) -> None:
    server = await play.server(leader=NOBODY)
    broker = await play.broker(server)
    assert await broker.acquire(wait=0).kind() == "not_connected"
    await server.opened(2)
    assert await broker.acquire(wait=0).kind() == "not_connected"
    server.name_leader(server.address)
    await server.nothing(0.5)


@scenario("2: wait 0 = one immediate try, never queued")
async def a_try_without_wait_is_one_frame_with_a_wait_of_0(play: Play) -> None:
    server = await play.server()
    broker = await play.ready_broker(server)
    acquire = broker.acquire(wait=0)
    request = await server.next("Q")
    assert request.frame.wait == 0
    request.answer("T")
    assert await acquire.kind() == "timeout"
    await server.nothing(0.3)


@scenario("10: `B` goes to the caller at once")
async def busy_is_told_at_once_and_not_asked_again(play: Play) -> None:
    server = await play.server()
    broker = await play.ready_broker(server)
    acquire = broker.acquire(wait=60)
    (await server.next("Q")).answer("B")
    assert await acquire.kind() == "busy"
    await server.nothing(0.5)
    assert len(server.open_sessions) == 2


@scenario("3 Server to client: T: wait ran out, or wait=0 and not free: not acquired")
async def a_t_is_a_timeout_and_not_asked_again(play: Play) -> None:
    server = await play.server()
    broker = await play.ready_broker(server)
    acquire = broker.acquire(wait=60)
    (await server.next("Q")).answer("T")
    assert await acquire.kind() == "timeout"
    await server.nothing(0.5)
    assert len(server.open_sessions) == 2


@scenario("10: `wait_ready`: True: an authenticated session to a serving leader exists; False at the timeout")
async def ready_is_a_session_to_a_serving_leader(play: Play) -> None:
    server = await play.server(leader=NOBODY)
    broker = await play.broker(server)
    began = now()
    assert not await broker.ready(0.7)
    assert 0.6 < now() - began < 15
    await server.opened(2)
    ready = broker.begin("wait_ready", timeout_ms=15_000)
    server.name_leader(server.address)
    assert await ready.answer() == {"ready": True}
    assert await broker.ready(0)
