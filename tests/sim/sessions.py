"""One connection of a simulated client, and what waits for an answer on it."""

from __future__ import annotations

from tests.sim.history import Request
from tests.sim.network import End
from ticketing.protocol.decoder import ReplyDecoder
from ticketing.protocol.handshake import ClientHandshake

TOP_BIT = 1 << 63


class Session:
    """One connection of one client."""

    __slots__ = (
        "address",
        "decoder",
        "end",
        "garbled",
        "handshake",
        "heard_ns",
        "leader",
        "leaderless",
        "number",
        "open",
        "own",
    )

    def __init__(self, number: int, address: str) -> None:
        self.number = number
        self.address = address
        self.end: End
        self.handshake: ClientHandshake | None = ClientHandshake("")
        self.decoder = ReplyDecoder()
        self.leader: str | None = None
        self.own: str | None = None
        """The node's own name for its address."""
        self.open: dict[tuple[int, bytes, str], list[Request]] = {}
        """What waits for an answer, by (id, key, kind)."""
        self.heard_ns = 0
        self.leaderless = 0
        """How many looks in a row have found it at a node that names no leader."""
        self.garbled = False
        """What was sent after garbage may have been read as a part of it."""

    @property
    def ready(self) -> bool:
        """Authenticated."""
        return self.handshake is None

    @property
    def leads(self) -> bool:
        """As far as the node has said."""
        return self.ready and self.own is not None and self.leader == self.own
