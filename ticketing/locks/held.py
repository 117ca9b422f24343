"""One held key and the two linked orders that it stands in.

The orders are intrusive doubly linked rings, each closed by a sentinel: entering and leaving cost the same
at a million keys, and what left is freed at once by its reference count (its links point at `DETACHED`,
never at neighbours, so no cycle keeps it).
"""

from __future__ import annotations

SECOND_NS = 1_000_000_000
LEASE_MAX_S = 250

NEVER_NS = -(1 << 62)
"""Before every stamp. A stamp may be negative: it can lie before this machine was started."""


class Held:
    """One ownership of one key: a hand-over makes another object, an extension changes this one."""

    __slots__ = (
        "due_next",
        "due_prev",
        "granted_wall_ms",
        "key",
        "lease",
        "name",
        "newer",
        "older",
        "owner",
        "renewal",
        "stamp_ns",
        "token",
    )

    newer: Held
    """The next one in token order (each grant's token is above all earlier ones)."""
    older: Held
    due_next: Held
    """The next one of the same lease in the order of stamps."""
    due_prev: Held

    def __init__(
        self,
        key: bytes,
        token: int,
        renewal: int,
        owner: int,
        name: str,
        lease: int,
        granted_wall_ms: int,
        stamp_ns: int,
    ) -> None:
        self.key = key
        self.token = token
        self.renewal = renewal
        """0 at the grant, one more with each effective extension."""
        self.owner = owner
        self.name = name
        self.lease = lease
        """Whole seconds, 1..250."""
        self.granted_wall_ms = granted_wall_ms
        """The proposer's wall clock, Unix ms: for people only."""
        self.stamp_ns = stamp_ns
        """By this node's elapsed clock, never before the grant or last extension (spec 7). Not replicated."""

    @property
    def due_ns(self) -> int:
        """When the lease is over by this node's elapsed clock."""
        return self.stamp_ns + self.lease * SECOND_NS

    def __repr__(self) -> str:
        return f"Held({self.key!r}, token={self.token}, renewal={self.renewal}, lease={self.lease})"


def sentinel() -> Held:
    """The closing member of an empty ring in either order; its stamp lies before all others."""
    held = Held(b"", 0, 0, 0, "", 0, 0, NEVER_NS)
    held.newer = held.older = held.due_next = held.due_prev = held
    return held


DETACHED = sentinel()
"""Where the links of a record point that stands in no order."""
