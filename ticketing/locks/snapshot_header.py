"""What a snapshot of the lock table begins with."""

from __future__ import annotations

import msgspec

SNAPSHOT_FORMAT = 1


class SnapshotHeader(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What comes before the slices."""

    format: int
    next_token: int
    count: int
    """How many held keys the slices tell, all together."""
    ring: bytes
    """The cancelled owners, oldest first, 8 big-endian bytes each."""
    admin_ids: tuple[str, ...]
    """Oldest first."""
