"""What the table remembers of revocations for the audit of every node."""

from __future__ import annotations

from ticketing.locks.commands import Revoke, Turn
from ticketing.locks.table import LockTable

FIRST = 1 << 50


def table() -> LockTable:
    made = LockTable(FIRST)
    made.apply([Turn(b"k", 0, 7, 10, 0, "shop")], 0)
    return made


def test_an_effective_revocation_is_kept_with_whom_it_concerned_and_who_is_next() -> None:
    made = table()
    command = Revoke("id", Turn(b"k", FIRST, 8, 10), "ops", "stuck")
    made.apply([command], 0)
    assert made.revocations == [(command, 7, "shop", FIRST + 1)]


def test_a_vain_or_repeated_revocation_is_not_kept() -> None:
    made = table()
    made.apply([Revoke("id", Turn(b"k", FIRST + 5), "ops", "")], 0)
    made.apply([Revoke("id", Turn(b"k", FIRST), "ops", "")], 0)
    made.apply([Revoke("other", Turn(b"free", 0), "ops", "")], 0)
    assert made.revocations == []
    assert made.held[b"k"].token == FIRST
