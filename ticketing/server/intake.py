"""How much of what clients send reaches the node in one turn.

One wake-up of the loop can find megabytes in the sockets: tens of thousands of requests. Handed in together they would
keep the loop from heartbeats, and from everybody else, for as long as they take.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

SHARE_BYTES = 16 * 1024
"""Of one connection in its turn, where several are behind."""


class Source(Protocol):
    """A connection with bytes that the node has not got yet. It is not read meanwhile."""

    def go_on(self, limit: int) -> int:
        """Hands in at most `limit` bytes; how many. 0: it has none left, or is over."""
        ...

    @property
    def behind(self) -> bool:
        """Whether any are left."""
        ...


class Intake:
    """The allowance of the present turn, and those that are behind. Each of them holds one read at most."""

    __slots__ = ("_behind", "_turn_bytes", "left")

    def __init__(self, turn_bytes: int) -> None:
        self._turn_bytes = turn_bytes
        self.left = turn_bytes
        """Bytes that may still be handed in before the flush. Below `turn_bytes` only while one is asked for."""
        self._behind: deque[Source] = deque()

    def put_off(self, source: Source) -> None:
        """`source` has more than this turn takes. What it may still hand in it does at once: a flush follows."""
        if self.left > 0:
            self.left -= source.go_on(self.left)
        if source.behind:
            self._behind.append(source)

    def next_turn(self) -> None:
        """A flush is over. Those that are behind come first, before anything else is read: whoever is read and answered
        in every turn would leave them nothing.
        """
        self.left = self._turn_bytes
        behind = self._behind
        while behind and self.left > 0:
            source = behind.popleft()
            self.left -= source.go_on(min(self.left, SHARE_BYTES))
            if source.behind:
                behind.append(source)
