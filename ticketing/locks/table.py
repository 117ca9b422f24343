"""The replicated lock table: who holds what, which owners were cancelled, in what order leases run out.

Every node of a domain applies the same commands in the same order and has the same table, stamps apart.
Apply reads nothing but the commands and the replicated state: no clock, no limit, no configuration, no
session (spec 5, 6).
"""

from __future__ import annotations

import sys
from collections.abc import Container, Sequence
from typing import NamedTuple

from ticketing.locks import lists
from ticketing.locks.checksum import TableChecksum
from ticketing.locks.commands import ANY_RENEWAL, Cancel, Extend, LockCommand, Revoke, Turn
from ticketing.locks.held import DETACHED, LEASE_MAX_S, SECOND_NS, Held, sentinel
from ticketing.locks.held_keys import HeldKeys
from ticketing.locks.lists import KeyPage
from ticketing.locks.ring import OwnerRing
from ticketing.locks.snapshot import SnapshotReader

NO_EFFECT = -1
"""The outcome of a command whose condition did not hold: nothing of it took effect."""

ADMIN_IDS_MAX = 1_024
NAMES_SHARED_MAX = 4_096
TOKEN_LIMIT = 1 << 62
CHECKSUM_SLICE = 1_000


class Revocation(NamedTuple):
    """An ownership that an operator has ended."""

    command: Revoke
    owner: int
    name: str
    """Whoever held the key, and what it called itself."""
    next_token: int
    """The token of the head of the queue, which holds the key now; 0 where nobody waited."""


_NO_KEYS: frozenset[bytes] = frozenset()
_FOREVER_NS = 1 << 62

__all__ = ["ADMIN_IDS_MAX", "NO_EFFECT", "TOKEN_LIMIT", "Held", "LockTable"]


