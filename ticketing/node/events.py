"""What has happened on this node, for whoever follows it: one bounded list that all readers share (docs/admin.md).

A reader remembers the number of the event that it read last and asks for what came after it. Nobody is waited for:
what falls out of the list before a slow reader has come by is lost to that reader, and it is told how much.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Any, NamedTuple

KINDS = ("leader", "gate", "member", "overload", "session", "lock", "audit")
EVENTS_MAX = 2_048
"""Events kept."""


class Read(NamedTuple):
    """What a reader has not seen yet."""

    events: list[dict[str, Any]]
    lost: int | None
    """Events between the reader's last one and the first of these that are not kept any more. None: the reader's
    number is not one of this process life."""


class EventLog:
    """The last events. Numbers count from 1 in each process life; facts are ready for JSON."""

    __slots__ = ("_events", "_listeners", "_wall_ns", "newest")

    def __init__(self, wall_ns: Callable[[], int]) -> None:
        self._wall_ns = wall_ns
        self._events: deque[dict[str, Any]] = deque(maxlen=EVENTS_MAX)
        self._listeners: dict[Callable[[], None], None] = {}
        self.newest = 0
        """The number of the last event; 0 before the first."""

    def add(self, kind: str, **facts: object) -> None:
        """One more event; whoever listens is told that there is something to read."""
        assert kind in KINDS, kind
        self.newest += 1
        moment_ms = self._wall_ns() // 1_000_000
        self._events.append({"number": self.newest, "time_ms": moment_ms, "kind": kind, **facts})
        for tell in list(self._listeners):
            tell()

    def read(self, after: int, limit: int) -> Read:
        """At most `limit` events behind the one with this number, oldest first."""
        if after > self.newest:
            return Read([], None)
        oldest = self.newest - len(self._events) + 1
        first = max(after + 1, oldest)
        start = first - oldest
        return Read(list(islice(self._events, start, start + limit)), first - after - 1)

    def listen(self, tell: Callable[[], None]) -> None:
        """`tell` is called at every event, from within whatever happens: it must only take note."""
        self._listeners[tell] = None

    def unlisten(self, tell: Callable[[], None]) -> None:
        """Not any more."""
        self._listeners.pop(tell, None)
