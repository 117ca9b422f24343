"""The receiving side of a lock table's snapshot: builds a table from header and slices (spec 6, 7)."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush

import msgspec

from ticketing.locks.held import DETACHED, LEASE_MAX_S, Held
from ticketing.locks.ring import OwnerRing
from ticketing.locks.snapshot import HeldRecord
from ticketing.locks.snapshot_header import SNAPSHOT_FORMAT, SnapshotHeader
from ticketing.locks.table import ADMIN_IDS_MAX, TOKEN_LIMIT, LockTable

_decoder = msgspec.msgpack.Decoder(list[HeldRecord])


class BadSnapshot(Exception):  # noqa: N818
    """Header or slices are not what a `SnapshotReader` of our format tells; nothing was installed."""


class SnapshotLoader:
    """Builds the table of one snapshot.

    `receipt_ns` is this node's elapsed clock when the header came, `sender_clock_ns` the sender's, read
    before the first byte left: a stamp becomes the receipt less 0.998 of its age, so it never lies before
    the true one (the two clocks' rates differ by less than 0.2 %). Every method may raise `BadSnapshot`;
    the loader is of no use then.
    """

    __slots__ = (
        "_count",
        "_extended",
        "_last_token",
        "_merging",
        "_receipt_ns",
        "_sender_clock_ns",
        "_table",
    )

    def __init__(self, header: SnapshotHeader, receipt_ns: int, sender_clock_ns: int) -> None:
        if header.format != SNAPSHOT_FORMAT:
            raise BadSnapshot(
                f"lock snapshot of format {header.format}, this program reads {SNAPSHOT_FORMAT}"
            )
        if not 0 < header.next_token < TOKEN_LIMIT or len(header.admin_ids) > ADMIN_IDS_MAX:
            raise BadSnapshot(f"next token {header.next_token}, {len(header.admin_ids)} admin ids")
        table = LockTable(header.next_token)
        try:
            table.ring = OwnerRing.from_bytes(header.ring)
        except ValueError as error:
            raise BadSnapshot(str(error)) from error
        table.admin_ids = dict.fromkeys(header.admin_ids)
        self._table = table
        self._count = header.count
        self._receipt_ns = receipt_ns
        self._sender_clock_ns = sender_clock_ns
        self._last_token = 0
        # By lease, a heap: keys that were extended come in token order, not in that of their stamps. All
        # others come in both, since a later grant never has an earlier stamp among those of its lease.
        self._extended: dict[int, list[tuple[int, int, Held]]] = {}
        self._merging: Iterator[None] | None = None

    def abandon(self) -> LockTable:
        """What there is so far, to be taken apart: the rest will not come."""
        return self._table

    def feed(self, data: memoryview | bytes) -> None:
        """Takes one slice. Slices come in the order in which they were told."""
        assert self._merging is None
        try:
            records = _decoder.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadSnapshot(f"lock snapshot slice of {len(data)} bytes cannot be read: {error}") from error
        if len(self._table.held) + len(records) > self._count:
            raise BadSnapshot(f"more held keys than the {self._count} that the header said")
        for record in records:
            self._take(record)

    def _take(self, record: HeldRecord) -> None:
        key, token, renewal, owner, name, lease, granted_wall_ms, stamp_ns = record
        table = self._table
        if not self._last_token < token < table.next_token or key in table.held:
            raise BadSnapshot(f"token {token} of {key!r} after {self._last_token}, next {table.next_token}")
        if not (0 < lease <= LEASE_MAX_S and owner > 0 and renewal >= 0):
            raise BadSnapshot(f"{key!r} has lease {lease}, owner {owner}, renewal {renewal}")
        age_ns = max(0, self._sender_clock_ns - stamp_ns)
        own_stamp_ns = self._receipt_ns - age_ns * 998 // 1000
        held = Held(key, token, renewal, owner, table.share_name(name), lease, granted_wall_ms, own_stamp_ns)
        self._last_token = token
        table.held.add(held)
        if renewal:
            # Until it is merged it is in no order of stamps, and a loader may be dropped before.
            held.due_prev = held.due_next = DETACHED
            heappush(self._extended.setdefault(lease, []), (own_stamp_ns, token, held))
        else:
            table.queue_due(held)

    def finish_slice(self, limit: int = 500) -> LockTable | None:
        """One slice of the last work, about `limit` keys; the table once all is done, None before."""
        if self._merging is None:
            if len(self._table.held) != self._count:
                raise BadSnapshot(f"{len(self._table.held)} held keys, the header said {self._count}")
            self._merging = self._merge_extended(limit)
        for _ in self._merging:
            return None
        return self._table

    def finish(self) -> LockTable:
        """The table, in one go."""
        while (table := self.finish_slice()) is None:
            pass
        return table

    def _merge_extended(self, limit: int) -> Iterator[None]:
        work = 0
        for lease, extended in self._extended.items():
            end = self._table.due[lease]
            at = end.due_next
            while extended:
                stamp_ns, _, held = heappop(extended)
                while at is not end and at.stamp_ns <= stamp_ns:
                    at = at.due_next
                    work += 1
                    if work >= limit:
                        yield
                        work = 0
                self._table.queue_due(held, before=at)
                work += 1
                if work >= limit:
                    yield
                    work = 0
