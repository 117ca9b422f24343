"""Binding addresses, and an accept loop without descriptors."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.server.scripted import BANNER, dial_client, open_door, settings_for
from ticketing.server.listening import (
    ListenError,
    bind_all,
    close_all,
    is_loopback,
    join_address,
    port_of,
    source_of,
    split_address,
)
from ticketing.server.service import Listeners

Run = Callable[[Any], Any]


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [("127.0.0.1:0", "127.0.0.1", 0), ("[::1]:5225", "::1", 5225), ("node.example:1", "node.example", 1)],
)
def test_an_address_is_read_and_written_alike(text: str, host: str, port: int) -> None:
    assert split_address(text) == (host, port)
    assert join_address(host, port) == text


@pytest.mark.parametrize("text", ["", "127.0.0.1", ":80", "::1:80", "h:x", "h:65536", "h:-1", "h:٣"])
def test_what_is_no_address_is_told(text: str) -> None:
    with pytest.raises(ValueError):
        split_address(text)


@pytest.mark.parametrize(
    ("remote", "source"),
    [("10.0.0.1", "10.0.0.1"), ("::ffff:10.0.0.1", "10.0.0.1"), ("fe80::1%eth0", "fe80::1"), ("::1", "::1")],
)
def test_sources_are_counted_in_one_form(remote: str, source: str) -> None:
    assert source_of(remote) == source


def test_loopback_is_told_from_the_rest() -> None:
    assert [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "::", "h")] == [
        True,
        True,
        True,
        False,
        False,
        False,
    ]


def test_a_taken_port_is_named_in_one_line() -> None:
    first = bind_all("client", "127.0.0.1:0")
    address = f"127.0.0.1:{port_of(first[0])}"
    with pytest.raises(ListenError) as told:
        bind_all("peer", address)
    assert str(told.value) == f"peer address {address}: in use by another process"
    assert not told.value.configuration
    close_all(first)


@pytest.mark.parametrize("address", ["192.0.2.1:0", "no-such-host.invalid:1", "127.0.0.1:99999", "::1:80"])
def test_what_can_never_be_bound_is_a_configuration_error(address: str) -> None:
    with pytest.raises(ListenError) as told:
        bind_all("client", address)
    assert told.value.configuration
    assert "\n" not in str(told.value)


def test_a_port_is_free_again_at_once_although_connections_of_it_linger() -> None:
    sockets = bind_all("client", "127.0.0.1:0")
    address = f"127.0.0.1:{port_of(sockets[0])}"
    with socket.create_connection(("127.0.0.1", port_of(sockets[0]))) as client:
        served, _ = sockets[0].accept()
        close_all(sockets)
        served.close()  # we close first: the connection lingers in TIME_WAIT on our side
        assert client.recv(1) == b""
    close_all(bind_all("client", address))


def test_all_listeners_are_bound_or_none(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            client = free.getsockname()[1]
        settings = settings_for(tmp_path)
        settings = msgspec.structs.replace(
            settings,
            listen_client=f"127.0.0.1:{client}",
            listen_peer=f"127.0.0.1:{taken.getsockname()[1]}",
        )
        with pytest.raises(ListenError, match="peer address"):
            Listeners(settings)
        close_all(bind_all("client", f"127.0.0.1:{client}"))


def take_all_descriptors(hoard: list[int]) -> None:
    with contextlib.suppress(OSError):
        while True:
            hoard.append(os.open(os.devnull, os.O_RDONLY))


def test_running_out_of_descriptors_neither_spins_nor_ends_the_listener(on_loop: Run, tmp_path: Path) -> None:
    async def scene() -> None:
        async with open_door(tmp_path) as door:
            limit = resource.getrlimit(resource.RLIMIT_NOFILE)
            sock = socket.socket()
            sock.setblocking(False)
            later = socket.socket()
            later.setblocking(False)
            loop = asyncio.get_running_loop()
            hoard: list[int] = []
            try:
                resource.setrlimit(resource.RLIMIT_NOFILE, (max(later.fileno() + 8, 64), limit[1]))
                take_all_descriptors(hoard)
                await loop.sock_connect(sock, ("127.0.0.1", door.client_port))
                assert await loop.sock_recv(sock, 1) == b"", "whoever cannot be served is closed"
                assert "out of descriptors" in door.logged()
                for descriptor in hoard:
                    os.close(descriptor)
                hoard.clear()
                await loop.sock_connect(later, ("127.0.0.1", door.client_port))
                assert await loop.sock_recv(later, len(BANNER)) == BANNER
            finally:
                for descriptor in hoard:
                    os.close(descriptor)
                resource.setrlimit(resource.RLIMIT_NOFILE, limit)
                sock.close()
                later.close()

    on_loop(scene())


def test_a_flood_is_taken_a_bounded_number_a_turn(on_loop: Run, tmp_path: Path) -> None:
    async def scene() -> None:
        async with open_door(tmp_path) as door:
            connections = await asyncio.gather(*(dial_client(door) for _ in range(60)))
            for reader, writer in connections:
                assert await reader.readline() == BANNER
                writer.close()

    on_loop(scene())
