"""One shop over each driver: a stock that is sold from under the mark of a key. All tests run on all of them."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import asyncpg
import psycopg
import sqlalchemy
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from tests.fencing.postgres import USER, Postgres
from ticketing.fencing import advance_mark, advance_mark_async, create_marks, create_marks_async

KEY = "stock/42"
CREATE = "CREATE TABLE stock (sold INTEGER)"
FILL = "INSERT INTO stock VALUES (0)"
SELL = "UPDATE stock SET sold = sold + 1"
READ = "SELECT sold FROM stock"


class Shop(Protocol):
    """A database with a stock."""

    def sell(
        self,
        token: int,
        key: str = KEY,
        fail: bool = False,
        before_commit: Callable[[], object] = lambda: None,
    ) -> None:
        """One transaction: advances the mark, sells one; with `fail` it is rolled back by an error."""

    def sold(self) -> int:
        """How many were sold, by a fresh connection."""


class BusinessError(Exception):
    """The business had an error of its own."""


class SqliteShop:
    def __init__(self, path: Path, **options: Any) -> None:
        self._path = path
        self._options = options
        connection = self._open()
        create_marks(connection)
        connection.execute(CREATE)
        connection.execute(FILL)
        connection.commit()
        connection.close()

    def _open(self) -> sqlite3.Connection:
        connection: sqlite3.Connection = sqlite3.connect(self._path, timeout=10, **self._options)
        return connection

    def sell(
        self,
        token: int,
        key: str = KEY,
        fail: bool = False,
        before_commit: Callable[[], object] = lambda: None,
    ) -> None:
        connection = self._open()
        try:
            if connection.isolation_level is None:
                connection.execute("BEGIN IMMEDIATE")
            advance_mark(connection, key, token)
            connection.execute(SELL)
            if fail:
                raise BusinessError
            before_commit()
            connection.commit()
        finally:
            connection.close()

    def sold(self) -> int:
        connection = self._open()
        try:
            return int(connection.execute(READ).fetchone()[0])
        finally:
            connection.close()


class PsycopgShop:
    def __init__(self, where: str) -> None:
        self._where = where
        with psycopg.connect(where) as connection:
            create_marks(connection)
            connection.execute(CREATE)
            connection.execute(FILL)

    def sell(
        self,
        token: int,
        key: str = KEY,
        fail: bool = False,
        before_commit: Callable[[], object] = lambda: None,
    ) -> None:
        with psycopg.connect(self._where) as connection:
            advance_mark(connection, key, token)
            connection.execute(SELL)
            if fail:
                raise BusinessError
            before_commit()

    def sold(self) -> int:
        with psycopg.connect(self._where) as connection:
            row = connection.execute(READ).fetchone()
            assert row is not None
            return int(row[0])


class SqlalchemyShop:
    """By connections, or by sessions of the ORM."""

    def __init__(self, url: sqlalchemy.URL, by_session: bool) -> None:
        self._engine = sqlalchemy.create_engine(url, poolclass=NullPool)
        self._by_session = by_session
        with self._engine.begin() as connection:
            create_marks(connection)
            connection.execute(text(CREATE))
            connection.execute(text(FILL))

    def sell(
        self,
        token: int,
        key: str = KEY,
        fail: bool = False,
        before_commit: Callable[[], object] = lambda: None,
    ) -> None:
        if self._by_session:
            with Session(self._engine) as session, session.begin():
                advance_mark(session, key, token)
                session.execute(text(SELL))
                if fail:
                    raise BusinessError
                before_commit()
        else:
            with self._engine.begin() as connection:
                advance_mark(connection, key, token)
                connection.execute(text(SELL))
                if fail:
                    raise BusinessError
                before_commit()

    def sold(self) -> int:
        with self._engine.connect() as connection:
            return int(connection.execute(text(READ)).scalar_one())


class AwaitableShop:
    """What asynchronous shops have in common: each call is a loop of its own."""

    def __init__(self) -> None:
        asyncio.run(self.create())

    def sell(
        self,
        token: int,
        key: str = KEY,
        fail: bool = False,
        before_commit: Callable[[], object] = lambda: None,
    ) -> None:
        async def work(do: Callable[[str], Any]) -> None:
            await do(SELL)
            if fail:
                raise BusinessError
            before_commit()

        asyncio.run(self.transact(key, token, work))

    def sold(self) -> int:
        return asyncio.run(self.read())

    async def create(self) -> None:
        raise NotImplementedError

    async def transact(self, key: str, token: int, work: Callable[[Callable[[str], Any]], Any]) -> None:
        raise NotImplementedError

    async def read(self) -> int:
        raise NotImplementedError


class AsyncpgShop(AwaitableShop):
    def __init__(self, host: str, database: str) -> None:
        self._where = {"host": host, "database": database, "user": USER}
        super().__init__()

    async def create(self) -> None:
        connection = await asyncpg.connect(**self._where)
        await create_marks_async(connection)
        await connection.execute(CREATE)
        await connection.execute(FILL)
        await connection.close()

    async def transact(self, key: str, token: int, work: Callable[[Callable[[str], Any]], Any]) -> None:
        # What a pool hands out is a proxy of the connection.
        async with (
            asyncpg.create_pool(**self._where, min_size=1, max_size=1) as pool,
            pool.acquire() as connection,
            connection.transaction(),
        ):
            await advance_mark_async(connection, key, token)
            await work(connection.execute)

    async def read(self) -> int:
        connection = await asyncpg.connect(**self._where)
        try:
            return int(await connection.fetchval(READ))
        finally:
            await connection.close()


class AsyncPsycopgShop(AwaitableShop):
    def __init__(self, where: str) -> None:
        self._where = where
        super().__init__()

    async def create(self) -> None:
        async with await psycopg.AsyncConnection.connect(self._where) as connection:
            await create_marks_async(connection)
            await connection.execute(CREATE)
            await connection.execute(FILL)

    async def transact(self, key: str, token: int, work: Callable[[Callable[[str], Any]], Any]) -> None:
        async with await psycopg.AsyncConnection.connect(self._where) as connection:
            await advance_mark_async(connection, key, token)
            await work(lambda statement: connection.execute(statement.encode()))

    async def read(self) -> int:
        async with await psycopg.AsyncConnection.connect(self._where) as connection:
            row = await (await connection.execute(READ)).fetchone()
            assert row is not None
            return int(row[0])


class AsyncSqlalchemyShop(AwaitableShop):
    def __init__(self, url: sqlalchemy.URL, by_session: bool) -> None:
        self._url = url
        self._by_session = by_session
        super().__init__()

    def _engine(self) -> Any:
        return create_async_engine(self._url, poolclass=NullPool)

    async def create(self) -> None:
        engine = self._engine()
        async with engine.begin() as connection:
            await create_marks_async(connection)
            await connection.execute(text(CREATE))
            await connection.execute(text(FILL))
        await engine.dispose()

    async def transact(self, key: str, token: int, work: Callable[[Callable[[str], Any]], Any]) -> None:
        engine = self._engine()
        try:
            if self._by_session:
                async with AsyncSession(engine) as session, session.begin():
                    await advance_mark_async(session, key, token)
                    await work(lambda statement: session.execute(text(statement)))
            else:
                async with engine.begin() as connection:
                    await advance_mark_async(connection, key, token)
                    await work(lambda statement: connection.execute(text(statement)))
        finally:
            await engine.dispose()

    async def read(self) -> int:
        engine = self._engine()
        try:
            async with engine.connect() as connection:
                return int((await connection.execute(text(READ))).scalar_one())
        finally:
            await engine.dispose()


SQLITE_SHOPS = ("sqlite3", "sqlite3 autocommit", "sqlalchemy sqlite", "sqlalchemy session sqlite")
POSTGRES_SHOPS = (
    "psycopg",
    "sqlalchemy psycopg",
    "sqlalchemy session psycopg",
    "asyncpg",
    "psycopg async",
    "sqlalchemy asyncpg",
    "sqlalchemy session asyncpg",
    "sqlalchemy psycopg async",
)


def sqlite_shop(kind: str, path: Path) -> Shop:
    """A new one."""
    url = sqlalchemy.URL.create("sqlite", database=str(path))
    if kind == "sqlite3":
        return SqliteShop(path)
    if kind == "sqlite3 autocommit":
        return SqliteShop(path, isolation_level=None)
    return SqlalchemyShop(url, "session" in kind)


def postgres_shop(kind: str, server: Postgres) -> Shop:
    """A new one, in a database of its own."""
    host, name = str(server.folder), server.new_database()
    if kind == "asyncpg":
        return AsyncpgShop(host, name)
    where = f"host={host} dbname={name} user={USER}"
    if kind == "psycopg":
        return PsycopgShop(where)
    if kind == "psycopg async":
        return AsyncPsycopgShop(where)
    driver = "asyncpg" if "asyncpg" in kind else "psycopg"
    url = sqlalchemy.URL.create(f"postgresql+{driver}", USER, database=name, query={"host": host})
    if "async" in kind:
        return AsyncSqlalchemyShop(url, "session" in kind)
    return SqlalchemyShop(url, "session" in kind)
