"""One held key and the two linked orders that it stands in.

The orders are intrusive doubly linked rings, each closed by a sentinel: entering and leaving cost the same
at a million keys, and what left is freed at once by its reference count (its links point at `DETACHED`,
never at neighbours, so no cycle keeps it).
"""

from __future__ import annotations

import msgspec

SECOND_NS = 1_000_000_000
LEASE_MAX_S = 250

NEVER_NS = -(1 << 62)
"""Before every stamp. A stamp may be negative: it can lie before this machine was started."""


class Held(msgspec.Struct, gc=False, eq=False):
    """One ownership of one key: a hand-over makes another object, an extension changes this one.

    The garbage collector does not know it: 16 bytes less each, and no pause for a million of them. So whoever takes
    one out of its orders cuts its links, and whoever drops a table has it dismantled first.
    """

    key: bytes
    token: int
    renewal: int
    """0 at the grant, one more with each effective extension."""
    owner: int
    name: str
    lease: int
    """Whole seconds, 1..250."""
    granted_wall_ms: int
    """The proposer's wall clock, Unix ms: for people only."""
    stamp_ns: int
    """By this node's elapsed clock, never before the grant or last extension (spec 7). Not replicated."""
    # The four links are set by whoever puts it into the orders, at once.
    newer: Held = None  # type: ignore[assignment]
    """The next one in token order (each grant's token is above all earlier ones)."""
    older: Held = None  # type: ignore[assignment]
    due_next: Held = None  # type: ignore[assignment]
    """The next one of the same lease in the order of stamps."""
    due_prev: Held = None  # type: ignore[assignment]

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
