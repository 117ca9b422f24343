"""What the desk knows of a client session."""

from __future__ import annotations

from ticketing.native import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class DeskSession:
    """One authenticated client connection as the desk sees it; the node's session extends it.

    The desk appends whole frames to `out`; whoever owns the connection writes them at the end of the turn. A session
    with something in `out` stands in the desk's `dirty` list exactly once (`queued`).
    """

    __slots__ = ("ended", "name", "out", "queued", "source")

    def __init__(self, source: str) -> None:
        self.source = source
        """The client's address without port: probes go to sessions of one source."""
        self.name = ""
        """What the client called itself, at most 64 bytes; empty until an `H` came."""
        self.out: list[bytes] = []
        self.queued = False
        self.ended = False
        """The connection is over: nothing more can be delivered."""
