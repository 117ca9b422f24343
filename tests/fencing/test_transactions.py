"""A mark that would be committed apart from its write is refused, on every driver; tables of one's own."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import asyncpg
import psycopg
import pytest
import sqlalchemy
from psycopg.rows import dict_row
from sqlalchemy import text
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from tests.fencing.postgres import USER, Postgres
from ticketing.fencing import (
    NoTransactionError,
    StaleTokenError,
    advance_mark,
    advance_mark_async,
    create_marks,
    create_marks_async,
    marks_schema,
)

KEY = "stock/42"


@pytest.fixture
def where(postgres: Postgres) -> str:
    return f"host={postgres.folder} dbname={postgres.new_database()} user={USER}"


def test_sqlite_without_a_transaction() -> None:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    create_marks(connection)
    with pytest.raises(NoTransactionError):
        advance_mark(connection, KEY, 10)
    connection.execute("BEGIN IMMEDIATE")
    advance_mark(connection, KEY, 10)
    connection.rollback()
    assert connection.execute("SELECT count(*) FROM ticketing_marks").fetchone() == (0,)
    connection.close()


def test_sqlite_that_begins_by_itself() -> None:
    connection = sqlite3.connect(":memory:")
    create_marks(connection)
    advance_mark(connection, KEY, 10)
    assert connection.in_transaction
    connection.rollback()
    assert connection.execute("SELECT count(*) FROM ticketing_marks").fetchone() == (0,)
    connection.close()


def test_psycopg_with_autocommit(where: str) -> None:
    with psycopg.connect(where, autocommit=True) as connection:
        create_marks(connection)
        with pytest.raises(NoTransactionError):
            advance_mark(connection, KEY, 10)
        with connection.transaction():
            advance_mark(connection, KEY, 10)
        assert connection.execute("SELECT token FROM ticketing_marks").fetchone() == (10,)


def test_psycopg_with_rows_of_another_shape(where: str) -> None:
    with psycopg.connect(where, row_factory=dict_row) as connection:
        create_marks(connection)
        advance_mark(connection, KEY, 10)
        with pytest.raises(StaleTokenError) as refused:
            advance_mark(connection, KEY, 9)
        assert refused.value.mark == 10


async def test_psycopg_for_asyncio_with_autocommit(where: str) -> None:
    async with await psycopg.AsyncConnection.connect(where, autocommit=True) as connection:
        await create_marks_async(connection)
        with pytest.raises(NoTransactionError):
            await advance_mark_async(connection, KEY, 10)
        async with connection.transaction():
            await advance_mark_async(connection, KEY, 10)


async def test_asyncpg_without_a_transaction(postgres: Postgres) -> None:
    connection = await asyncpg.connect(host=str(postgres.folder), database=postgres.new_database(), user=USER)
    await create_marks_async(connection)
    with pytest.raises(NoTransactionError):
        await advance_mark_async(connection, KEY, 10)
    async with connection.transaction():
        await advance_mark_async(connection, KEY, 10)
    await connection.close()


@pytest.mark.parametrize("driver", ["sqlite", "postgresql+psycopg"])
def test_sqlalchemy_with_autocommit(driver: str, postgres: Postgres, tmp_path: Path) -> None:
    if driver == "sqlite":
        url = sqlalchemy.URL.create(driver, database=str(tmp_path / "shop.db"))
    else:
        name = postgres.new_database()
        url = sqlalchemy.URL.create(driver, USER, database=name, query={"host": str(postgres.folder)})
    engine = sqlalchemy.create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        create_marks(connection)
        with pytest.raises(NoTransactionError):
            advance_mark(connection, KEY, 10)
        assert connection.execute(text("SELECT count(*) FROM ticketing_marks")).scalar() == 0
    engine.dispose()


async def test_sqlalchemy_for_asyncio_with_autocommit(postgres: Postgres) -> None:
    from sqlalchemy.ext.asyncio import create_async_engine

    url = sqlalchemy.URL.create(
        "postgresql+asyncpg", USER, database=postgres.new_database(), query={"host": str(postgres.folder)}
    )
    engine = create_async_engine(url, isolation_level="AUTOCOMMIT")
    async with engine.connect() as connection:
        await create_marks_async(connection)
        with pytest.raises(NoTransactionError):
            await advance_mark_async(connection, KEY, 10)
    await engine.dispose()


def test_sqlalchemy_sessions_of_a_scope(tmp_path: Path) -> None:
    engine = sqlalchemy.create_engine(sqlalchemy.URL.create("sqlite", database=str(tmp_path / "shop.db")))
    scope: scoped_session[Session] = scoped_session(sessionmaker(engine))
    create_marks(scope)
    advance_mark(scope, KEY, 10)
    scope.commit()
    with pytest.raises(StaleTokenError):
        advance_mark(scope, KEY, 9)
    scope.remove()
    engine.dispose()


def test_clusters_that_share_a_database_have_marks_of_their_own(where: str) -> None:
    with psycopg.connect(where) as connection:
        connection.execute("CREATE SCHEMA shop")
        for table in ("ticketing_marks", "shop.marks_of_b"):
            create_marks(connection, table=table)
            create_marks(connection, table=table)  # made once
        advance_mark(connection, KEY, 10)
        advance_mark(connection, KEY, 5, table="shop.marks_of_b")
        with pytest.raises(StaleTokenError):
            advance_mark(connection, KEY, 4, table="shop.marks_of_b")


def test_the_schema_is_by_key_alone() -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute(marks_schema("sqlite"))
    columns = connection.execute("PRAGMA table_info(ticketing_marks)").fetchall()
    assert [(name, key) for _, name, _, _, _, key in columns] == [("key", 1), ("token", 0)]
    connection.close()
