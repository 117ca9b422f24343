"""What reaches the node in one turn is bounded, whatever lies in the sockets; nothing is lost or overtaken."""

from __future__ import annotations

import asyncio
import selectors
import socket
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.server.certificates import Authority
from tests.server.scripted import Door, dial_client, open_door
from ticketing.server.clients import ClientConnection
from ticketing.server.intake import LEAST_BYTES, SHARE_BYTES, Intake
from ticketing.server.settings import ShellLimits, TlsFiles

Run = Callable[[Any], Any]
TURN_BYTES = 4_096


class Bytes:
    """A source with so many bytes left."""

    def __init__(self, name: str, left: int, got: list[tuple[str, int]]) -> None:
        self.name = name
        self.left = left
        self._got = got

    @property
    def behind(self) -> bool:
        return self.left > 0

    def go_on(self, limit: int) -> int:
        taken = min(limit, self.left)
        self.left -= taken
        self._got.append((self.name, taken))
        return taken


class Turns:
    """The shell's part: it says when a flush is over."""

    def __init__(self, turn_bytes: int, held_bytes: int = 1 << 20) -> None:
        self.got: list[tuple[str, int]] = []
        self.intake = Intake(turn_bytes, held_bytes)

    def source(self, name: str, left: int) -> None:
        self.intake.put_off(Bytes(name, left, self.got))

    def turn(self) -> list[tuple[str, int]]:
        """A flush, and what follows it at once."""
        self.got.clear()
        self.intake.next_turn()
        return self.got.copy()


def test_a_turn_takes_its_bytes_and_no_more() -> None:
    turns = Turns(10)
    turns.source("a", 25)
    assert turns.got == [("a", 10)]
    assert turns.turn() == [("a", 10)]
    assert turns.turn() == [("a", 5)]
    assert turns.turn() == []
    assert turns.intake.left == 10


def test_those_behind_take_turns_in_shares() -> None:
    turns = Turns(3 * SHARE_BYTES)
    turns.source("a", 5 * SHARE_BYTES)
    turns.source("b", 2 * SHARE_BYTES)
    assert turns.got == [("a", 3 * SHARE_BYTES)]
    assert turns.turn() == [("a", SHARE_BYTES), ("b", SHARE_BYTES), ("a", SHARE_BYTES)]
    assert turns.turn() == [("b", SHARE_BYTES)]


def test_one_that_is_over_costs_the_others_nothing() -> None:
    turns = Turns(10)
    gone = Bytes("gone", 100, turns.got)
    turns.intake.put_off(gone)
    turns.source("b", 5)
    gone.left = 0
    assert turns.turn() == [("gone", 0), ("b", 5)]


def test_while_enough_are_behind_a_read_brings_little() -> None:
    turns = Turns(1, 3 * SHARE_BYTES)
    for name in "abc":
        assert len(turns.intake.room) == SHARE_BYTES
        turns.source(name, 2)
    assert len(turns.intake.room) == LEAST_BYTES
    turns.turn()
    assert len(turns.intake.room) == SHARE_BYTES


@pytest.fixture(params=["plain", "tls"])
def tls(
    request: pytest.FixtureRequest, authority: Authority
) -> tuple[TlsFiles | None, ssl.SSLContext | None]:
    if request.param == "plain":
        return None, None
    return authority.issue("client-door", "127.0.0.1", "localhost"), authority.client_context()


def test_a_flood_reaches_the_node_in_turns_whole_and_in_order(
    on_loop: Run, tmp_path: Path, tls: tuple[TlsFiles | None, ssl.SSLContext | None]
) -> None:
    async def scene() -> None:
        files, context = tls
        limits = ShellLimits(drain_s=0.3, turn_bytes=TURN_BYTES)
        async with open_door(tmp_path, tls=files, limits=limits) as door:
            most = watch_turns(door)
            reader, writer = await dial_client(door, tls=context)
            await reader.readline()
            sent = b"".join(b"%07d\n" % number for number in range(30_000))
            if context is None:
                writer.write(b"in\n" + sent)  # frames may follow what authenticates at once
            else:
                writer.write(b"in\n")
                await door.node.next("data")
                writer.write(sent)
            echoed = b""
            while len(echoed) < len(sent):
                echoed += await asyncio.wait_for(reader.read(1 << 16), 20)
            assert echoed == sent
            assert TURN_BYTES // 2 < max(most) <= 2 * TURN_BYTES  # one of them brought the authentication too
            assert sorted(most)[-2] <= TURN_BYTES
            writer.write(b"bye\n")
            assert await asyncio.wait_for(reader.readline(), 20) == b"Mfarewell\n"
            writer.close()

    on_loop(scene())


