"""The table of marks: one row a lock key, with the greatest token that has written. What all drivers share.

The domain is no part of a mark's key: tokens rise from one domain to the next exactly so that one mark refuses both
(spec 11). Two clusters that share a database need tables of their own.
"""

from __future__ import annotations

import re

from ticketing.protocol.fields import TOKEN_MAX

TABLE = "ticketing_marks"

SQLITE = "sqlite"
POSTGRESQL = "postgresql"

_SCHEMAS = {
    SQLITE: "CREATE TABLE IF NOT EXISTS {} (key TEXT PRIMARY KEY, token INTEGER NOT NULL) WITHOUT ROWID",
    # Keys are compared as bytes, whatever the collation of the database.
    POSTGRESQL: 'CREATE TABLE IF NOT EXISTS {} (key text COLLATE "C" PRIMARY KEY, token bigint NOT NULL)',
}


class StaleTokenError(Exception):
    """A later holder has written already: the caller's lock is over, and its transaction must be rolled back."""

    def __init__(self, key: str, token: int, mark: int | None) -> None:
        # All three go into `args`, or the exception could not be pickled.
        super().__init__(key, token, mark)
        self.key = key
        self.token = token
        self.mark = mark
        """The token that has written already; None where its row was deleted meanwhile."""

    def __str__(self) -> str:
        later = "a later one" if self.mark is None else str(self.mark)
        return f"token {self.token} for {self.key!r} is stale: {later} has written already"


class NoTransactionError(Exception):
    """The mark would be committed by itself, apart from the write that it is for, and so protect nothing."""


def marks_schema(dialect: str, table: str = TABLE) -> str:
    """The statement that makes the table where it is missing, for migrations. `dialect`: `sqlite`, `postgresql`."""
    if dialect not in _SCHEMAS:
        raise ValueError(f"dialect: {dialect!r} is neither 'sqlite' nor 'postgresql'")
    return _SCHEMAS[dialect].format(checked_table(table))


def advance_statement(key: str, token: str, table: str) -> str:
    """Compares and advances in one statement: it touches one row, or none where the token is stale.

    `key` and `token` are the driver's placeholders. Where another transaction has the row, it waits for its end.
    """
    name = checked_table(table)
    return (
        f"INSERT INTO {name} AS mark (key, token) VALUES ({key}, {token})"  # noqa: S608 - the name is checked
        " ON CONFLICT (key) DO UPDATE SET token = excluded.token WHERE mark.token <= excluded.token"
    )


def read_statement(key: str, table: str) -> str:
    """Reads a mark, for the error."""
    return f"SELECT token FROM {checked_table(table)} WHERE key = {key}"  # noqa: S608 - the name is checked


def checked_table(table: str) -> str:
    """A plain name, or one with a schema. ValueError otherwise: it goes into statements as it is."""
    if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,62}(\.[A-Za-z_][A-Za-z0-9_]{0,62})?", table) is None:
        raise ValueError(f"table: {table!r} is no plain name of a table")
    return table


def check(key: object, token: object) -> None:
    """ValueError where these are not a ticket's key and token."""
    if not isinstance(key, str) or not key:
        raise ValueError(f"key: {key!r} is no key of a ticket")
    if not isinstance(token, int) or isinstance(token, bool) or not 0 < token < TOKEN_MAX:
        raise ValueError(f"token: {token!r} is no token of a ticket")
