"""What the shell calls on the node: the other direction of `ticketing.node.shell.Shell`.

`ticketing.node.node.Node` is the one implementation; tests put scripted ones in its place.
"""

from __future__ import annotations

from typing import Protocol

from ticketing.node.events import EventLog
from ticketing.node.operations import Operations
from ticketing.node.reports import Reports
from ticketing.node.session import ClientSession
from ticketing.node.settings import NodeSettings
from ticketing.node.shell import Link


class NodeApi(Protocol):
    """One node, as asyncio sees it. No call blocks, none raises for anything that came from outside."""

    def start(self) -> None:
        """Begins: draws the incarnation, dials the peers."""
        ...

    def flush(self) -> None:
        """Ends a turn."""
        ...

    def next_deadline_ns(self) -> int:
        """When `tick` is due at the latest, on the elapsed clock."""
        ...

    def tick(self) -> None:
        """Time has passed."""
        ...

    def session_opened(self, source: str, remote: str) -> ClientSession:
        """A client connection stands, TLS included. The banner is written from within this call."""
        ...

    def session_data(self, session: ClientSession, data: bytes) -> None:
        """Bytes of a client."""
        ...

    def session_rest(self, session: ClientSession, data: bytes) -> None:
        """Bytes of a client that were read before its connection was over, and not handed in until `session_ended`
        was called: what frees a key stands, all else is void.
        """
        ...

    def session_overdue(self, session: ClientSession) -> None:
        """The deadline for authenticating is over."""
        ...

    def session_slow(self, session: ClientSession) -> None:
        """The write buffer was full for too long."""
        ...

    def session_ended(self, session: ClientSession, *, by_timeout: bool) -> None:
        """The connection is over; called once for each session. `session_rest` alone may follow."""
        ...

    def link_up(self, link: Link) -> None:
        """A link stands, TLS included."""
        ...

    def link_data(self, link: Link, data: bytes) -> None:
        """Bytes of a peer."""
        ...

    def link_down(self, link: Link, *, refused: bool) -> None:
        """A link is over, or never came about; `refused`: nobody listens there."""
        ...

    def link_writable(self, link: Link) -> None:
        """A full write buffer has drained."""
        ...

    def begin_stop(self, *, force: bool = False) -> None:
        """Leaves in good order, or at once; ends in `Shell.stop`."""
        ...

    def form(self, *, first: bool, first_token: int) -> str | None:
        """Forms a domain at the operator's word; otherwise why not."""
        ...

    def reload(self, settings: NodeSettings) -> None:
        """Takes over new tokens and secrets."""
        ...

    events: EventLog
    """What has happened, for those who follow it."""
    reports: Reports
    """What operators read."""
    operations: Operations
    """What operators do."""

    def clock_source(self, *, synchronised: bool, detail: str) -> None:
        """What a further source says of this machine's wall clock."""
        ...

    def status(self) -> dict[str, object]:
        """What `GET /v1/status` shows."""
        ...
