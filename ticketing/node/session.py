"""One client connection as the node sees it: handshake first, frames after it (spec 3 and 4)."""

from __future__ import annotations

from typing import Any

from ticketing.locks.session import DeskSession
from ticketing.protocol.decoder import RequestDecoder
from ticketing.protocol.handshake import ServerHandshake


class ClientSession(DeskSession):
    """A client connection from its banner to its end.

    `handshake` is None once the client has authenticated, and only then is it a session in the sense of the spec.
    """

    __slots__ = ("decoder", "domain", "handshake", "heard_ns", "io", "probed_ns", "remote", "written_ns")

    def __init__(self, source: str, remote: str, handshake: ServerHandshake, now_ns: int) -> None:
        super().__init__(source)
        self.remote = remote
        """The client's address with port, for logs and lists."""
        self.handshake: ServerHandshake | None = handshake
        self.domain: str | None = None
        """What its banner said of the domain."""
        self.decoder = RequestDecoder()
        self.heard_ns = now_ns
        self.written_ns = now_ns
        self.probed_ns = 0
        self.io: Any = None
        """The shell's own slot."""
