"""The oracle of the lock table (plain lists, no orders kept), and the moves of the property tests."""

from __future__ import annotations

from typing import Any, NamedTuple

from hypothesis import strategies as st

from ticketing.locks.commands import Cancel, Extend, LockCommand, Revoke, Turn
from ticketing.locks.held import SECOND_NS, Held
from ticketing.locks.table import LockTable

FIRST_TOKEN = 1 << 50
KEYS = [b"a", b"b", b"b/1", b"b/2", b"c", "좌석".encode(), b"z" * 128]


class Move(NamedTuple):
    """One command yet to be aimed at the table's present state."""

    kind: str
    key: bytes
    aim: int
    """0: at the present holder (or free), 1: at free, else: at a token that never holds."""
    owner: int
    lease: int
    passing_ns: int
    """How much later than its predecessor the entry is stamped."""


OWNERS = st.integers(1, 6).map(lambda number: (1 << 63) | number)

MOVES = st.builds(
    Move,
    kind=st.sampled_from(["grant", "grant", "grant", "free", "extend", "expire", "cancel", "revoke"]),
    key=st.sampled_from(KEYS),
    aim=st.sampled_from([0, 0, 0, 0, 1, 7]),
    owner=OWNERS,
    lease=st.sampled_from([1, 2, 2, 3, 250]),
    passing_ns=st.integers(0, 3 * SECOND_NS),
)

AIMED_MOVES = st.builds(
    Move,
    kind=st.sampled_from(["grant", "grant", "free", "extend", "extend"]),
    key=st.sampled_from(KEYS),
    aim=st.just(0),
    owner=OWNERS,
    lease=st.sampled_from([1, 2, 2, 3]),
    passing_ns=st.integers(0, 3 * SECOND_NS),
)
"""Each of these changes something, if only the key is held."""


class TwinTable:
    """What a lock table should hold, each ownership as a dict of plain values, oldest first."""

    def __init__(self) -> None:
        self.next_token = FIRST_TOKEN
        self.holds: list[dict[str, Any]] = []
        self.cancelled: list[int] = []
        self.admin_ids: list[str] = []

    def holder(self, key: bytes) -> dict[str, Any] | None:
        return next((hold for hold in self.holds if hold["key"] == key), None)

    def command(self, move: Move) -> LockCommand:
        """The command that `move` is in the present state."""
        holder = self.holder(move.key)
        present = holder["token"] if holder else 0
        expect = present if move.aim == 0 else (0 if move.aim == 1 else move.aim)
        if move.kind == "grant":
            return Turn(
                move.key, expect, move.owner, move.lease, 1_000 + move.lease, f"client {move.owner % 3}"
            )
        if move.kind == "free":
            return Turn(move.key, expect)
        if move.kind == "extend":
            return Extend(move.key, expect, move.lease)
        if move.kind == "expire":
            return Turn(move.key, expect, move.owner, move.lease, renewal=move.lease % 3)
        if move.kind == "cancel":
            return Cancel((move.owner, move.owner ^ 1))
        return Revoke(f"id {move.owner % 5}", Turn(move.key, expect), "operator", "because")

    def apply(self, command: LockCommand) -> int:
        """One outcome, as `LockTable.apply` gives them."""
        if isinstance(command, Cancel):
            self.cancelled += command.owners
            return 0
        if isinstance(command, Revoke):
            if command.command_id in self.admin_ids:
                return -1
            self.admin_ids.append(command.command_id)
            command = command.turn
        holder = self.holder(command.key)
        if (holder["token"] if holder else 0) != command.expect:
            return -1
        if isinstance(command, Extend):
            if holder is None:
                return -1
            holder["lease"] = max(holder["lease"], command.lease)
            holder["renewal"] += 1
            return 1
        if holder and command.renewal not in {-1, holder["renewal"]}:
            return -1
        if holder:
            self.holds.remove(holder)
        if not command.owner:
            return 0
        token = self.next_token
        self.next_token += 1
        self.holds.append(
            {
                "key": command.key,
                "token": token,
                "renewal": 0,
                "owner": command.owner,
                "name": command.name,
                "lease": command.lease,
                "granted_wall_ms": command.wall_ms,
            }
        )
        return token


def in_token_order(table: LockTable) -> list[Held]:
    """All ownerships, found by walking the links forward; checks that walking backward finds the same."""
    forward, held = [], table.held.tokens.newer
    while held is not table.held.tokens:
        assert held.newer.older is held
        forward.append(held)
        held = held.newer
    backward, held = [], table.held.tokens.older
    while held is not table.held.tokens:
        backward.append(held)
        held = held.older
    assert backward == forward[::-1]
    return forward


def plain(held: Held) -> dict[str, Any]:
    """The replicated fields of one ownership."""
    fields = ("key", "token", "renewal", "owner", "name", "lease", "granted_wall_ms")
    return {field: getattr(held, field) for field in fields}


def check_orders(table: LockTable) -> None:
    """Every held key stands exactly once in each order, and each order is sorted."""
    by_token = in_token_order(table)
    assert sorted(table.held) == sorted(held.key for held in by_token)
    assert all(table.held[held.key] is held for held in by_token)
    tokens = [held.token for held in by_token]
    assert tokens == sorted(set(tokens))
    due: list[Held] = []
    for lease, end in enumerate(table.due):
        held, stamp_ns = end.due_next, end.stamp_ns
        while held is not end:
            assert held.lease == lease
            assert held.due_next.due_prev is held
            assert held.stamp_ns >= stamp_ns
            stamp_ns = held.stamp_ns
            due.append(held)
            held = held.due_next
    assert sorted(held.token for held in due) == tokens
    next_due_ns = table.next_due_ns()
    if due:
        assert next_due_ns is not None
        assert next_due_ns <= min(held.due_ns for held in due)
    else:
        assert next_due_ns is None


def filled(count: int, *, lease: int = 60, stamp_ns: int = 0) -> LockTable:
    """A table with `count` keys held, `key-000000` and on."""
    table = LockTable(FIRST_TOKEN)
    turns = [Turn(b"key-%06d" % number, 0, (1 << 63) | number, lease) for number in range(count)]
    table.apply(turns, stamp_ns)
    return table
