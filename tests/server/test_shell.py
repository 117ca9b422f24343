"""Turns, the timer, the disk, and the end, as the node sees them."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.server.scripted import dial_client, open_door
from ticketing.server.shell import AsyncioShell

Run = Callable[[Any], Any]
MS = 1_000_000


def test_a_turn_has_one_flush_behind_everything_that_had_arrived(on_loop: Run, tmp_path: Path) -> None:
    async def scene() -> None:
        async with open_door(tmp_path) as door:
            clients = [await dial_client(door) for _ in range(8)]
            for reader, writer in clients:
                await reader.readline()
                writer.write(b"in\n")
            for _ in clients:
                await door.node.next("data")
            await door.node.next("flush")
            door.node.log.clear()
            for _, writer in clients:
                # Straight into the kernel, so that one poll of the server finds all of it.
                os.write(writer.get_extra_info("socket").fileno(), b"x\n")
            for reader, _ in clients:
                assert await reader.readline() == b"x\n"
            assert door.node.log == ["data"] * 8 + ["flush"]
            for _, writer in clients:
                writer.close()

    on_loop(scene())


def test_the_timer_ticks_when_due_and_not_before(on_loop: Run, tmp_path: Path) -> None:
    async def scene() -> None:
        async with open_door(tmp_path) as door:
            shell, node = door.shell, door.node
            due_ns = shell.elapsed_ns() + 30 * MS
            node.deadline_ns = due_ns
            shell.request_flush()
            assert await node.next("tick") >= due_ns - MS

    on_loop(scene())


def test_a_sooner_deadline_moves_the_timer_and_a_later_one_leaves_it(on_loop: Run, tmp_path: Path) -> None:
    async def scene() -> None:
        async with open_door(tmp_path) as door:
            shell, node = door.shell, door.node
            begun_ns = shell.elapsed_ns()
            for ahead_ms in (60_000, 20, 90_000):
                node.deadline_ns = begun_ns + ahead_ms * MS
                shell.request_flush()
                await node.next("flush")
            ticked_ns = await node.next("tick")
            assert 19 * MS <= ticked_ns - begun_ns < 5_000 * MS

    on_loop(scene())


def test_after_a_gap_what_lies_in_the_sockets_is_read_before_time_is_judged(
    on_loop: Run, tmp_path: Path
) -> None:
    async def scene() -> None:
        async with open_door(tmp_path) as door:
            node = door.node
            with socket.create_connection(("127.0.0.1", door.client_port)) as client:
                await node.next("opened")
                node.deadline_ns = door.shell.elapsed_ns() + 5 * MS
                door.shell.request_flush()
                await node.next("flush")
                node.log.clear()
                while door.shell.elapsed_ns() < node.deadline_ns + MS:
                    pass  # the loop stands still beyond its deadline
                client.sendall(b"came in the gap\n")
                await node.next("tick")
                assert node.log.index("data") < node.log.index("tick")

    on_loop(scene())


def test_what_is_stored_is_on_the_disk_before_it_is_told_and_in_order(on_loop: Run, tmp_path: Path) -> None:
    async def scene() -> None:
        async with open_door(tmp_path) as door:
            stored = asyncio.Event()
            for number in range(5):
                door.shell.store("record.json", b"%d" % number, lambda: None)
            door.shell.remove("permit.json")
            door.shell.store("record.json", b"last", stored.set)
            assert not stored.is_set()
            await stored.wait()
            assert (tmp_path / "record.json").read_bytes() == b"last"

    on_loop(scene())


def test_a_record_that_cannot_be_kept_stops_the_process_and_is_not_answered_for(
    on_loop: Run, tmp_path: Path
) -> None:
    async def scene() -> None:
        async with open_door(tmp_path) as door:
            answered: list[str] = []
            door.shell.store("no-such-folder/record.json", b"x", lambda: answered.append("stored"))
            outcome = await door.shell.outcome
            assert outcome.status == 1
            assert "record.json cannot be kept" in outcome.reason
            assert answered == []

    on_loop(scene())


def test_after_the_end_the_node_is_left_alone_and_the_first_reason_stands(
    on_loop: Run, tmp_path: Path
) -> None:
    async def scene() -> AsyncioShell:
        async with open_door(tmp_path) as door:
            reader, writer = await dial_client(door)
            await reader.readline()
            door.shell.stop(12, "removed")
            door.shell.stop(0, "asked")
            door.shell.request_flush()
            door.node.log.clear()
            assert await door.shell.outcome == (12, "removed")
            shell = door.shell
        assert await reader.read() == b""
        writer.close()
        assert "flush" not in door.node.log
        assert "tick" not in door.node.log
        assert door.node.data == {}, "every session was ended"
        return shell

    on_loop(scene())


def test_what_was_written_before_the_end_still_leaves(on_loop: Run, tmp_path: Path) -> None:
    async def scene() -> None:
        async with open_door(tmp_path) as door:
            reader, writer = await dial_client(door)
            await reader.readline()
            session = await door.node.next("opened")
            door.shell.finish(session, b"Eshutting_down\n")
            door.shell.stop(0, "asked")
        assert await reader.read() == b"Eshutting_down\n"
        writer.close()

    on_loop(scene())


def test_chance_and_clocks_are_the_systems(on_loop: Run, tmp_path: Path) -> None:
    async def scene() -> None:
        async with open_door(tmp_path) as door:
            shell = door.shell
            assert len(shell.random_bytes(32)) == 32
            assert shell.random_bytes(32) != shell.random_bytes(32)
            assert shell.elapsed_ns() <= shell.elapsed_ns()
            assert shell.wall_ns() > 1_700_000_000 * 10**9

    on_loop(scene())


@pytest.mark.parametrize("call", ["write", "finish", "refuse"])
def test_a_session_that_is_over_swallows_everything(on_loop: Run, tmp_path: Path, call: str) -> None:
    async def scene() -> None:
        async with open_door(tmp_path) as door:
            reader, writer = await dial_client(door)
            await reader.readline()
            session = await door.node.next("opened")
            writer.close()
            await door.node.next("ended")
            getattr(door.shell, call)(session, b"too late")
            door.shell.admitted(session)

    on_loop(scene())
