"""The longest turn: by the clock, by the thread's CPU time, and how soon it is forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.server.scripted import dial_client, open_door
from ticketing.server.turns import WINDOW_NS, LongestTurn, Turn

MS = 1_000_000


class Times:
    """Two clocks that a test sets."""

    def __init__(self) -> None:
        self.now_ns = self.cpu_ns = 1_000
        self.turns = LongestTurn(lambda: self.now_ns, lambda: self.cpu_ns)

    def turn(self, elapsed_ns: int, cpu_ns: int) -> None:
        self.turns.began()
        self.now_ns += elapsed_ns
        self.cpu_ns += cpu_ns
        self.turns.ended()


def test_the_most_of_either_clock_stands() -> None:
    times = Times()
    times.turn(5 * MS, 2 * MS)
    times.turn(4 * MS, 3 * MS)
    times.turn(1 * MS, 1 * MS)
    assert times.turns.longest == Turn(5 * MS, 3 * MS)


def test_work_between_two_turns_counts_as_cpu_time_and_waiting_does_not() -> None:
    times = Times()
    times.now_ns += 900 * MS
    times.cpu_ns += 7 * MS
    times.turn(1 * MS, 1 * MS)
    assert times.turns.longest == Turn(1 * MS, 8 * MS)


def test_a_turn_is_remembered_for_one_window_at_least_and_two_at_most() -> None:
    times = Times()
    times.turn(9 * MS, 9 * MS)
    times.now_ns += WINDOW_NS
    times.turn(1 * MS, 1 * MS)
    assert times.turns.longest == Turn(9 * MS, 9 * MS)
    times.now_ns += WINDOW_NS
    times.turn(1 * MS, 1 * MS)
    assert times.turns.longest == Turn(1 * MS, 1 * MS)


def test_the_loop_measures_its_turns_and_the_process_shows_them(
    on_loop: Callable[[Any], Any], tmp_path: Path
) -> None:
    async def scene() -> None:
        async with open_door(tmp_path) as door:
            reader, writer = await dial_client(door)
            await reader.readline()
            writer.write(b"in\n")
            await door.node.next("data")
            await door.node.next("flush")
            await asyncio.sleep(0)
            facts = door.service._process_facts()
            assert isinstance(facts["longest_turn_ms"], float)
            assert facts["longest_turn_ms"] > 0
            assert facts["longest_turn_cpu_ms"] == door.shell.turns.longest.cpu_ns / MS > 0
            writer.close()

    on_loop(scene())
