"""Host names: several addresses behind one, looked up anew for each connection; IPv6."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable

import pytest

from tests.client.conftest import MakeBroker, MakeServer
from tests.client.locking import LockServer
from tests.client.scripted import Server, Time, turns, until
from ticketing.client import TicketBroker, resolve

Places = list[tuple[str, int]]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, Places]:
    """What each name is found to stand for, as often as it is asked for; "asked" counts that."""
    known: dict[str, Places] = {"asked": []}
    real = resolve._look_up

    def look_up(host: str, port: int, flags: int) -> list[resolve.SocketAddress]:
        if flags & socket.AI_NUMERICHOST:
            return real(host, port, flags)
        known["asked"].append((host, port))
        if host not in known:
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        return [(socket.AF_INET, place) for place in known[host]]

    monkeypatch.setattr(resolve, "_look_up", look_up)
    return known


def place(server: Server) -> tuple[str, int]:
    host, _, port = server.address.rpartition(":")
    return host, int(port)


@pytest.fixture
async def closed_port() -> tuple[str, int]:
    """Where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        host, port = listening.getsockname()
        return host, port


@pytest.fixture
def named_broker(new_broker: MakeBroker) -> Callable[[str], TicketBroker]:
    def make(address: str) -> TicketBroker:
        stand_in = Server()
        stand_in.address = address
        return new_broker(stand_in)

    return make


async def test_an_address_of_a_name_that_does_not_answer_is_passed_over(
    new_server: MakeServer,
    named_broker: Callable[[str], TicketBroker],
    names: dict[str, Places],
    closed_port: tuple[str, int],
) -> None:
    server = await new_server()
    names["locks.example"] = [closed_port, place(server)]
    broker = named_broker("locks.example:5225")
    assert await broker.wait_ready(5)


async def test_two_connections_to_one_name_begin_with_different_addresses(
    new_server: MakeServer, named_broker: Callable[[str], TicketBroker], names: dict[str, Places]
) -> None:
    servers = [await new_server(), await new_server()]
    names["locks.example"] = [place(server) for server in servers]
    broker = named_broker("locks.example:5225")
    assert await broker.wait_ready(5)
    await until(lambda: all(len(server.open_sessions) == 1 for server in servers))


async def test_a_name_is_looked_up_anew_when_its_connection_ended(
    new_server: MakeServer, named_broker: Callable[[str], TicketBroker], names: dict[str, Places]
) -> None:
    first, second = await new_server(), await new_server()
    names["locks.example"] = [place(first)]
    broker = named_broker("locks.example:5225")
    assert await broker.wait_ready(5)
    await until(lambda: len(first.open_sessions) == 2)
    asked = len(names["asked"])
    # The node has moved, as pods do.
    names["locks.example"] = [place(second)]
    await first.stop()
    await until(lambda: len(second.open_sessions) == 2)
    assert len(names["asked"]) >= asked + 2
    assert not first.open_sessions


async def test_a_name_that_is_not_known_is_no_error_until_the_wait_is_over_and_may_come_later(
    new_server: MakeServer, named_broker: Callable[[str], TicketBroker], names: dict[str, Places]
) -> None:
    server = await new_server()
    broker = named_broker("locks.example:5225")
    assert await broker.wait_ready(0.05) is False
    names["locks.example"] = [place(server)]
    assert await broker.wait_ready(5)


async def test_an_ipv6_literal_is_dialled(named_broker: Callable[[str], TicketBroker]) -> None:
    try:
        listening = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    dialled = asyncio.Event()

    def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        dialled.set()
        writer.close()

    accepting = await asyncio.start_server(greet, sock=listening)
    broker = named_broker(f"[::1]:{listening.getsockname()[1]}")
    assert await broker.wait_ready(0) is False
    async with asyncio.timeout(5):
        await dialled.wait()
    accepting.close()


@pytest.mark.parametrize("host", ["node-2..example.com", ".example.com", "a" * 64 + ".example.com"])
async def test_a_host_that_can_be_no_name_leaves_the_other_addresses_alone(
    new_server: MakeServer, clock: Time, host: str
) -> None:
    server = await new_server()
    LockServer(server)
    async with TicketBroker([f"{host}:5225", server.address], clock=clock.now_ns) as broker:
        assert await broker.wait_ready(5)
        await turns()
        async with await broker.acquire("key", 5, 30, 0) as ticket:
            assert ticket.token


async def test_a_look_up_that_gets_no_thread_is_one_failed_try(
    new_server: MakeServer,
    named_broker: Callable[[str], TicketBroker],
    names: dict[str, Places],
    clock: Time,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = await new_server()
    names["locks.example"] = [place(server)]
    refused: list[threading.Thread] = []

    def start(thread: threading.Thread) -> None:
        refused.append(thread)
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as limited:
        limited.setattr(threading.Thread, "start", start)
        broker = named_broker("locks.example:5225")
        assert await broker.wait_ready(0.05) is False
    assert refused
    await clock.jump(3.3)
    assert await broker.wait_ready(5)
