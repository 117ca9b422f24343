"""What a service can count: a callback that is told of waits, holds and sessions. No dependency.

The callback runs on the broker's loop, in the middle of its work: it has to be short and must not block. One that
raises is logged, the first time with its traceback, and changes nothing else.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

from ticketing.client.errors import TicketError


class EventKind(StrEnum):
    """What happened. Equal to its text."""

    ASKED = "asked"
    """An acquire begins to wait. `acquired` or `failed` ends the wait."""
    ACQUIRED = "acquired"
    """`seconds` waited. `ended` follows where the ticket is given back."""
    FAILED = "failed"
    """`seconds` waited; `detail` is the error's kind, or `cancelled` where nothing was sent."""
    ENDED = "ended"
    """`seconds` held, until the outcome was known. `detail`: `released`; `not_held`, where the lease had ended before;
    `unanswered`; `collected`, where nobody had released it.
    """
    EXTENDED = "extended"
    """`detail`: `extended`, `not_held` or `unanswered`."""
    SESSION_OPENED = "session_opened"
    """`detail`: the address. Without key."""
    SESSION_ENDED = "session_ended"
    """As above; `seconds` it was open."""


class Event(NamedTuple):
    """One happening. Fields may be added at the end."""

    kind: EventKind
    key: str
    detail: str = ""
    seconds: float = 0.0


OnEvent = Callable[[Event], object]


class Teller:
    """Passes events on, and survives the callback."""

    __slots__ = ("_callback", "_logger", "_told")

    def __init__(self, callback: OnEvent, logger: logging.Logger) -> None:
        self._callback = callback
        self._logger = logger
        self._told = False

    def tell(self, kind: EventKind, key: bytes, detail: str = "", nanoseconds: int = 0) -> None:
        """Tells of one event."""
        try:
            self._callback(Event(kind, key.decode(), detail, max(0, nanoseconds) / 1e9))
        except Exception as error:
            self._complain(error)

    def _complain(self, error: Exception) -> None:
        if self._told:
            self._logger.debug("the event callback raised %r", error)
            return
        self._told = True
        self._logger.warning(
            "the event callback raised; later errors of it are logged as debug", exc_info=error
        )


def failure_detail(error: BaseException) -> str:
    """What `failed` says of an error."""
    if isinstance(error, TicketError):
        return str(error.kind)
    return "cancelled" if isinstance(error, asyncio.CancelledError) else type(error).__name__


class Counters:
    """A ready-made callback: `TicketBroker(..., on_event=counters)`. Only counts and sums, bounded in size.

    Brokers may share one, on whatever threads. Read from any thread; the figures of one moment may be one event apart.
    """

    def __init__(self) -> None:
        self.waiting = 0
        """Acquires that wait now."""
        self.holding = 0
        """Tickets that were handed out and not given back yet."""
        self.sessions = 0
        """Sessions that are open now."""
        self.acquired = 0
        self.failed: dict[str, int] = {}
        """By error kind: `failed["timeout"]`."""
        self.ended: dict[str, int] = {}
        """Holds by how they ended."""
        self.extended: dict[str, int] = {}
        self.waited_s = 0.0
        """The sum over all waits, however they ended."""
        self.held_s = 0.0
        """The sum over all holds that ended."""
        self._lock = threading.Lock()

    def __call__(self, event: Event) -> None:
        """Counts one event."""
        with self._lock:
            self._count(event)

    def _count(self, event: Event) -> None:
        kind = event.kind
        if kind is EventKind.ASKED:
            self.waiting += 1
        elif kind is EventKind.ACQUIRED:
            self.waiting -= 1
            self.holding += 1
            self.acquired += 1
            self.waited_s += event.seconds
        elif kind is EventKind.FAILED:
            self.waiting -= 1
            self.waited_s += event.seconds
            self.failed[event.detail] = self.failed.get(event.detail, 0) + 1
        elif kind is EventKind.ENDED:
            self.holding -= 1
            self.held_s += event.seconds
            self.ended[event.detail] = self.ended.get(event.detail, 0) + 1
        elif kind is EventKind.EXTENDED:
            self.extended[event.detail] = self.extended.get(event.detail, 0) + 1
        elif kind is EventKind.SESSION_OPENED:
            self.sessions += 1
        elif kind is EventKind.SESSION_ENDED:
            self.sessions -= 1