class LockTable:
    """All replicated state of the locks of one domain, and this node's expiry order beside it.

    `next_token` is the token that the next grant gets; for a new domain its first token (spec 2).
    """

    __slots__ = (
        "_due_floor_ns",
        "_names",
        "_wall_ms",
        "admin_ids",
        "due",
        "held",
        "next_token",
        "revocations",
        "ring",
    )

    def __init__(self, next_token: int) -> None:
        self.held = HeldKeys()
        """Readable by anybody, changed by `apply` alone."""
        self.due = [sentinel() for _ in range(LEASE_MAX_S + 1)]
        """By lease in seconds: closes the ring of the keys held with it. Invariant: stamps never fall."""
        assert 0 < next_token < TOKEN_LIMIT, next_token
        self.next_token = next_token
        self.ring = OwnerRing()
        self.admin_ids: dict[str, None] = {}
        """The ids of the last 1,024 admin commands, oldest first; see `remember_admin`."""
        self.revocations: list[Revocation] = []
        """What operators have ended since somebody looked last: whoever applies takes them for the audit."""
        # Invariant: not after the due time of any held key. It may lag behind (a release does not raise it).
        self._due_floor_ns = _FOREVER_NS
        # Names of few clients stand in many records: one string for all that are alike. Not replicated.
        self._names: dict[str, str] = {}
        self._wall_ms = 0  # of the newest grant

    # --- apply

    def apply(self, commands: Sequence[LockCommand], stamp_ns: int) -> list[int]:
        """Applies one entry; one outcome a command.

        Turn and Revoke: the new token, or 0 where it took effect and nobody is next. Extend: 1. Cancel: 0.
        `NO_EFFECT` where the condition did not hold, for Revoke also where its id is known already.
        `stamp_ns` is the entry's stamp on this node (spec 7); it has no influence on outcomes.
        """
        outcomes = []
        for command in commands:
            if type(command) is Turn:
                outcomes.append(self._turn(command, stamp_ns))
            elif type(command) is Extend:
                outcomes.append(self._extend(command, stamp_ns))
            elif isinstance(command, Cancel):
                self.ring.extend(command.owners)
                outcomes.append(0)
            else:
                assert isinstance(command, Revoke), f"not a lock command: {command!r}"
                outcomes.append(self._revoke(command, stamp_ns))
        return outcomes

    def _revoke(self, command: Revoke, stamp_ns: int) -> int:
        if not self.remember_admin(command.command_id):
            return NO_EFFECT
        held = self.held.get(command.turn.key)
        outcome = self._turn(command.turn, stamp_ns)
        if outcome != NO_EFFECT and held is not None:
            self.revocations.append(Revocation(command, held.owner, held.name, outcome))
        return outcome

    def remember_admin(self, command_id: str) -> bool:
        """Notes an admin command's id. False where it is among the last 1,024: it must not act again."""
        ids = self.admin_ids
        if command_id in ids:
            return False
        ids[command_id] = None
        if len(ids) > ADMIN_IDS_MAX:
            del ids[next(iter(ids))]
        return True

    def _turn(self, turn: Turn, stamp_ns: int) -> int:
        key = turn.key
        held = self.held.get(key)
        if held is None:
            if turn.expect:
                return NO_EFFECT
        else:
            if turn.expect != held.token or (turn.renewal != ANY_RENEWAL and turn.renewal != held.renewal):
                return NO_EFFECT
            key = held.key
        owner = turn.owner
        if not owner:
            if held is not None:
                self.held.remove(held)
                self._leave_due(held)
            return 0
        lease = turn.lease
        token = self.next_token
        assert 0 < lease <= LEASE_MAX_S, turn
        assert token < TOKEN_LIMIT, token
        self.next_token = token + 1
        name = self._names.get(turn.name)
        if name is None:
            name = self.share_name(turn.name)
        wall_ms = turn.wall_ms
        if wall_ms != self._wall_ms:
            self._wall_ms = wall_ms
        # One number is kept for all grants of one moment, which come one after another.
        new = Held(key, token, 0, owner, name, lease, self._wall_ms, stamp_ns)
        if held is None:
            self.held.add(new)
            self.queue_due(new)
        else:
            self.held.replace(held, new)
            self.queue_due(new)
            self._leave_due(held)
        return token

    def _extend(self, extend: Extend, stamp_ns: int) -> int:
        held = self.held.get(extend.key)
        if held is None or held.token != extend.expect:
            return NO_EFFECT
        for walk in self.held.walks:
            walk.extending(held)
        self._leave_due(held)
        held.renewal += 1
        held.lease = max(held.lease, extend.lease)
        assert held.lease <= LEASE_MAX_S, extend
        held.stamp_ns = max(held.stamp_ns, stamp_ns)
        self.queue_due(held)
        return 1

    def share_name(self, name: str) -> str:
        """The one string kept for all that are equal to `name`."""
        names = self._names
        shared = names.get(name)
        if shared is None:
            if len(names) >= NAMES_SHARED_MAX:
                names.clear()
            shared = names[name] = name
        return shared

    # --- expiry order

    def queue_due(self, held: Held, before: Held | None = None) -> None:
        """Puts `held` last among those of its lease, or right before the later stamp of `before`.

        Its stamp rises to that of its predecessor where it was earlier: later is safe (spec 7).
        """
        end = self.due[held.lease]
        after = end if before is None else before
        last = after.due_prev
        if last.stamp_ns > held.stamp_ns:
            held.stamp_ns = last.stamp_ns
        held.due_prev = last
        held.due_next = after
        last.due_next = after.due_prev = held
        if last is end:
            due_ns = held.stamp_ns + held.lease * SECOND_NS
            if due_ns < self._due_floor_ns:
                self._due_floor_ns = due_ns

    def _leave_due(self, held: Held) -> None:
        before, after = held.due_prev, held.due_next
        before.due_next = after
        after.due_prev = before
        held.due_prev = held.due_next = DETACHED

    def next_due_ns(self) -> int | None:
        """A moment before which no lease is over; None where nothing is held.

        It may be early (releases do not move it): then `overdue` at that moment finds nothing and moves it
        on. What is overdue stays due until its expiry is applied: who has proposed that paces its next look.
        """
        return self._due_floor_ns if self.held else None

    def overdue(self, now_ns: int, limit: int, skip: Container[bytes] = _NO_KEYS) -> list[Held]:
        """At most `limit` records whose lease is over by this node's elapsed clock, oldest first in a lease.

        Keys in `skip` (in flight already) are passed over and do not count, so that a slice always makes
        progress; the work is bounded by `limit`, the skipped overdue keys and the 250 leases.
        """
        found: list[Held] = []
        if now_ns < self._due_floor_ns:
            return found
        floor_ns = _FOREVER_NS
        for lease, end in enumerate(self.due):
            held = end.due_next
            if held is end:
                continue
            floor_ns = min(floor_ns, held.stamp_ns + lease * SECOND_NS)
            stamped_until_ns = now_ns - lease * SECOND_NS
            while held is not end and held.stamp_ns <= stamped_until_ns and len(found) < limit:
                if held.key not in skip:
                    found.append(held)
                held = held.due_next
        self._due_floor_ns = floor_ns
        return found

    # --- snapshots and lists

    def begin_snapshot(self) -> SnapshotReader:
        """Fixes the present state for reading in slices; any number of applies may follow meanwhile."""
        return SnapshotReader(self)

    def oldest(self, count: int) -> list[Held]:
        """At most `count` ownerships, those granted longest ago first."""
        return lists.oldest(self, count)

    def least_left(self, count: int) -> list[Held]:
        """At most `count` ownerships in the order in which their leases are over."""
        return lists.least_left(self, count)

    def page(self, after_key: bytes, prefix: bytes, count: int) -> KeyPage:
        """A search for the `count` smallest keys above `after_key` (b"" at first) with this prefix."""
        return KeyPage(self, after_key, prefix, count)

    # --- whole-table matters

    def checksum(self) -> int:
        """64 bits over all replicated state, stamps not among it: equal on all nodes at equal index. O(n)."""
        reckoning = TableChecksum(self)
        while (found := reckoning.step(CHECKSUM_SLICE)) is None:
            pass
        return found

    def dismantle(self, limit: int) -> bool:
        """Frees at most `limit` records of a table that was replaced; True once nothing is left.

        A table that is merely dropped is freed in one piece. No other method may be called once this has begun.
        """
        keys = self.held
        keys.walks.clear()
        for _ in range(limit):
            held = keys.take_any()
            if held is None:
                for end in (keys.tokens, *self.due):
                    end.older = end.newer = end.due_prev = end.due_next = DETACHED
                return True
            self._leave_due(held)
        return False

    def __del__(self) -> None:
        # Frees what stands in the orders, so whoever needs `held` has to keep the table. Neighbours refer to
        # each other, and the garbage collector does not know them.
        if not sys.is_finalizing():
            while not self.dismantle(len(self.held) + 1):
                pass
