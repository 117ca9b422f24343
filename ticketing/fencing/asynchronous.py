"""Marks over awaitable connections: asyncpg, psycopg 3, and SQLAlchemy's connections and sessions for asyncio."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, cast

from ticketing.fencing.blocking import (
    advance_by_sqlalchemy,
    create_marks,
    is_a,
    psycopg_commits_at_once,
    require_transaction,
    sqlalchemy_connection,
)
from ticketing.fencing.marks import (
    POSTGRESQL,
    TABLE,
    StaleTokenError,
    advance_statement,
    check,
    marks_schema,
    read_statement,
)

if TYPE_CHECKING:
    import asyncpg
    import psycopg
    from asyncpg.pool import PoolConnectionProxy
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

    AwaitableConnection: TypeAlias = (
        asyncpg.Connection[Any]
        | PoolConnectionProxy[Any]
        | psycopg.AsyncConnection[Any]
        | AsyncConnection
        | AsyncSession
    )


async def create_marks_async(connection: AwaitableConnection, *, table: str = TABLE) -> None:
    """`create_marks` for an awaitable connection."""
    if _is_sqlalchemy(connection):
        await cast("Any", connection).run_sync(
            lambda inner: create_marks(sqlalchemy_connection(inner), table=table)
        )
    elif _is_asyncpg(connection) or is_a(connection, "psycopg", "AsyncConnection"):
        await cast("Any", connection).execute(marks_schema(POSTGRESQL, table))
    else:
        raise _unknown(connection)


async def advance_mark_async(
    connection: AwaitableConnection, key: str, token: int, *, table: str = TABLE
) -> None:
    """`advance_mark` for an awaitable connection, with the same errors. asyncpg's has to be in a transaction."""
    check(key, token)
    if _is_asyncpg(connection):
        await _advance_by_asyncpg(cast("asyncpg.Connection[Any]", connection), key, token, table)
    elif is_a(connection, "psycopg", "AsyncConnection"):
        await _advance_by_psycopg(cast("psycopg.AsyncConnection[Any]", connection), key, token, table)
    elif _is_sqlalchemy(connection):
        await cast("Any", connection).run_sync(
            lambda inner: advance_by_sqlalchemy(sqlalchemy_connection(inner), key, token, table)
        )
    else:
        raise _unknown(connection)


async def _advance_by_asyncpg(connection: asyncpg.Connection[Any], key: str, token: int, table: str) -> None:
    require_transaction(connection.is_in_transaction())
    done = await connection.execute(advance_statement("$1", "$2", table), key, token)
    if done != "INSERT 0 1":
        mark = await connection.fetchval(read_statement("$1", table), key)
        raise StaleTokenError(key, token, mark)


async def _advance_by_psycopg(
    connection: psycopg.AsyncConnection[Any], key: str, token: int, table: str
) -> None:
    from psycopg import AsyncCursor
    from psycopg.rows import tuple_row

    require_transaction(not psycopg_commits_at_once(connection))
    async with AsyncCursor(connection, row_factory=tuple_row) as cursor:
        await cursor.execute(advance_statement("%s", "%s", table).encode(), (key, token))
        if cursor.rowcount != 1:
            await cursor.execute(read_statement("%s", table).encode(), (key,))
            row = await cursor.fetchone()
            raise StaleTokenError(key, token, row[0] if row is not None else None)


def _is_asyncpg(connection: object) -> bool:
    return is_a(connection, "asyncpg", "Connection") or is_a(
        connection, "asyncpg.pool", "PoolConnectionProxy"
    )


def _is_sqlalchemy(connection: object) -> bool:
    return is_a(connection, "sqlalchemy.ext.asyncio", "AsyncConnection") or is_a(
        connection, "sqlalchemy.ext.asyncio", "AsyncSession"
    )


def _unknown(connection: object) -> TypeError:
    kind = f"{type(connection).__module__}.{type(connection).__qualname__}"
    return TypeError(
        f"connection: {kind} is none of asyncpg, psycopg 3 for asyncio, or SQLAlchemy for asyncio; "
        "for blocking ones there is advance_mark"
    )
