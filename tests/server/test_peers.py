"""Peer links over real sockets: dialled and accepted, with and without mutual TLS."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.server.certificates import Authority, make_authority
from tests.server.scripted import Door, open_door
from ticketing.server.settings import ShellLimits, TlsFiles

Run = Callable[[Any], Any]


@pytest.fixture(params=["plain", "tls"])
def tls(request: pytest.FixtureRequest, authority: Authority) -> TlsFiles | None:
    return None if request.param == "plain" else authority.issue("peer-door", "127.0.0.1")


@contextlib.asynccontextmanager
async def two_doors(
    folder: Path, first: TlsFiles | None, second: TlsFiles | None
) -> AsyncIterator[tuple[Door, Door]]:
    async with open_door(folder / "a", tls=first) as a, open_door(folder / "b", tls=second) as b:
        yield a, b


def peer_address(door: Door) -> str:
    return door.service.place.peer


def test_a_link_carries_frames_both_ways_in_order(on_loop: Run, tmp_path: Path, tls: TlsFiles | None) -> None:
    async def scene() -> None:
        async with two_doors(tmp_path, tls, tls) as (a, b):
            link = a.shell.dial(peer_address(b), "peer")
            assert "up" not in a.node.log, "never from within the call"
            assert await a.node.next("up") is link
            inbound = await b.node.next("up")
            assert inbound.inbound
            assert inbound.purpose == ""
            frames = b"".join(bytes((number,)) * 1000 for number in range(200))
            for start in range(0, len(frames), 1000):
                a.shell.send(link, frames[start : start + 1000])
            while len(b.node.link_data_of[inbound]) < len(frames):
                await b.node.next("link data")
            assert b.node.link_data_of[inbound] == frames
            b.shell.send(inbound, b"answer")
            await a.node.next("link data")
            assert a.node.link_data_of[link] == b"answer"
            assert a.shell.buffered(link) == 0

    on_loop(scene())


def test_hanging_up_flushes_and_tells_the_other_side_alone(
    on_loop: Run, tmp_path: Path, tls: TlsFiles | None
) -> None:
    async def scene() -> None:
        async with two_doors(tmp_path, tls, tls) as (a, b):
            link = a.shell.dial(peer_address(b), "peer")
            await a.node.next("up")
            inbound = await b.node.next("up")
            a.shell.send(link, b"farewell")
            a.shell.hang_up(link)
            a.shell.send(link, b"too late")
            a.shell.hang_up(link)
            assert await b.node.next("down") == (inbound, False)
            assert b.node.link_data_of[inbound] == b"farewell"
            assert "down" not in a.node.log

    on_loop(scene())


def test_nobody_listening_is_told_as_refused(on_loop: Run, tmp_path: Path) -> None:
    async def scene() -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            nobody = f"127.0.0.1:{free.getsockname()[1]}"
            async with open_door(tmp_path) as door:
                link = door.shell.dial(nobody, "peer")
                assert await door.node.next("down") == (link, True)

    on_loop(scene())


def test_a_name_that_does_not_resolve_is_down_and_not_refused(on_loop: Run, tmp_path: Path) -> None:
    async def scene() -> None:
        async with open_door(tmp_path) as door:
            link = door.shell.dial("no-such-host.invalid:1", "peer")
            assert await door.node.next("down") == (link, False)
            assert "does not resolve" in door.logged()

    on_loop(scene())


def test_a_dial_that_hangs_up_first_is_never_heard_of(on_loop: Run, tmp_path: Path) -> None:
    async def scene() -> None:
        async with two_doors(tmp_path, None, None) as (a, b):
            gone = a.shell.dial(peer_address(b), "peer")
            a.shell.hang_up(gone)
            link = a.shell.dial(peer_address(b), "snapshot")
            assert await a.node.next("up") is link
            assert "down" not in a.node.log

    on_loop(scene())


def test_a_certificate_of_another_ca_is_refused_by_the_acceptor(
    on_loop: Run, tmp_path: Path, authority: Authority
) -> None:
    async def scene() -> None:
        stranger = make_authority(tmp_path / "other-ca").issue("peer-door", "127.0.0.1")
        trusting = TlsFiles(ca=authority.ca, certificate=stranger.certificate, key=stranger.key)
        async with two_doors(tmp_path, trusting, authority.issue("peer-door", "127.0.0.1")) as (a, b):
            link = a.shell.dial(peer_address(b), "peer")
            # In TLS 1.3 the dialler is through before its certificate is judged.
            assert await a.node.next("down") == (link, False)
            assert "up" not in b.node.log
            assert "TLS with a peer failed" in b.logged()

    on_loop(scene())


def test_a_certificate_for_another_host_is_refused_by_the_dialler(
    on_loop: Run, tmp_path: Path, authority: Authority
) -> None:
    async def scene() -> None:
        ours = authority.issue("peer-door", "127.0.0.1")
        theirs = authority.issue("peer-elsewhere", "elsewhere.example", "127.0.0.2")
        async with two_doors(tmp_path, ours, theirs) as (a, b):
            link = a.shell.dial(peer_address(b), "peer")
            assert await a.node.next("down") == (link, False)
            assert "up" not in a.node.log
            assert "mismatch" in a.logged()

    on_loop(scene())


def test_an_accepted_link_knows_which_addresses_its_certificate_is_for(
    on_loop: Run, tmp_path: Path, authority: Authority
) -> None:
    async def scene() -> None:
        ours = authority.issue("peer-elsewhere", "elsewhere.example", "10.0.0.7")
        theirs = authority.issue("peer-door", "127.0.0.1")
        async with two_doors(tmp_path, ours, theirs) as (a, b):
            a.shell.dial(peer_address(b), "peer")
            inbound = await b.node.next("up")
            assert inbound.certifies("elsewhere.example:6225")
            assert inbound.certifies("10.0.0.7:1")
            assert not inbound.certifies("127.0.0.1:6225")
        async with two_doors(tmp_path / "plain", None, None) as (a, b):
            a.shell.dial(peer_address(b), "peer")
            assert (await b.node.next("up")).certifies("127.0.0.1:6225")

    on_loop(scene())


def test_plain_bytes_on_a_tls_peer_port_are_closed(
    on_loop: Run, tmp_path: Path, authority: Authority
) -> None:
    async def scene() -> None:
        async with open_door(tmp_path, tls=authority.issue("peer-door", "127.0.0.1")) as door:
            host, port = peer_address(door).split(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            await reader.read()
            writer.close()
            assert "up" not in door.node.log
            assert "TLS with a peer failed" in door.logged()

    on_loop(scene())


def test_a_link_that_does_not_authenticate_is_closed_and_one_that_does_is_not(
    on_loop: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ticketing.server.peers.HANDSHAKE_S", 0.1)

    async def scene() -> None:
        async with two_doors(tmp_path, None, None) as (a, b):
            known = a.shell.dial(peer_address(b), "peer")
            (await b.node.next("up")).purpose = "peer"  # as the node does when a link has proved itself
            unknown = a.shell.dial(peer_address(b), "peer")
            assert await a.node.next("down") == (unknown, False)
            a.shell.send(known, b"x")
            await b.node.next("link data")

    on_loop(scene())


def test_the_door_of_the_peer_port_is_bounded(
    on_loop: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ticketing.server.peers.UNAUTHENTICATED_MAX", 1)

    async def scene() -> None:
        async with two_doors(tmp_path, None, None) as (a, b):
            first = a.shell.dial(peer_address(b), "peer")
            inbound = await b.node.next("up")
            second = a.shell.dial(peer_address(b), "peer")
            assert await a.node.next("down") == (second, False)
            inbound.purpose = "peer"
            third = a.shell.dial(peer_address(b), "peer")
            await b.node.next("up")
            a.shell.send(first, b"x")
            await b.node.next("link data")
            a.shell.send(third, b"y")
            await b.node.next("link data")

    on_loop(scene())


def test_a_full_link_is_counted_and_its_draining_told(
    on_loop: Run, tmp_path: Path, tls: TlsFiles | None
) -> None:
    async def scene() -> None:
        async with two_doors(tmp_path, tls, tls) as (a, b):
            link = a.shell.dial(peer_address(b), "peer")
            await a.node.next("up")
            inbound = await b.node.next("up")
            inbound.connection.transport.pause_reading()
            sent = 0
            while a.shell.buffered(link) < 1 << 20:
                a.shell.send(link, bytes(1 << 16))
                sent += 1 << 16
                await asyncio.sleep(0)
            assert "writable" not in a.node.log
            inbound.connection.transport.resume_reading()
            assert await a.node.next("writable") is link
            assert a.shell.buffered(link) <= 64 * 1024
            while len(b.node.link_data_of[inbound]) < sent:
                await b.node.next("link data")

    on_loop(scene())


def test_an_end_of_the_other_side_is_told_at_once(on_loop: Run, tmp_path: Path, tls: TlsFiles | None) -> None:
    async def scene() -> None:
        async with open_door(tmp_path / "a", tls=tls) as a:
            async with open_door(tmp_path / "b", tls=tls, limits=ShellLimits(drain_s=0.1)) as b:
                link = a.shell.dial(peer_address(b), "peer")
                await a.node.next("up")
                await b.node.next("up")
            assert await a.node.next("down") == (link, False)

    on_loop(scene())
