"""What reaches the node in one turn is bounded, whatever lies in the sockets; nothing is lost or overtaken."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.server.certificates import Authority
from tests.server.scripted import Door, dial_client, open_door
from ticketing.server.intake import SHARE_BYTES, Intake
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
    """The loop's part: what was asked for runs when the test says so."""

    def __init__(self, turn_bytes: int) -> None:
        self._asked: list[Callable[[], None]] = []
        self.got: list[tuple[str, int]] = []
        self.intake = Intake(self, turn_bytes)  # type: ignore[arg-type]

    def call_soon(self, what: Callable[[], None]) -> None:
        self._asked.append(what)

    def source(self, name: str, left: int) -> None:
        self.intake.put_off(Bytes(name, left, self.got))

    def turn(self) -> list[tuple[str, int]]:
        """A flush, and what follows it."""
        self.intake.next_turn()
        self.got.clear()
        asked, self._asked = self._asked, []
        for what in asked:
            what()
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


def watch_turns(door: Door, *, echo: bool = True) -> list[int]:
    """Bytes that each turn brought to the node."""
    most = [0]
    node: Any = door.node
    data, flush = node.session_data, node.flush

    def session_data(session: Any, piece: bytes) -> None:
        most[-1] += len(piece)
        data(session, piece)

    def flushed() -> None:
        most.append(0)
        if not echo:
            node._echo.clear()
        flush()

    node.session_data, node.flush = session_data, flushed
    return most
