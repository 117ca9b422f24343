"""How much waits and is held at most."""

from __future__ import annotations

import msgspec


class DeskLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds beyond which an acquire is answered `B` (spec 4)."""

    waiters_per_session: int = 50_000
    waiters_per_key: int = 100_000
    waiters: int = 200_000
    keys: int = 1_000_000
