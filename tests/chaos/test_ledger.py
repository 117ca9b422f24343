"""What the database says: the fence holds against who is late, and the judge finds what breaks it."""

from __future__ import annotations

import psycopg
import pytest

from tests.chaos import ledger
from tests.chaos.ledger import Books, Write
from tests.fencing.conftest import postgres
from tests.fencing.postgres import Postgres
from ticketing.fencing import StaleTokenError

__all__ = ["postgres"]

OWNERS = {10: ("a", "c1"), 11: ("a", "c2"), 12: ("b", "c1")}
GOOD = [Write("a", 10, "c1", 1), Write("b", 12, "c1", 1), Write("a", 10, "c1", 2), Write("a", 11, "c2", 3)]


def verdict(writes: list[Write]) -> list[str]:
    stock = {key: sum(write.key == key for write in writes) for key in ("a", "b")}
    marks = {key: max(write.token for write in writes if write.key == key) for key in ("a", "b")}
    return ledger.judge(Books(writes, stock, marks), OWNERS)


def test_writes_in_turn_are_fine() -> None:
    assert verdict(GOOD) == []


@pytest.mark.parametrize(
    ("writes", "found"),
    [
        ([*GOOD, Write("a", 10, "c1", 4)], "backwards"),
        ([*GOOD, Write("a", 11, "c2", 3)], "was lost"),
        ([*GOOD, Write("b", 12, "c2", 2)], "not granted"),
        ([*GOOD, Write("b", 13, "c1", 2)], "not granted"),
    ],
)
def test_each_breach_is_found(writes: list[Write], found: str) -> None:
    (fault,) = verdict(writes)
    assert found in fault


def test_marks_and_stock_have_to_agree_with_the_writes() -> None:
    faults = ledger.judge(Books(GOOD, {"a": 3, "b": 2}, {"a": 10, "b": 12}), OWNERS)
    assert len(faults) == 2
    assert "marks" in faults[0]
    assert "stock" in faults[1]


async def test_a_late_writer_changes_nothing(postgres: Postgres) -> None:
    postgres.new_database()
    dsn = ledger.access(postgres)
    ledger.prepare(dsn)
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        await ledger.sell(connection, "a", 10, "c1")
        await ledger.sell(connection, "a", 10, "c1")
        await ledger.sell(connection, "a", 11, "c2")
        with pytest.raises(StaleTokenError):
            await ledger.sell(connection, "a", 10, "c1")
        await ledger.sell(connection, "b", 12, "c1")
    books = ledger.read(dsn)
    assert [(write.key, write.token, write.sold) for write in books.writes] == [
        ("a", 10, 1),
        ("a", 10, 2),
        ("a", 11, 3),
        ("b", 12, 1),
    ]
    assert ledger.judge(books, OWNERS) == []
