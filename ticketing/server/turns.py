"""How long the loop was kept from its sockets: what heartbeats, and every client, wait for."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

WINDOW_NS = 10_000_000_000
"""The longest turn is that of one to two such windows."""


class Turn(NamedTuple):
    """What one turn of the loop took. The machine may have run others meanwhile: then `cpu_ns` is less."""

    elapsed_ns: int
    """From the first call of the turn to the end of its flush."""
    cpu_ns: int
    """The thread's time since the former turn's end, so work outside of turns counts as well."""


class LongestTurn:
    """Remembers the longest turn of the last 10 to 20 seconds. Two readings of clocks a turn are all that it costs."""

    __slots__ = ("_began_ns", "_clock", "_cpu_clock", "_cpu_ns", "_former", "_present", "_window_ends_ns")

    def __init__(
        self,
        clock: Callable[[], int] = time.monotonic_ns,
        cpu_clock: Callable[[], int] = time.thread_time_ns,
    ) -> None:
        self._clock = clock
        self._cpu_clock = cpu_clock
        self._cpu_ns = cpu_clock()
        self._began_ns = clock()
        self._window_ends_ns = self._began_ns + WINDOW_NS
        self._former = self._present = Turn(0, 0)

    def began(self) -> None:
        """The first call of a turn."""
        self._began_ns = self._clock()

    def ended(self) -> None:
        """The end of its flush."""
        now_ns, cpu_ns = self._clock(), self._cpu_clock()
        present = self._present
        if now_ns >= self._window_ends_ns:
            self._window_ends_ns = now_ns + WINDOW_NS
            self._former, present = present, Turn(0, 0)
        elapsed_ns, used_ns = now_ns - self._began_ns, cpu_ns - self._cpu_ns
        if elapsed_ns > present.elapsed_ns or used_ns > present.cpu_ns:
            present = Turn(max(elapsed_ns, present.elapsed_ns), max(used_ns, present.cpu_ns))
        self._present = present
        self._cpu_ns = cpu_ns

    @property
    def longest(self) -> Turn:
        """The most of either, perhaps of two different turns."""
        former, present = self._former, self._present
        return Turn(max(former.elapsed_ns, present.elapsed_ns), max(former.cpu_ns, present.cpu_ns))
