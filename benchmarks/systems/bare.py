"""The bare FIFO server: a queue a key and nothing else. No log, no lease, no bounds, no clock.

`python -m benchmarks.systems.bare PORT` serves on loopback.
"""

from __future__ import annotations

import sys
from collections import deque

import uvloop

from benchmarks.systems.processes import HOST
from benchmarks.systems.wire_server import WireServer, WireSession
from benchmarks.systems.wired import WiredSystem
from ticketing.protocol import frames
from ticketing.protocol.decoder import Request

Waiter = tuple[WireSession, int, int]
"""Session, opcode of the acquire, owner."""


class FifoServer(WireServer):
    """First come, first served on each key; a session that ends takes its waiters along."""

    def __init__(self) -> None:
        super().__init__()
        self._next_token = 1
        self._held: dict[bytes, int] = {}
        """The token of each held key."""
        self._queues: dict[bytes, deque[Waiter]] = {}
        """Only of keys that somebody waits for."""
        self._answered: dict[WireSession, None] = {}
        """Sessions with something in `out`, in order."""

    def handle(self, session: WireSession, requests: list[Request]) -> None:
        for op, _wait, _lease, ident, key in requests:
            if op == frames.RELEASE:
                if self._held.get(key) != ident:
                    self.answer(session, frames.encode_not_held(ident, key))
                    continue
                self.answer(session, frames.encode_released(ident, key))
                queue = self._queues.get(key)
                if queue is None:
                    del self._held[key]
                    self.changed(frames.RELEASE, ident, key)
                    continue
                waiter = queue.popleft()
                if not queue:
                    del self._queues[key]
                self._grant(waiter, key)
            elif op in (frames.Q, frames.ACQUIRE):
                if key in self._held:
                    self._queues.setdefault(key, deque()).append((session, op, ident))
                else:
                    self._grant((session, op, ident), key)
        self.end_of_read()

    def _grant(self, waiter: Waiter, key: bytes) -> None:
        session, op, owner = waiter
        token = self._next_token
        self._next_token = token + 1
        self._held[key] = token
        self.changed(frames.GRANTED, token, key)
        if op == frames.Q:
            self.answer(session, frames.encode_granted_waited(token, owner, 0, key))
        else:
            self.answer(session, frames.encode_granted(token, owner, key))

    def gone(self, session: WireSession) -> None:
        super().gone(session)
        self._answered.pop(session, None)
        for key, queue in list(self._queues.items()):
            left = deque(waiter for waiter in queue if waiter[0] is not session)
            if left:
                self._queues[key] = left
            else:
                del self._queues[key]

    # --- where the replicated one differs

    def changed(self, op: int, token: int, key: bytes) -> None:
        """A key is held by `token` from now on (GRANTED), or by nobody (RELEASE)."""

    def answer(self, session: WireSession, frame: bytes) -> None:
        """Puts an answer into what the session gets at the end of this read."""
        session.out.append(frame)
        self._answered[session] = None

    def end_of_read(self) -> None:
        """All requests of one read are handled."""
        for session in self._answered:
            session.flush()
        self._answered.clear()


class Bare(WiredSystem):
    """One process."""

    name = "bare"
    title = "bare FIFO server"
    promises = "order of arrival; one process, no lease, no log"
    fifo = True
    module = "benchmarks.systems.bare"


if __name__ == "__main__":
    uvloop.run(FifoServer().serve(HOST, int(sys.argv[1])))
