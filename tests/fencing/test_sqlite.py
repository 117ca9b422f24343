from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from ticketing.fencing.sqlite import StaleTokenError, create_table, guard

KEY = "stock/42"


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "shop.db"
    with open_database(path) as connection:
        create_table(connection)
        connection.execute("CREATE TABLE stock (sold INTEGER)")
        connection.execute("INSERT INTO stock VALUES (0)")
    connection.close()
    return path


def open_database(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None)


def sell(path: Path, token: int, key: str = KEY) -> None:
    connection = open_database(path)
    try:
        connection.execute("BEGIN IMMEDIATE")
        guard(connection, key, token)
        connection.execute("UPDATE stock SET sold = sold + 1")
        connection.commit()
    finally:
        connection.close()


def sold(path: Path) -> int:
    connection = open_database(path)
    try:
        number: int = connection.execute("SELECT sold FROM stock").fetchone()[0]
        return number
    finally:
        connection.close()


def test_a_stale_token_is_refused_and_its_write_is_not_there(database: Path) -> None:
    sell(database, 11)
    with pytest.raises(StaleTokenError) as refused:
        sell(database, 10)
    assert (refused.value.token, refused.value.mark) == (10, 11)
    assert sold(database) == 1


def test_one_ticket_may_write_twice_and_a_later_one_after_it(database: Path) -> None:
    for token in (10, 10, 12):
        sell(database, token)
    assert sold(database) == 3


def test_marks_of_different_keys_do_not_meet(database: Path) -> None:
    sell(database, 12)
    sell(database, 10, "stock/43")
    assert sold(database) == 2


def test_a_mark_that_was_rolled_back_refuses_nobody(database: Path) -> None:
    connection = open_database(database)
    connection.execute("BEGIN IMMEDIATE")
    guard(connection, KEY, 99)
    connection.rollback()
    connection.close()
    sell(database, 10)
    assert sold(database) == 1


def test_a_guard_outside_a_transaction_is_our_own_mistake(database: Path) -> None:
    connection = open_database(database)
    with pytest.raises(AssertionError, match="outside a transaction"):
        guard(connection, KEY, 10)
    connection.close()
