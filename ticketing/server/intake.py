"""How much of what clients send reaches the node in one turn.

One wake-up of the loop can find megabytes in the sockets: tens of thousands of requests. Handed in together they would
keep the loop from heartbeats, and from everybody else, for as long as they take.

What is read and has to wait is held here, and a connection is not read while it holds any. So what all of them hold
is bounded by how much one read may bring: `held_bytes`, and `LEAST_BYTES` a connection beyond them; TLS adds the
record that a read may complete. Each can always be read, if only in small pieces: nobody waits for others to be worked
off before its bytes are even looked at.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

SHARE_BYTES = 16 * 1024
"""Of one connection in its turn, where several are behind; what one read brings at most."""
LEAST_BYTES = 1024
"""What one read brings while those behind hold all that they may."""


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

    __slots__ = ("_behind", "_least", "_turn_bytes", "_whole", "full_reads", "leavers", "left", "room")

    def __init__(self, turn_bytes: int, held_bytes: int) -> None:
        self._turn_bytes = turn_bytes
        self.full_reads = max(1, held_bytes // SHARE_BYTES)
        """How many may be behind with a full read each, and how many of those behind may be over already: no limit of
        connections counts these."""
        self.leavers = 0
        """How many of those behind are over."""
        self._whole = memoryview(bytearray(SHARE_BYTES))
        self._least = self._whole[:LEAST_BYTES]
        self.room = self._whole
        """Where the next read of any connection goes; what it brings is taken out before there is another one."""
        self.left = turn_bytes
        """Bytes that may still be handed in before the flush. Below `turn_bytes` only while one is asked for; below 0
        where connections ended with a rest."""
        self._behind: deque[Source] = deque()

    def put_off(self, source: Source) -> None:
        """`source` has more than this turn takes. What it may still hand in it does at once: a flush follows."""
        if self.left > 0:
            self.left -= source.go_on(self.left)
        if source.behind:
            self._behind.append(source)
            if len(self._behind) >= self.full_reads:
                self.room = self._least

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
        if len(behind) < self.full_reads:
            self.room = self._whole
