"""The checksum of a lock table, reckoned in slices while applies go on: of the table as it stood when it was begun."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from ticketing.locks.table import LockTable

_encode = msgspec.msgpack.Encoder().encode


class TableChecksum:
    """64 bits over everything that is replicated, stamps not among it: equal on all nodes at equal index. O(n) in all.

    One that is begun is to be taken to its end or closed, as a snapshot.
    """

    __slots__ = ("_digest", "_reader")

    def __init__(self, table: LockTable) -> None:
        self._reader = table.begin_snapshot()
        self._digest = blake2b(digest_size=8)
        header = self._reader.header()
        self._digest.update(_encode((header.next_token, header.ring, list(header.admin_ids))))

    def step(self, limit: int) -> int | None:
        """Reckons at most `limit` more keys in; the checksum once there are none left."""
        records = self._reader.next_records(limit)
        if not records:
            return int.from_bytes(self._digest.digest(), "big")
        for key, token, renewal, owner, name, lease, granted_wall_ms, _stamp_ns in records:
            self._digest.update(_encode(((key, token, renewal, owner, name), lease, granted_wall_ms)))
        return None

    def close(self) -> None:
        """Ends it and frees what was kept for it."""
        self._reader.close()
