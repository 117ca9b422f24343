"""Lists of held keys for people, from orders that are kept anyway: nothing here sorts the table (spec 9)."""

from __future__ import annotations

from heapq import heapify, heappop, heapreplace
from itertools import islice
from typing import TYPE_CHECKING

from ticketing.locks.held import SECOND_NS, Held
from ticketing.locks.walk import TokenWalk

if TYPE_CHECKING:
    from ticketing.locks.table import LockTable

PAGE_MAX = 1_000

_ABOVE_ALL_KEYS = b"\xff"
"""No UTF-8 text begins with this byte."""


def oldest(table: LockTable, count: int) -> list[Held]:
    """At most `count` ownerships, those granted longest ago first."""
    return list(islice(table.held.values(), count))


def least_left(table: LockTable, count: int) -> list[Held]:
    """At most `count` ownerships in the order in which their leases are over, overdue ones included."""
    firsts = [
        (end.due_next.stamp_ns + lease * SECOND_NS, lease, end.due_next)
        for lease, end in enumerate(table.due)
        if end.due_next is not end
    ]
    heapify(firsts)
    found: list[Held] = []
    while firsts and len(found) < count:
        _, lease, held = firsts[0]
        found.append(held)
        held = held.due_next
        if held is table.due[lease]:
            heappop(firsts)
        else:
            heapreplace(firsts, (held.stamp_ns + lease * SECOND_NS, lease, held))
    return found


class KeyPage(TokenWalk):
    """One page of held keys by their bytes, found in slices: the smallest `count` above `after_key`.

    Call `step` until it returns True, then read `result` and `last_key`. Every key that is held all the while
    is on its page, by whatever hand-overs it goes; one that becomes held or free meanwhile may be or not.
    """

    __slots__ = ("_after_key", "_below_key", "_count", "_found", "_prefix", "last_key", "result")

    def __init__(self, table: LockTable, after_key: bytes, prefix: bytes, count: int) -> None:
        assert 0 < count <= PAGE_MAX, count
        super().__init__(table)
        self._after_key = after_key
        self._prefix = prefix
        self._count = count
        # Candidates, a few more than wanted; all below _below_key, which falls as better ones are found.
        self._found: dict[bytes, None] = {}
        self._below_key = _ABOVE_ALL_KEYS
        self.result: list[Held] = []
        """The page, as it stands in the moment in which the last step ends."""
        self.last_key: bytes | None = None
        """`after_key` for the next page; None where this is the last one."""

    def step(self, limit: int = 4_096) -> bool:
        """Looks at most at `limit` keys (under a millisecond by default). True once the page is complete."""
        assert self.open, "this page is complete or was given up"
        held, end = self.at, self.table.held.tokens
        after_key, prefix, found = self._after_key, self._prefix, self._found
        below_key, trim_at = self._below_key, 2 * self._count + 2
        for _ in range(limit):
            if held is end:
                break
            if after_key < held.key < below_key and held.key.startswith(prefix):
                found[held.key] = None
                if len(found) >= trim_at:
                    below_key = self._trim()
            held = held.newer
        self.at, self._below_key = held, below_key
        if held is not end:
            return False
        keys = sorted(found)
        if len(keys) > self._count:
            del keys[self._count :]
            self.last_key = keys[-1]
        table_held = self.table.held
        self.result = [table_held[key] for key in keys if key in table_held]
        self.close()
        return True

    def _trim(self) -> bytes:
        """Keeps one more than wanted (it tells that there is a next page); returns the new bound."""
        keys = sorted(self._found)[: self._count + 1]
        self._found.clear()
        self._found.update(dict.fromkeys(keys))
        return keys[-1]
