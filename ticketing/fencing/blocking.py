"""Marks over blocking connections: sqlite3, psycopg 3, and SQLAlchemy's connections and sessions.

None of them is imported here: a connection of theirs can only be passed in where they are loaded.
"""

from __future__ import annotations

import sqlite3
import sys
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from ticketing.fencing.marks import (
    POSTGRESQL,
    SQLITE,
    TABLE,
    NoTransactionError,
    StaleTokenError,
    advance_statement,
    check,
    marks_schema,
    read_statement,
)

if TYPE_CHECKING:
    import psycopg
    import sqlalchemy
    from sqlalchemy.orm import Session, scoped_session

    BlockingConnection: TypeAlias = (
        sqlite3.Connection
        | psycopg.Connection[Any]
        | sqlalchemy.Connection
        | Session
        | scoped_session[Session]
    )


def create_marks(connection: BlockingConnection, *, table: str = TABLE) -> None:
    """Makes the table of marks where it is missing, in the transaction of the connection.

    On PostgreSQL two at once can collide: make it in a migration (`marks_schema`), or at one place.
    """
    if isinstance(connection, sqlite3.Connection):
        connection.execute(marks_schema(SQLITE, table))
    elif is_a(connection, "psycopg", "Connection"):
        cast("Any", connection).execute(marks_schema(POSTGRESQL, table))
    else:
        _create_by_sqlalchemy(sqlalchemy_connection(connection), table)


def advance_mark(connection: BlockingConnection, key: str, token: int, *, table: str = TABLE) -> None:
    """Lets the transaction go on if `token` is not below the key's mark, which it then becomes.

    To be called first in the transaction, before the write that it protects: it also keeps other writers of the key
    waiting until the transaction ends. An equal token passes: one ticket may write more than once.

    Raises:
        StaleTokenError: a later holder has written. Roll back.
        NoTransactionError: the connection commits each statement by itself, and no transaction was begun.
        ValueError: no key, token or table name.
        TypeError: not a connection of a known driver.

    """
    check(key, token)
    if isinstance(connection, sqlite3.Connection):
        require_transaction(not sqlite_commits_at_once(connection))
        cursor = connection.execute(advance_statement("?", "?", table), (key, token))
        if cursor.rowcount != 1:
            row = connection.execute(read_statement("?", table), (key,)).fetchone()
            raise StaleTokenError(key, token, row[0] if row is not None else None)
    elif is_a(connection, "psycopg", "Connection"):
        postgres = cast("psycopg.Connection[Any]", connection)
        require_transaction(not psycopg_commits_at_once(postgres))
        # Of its own cursor and row shape, whatever the connection's are.
        from psycopg import Cursor
        from psycopg.rows import tuple_row

        with Cursor(postgres, row_factory=tuple_row) as rows:
            rows.execute(advance_statement("%s", "%s", table).encode(), (key, token))
            if rows.rowcount != 1:
                row = rows.execute(read_statement("%s", table).encode(), (key,)).fetchone()
                raise StaleTokenError(key, token, row[0] if row is not None else None)
    else:
        advance_by_sqlalchemy(sqlalchemy_connection(connection), key, token, table)


def is_a(connection: object, module: str, name: str) -> bool:
    """Whether it is an instance of that class; it cannot be where the module is not loaded."""
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(connection, getattr(loaded, name, ()))


def require_transaction(in_transaction: bool) -> None:
    """NoTransactionError unless it is so."""
    if not in_transaction:
        raise NoTransactionError(
            "this connection commits each statement by itself: begin a transaction before the mark is advanced"
        )


def sqlite_commits_at_once(connection: sqlite3.Connection) -> bool:
    """Whether a statement would be a transaction of its own."""
    if connection.in_transaction:
        return False
    # From Python 3.12 on; True or False, or another number where `isolation_level` decides as before.
    autocommit = getattr(connection, "autocommit", None)
    if autocommit is True or autocommit is False:
        return autocommit
    return connection.isolation_level is None


def psycopg_commits_at_once(
    connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any],
) -> bool:
    """Whether a statement would be a transaction of its own."""
    return connection.autocommit and connection.info.transaction_status.name == "IDLE"


# --- SQLAlchemy


def sqlalchemy_connection(connection: object) -> sqlalchemy.Connection:
    """The connection of this transaction. TypeError where it is none of a driver that is known here."""
    if is_a(connection, "sqlalchemy.orm", "scoped_session"):
        connection = cast("scoped_session[Session]", connection)()
    if is_a(connection, "sqlalchemy.orm", "Session"):
        return cast("Session", connection).connection()
    if is_a(connection, "sqlalchemy", "Connection"):
        return cast("sqlalchemy.Connection", connection)
    kind = f"{type(connection).__module__}.{type(connection).__qualname__}"
    raise TypeError(
        f"connection: {kind} is none of sqlite3, psycopg 3, or SQLAlchemy; "
        "for asyncpg and other awaitable ones there is advance_mark_async"
    )


def _create_by_sqlalchemy(connection: sqlalchemy.Connection, table: str) -> None:
    connection.exec_driver_sql(marks_schema(_dialect(connection), table))


def advance_by_sqlalchemy(connection: sqlalchemy.Connection, key: str, token: int, table: str) -> None:
    """`advance_mark` over SQLAlchemy, also in its greenlets."""
    from sqlalchemy import bindparam, text

    _dialect(connection)
    if not connection.in_transaction():
        connection.begin()  # as its first statement would
    require_transaction(not _sqlalchemy_commits_at_once(connection))
    statement = text(advance_statement(":key", ":token", table)).bindparams(_bigint(bindparam))
    if connection.execute(statement, {"key": key, "token": token}).rowcount != 1:
        mark = connection.execute(text(read_statement(":key", table)), {"key": key}).scalar()
        raise StaleTokenError(key, token, mark)


def _bigint(bindparam: Any) -> Any:
    from sqlalchemy import BigInteger

    return bindparam("token", type_=BigInteger)


def _dialect(connection: sqlalchemy.Connection) -> str:
    name = connection.dialect.name
    if name not in (SQLITE, POSTGRESQL):
        raise TypeError(
            f"connection: marks over {name} are not supported, only over {SQLITE} and {POSTGRESQL}"
        )
    return name


def _sqlalchemy_commits_at_once(connection: sqlalchemy.Connection) -> bool:
    driver: object = connection.connection.dbapi_connection
    if isinstance(driver, sqlite3.Connection):
        return sqlite_commits_at_once(driver)
    if is_a(driver, "psycopg", "Connection"):
        return psycopg_commits_at_once(cast("psycopg.Connection[Any]", driver))
    return getattr(driver, "autocommit", False) is True
