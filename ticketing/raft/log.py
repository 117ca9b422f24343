"""The log in memory: entries after a base, each with the running total of bytes up to it.

Invariants: indexes are consecutive from `base_index + 1` to `last_index`; terms never fall along the log and
none is below `base_term`; stamps never fall; `_ends[i]` is the total of bytes of all entries up to and
including `_entries[i]` counted from an origin that compaction does not move, so the size of any stretch is
one subtraction. Bounds are therefore computed from the log itself and cannot drift from it, whatever leader
or term an entry is from (F078).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from operator import attrgetter

from ticketing.raft.types import Entry

ENTRY_OVERHEAD = 192
"""Bytes counted for an entry beside its data, about CPython's own: byte bounds are memory bounds."""

_term_of = attrgetter("term")


class Log:
    """An append-only list of entries that can lose its tail (conflicts) and its head (compaction)."""

    __slots__ = ("_base_end", "_ends", "_entries", "base_index", "base_term", "last_index")

    def __init__(self, base_index: int, base_term: int) -> None:
        self.base_index = base_index
        """Everything up to here is in a snapshot only."""
        self.base_term = base_term
        self.last_index = base_index
        self._entries: list[Entry] = []
        self._ends: list[int] = []
        self._base_end = 0

    @property
    def last_term(self) -> int:
        """Term of the last entry, or of the base."""
        return self._entries[-1].term if self._entries else self.base_term

    @property
    def last_stamp_ns(self) -> int | None:
        """Stamp of the last entry, None where only the base is left."""
        return self._entries[-1].stamp_ns if self._entries else None

    def term_at(self, index: int) -> int:
        """Term of an entry between the base and the last, both included."""
        position = index - self.base_index - 1
        if position < 0:
            assert position == -1, (index, self.base_index)
            return self.base_term
        return self._entries[position].term

    def entry_at(self, index: int) -> Entry:
        """The entry itself; the base has none."""
        assert self.base_index < index <= self.last_index, (self.base_index, index, self.last_index)
        return self._entries[index - self.base_index - 1]

    def entries(self, first: int, last: int) -> list[Entry]:
        """Entries first..last, both included."""
        offset = self.base_index + 1
        assert first >= offset, (first, offset)
        assert last <= self.last_index, (last, self.last_index)
        return self._entries[first - offset : last - offset + 1]

    def append(self, entry: Entry) -> None:
        """Adds an entry behind the last one."""
        assert entry.index == self.last_index + 1, (entry, self.last_index)
        entries, ends = self._entries, self._ends
        if entries:
            assert entry.term >= entries[-1].term, (entry, entries[-1].term)
            end = ends[-1]
        else:
            assert entry.term >= self.base_term, (entry, self.base_term)
            end = self._base_end
        ends.append(end + len(entry.data) + ENTRY_OVERHEAD)
        entries.append(entry)
        self.last_index = entry.index

    def truncate(self, first: int) -> None:
        """Drops the entry `first` and everything after it."""
        assert self.base_index < first <= self.last_index, (self.base_index, first, self.last_index)
        position = first - self.base_index - 1
        del self._entries[position:]
        del self._ends[position:]
        self.last_index = first - 1

    def compact(self, index: int) -> None:
        """Drops everything up to and including `index`, which becomes the base."""
        assert self.base_index <= index <= self.last_index, (self.base_index, index, self.last_index)
        count = index - self.base_index
        if count == 0:
            return
        self.base_term = self._entries[count - 1].term
        self._base_end = self._ends[count - 1]
        self.base_index = index
        del self._entries[:count]
        del self._ends[:count]

    def reset(self, index: int, term: int) -> None:
        """Drops everything: a snapshot at (index, term) stands for the whole log."""
        self._entries.clear()
        self._ends.clear()
        self._base_end = 0
        self.base_index = self.last_index = index
        self.base_term = term

    def contains(self, index: int, term: int) -> bool:
        """Whether the entry (or base) at `index` is here and of this term."""
        return self.base_index <= index <= self.last_index and self.term_at(index) == term

    def last_of_term(self, index: int, term: int) -> int:
        """The last index not after `index` (nor after the log) whose entry is not of a later term than
        `term`.

        At the base it stops: what lies before it is unknown here.
        """
        position = min(index, self.last_index) - self.base_index
        if position <= 0:
            return self.base_index
        return self.base_index + bisect_right(self._entries, term, 0, position, key=_term_of)

    def bytes_between(self, after: int, upto: int) -> int:
        """Size of the entries after..upto, the first excluded; what was compacted counts for nothing."""
        return self._end(upto) - self._end(after)

    def last_fitting(self, first: int, limit: int) -> int:
        """The last index with which first..index are at most `limit` bytes; `first - 1` if none fits."""
        position = first - self.base_index - 1
        return self.base_index + bisect_right(self._ends, self._end(first - 1) + limit, position)

    def base_keeping(self, upto: int, keep_bytes: int) -> int:
        """The lowest base with which the entries after it up to `upto` are at most `keep_bytes`."""
        target = self._end(upto) - keep_bytes
        if target <= self._base_end:
            return self.base_index
        return self.base_index + bisect_left(self._ends, target) + 1

    def _end(self, index: int) -> int:
        position = index - self.base_index - 1
        return self._ends[position] if position >= 0 else self._base_end
