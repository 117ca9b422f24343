"""What a session carries: acquires, and errands (release, extend, cancel). Plain records, one a request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from ticketing.protocol.frames import CANCEL, EXTEND, RELEASE, encode_cancel, encode_extend, encode_release

if TYPE_CHECKING:
    from ticketing.client.session import Session

# Where an acquire stands. Up to QUEUED no byte of it can have left.
QUEUED = 0
SENT = 1
ABANDONED = 2
"""Sent, and its caller is gone: whatever comes is cleaned up."""
ANSWERED = 3
WITHDRAWN = 4
"""Never sent, and never to be."""

# What became of an acquire where that is not the opcode of its answer.
LOST = 0
"""The session ended without an answer, after bytes may have left."""
WAIT_OVER = 1
"""Nothing was left of the wait before anything was sent."""
NO_SESSION = 2
"""There was none to send a try without wait on."""
REFUSED = 3
"""No session can be had: every address refuses."""
SHUT = 4
"""The broker was closed before anything was sent."""


class Acquire:
    """One request for a key, under an owner of its own that is drawn when it is sent and never used again."""

    __slots__ = (
        "answer_by_ns",
        "future",
        "key",
        "lease",
        "named",
        "outcome",
        "owner",
        "read_ns",
        "sent_ns",
        "session",
        "state",
        "token",
        "wait_end_ns",
        "waited_ms",
    )

    # Set when it is sent.
    owner: int
    sent_ns: int
    """Before its first byte could leave."""
    answer_by_ns: int
    # Set when a grant is read.
    read_ns: int
    token: int
    waited_ms: int

    def __init__(self, future: asyncio.Future[int], key: bytes, wait_end_ns: int, lease: int) -> None:
        self.future = future
        """Given the outcome. Its caller may have cancelled it; `state` and `outcome` hold all the same."""
        self.key = key
        self.wait_end_ns = wait_end_ns
        """0 for a try without wait."""
        self.lease = lease
        self.named = False
        """Only for a session that an `L` names."""
        self.state = QUEUED
        self.outcome = LOST
        self.session: Session | None = None
        """The session that it is queued on or was sent on."""

    def settle(self, outcome: int) -> None:
        """Fixes what became of it. Only its session or the cluster calls this, once."""
        self.state = ANSWERED
        self.outcome = outcome
        if not self.future.done():
            self.future.set_result(outcome)


# What became of an errand where that is not the opcode of its answer.
UNANSWERED = 0


class Errand:
    """A release or a cancel: safe to repeat, and so repeated until its deadline."""

    __slots__ = (
        "answer_by_ns",
        "deadline_ns",
        "domain",
        "done",
        "fatal",
        "ident",
        "key",
        "opcode",
        "over",
        "session",
    )

    answer_by_ns: int
    """Set when it is sent: what is unanswered by then is given up, and tried again."""

    def __init__(
        self,
        opcode: int,
        ident: int,
        key: bytes,
        domain: str | None,
        deadline_ns: int,
        done: Callable[[Errand, int], None] | None = None,
    ) -> None:
        self.opcode = opcode
        self.ident = ident
        """The token, or for a cancel the owner."""
        self.key = key
        self.domain = domain
        """The only domain in which it means anything."""
        self.deadline_ns = deadline_ns
        self.done = done
        """Told the opcode of the answer, or UNANSWERED at the deadline."""
        self.fatal = False
        """The session is closed where it does not answer in time."""
        self.session: Session | None = None
        self.over = False

    def encode(self) -> bytes:
        """Its frame."""
        if self.opcode == RELEASE:
            return encode_release(self.ident, self.key)
        assert self.opcode == CANCEL, self.opcode
        return encode_cancel(self.ident, self.key)


class Extension(Errand):
    """An extension: an errand whose answer is worth something, and counted from a moment."""

    __slots__ = ("lease", "moment_ns", "sent_ns")

    sent_ns: int
    """Its latest try, before its first byte could leave."""
    moment_ns: int
    """With the answer: what it is counted from."""

    def __init__(
        self,
        token: int,
        key: bytes,
        domain: str | None,
        deadline_ns: int,
        lease: int,
        done: Callable[[Errand, int], None],
    ) -> None:
        super().__init__(EXTEND, token, key, domain, deadline_ns, done)
        self.lease = lease
        """In seconds: what is asked for; with the answer, what was given at least."""

    def encode(self) -> bytes:
        """Its frame."""
        return encode_extend(self.ident, self.lease, self.key)
