"""What the node asks of the world around it; asyncio (`ticketing.server`) and the simulator each provide one.

The other direction is plain method calls on `Node`. Calls into the node between two flushes are one *turn*. The
first of them asks for a flush with `request_flush`; the shell calls `Node.flush` once everything that had arrived by
then was handed in. Nothing that the node hands to a shell blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from ticketing.native import mypyc_attr

if TYPE_CHECKING:
    from ticketing.node.session import ClientSession


@mypyc_attr(allow_interpreted_subclasses=True)
class Link:
    """One connection to another node's peer port, seen from one end.

    A link carries messages one way: its dialler speaks, the acceptor only answers the handshake. The shell creates
    the object and may subclass it; everything below is the node's to set and the shell's to read.
    """

    __slots__ = ("address", "inbound", "logic", "purpose")

    def __init__(self, address: str, *, inbound: bool, purpose: str) -> None:
        self.address = address
        """Dialled: the configured `host:port`. Accepted: the remote end, for logs."""
        self.inbound = inbound
        self.purpose = purpose
        """`peer` or `snapshot` (snapshots do not share the heartbeats' connection, spec 9)."""
        self.logic: Any = None
        """The node's own state for this link."""

    def certifies(self, address: str) -> bool:  # noqa: ARG002
        """Whether the other end may be the place at this `host:port`, as far as its certificate says. Without TLS
        nothing is said against it.
        """
        return True


class Shell(Protocol):
    """The outside, as far as the node needs it."""

    def elapsed_ns(self) -> int:
        """A fresh reading of the elapsed clock (spec, Words): nanoseconds, never going back."""
        ...

    def wall_ns(self) -> int:
        """A fresh reading of the wall clock: Unix nanoseconds."""
        ...

    def random_bytes(self, count: int) -> bytes:
        """`count` bytes from the system's random source."""
        ...

    def request_flush(self) -> None:
        """Calls `Node.flush` once, after everything that has already arrived."""
        ...

    # --- client sessions

    def write(self, session: ClientSession, data: bytes) -> None:
        """Hands whole frames to the session's transport. A transport that is gone swallows them."""
        ...

    def finish(self, session: ClientSession, last: bytes) -> None:
        """Writes `last`, shuts down the write side, reads and discards until EOF or 1 s, closes (spec 3)."""
        ...

    def refuse(self, session: ClientSession, last: bytes) -> None:
        """As `finish`, 1 s later: the answer to a wrong token (spec 3). Counts against the bound of 64 such."""
        ...

    def admitted(self, session: ClientSession) -> None:
        """The session has authenticated: it leaves the pool of unauthenticated connections."""
        ...

    # --- peer links

    def dial(self, address: str, purpose: str) -> Link:
        """Starts connecting to `host:port`; `Node.link_up` or `Node.link_down` follows, never from within this call."""
        ...

    def send(self, link: Link, frame: bytes) -> None:
        """Queues one whole frame (already length-prefixed) on a link that is up."""
        ...

    def buffered(self, link: Link) -> int:
        """Bytes handed to `send` that the kernel has not taken yet."""
        ...

    def hang_up(self, link: Link) -> None:
        """Closes a link; `Node.link_down` is not called for it any more."""
        ...

    # --- disk and life

    def store(self, name: str, content: bytes, done: Callable[[], None]) -> None:
        """Replaces the file `name` in `state/` durably (write, fsync, rename, fsync of the folder), then calls `done`.

        A write that fails stops the process with a message: a record that cannot be kept must not be answered for.
        """
        ...

    def remove(self, name: str) -> None:
        """Removes a file of `state/` durably, if it is there."""
        ...

    def stop(self, status: int, reason: str) -> None:
        """Ends the process with this exit status once what was written has been handed to the kernel."""
        ...

    def log(self, level: str, event: str, **facts: object) -> None:
        """One log line: `debug`, `info`, `warning`, `error` or `audit`; rate limits are the shell's."""
        ...
