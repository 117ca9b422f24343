"""A lock table in one small class, behind a scripted server: what a client's clean-up is judged by."""

from __future__ import annotations

from collections import deque

from tests.client.scripted import Asked, Server
from ticketing.protocol import frames


class LockServer:
    """Grants in order, hands over, cancels; a session's end drops its waiting requests. Knows no time."""

    def __init__(self, server: Server) -> None:
        self._held: dict[bytes, tuple[int, int]] = {}
        self._queues: dict[bytes, deque[Asked]] = {}
        self._cancelled: set[int] = set()
        self._token = 0
        server.answer = self._answer

    def holder(self, key: bytes) -> int | None:
        """The token that holds the key."""
        held = self._held.get(key)
        return held[0] if held is not None else None

    def waiting(self, key: bytes) -> int:
        return len([asked for asked in self._queues.get(key, ()) if not asked.session.lost])

    def free(self, key: bytes) -> None:
        if key in self._held:
            self._hand_over(key)

    def _answer(self, asked: Asked) -> None:
        key = asked.key
        if asked.opcode == frames.Q:
            if asked.ident in self._cancelled:
                asked.timeout()
            elif key not in self._held:
                self._grant(asked)
            elif asked.wait == 0:
                asked.timeout()
            else:
                self._queues.setdefault(key, deque()).append(asked)
        elif asked.opcode == frames.RELEASE:
            if self.holder(key) == asked.ident:
                self._hand_over(key)
                asked.released()
            else:
                asked.not_held()
        elif asked.opcode == frames.EXTEND:
            if self.holder(key) == asked.ident:
                asked.extended()
            else:
                asked.not_held()
        else:
            assert asked.opcode == frames.CANCEL, asked
            self._cancel(asked)

    def _cancel(self, asked: Asked) -> None:
        key, owner = asked.key, asked.ident
        self._cancelled.add(owner)
        queue = self._queues.get(key, deque())
        found = [waiter for waiter in queue if waiter.ident == owner]
        for waiter in found:
            queue.remove(waiter)
            if waiter.session is not asked.session and not waiter.session.lost:
                waiter.timeout()
        if key in self._held and self._held[key][1] == owner:
            self._hand_over(key)
            asked.released()
        elif found:
            asked.released()
        else:
            asked.not_held()

    def _grant(self, asked: Asked) -> None:
        self._token += 1
        self._held[asked.key] = (self._token, asked.ident)
        asked.grant(self._token)

    def _hand_over(self, key: bytes) -> None:
        del self._held[key]
        queue = self._queues.get(key, deque())
        while queue:
            asked = queue.popleft()
            if not asked.session.lost:
                self._grant(asked)
                return
