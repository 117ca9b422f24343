"""What a caller passes in: rounded up to wire seconds, refused out of range, never clipped (section 2)."""

from __future__ import annotations

import math

import pytest

from tests.conformance.library import CallError
from tests.conformance.play import Broker, Play, now, scenario
from tests.conformance.server import Server


async def leased(server: Server, broker: Broker, wait: float, lease: float, budget: float = 0) -> int:
    """The lease as it arrives; the wait arrives as what is left of it, rounded up."""
    began = now()
    acquire = broker.acquire(wait=wait, lease=lease, budget=budget)
    request = await server.next("Q")
    request.answer("B")
    assert await acquire.kind() == "busy"
    assert math.ceil(wait - (request.at - began)) <= request.frame.wait <= math.ceil(wait)
    return request.frame.lease


def told(error: CallError, field: str, *words: str) -> None:
    """A refusal names the field, what was given and what is allowed."""
    assert error.kind == "invalid_input", error
    assert error.field == field, error
    assert error.value is not None, error
    for word in words:
        assert word in error.range, error
    assert field in error.message, error


@scenario("2: clients round seconds up to whole wire seconds")
async def waits_and_leases_are_rounded_up(play: Play) -> None:
    server = await play.server()
    broker = await play.ready_broker(server)
    assert await leased(server, broker, 0, 0.001) == 1
    assert await leased(server, broker, 5, 1) == 1
    assert await leased(server, broker, 4.9, 1.001) == 2
    assert await leased(server, broker, 254.9, 249.001) == 250
    assert await leased(server, broker, 255, 250) == 250


@scenario("2: wait 0..255 s, out of range is refused before sending")
async def a_wait_above_255_s_is_refused(play: Play) -> None:
    server = await play.server()
    broker = await play.ready_broker(server)
    for wait in (255.001, 256, 65_536 + 5, 10**9):
        told(await broker.acquire(wait=wait).failure(), "wait", "0", "255")
    assert not server.log


@scenario("2: lease 1..250 s, out of range is refused before sending")
async def a_lease_of_0_or_above_250_s_is_refused(play: Play) -> None:
    server = await play.server()
    broker = await play.ready_broker(server)
    for lease in (0, 250.001, 251, 65_536 + 5, 10**9):
        told(await broker.acquire(lease=lease).failure(), "lease", "1", "250")
    ticket = await play.held(server, broker)
    for lease in (0, 250.001):
        told(await ticket.begin("extend", lease_ms=round(lease * 1000)).failure(), "lease", "1", "250")
    assert len(server.log) == 1


@scenario("10: a budget above 250 s or above the rounded lease is `invalid_input`, nothing sent")
async def a_budget_above_the_rounded_lease_is_refused(play: Play) -> None:
    server = await play.server()
    broker = await play.ready_broker(server)
    for lease, budget in ((30, 30.001), (1.2, 2.001), (250, 250.001), (250, 10**9)):
        told(await broker.acquire(lease=lease, budget=budget).failure(), "min_work_budget", "0")
    assert not server.log
    # The lease is rounded first.
    assert await leased(server, broker, 5, 1.2, 1.9) == 2
    assert await leased(server, broker, 5, 250, 250) == 250


@scenario("2: key: 1..128 bytes of UTF-8 without space, CR, LF")
async def a_key_that_is_none_is_refused(play: Play) -> None:
    server = await play.server()
    broker = await play.ready_broker(server)
    for key in ("", "x" * 129, "é" * 65, "a b", " ", "a\nb", "key\n", "a\rb"):
        told(await broker.acquire(key).failure(), "key", "1", "128")
    assert not server.log


@scenario("10: addresses are checked when the broker is made")
async def an_address_that_is_none_is_refused(play: Play) -> None:
    for address in (
        "127.0.0.1",
        "host:0",
        "host:65536",
        ":5225",
        "a b:5225",
        "::1:5225",
        "x" * 121 + ":1",
        "",
    ):
        with pytest.raises(CallError) as caught:
            await play.broker(addrs=[address])
        told(caught.value, "addrs")
    with pytest.raises(CallError) as caught:
        await play.broker(addrs=[])
    told(caught.value, "addrs")


@scenario("10: bad input is refused whether or not there is a session")
async def bad_input_is_refused_without_a_session_too(play: Play) -> None:
    broker = await play.broker(addrs=["127.0.0.1:1"])
    told(await broker.acquire("a b").failure(), "key", "1", "128")
    told(await broker.acquire(wait=256).failure(), "wait", "0", "255")
