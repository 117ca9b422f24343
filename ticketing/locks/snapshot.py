"""The sending side of a lock table's snapshot: the state of one moment, read in slices while applies go on.

Spec 6. The header fixes at once what is small. The held keys follow in token order; a key that an apply
changes before its turn has come is saved first, as it was. Memory is spent on such keys only.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

import msgspec

from ticketing.locks.held import Held
from ticketing.locks.snapshot_header import SNAPSHOT_FORMAT, SnapshotHeader
from ticketing.locks.walk import TokenWalk

if TYPE_CHECKING:
    from ticketing.locks.table import LockTable

HeldRecord = tuple[bytes, int, int, int, str, int, int, int]
"""key, token, renewal, owner, name, lease (s), granted at (Unix ms), stamp (sender's elapsed clock, ns)."""

_encoder = msgspec.msgpack.Encoder()


def record_of(held: Held) -> HeldRecord:
    """The present state of one held key as it travels."""
    return (
        held.key,
        held.token,
        held.renewal,
        held.owner,
        held.name,
        held.lease,
        held.granted_wall_ms,
        held.stamp_ns,
    )


class SnapshotReader(TokenWalk):
    """A table as it stood when this was made. Several may be open; each must be read to the end or closed."""

    __slots__ = ("_done_token", "_end_token", "_header", "_saved", "_saved_tokens")

    def __init__(self, table: LockTable) -> None:
        super().__init__(table)
        self._header = SnapshotHeader(
            SNAPSHOT_FORMAT,
            table.next_token,
            len(table.held),
            table.ring.to_bytes(),
            tuple(table.admin_ids),
        )
        self._end_token = table.next_token
        self._done_token = 0  # all up to this one have been told
        # Invariant: the same tokens in both, each above _done_token and below _end_token. The list is a heap.
        self._saved: dict[int, HeldRecord] = {}
        self._saved_tokens: list[int] = []

    def header(self) -> SnapshotHeader:
        """The part before the slices. The sender's clock is read by who sends it, after this call."""
        return self._header

    def next_slice(self, max_records: int) -> bytes:
        """The next held keys, at most `max_records`, for `SnapshotLoader.feed`; b"" when all were told."""
        records = self.next_records(max_records)
        return _encoder.encode(records) if records else b""

    def next_records(self, max_records: int) -> list[HeldRecord]:
        """The same as values; none when all were told."""
        assert max_records > 0
        records: list[HeldRecord] = []
        saved, saved_tokens = self._saved, self._saved_tokens
        live, end = self.at, self.table.held.tokens
        while len(records) < max_records:
            more_live = live is not end and live.token < self._end_token
            if saved_tokens and (not more_live or saved_tokens[0] <= live.token):
                token = heappop(saved_tokens)
                records.append(saved.pop(token))
                if more_live and live.token == token:
                    live = live.newer
            elif more_live:
                records.append(record_of(live))
                live = live.newer
            else:
                break
        self.at = live
        if not records:
            self.close()
            return records
        self._done_token = records[-1][1]
        return records

    def leaving(self, held: Held) -> None:
        """Saves `held` where it was not told yet."""
        self.extending(held)
        super().leaving(held)

    def extending(self, held: Held) -> None:
        """Saves `held` where it was not told yet."""
        token = held.token
        if self._done_token < token < self._end_token and token not in self._saved:
            self._saved[token] = record_of(held)
            heappush(self._saved_tokens, token)

    def close(self) -> None:
        """Ends the reading and frees what was saved; `next_slice` then tells nothing more."""
        super().close()
        self._saved.clear()
        self._saved_tokens.clear()
        self._end_token = 0
