"""What a call of the client library can end with, other than a ticket."""

from __future__ import annotations

import asyncio
from enum import StrEnum


class TicketErrorKind(StrEnum):
    """What a caller can act on. Equal to its text: `error.kind == "timeout"`.

    `docs/client.md` has the table of what the caller may assume with each.
    """

    TIMEOUT = "timeout"
    """Not acquired: the wait ran out, or it was 0 and the key was not free."""
    BUSY = "busy"
    """Not acquired: refused by capacity, range or clock safety."""
    INDETERMINATE = "indeterminate"
    """Bytes may have left and no answer came: the grant may exist until it is cancelled or its lease ends."""
    INSUFFICIENT_LEASE = "insufficient_lease"
    """Granted with less time left than the budget; being given back."""
    INVALID_INPUT = "invalid_input"
    """Refused before anything was sent."""
    AUTH = "auth"
    """The server refused the token."""
    PROTOCOL = "protocol"
    """Not a server of this protocol, or one of another domain."""
    IO = "io"
    """A release or an extension without an answer, or TLS that cannot be set up."""
    NOT_CONNECTED = "not_connected"
    """Not sent: no session to a serving leader."""
    CLOSED = "closed"
    """Not sent: the broker was closed, or its process forked."""


class TicketError(Exception):
    """`kind` is for programs, the text for people."""

    def __init__(self, kind: TicketErrorKind | str, message: str) -> None:
        # Both go into `args`, or the exception could not be pickled.
        super().__init__(kind, message)
        self.kind = TicketErrorKind(kind)
        self.message = message

    def __str__(self) -> str:
        return self.message


class InvalidInputError(TicketError):
    """A value that was passed in and refused before anything was sent."""

    def __init__(self, message: str, field: str, value: object, allowed: str) -> None:
        super().__init__(TicketErrorKind.INVALID_INPUT, message)
        self.field = field
        """The argument's name."""
        self.value = value
        """What was given."""
        self.range = allowed
        """What is allowed, in words."""
        self.args = (message, field, value, allowed)  # what pickle makes it anew from


class IndeterminateCancelledError(TicketError, asyncio.CancelledError):
    """An acquire that was cancelled after bytes of it may have left.

    Both a `TicketError` of kind `indeterminate` and a `CancelledError`: the task counts as cancelled, and
    code that catches either one sees it.
    """
