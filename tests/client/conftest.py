from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from tests.client.scripted import Server, Time, turns
from ticketing.client import TicketBroker

MakeServer = Callable[..., Awaitable[Server]]
MakeBroker = Callable[..., TicketBroker]


@pytest.fixture(autouse=True)
async def nothing_unheard() -> AsyncIterator[None]:
    """Whatever reaches the loop's exception handler, and any task that is left, fails the test."""
    loop = asyncio.get_running_loop()
    heard: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: heard.append(context))
    yield
    await turns()
    left = [task for task in asyncio.all_tasks() if task.get_name().startswith("ticketing")]
    assert not left
    assert not heard


@pytest.fixture
async def clock() -> Time:
    return Time()


@pytest.fixture
async def new_server(nothing_unheard: None) -> AsyncIterator[MakeServer]:
    servers: list[Server] = []

    async def make(**options: Any) -> Server:
        server = Server()
        for name, value in options.items():
            assert hasattr(server, name), name
            setattr(server, name, value)
        await server.start()
        servers.append(server)
        return server

    yield make
    for server in servers:
        await server.stop()


@pytest.fixture
async def new_broker(new_server: MakeServer, clock: Time) -> AsyncIterator[MakeBroker]:
    brokers: list[TicketBroker] = []

    def make(*servers: Server, **options: Any) -> TicketBroker:
        broker = TicketBroker([server.address for server in servers], clock=clock.now_ns, **options)
        brokers.append(broker)
        return broker

    yield make
    for broker in brokers:
        closing = asyncio.ensure_future(broker.aclose())
        await turns()
        if not closing.done():
            await clock.jump(6)
        await closing
