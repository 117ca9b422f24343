"""Promises of the documents that belong to no other file."""

from __future__ import annotations

import asyncio
import logging
import ssl
import threading
import time

import pytest

from tests.client.conftest import MakeBroker, MakeServer
from tests.client.locking import LockServer
from tests.client.scripted import Time, turns
from tests.client.test_bridge import Serving
from tests.client.test_release import held
from ticketing.client import Ticket, TicketBroker, TicketError, acquire, connection
from ticketing.client.cluster import UNLISTED_MAX
from ticketing.protocol import frames


async def test_the_token_is_a_plain_int(new_server: MakeServer, new_broker: MakeBroker) -> None:
    server = await new_server()
    LockServer(server)
    broker = new_broker(server)
    async with await broker.acquire("key", 5, 30, 0) as ticket:
        assert type(ticket.token) is int
        assert isinstance(ticket, Ticket)


async def test_closing_drains_releases_for_five_seconds_and_no_longer(
    new_server: MakeServer, new_broker: MakeBroker, clock: Time
) -> None:
    server = await new_server()
    broker = new_broker(server)
    ticket = await held(server, broker)
    release = asyncio.ensure_future(ticket.release())
    await server.next(frames.RELEASE)
    closing = asyncio.ensure_future(broker.aclose())
    await clock.pass_by(4.5, server)
    assert not closing.done()
    await clock.pass_by(1, server)
    assert closing.done()
    with pytest.raises(TicketError) as caught:
        await release
    assert caught.value.kind == "io"
    await turns()
    assert not server.open_sessions


async def test_closing_waits_for_what_is_answered_in_time(
    new_server: MakeServer, new_broker: MakeBroker
) -> None:
    server = await new_server()
    broker = new_broker(server)
    ticket = await held(server, broker)
    ticket.close()
    asked = await server.next(frames.RELEASE)
    closing = asyncio.ensure_future(broker.aclose())
    await turns()
    assert not closing.done()
    asked.released()
    await closing
    assert await ticket.release() is True


async def test_a_body_that_outlived_its_lease_ends_normally(
    new_server: MakeServer, new_broker: MakeBroker, clock: Time
) -> None:
    server = await new_server()
    LockServer(server)
    broker = new_broker(server)
    async with await broker.acquire("key", 5, 2, 0) as ticket:
        await clock.pass_by(3, server)
        server.answer = lambda asked: asked.not_held()
    assert ticket.lost
    assert await ticket.release() is False


async def test_a_key_of_ones_own_is_waited_for_like_anybodys(
    new_server: MakeServer, new_broker: MakeBroker
) -> None:
    server = await new_server()
    LockServer(server)
    broker = new_broker(server)
    async with await broker.acquire("key", 5, 30, 0):
        with pytest.raises(TicketError) as caught:
            await broker.acquire("key", 0, 30, 0)
        assert caught.value.kind == "timeout"


async def test_those_without_a_session_are_bounded(
    new_server: MakeServer, new_broker: MakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acquire, "WAITING_MAX", 3)
    server = await new_server(refuse_connections=True)
    broker = new_broker(server)
    waiting = [asyncio.ensure_future(broker.acquire("key", 5, 30, 0)) for _ in range(3)]
    await turns()
    with pytest.raises(TicketError) as caught:
        await broker.acquire("key", 5, 30, 0)
    assert caught.value.kind == "busy"
    for call in waiting:
        call.cancel()
    await asyncio.wait(waiting)


async def test_addresses_that_were_not_configured_are_eight_at_most() -> None:
    broker = new_broker_with_tls()
    assert await broker.wait_ready(0) is False
    cluster = broker._cluster
    assert cluster is not None
    for number in range(20):
        cluster._dial_unlisted(f"127.0.0.{number + 2}:1")
    unlisted = [one.address for one in cluster.connections if not one.configured]
    assert unlisted == [f"127.0.0.{number + 2}:1" for number in range(20 - UNLISTED_MAX, 20)]
    await broker.aclose()


def new_broker_with_tls() -> TicketBroker:
    broker = TicketBroker(["127.0.0.1:1"], tls="system-roots")
    assert broker._settings.tls is not None
    assert broker._settings.tls.verify_mode is ssl.CERT_REQUIRED
    return broker


async def test_a_session_that_was_short_counts_as_a_failed_try(
    new_server: MakeServer, new_broker: MakeBroker, clock: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    resets = []
    monkeypatch.setattr(connection.Backoff, "reset", lambda backoff: resets.append(backoff))
    server = await new_server()
    broker = new_broker(server)
    assert await broker.wait_ready(5)
    for session in list(server.open_sessions):
        session.end()
    await turns()
    assert resets == []
    await clock.pass_by(1, server)
    assert await broker.wait_ready(5)
    await clock.pass_by(1.5, server)
    for session in list(server.open_sessions):
        session.end()
    await turns()
    assert resets


async def test_the_logger_of_the_broker_is_told_of_the_connections(
    new_server: MakeServer, new_broker: MakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    server = await new_server()
    with caplog.at_level(logging.DEBUG, "shop.locks"):
        broker = new_broker(server, logger=logging.getLogger("shop.locks"))
        assert await broker.wait_ready(5)
    assert {record.name for record in caplog.records if "session open" in record.message} == {"shop.locks"}


def test_closing_ends_the_thread_that_the_broker_made() -> None:
    serving = Serving()
    try:
        broker = TicketBroker([serving.address])
        with broker.acquire_sync("key", 5, 30, 0):
            names = [thread.name for thread in threading.enumerate()]
            assert "ticketing-loop" in names
        broker.close()
        began = time.monotonic()
        while any(thread.name == "ticketing-loop" for thread in threading.enumerate()):
            assert time.monotonic() < began + 5
            time.sleep(0.005)
        with pytest.raises(TicketError) as caught:
            broker.acquire_sync("key", 5, 30, 0)
        assert caught.value.kind == "closed"
    finally:
        serving.stop()
