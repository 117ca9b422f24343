"""What clients saw: requests, holds, and what the rig can say beside them. The rules that judge it are in `history`."""

from __future__ import annotations

from collections.abc import Callable

from tests.sim.history_serving import Serving
from tests.sim.world import S

SURE = 998
"""Per mille of a wait or lease that has passed at least where a node's clock shows all of it, within rho."""

LOST = "lost"
"""In place of an answer: the session ended first."""


class Request:
    """One request of one client, and what became of it."""

    __slots__ = (
        "answer",
        "answered_ns",
        "clock_ns",
        "first_ns",
        "ident",
        "key",
        "lease",
        "op",
        "order",
        "sent_ns",
        "session",
        "token",
        "wait",
        "waited_ms",
    )

    def __init__(
        self, op: str, key: bytes, ident: int, session: int, sent_ns: int, *, wait: int = 0, lease: int = 0
    ) -> None:
        self.op = op
        """`A`, `Q`, `R`, `X` or `C`."""
        self.key = key
        self.ident = ident
        """The owner of an `A`, `Q` or `C`, the token of an `R` or `X`."""
        self.session = session
        self.sent_ns = sent_ns
        self.first_ns = sent_ns
        """When it was sent for the first time, where this is a copy of one that got no answer."""
        self.order = -1
        """Its place among all requests of the history: on one session they were sent in this order."""
        self.wait = wait
        self.lease = lease
        self.clock_ns = 0
        """The client's own clock before its first byte could leave."""
        self.answer: str | None = None
        self.answered_ns = 0
        self.token = 0
        self.waited_ms = 0

    def __repr__(self) -> str:
        return (
            f"{self.op} {self.key.decode()} {self.ident:x} wait={self.wait} lease={self.lease}"
            f" session={self.session} sent={self.sent_ns / S:.6f}"
            f" -> {self.answer} {self.token or ''} at {self.answered_ns / S:.6f}"
        )


class Hold:
    """One ownership as its holder sees it."""

    __slots__ = ("from_ns", "key", "released_ns", "request", "token", "until_ns")

    def __init__(self, request: Request, token: int, from_ns: int, until_ns: int) -> None:
        self.request = request
        self.key = request.key
        self.token = token
        self.from_ns = from_ns
        self.until_ns = until_ns
        """The conservative end, in true time; later where it was extended."""
        self.released_ns: int | None = None
        """When its release, or the cancel of its owner, was invoked."""

    @property
    def end_ns(self) -> int:
        """Until when the holder could rely on it."""
        return self.until_ns if self.released_ns is None else min(self.until_ns, self.released_ns)

    def __repr__(self) -> str:
        released = "" if self.released_ns is None else f" released {self.released_ns / S:.6f}"
        return (
            f"token {self.token} of {self.key.decode()} {self.from_ns / S:.6f}..{self.until_ns / S:.6f}{released}"
            f" by {self.request!r}"
        )


class Facts:
    """Everything that all clients of a run saw."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.holds: list[Hold] = []
        self.ended_sessions: dict[int, int] = {}
        """Session to when its client saw the end of it."""
        self.nodes: dict[int, str] = {}
        """Session to the address of the node that it goes to, where that is known."""
        self.read_upto: dict[int, list[tuple[int, int]]] = {}
        """By session: (at, order): at that time it was clear that all up to this request had been read."""
        self.bounds_are_wide = True
        """No limit of the nodes was so low that these clients could meet it."""
        self.stale_ns = 2 * S
        """A leader that a majority has left may say so much later that a key is not free: `T` promises no more than
        that nothing was acquired.
        """
        self.underway_ns = 0
        """What got no answer may still be read by a node so long after it was sent."""
        self.serving: Serving | None = None
        """Who served when, where that is known."""
        self.domains: list[tuple[int, int]] = []
        """First token, and when it formed, of each domain, in order."""
        self.apart = False
        """Domains followed each other without the wait between them: only within each one is a key held once."""
        self.revoked: dict[int, int] = {}
        """By token: when an operator began to end its ownership."""
        self.on_cancel_answered: Callable[[int, bytes], None] = lambda _owner, _key: None
        """Called when a client reads the answer to a `C`."""

    def add(self, request: Request) -> None:
        """A request is sent; those of one session in the order in which they are written."""
        request.order = len(self.requests)
        self.requests.append(request)

    def was_read(self, request: Request, at_ns: int) -> None:
        """Its answer was seen on its session. What is written behind it at the same moment may be read later."""
        self.read_upto.setdefault(request.session, []).append((at_ns, request.order))

    def end_ns(self, hold: Hold) -> int:
        """Until when it was a hold for its holder and the operators."""
        return min(hold.end_ns, self.revoked.get(hold.token, hold.end_ns))

    def formed_after(self, token: int) -> int | None:
        """When a domain after the one that this token is of had formed."""
        return next((formed_ns for first_token, formed_ns in self.domains if first_token > token), None)

    def may_have_held(self, request: Request, from_ns: int, to_ns: int) -> bool:
        """Whether it can have been granted within that time, be it never told, and its lease run out: a grant that is
        over before it could be answered is answered `T` (spec 4). Nobody else held the key for as long.
        """
        lease_ns = request.lease * S * SURE // 1000
        free_ns = from_ns
        if to_ns - from_ns < lease_ns:
            return False
        for hold in sorted(self._holds_of(request.key), key=lambda hold: hold.from_ns):
            end_ns = min(self.end_ns(hold), to_ns)
            if hold.request is request or end_ns <= max(hold.from_ns, free_ns):
                continue
            if hold.from_ns - free_ns >= lease_ns:
                return True
            free_ns = end_ns
        return to_ns - free_ns >= lease_ns

    def _holds_of(self, key: bytes) -> list[Hold]:
        return [hold for hold in self.holds if hold.key == key]

    def of_key(self) -> dict[bytes, list[Hold]]:
        """The holds of each key in token order."""
        keys: dict[bytes, list[Hold]] = {}
        for hold in sorted(self.holds, key=lambda hold: hold.token):
            keys.setdefault(hold.key, []).append(hold)
        return keys


def first_cancels(history: Facts) -> dict[tuple[int, bytes], int]:
    """When each (owner, key) was first cancelled."""
    found: dict[tuple[int, bytes], int] = {}
    for request in history.requests:
        if request.op == "C":
            found.setdefault((request.ident, request.key), request.sent_ns)
    return found
