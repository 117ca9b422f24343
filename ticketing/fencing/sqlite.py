"""A guard for SQLite: the mark of a key is compared and advanced in the transaction of the business write.

Use it first in the transaction, write after it, commit once:

    connection.execute("BEGIN IMMEDIATE")
    guard(connection, ticket.key, ticket.token)
    connection.execute("UPDATE seats SET ...")
    connection.commit()

Release the ticket only when the commit or the rollback is known. Advancing the mark in a transaction of its own, and
writing later, protects nothing. The domain is not part of the mark's key: tokens rise from one domain to the next
exactly so that one mark refuses both. Clusters that share a database need marks of their own (`table`).
"""

from __future__ import annotations

import re
import sqlite3

TABLE = "ticketing_fence"


class StaleTokenError(Exception):
    """A later holder has written already: the caller's lock is over, and its transaction must be rolled back."""

    def __init__(self, key: str, token: int, mark: int) -> None:
        super().__init__(f"token {token} for {key!r} is stale: {mark} has written already")
        self.key = key
        self.token = token
        self.mark = mark


def create_table(connection: sqlite3.Connection, table: str = TABLE) -> None:
    """Makes the table of marks where it is missing: one row a key, with the greatest token that has written."""
    connection.execute(
        f"CREATE TABLE IF NOT EXISTS {_checked(table)}"
        " (key TEXT PRIMARY KEY, token INTEGER NOT NULL) WITHOUT ROWID"
    )


def guard(connection: sqlite3.Connection, key: str, token: int, table: str = TABLE) -> None:
    """Lets the transaction go on if `token` is not below the key's mark, which it then becomes.

    An equal token passes: one ticket may write more than once. Has to be called inside a transaction, or the mark
    would be committed without the write that it is for.

    Raises:
        StaleTokenError: roll back.

    """
    assert connection.in_transaction, "a fence outside a transaction protects nothing: BEGIN IMMEDIATE first"
    name = _checked(table)
    changed = connection.execute(
        f"INSERT INTO {name} (key, token) VALUES (?, ?)"  # noqa: S608 - the name is checked
        " ON CONFLICT (key) DO UPDATE SET token = excluded.token WHERE excluded.token >= token",
        (key, token),
    ).rowcount
    if changed != 1:
        row = connection.execute(f"SELECT token FROM {name} WHERE key = ?", (key,)).fetchone()  # noqa: S608
        raise StaleTokenError(key, token, row[0])


def _checked(table: str) -> str:
    assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,62}", table), f"{table!r} is no plain table name"
    return table
