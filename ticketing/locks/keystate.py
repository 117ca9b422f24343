"""What the leader's desk remembers of a key while somebody waits for it or something is in flight, and of a
request.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ticketing.locks.commands import Revoke
from ticketing.locks.session import DeskSession

if TYPE_CHECKING:
    from ticketing.locks.proposing import Batch
    from ticketing.locks.waiting import Waiter

NONE: Final = 0
"""Nothing is in flight for the key."""
ENDING: Final = 1
"""A turn without a next."""
GRANT: Final = 2
"""A turn with a next."""
EXTENDING: Final = 3
"""An extend."""

UNMARKED: Final = 0
GRANT_KEPT: Final = 1
"""The key is free and its head waits for the gate or for room."""
END_KEPT: Final = 2
"""A release, an expiry or an extension waits for room."""

RELEASE: Final = 1
EXTEND: Final = 2
CANCEL: Final = 3
REVOKE: Final = 4
RESEND: Final = 5


class Ask:
    """A request other than an acquire: put aside, in flight, or waiting for a barrier.

    RESEND is an acquire all the same: of an owner whose grant is there already (`ticketing.locks.resend`).
    """

    __slots__ = ("command", "done", "found", "key", "kind", "lease", "number", "session", "waiter")

    command: Revoke
    done: Callable[[int], None]
    waiter: Waiter

    def __init__(self, kind: int, session: DeskSession, number: int, key: bytes, lease: int = 0) -> None:
        self.kind = kind
        self.session = session
        self.number = number
        """The token that it names; the owner for CANCEL."""
        self.key = key
        self.lease = lease
        self.found = False
        """CANCEL: there was a waiter when the cancel was applied."""


class KeyState:
    """One key with a queue or with something in flight; there is none for any other key.

    Invariants: one turn or extension is in flight at most (`flight`). `next` is set exactly while a GRANT is.
    `asides` are in the order of their arrival. `once` arrived while nobody waited, so it is served before the
    queue. `batch` is the one in which the flight's command was taken.
    """

    __slots__ = (
        "asides",
        "ask",
        "batch",
        "doomed",
        "first",
        "flight",
        "free",
        "key",
        "last",
        "mark",
        "next",
        "once",
        "waiting",
        "watched",
    )

    batch: Batch

    def __init__(self, key: bytes, free: bool) -> None:
        self.key = key
        self.flight = NONE
        self.next: Waiter | None = None
        self.ask: Ask | None = None
        """Whoever is answered by the outcome, apart from `next`."""
        self.asides: deque[Ask] | None = None
        self.first: Waiter | None = None
        self.last: Waiter | None = None
        self.waiting = 0
        self.once: Waiter | None = None
        """An acquire with wait 0 that an ending in flight, or want of room, keeps for once."""
        self.doomed = 0
        """A token whose answer reached nobody: to be released before anything else (spec 4)."""
        self.watched: DeskSession | None = None
        """The session at whose end this key's waiters are to be looked at again."""
        self.free = free
        """Whether nobody held the key when that was last looked at: for the bound on keys."""
        self.mark = UNMARKED

    @property
    def idle(self) -> bool:
        """Nothing of this key needs remembering."""
        return not (
            self.flight or self.first is not None or self.once is not None or self.asides or self.doomed
        )