def test_whoever_closes_behind_a_flood_has_it_handed_in_first(
    on_loop: Run, tmp_path: Path, tls: tuple[TlsFiles | None, ssl.SSLContext | None]
) -> None:
    async def scene() -> None:
        files, context = tls
        limits = ShellLimits(drain_s=0.3, turn_bytes=TURN_BYTES)
        async with open_door(tmp_path, tls=files, limits=limits) as door:
            most = watch_turns(door, echo=False)
            reader, writer = await dial_client(door, tls=context)
            await reader.readline()
            writer.write(b"in\n")
            session = await door.node.next("opened")
            await door.node.next("data")
            data = door.node.data[session]
            before = len(data)
            writer.write(bytes(100_000))
            writer.close()
            await door.node.next("ended")
            assert len(data) - before == 100_000
            assert max(most) <= TURN_BYTES

    on_loop(scene())


def test_what_was_read_is_handed_in_though_the_connection_breaks(on_loop: Run, tmp_path: Path) -> None:
    """Say by a damaged record behind it. Releases may be among it. The end is told first, the rest in turns."""

    async def scene() -> None:
        async with open_door(tmp_path, limits=ShellLimits(drain_s=0.3, turn_bytes=TURN_BYTES)) as door:
            reader, writer = await dial_client(door)
            await reader.readline()
            writer.write(b"in\n")
            session = await door.node.next("opened")
            await door.node.next("data")
            await door.node.next("flush")
            most = watch_turns(door, echo=False)
            node: Any = door.node
            flush = node.flush
            connection, data = session.io, door.node.data[session]

            def broken() -> None:
                flush()
                if connection.behind:
                    connection.abort()

            node.flush = broken
            writer.write(bytes(3 * TURN_BYTES))
            await door.node.next("ended")
            rest = door.node.rest_of[session]
            while connection.behind:
                await door.node.next("rest")
            assert len(data) + len(rest) == 3 + 3 * TURN_BYTES
            assert len(rest) >= TURN_BYTES
            assert max(most) <= TURN_BYTES
            assert connection.session is None
            writer.close()

    on_loop(scene())


def test_many_that_flood_and_break_at_one_stroke_have_their_rests_taken_in_turns(
    on_loop: Run, tmp_path: Path
) -> None:
    """The first `full_reads` of them: rests of more are handed in where they break, what is held is bounded."""
    count, full_reads = 12, 8

    async def scene() -> None:
        limits = ShellLimits(drain_s=0.3, turn_bytes=TURN_BYTES, held_bytes=full_reads * SHARE_BYTES)
        async with open_door(tmp_path, limits=limits) as door:
            connections: list[ClientConnection] = []
            writers = []
            for _ in range(count):
                reader, writer = await dial_client(door)
                await reader.readline()
                writer.write(b"in\n")
                connections.append((await door.node.next("opened")).io)
                await door.node.next("data")
                writers.append(writer)
            node: Any = door.node
            most = watch_turns(door, echo=False)
            flush, intake = node.flush, connections[0].clients.intake
            sessions = [connection.session for connection in connections]
            ended: list[int] = []

            def stroke() -> None:
                flush()
                told = sum(session in door.node.rest_of for session in sessions)
                if not told and all(connection.behind for connection in connections):
                    for connection in connections:
                        connection.abort()
                ended.append(told)

            node.flush = stroke
            for writer in writers:
                writer.write(bytes(4 * SHARE_BYTES))
            while not all(connection.session is None for connection in connections):
                await door.node.next("flush")
                assert intake.leavers <= full_reads
            assert intake.leavers == 0
            assert count in ended[:-1], "all are told to be over before the rest of the last one has come"
            at_once = SHARE_BYTES * (count - full_reads)
            assert sorted(most)[-2] <= TURN_BYTES
            assert max(most) <= TURN_BYTES + at_once
            for writer in writers:
                writer.close()

    on_loop(scene())


