"""One turn of the loop is shared by all clients: what a single one sends at a stroke is handed over in slices.

The kernel gives up to 256 KiB of a connection at once, ten thousand requests. A few clients that send without a pause
would make each turn as long as an election, and everybody else's request would wait for several of them. So a turn
takes a bounded number of bytes of whoever sends much; what is small goes past, at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

SMALL = 4 * 1024
"""A read of up to so many bytes is no burden: some hundred requests at most."""
TURN_BYTES = 24 * 1024
"""Of all larger reads together, in one turn: a thousand requests, tens of milliseconds."""
SLICE = 8 * 1024
"""Of one connection, where several wait."""


class Reader(Protocol):
    """A connection that may send much."""

    held: bytes
    """What was read and is still to be handed over; the sharing's own."""

    @property
    def ready(self) -> bool:
        """Whether more can be handed over now. One that is not is to be offered to `go_on` again once it is."""
        ...

    def take(self, data: bytes) -> None:
        """Bytes in their order."""
        ...

    def stop_reading(self) -> None:
        """Nothing more is to be read; of no effect on one that has ended meanwhile."""
        ...

    def read_on(self) -> None:
        """All was handed over."""
        ...


class Sharing:
    """Invariant: whoever holds something does not read, and stands in the queue where it is ready."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queue: deque[Reader] = deque()
        self._left = TURN_BYTES
        self._asked = False

    def offer(self, reader: Reader, data: bytes) -> None:
        """A large read of one that holds nothing."""
        now = min(len(data), self._left)
        self._left -= now
        self._ask()
        if now:
            reader.take(data[:now])
        if now < len(data):
            reader.held = data[now:]
            reader.stop_reading()
            if reader.ready:
                self._queue.append(reader)

    def go_on(self, reader: Reader) -> None:
        """One that holds something is ready again."""
        self._queue.append(reader)
        self._ask()

    def _ask(self) -> None:
        if not self._asked:
            self._asked = True
            self._loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._asked = False
        self._left = TURN_BYTES
        queue = self._queue
        while queue and self._left:
            reader = queue.popleft()
            if not reader.ready:
                continue
            held = reader.held
            now = min(len(held), SLICE, self._left)
            self._left -= now
            reader.held = held[now:]
            reader.take(held[:now])
            if not reader.held:
                reader.read_on()
            elif reader.ready:
                queue.append(reader)
        if queue:
            self._ask()
