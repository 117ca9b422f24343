"""Client connections over real sockets: the door, the session, and the last bytes."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.server.certificates import Authority
from tests.server.scripted import BANNER, Door, dial_client, open_door
from ticketing.server.settings import ShellLimits, TlsFiles

Run = Callable[[Any], Any]
Tls = tuple[TlsFiles | None, ssl.SSLContext | None]


@pytest.fixture(params=["plain", "tls"])
def tls(request: pytest.FixtureRequest, authority: Authority) -> Tls:
    if request.param == "plain":
        return None, None
    return authority.issue("client-door", "127.0.0.1", "localhost"), authority.client_context()


async def admitted(door: Door, context: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, Any]:
    reader, writer = await dial_client(door, tls=context)
    assert await reader.readline() == BANNER
    session = await door.node.next("opened")
    writer.write(b"in\n")
    await door.node.next("data")
    return reader, writer, session


async def cut_off(reader: asyncio.StreamReader) -> None:
    """The connection ends, in order or by a reset, and brings nothing more."""
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        assert await reader.read() == b""


def test_a_session_hears_its_banner_and_gets_answers_in_order(on_loop: Run, tmp_path: Path, tls: Tls) -> None:
    async def scene() -> None:
        async with open_door(tmp_path, tls=tls[0]) as door:
            reader, writer, session = await admitted(door, tls[1])
            assert session.source == "127.0.0.1"
            for number in range(50):
                writer.write(b"%d\n" % number)
            assert await reader.readexactly(140) == b"".join(b"%d\n" % number for number in range(50))
            writer.close()
            assert await door.node.next("ended") == (session, False)

    on_loop(scene())


def test_large_pieces_arrive_whole_in_both_directions(on_loop: Run, tmp_path: Path, tls: Tls) -> None:
    async def scene() -> None:
        async with open_door(tmp_path, tls=tls[0]) as door:
            reader, writer, _session = await admitted(door, tls[1])
            blob = bytes(range(256)) * 400
            writer.write(blob)
            assert await reader.readexactly(len(blob)) == blob
            writer.close()

    on_loop(scene())


def test_the_last_bytes_arrive_although_the_client_keeps_sending(
    on_loop: Run, tmp_path: Path, tls: Tls
) -> None:
    async def scene() -> None:
        async with open_door(tmp_path, tls=tls[0]) as door:
            reader, writer, session = await admitted(door, tls[1])
            writer.write(b"bye\n")
            await door.node.next("data")
            writer.write(b"unread" * 1000)
            assert await reader.read() == b"Mfarewell\n"
            writer.close()
            assert await door.node.next("ended") == (session, False)
            assert door.node.log.count("data") == 2, "what comes after the end is discarded"

    on_loop(scene())


def test_a_client_that_does_not_close_after_the_last_bytes_is_closed(
    on_loop: Run, tmp_path: Path, tls: Tls
) -> None:
    async def scene() -> None:
        async with open_door(tmp_path, tls=tls[0], limits=ShellLimits(drain_s=0.05)) as door:
            reader, writer, session = await admitted(door, tls[1])
            writer.write(b"bye\n")
            assert await door.node.next("ended") == (session, False)
            assert await reader.readline() == b"Mfarewell\n"
            writer.close()

    on_loop(scene())


def test_a_wrong_token_is_answered_late_and_outside_the_pool(on_loop: Run, tmp_path: Path, tls: Tls) -> None:
    async def scene() -> None:
        limits = ShellLimits(refusal_delay_s=0.2, refusals=1)
        async with open_door(tmp_path, tls=tls[0], limits=limits) as door:
            loop = asyncio.get_running_loop()
            first, first_writer = await dial_client(door, tls=tls[1])
            await first.readline()
            first_writer.write(b"wrong\n")
            await door.node.next("data")
            asked = loop.time()
            assert len(door.shell.clients.admission) == 0
            second, second_writer = await dial_client(door, tls=tls[1])
            await second.readline()
            second_writer.write(b"wrong\n")
            await cut_off(second)  # past the bound it is closed at once
            assert loop.time() - asked < 0.2
            assert await first.read() == b"Eauth_failed\n"
            assert loop.time() - asked > 0.15
            first_writer.close()
            second_writer.close()

    on_loop(scene())


def test_whoever_does_not_authenticate_in_time_is_told_and_closed(
    on_loop: Run, tmp_path: Path, tls: Tls
) -> None:
    async def scene() -> None:
        async with open_door(tmp_path, tls=tls[0], limits=ShellLimits(handshake_s=0.3)) as door:
            reader, writer = await dial_client(door, tls=tls[1])
            assert await reader.read() == BANNER + b"Eauth_timeout\n"
            writer.close()
            await door.node.next("ended")

    on_loop(scene())


def test_the_deadline_covers_the_tls_handshake(on_loop: Run, tmp_path: Path, authority: Authority) -> None:
    async def scene() -> None:
        files = authority.issue("client-door", "127.0.0.1")
        async with open_door(tmp_path, tls=files, limits=ShellLimits(handshake_s=0.1)) as door:
            reader, writer = await dial_client(door)
            writer.write(b"\x16\x03\x01\x02\x00half a record")
            await cut_off(reader)
            writer.close()
            assert "opened" not in door.node.log
            assert len(door.shell.clients) == 0
            assert len(door.shell.clients.admission) == 0

    on_loop(scene())


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "looks like HTTP"),
        (b"SSH-2.0-x\r\n", "looks like SSH"),
        (bytes(100), "does not look like TLS"),
    ],
)
def test_what_is_not_tls_is_closed_with_one_line(
    on_loop: Run, tmp_path: Path, authority: Authority, sent: bytes, told: str
) -> None:
    async def scene() -> None:
        async with open_door(tmp_path, tls=authority.issue("client-door", "127.0.0.1")) as door:
            reader, writer = await dial_client(door)
            writer.write(sent)
            await cut_off(reader)
            writer.close()
            assert told in door.logged()
            assert "Traceback" not in door.logged()

    on_loop(scene())


def test_a_full_pool_drops_the_oldest_silent_one(on_loop: Run, tmp_path: Path) -> None:
    async def scene() -> None:
        limits = ShellLimits(unauthenticated=2, silent_s=-1.0)  # everybody has been silent for long enough
        async with open_door(tmp_path, limits=limits) as door:
            oldest, writer_1 = await dial_client(door)
            await oldest.readline()
            second, writer_2 = await dial_client(door)
            await second.readline()
            third, writer_3 = await dial_client(door)
            await third.readline()
            await cut_off(oldest)
            writer_2.write(b"in\nstill here\n")
            assert await second.readline() == b"still here\n"
            for writer in (writer_1, writer_2, writer_3):
                writer.close()

    on_loop(scene())


def test_a_full_pool_without_silent_ones_closes_the_newcomer(on_loop: Run, tmp_path: Path) -> None:
    async def scene() -> None:
        limits = ShellLimits(unauthenticated=1, silent_s=60.0)
        async with open_door(tmp_path, limits=limits) as door:
            first, writer_1 = await dial_client(door)
            await first.readline()
            newcomer, writer_2 = await dial_client(door)
            assert await newcomer.read() == b""
            writer_1.write(b"in\n")
            await door.node.next("data")
            third, writer_3 = await dial_client(door)
            assert await third.readline() == BANNER, "whoever has authenticated is outside the pool"
            for writer in (writer_1, writer_2, writer_3):
                writer.close()

    on_loop(scene())


def test_a_client_that_does_not_read_is_not_read_and_then_told_off(
    on_loop: Run, tmp_path: Path, tls: Tls
) -> None:
    async def scene() -> None:
        limits = ShellLimits(slow_consumer_s=0.1, drain_s=0.1)
        async with open_door(tmp_path, tls=tls[0], limits=limits) as door:
            _reader, writer, session = await admitted(door, tls[1])
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            writer.write(b"flood\n")
            assert await door.node.next("slow") is session
            assert await door.node.next("ended") == (session, False), "it cannot be told: it is cut"
            writer.transport.abort()

    on_loop(scene())


def test_reading_goes_on_when_the_write_buffer_has_drained(on_loop: Run, tmp_path: Path, tls: Tls) -> None:
    async def scene() -> None:
        async with open_door(tmp_path, tls=tls[0]) as door:
            reader, writer, _session = await admitted(door, tls[1])
            writer.write(b"flood\n")
            await reader.readexactly(1024 * 16 * 1024)
            writer.write(b"and on\n")
            assert await reader.readline() == b"and on\n"
            assert "slow" not in door.node.log
            writer.close()

    on_loop(scene())


def test_a_reset_ends_the_session_at_once(on_loop: Run, tmp_path: Path) -> None:
    async def scene() -> None:
        async with open_door(tmp_path) as door:
            _reader, writer, session = await admitted(door, None)
            sock = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
            assert await door.node.next("ended") == (session, False)

    on_loop(scene())


def test_out_of_descriptors_newcomers_are_closed_and_later_ones_served(on_loop: Run, tmp_path: Path) -> None:
    async def scene() -> None:
        async with open_door(tmp_path, descriptors=16) as door:
            door.shell.clients._connections_max = 1
            _first, writer_1, _session = await admitted(door, None)
            newcomer, writer_2 = await dial_client(door)
            assert await newcomer.read() == b""
            writer_1.close()
            await door.node.next("ended")
            later, writer_3 = await dial_client(door)
            assert await later.readline() == BANNER
            writer_2.close()
            writer_3.close()

    on_loop(scene())


def test_the_end_of_the_process_closes_everybody(on_loop: Run, tmp_path: Path, tls: Tls) -> None:
    async def scene() -> None:
        async with open_door(tmp_path, tls=tls[0]) as door:
            reader, writer, _session = await admitted(door, tls[1])
            _silent, silent_writer = await dial_client(door)  # under TLS: in its handshake for ever
            port = door.client_port
        assert await reader.read() == b""
        writer.close()
        silent_writer.close()
        with socket.socket() as again:
            again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            again.bind(("127.0.0.1", port))

    on_loop(scene())