def test_what_is_held_back_of_many_is_bounded_together(
    on_loop: Run, tmp_path: Path, tls: tuple[TlsFiles | None, ssl.SSLContext | None]
) -> None:
    """Full reads of a few, and a little of each of the others. TLS adds what completes a record."""
    count, full_reads, sent = 24, 4, 200_000

    async def scene() -> None:
        files, context = tls
        held_bytes = full_reads * SHARE_BYTES
        limits = ShellLimits(drain_s=0.3, turn_bytes=TURN_BYTES, held_bytes=held_bytes)
        async with open_door(tmp_path, tls=files, limits=limits) as door:
            node: Any = door.node
            flush, most = node.flush, [0, 0]
            connections: list[ClientConnection] = []
            data: list[bytearray] = []

            def measured() -> None:
                node._echo.clear()
                held = [len(connection._rest) for connection in connections]
                most[:] = max(most[0], *held), max(most[1], sum(held))
                flush()

            writers = []
            for _ in range(count):
                reader, writer = await dial_client(door, tls=context)
                await reader.readline()
                writer.write(b"in\n")
                session = await door.node.next("opened")
                await door.node.next("data")
                connections.append(session.io)
                data.append(door.node.data[session])
                writers.append(writer)
            node.flush = measured
            for writer in writers:
                writer.write(bytes(sent))
            while not all(len(got) == 3 + sent for got in data):
                await door.node.next("flush")
            record = 0 if context is None else SHARE_BYTES
            assert most[0] <= SHARE_BYTES + record
            assert SHARE_BYTES < most[1] <= held_bytes + count * (LEAST_BYTES + record)
            for writer in writers:
                writer.close()

    on_loop(scene())


def test_whoever_is_answered_in_every_turn_leaves_the_others_their_share(
    on_loop: Run, tmp_path: Path
) -> None:
    """More ask again and again than a turn takes; what is read first must not always be the same ones."""
    count, size = 32, TURN_BYTES // 8
    served = [0] * count

    def ask(port: int) -> None:
        connections = [socket.create_connection(("127.0.0.1", port)) for _ in range(count)]
        selector = selectors.DefaultSelector()
        for number, connection in enumerate(connections):
            connection.recv(100)
            connection.sendall(b"in\n")
            selector.register(connection, selectors.EVENT_READ, number)
        left = [size] * count
        time.sleep(0.2)
        for connection in connections:
            connection.sendall(bytes(size))
        until = time.monotonic() + 5
        while min(served) < 5 and time.monotonic() < until:
            for key, _ in selector.select(0.1):
                connection, number = connections[key.data], key.data
                left[number] -= len(connection.recv(size))
                if not left[number]:
                    served[number] += 1
                    left[number] = size
                    connection.sendall(bytes(size))
        for connection in connections:
            connection.close()

    async def scene() -> None:
        async with open_door(tmp_path, limits=ShellLimits(drain_s=0.3, turn_bytes=TURN_BYTES)) as door:
            node: Any = door.node
            flush = node.flush

            def slow_flush() -> None:
                flush()
                time.sleep(0.003)  # long enough for whoever was answered to ask again

            node.flush = slow_flush
            await asyncio.to_thread(ask, door.client_port)
        assert min(served) >= 5, served

    on_loop(scene())


def watch_turns(door: Door, *, echo: bool = True) -> list[int]:
    """Bytes that each turn brought to the node."""
    most = [0]
    node: Any = door.node
    data, rest, flush = node.session_data, node.session_rest, node.flush

    def session_data(session: Any, piece: bytes) -> None:
        most[-1] += len(piece)
        data(session, piece)

    def session_rest(session: Any, piece: bytes) -> None:
        most[-1] += len(piece)
        rest(session, piece)

    def flushed() -> None:
        most.append(0)
        if not echo:
            node._echo.clear()
        flush()

    node.session_data, node.session_rest, node.flush = session_data, session_rest, flushed
    return most
