"""Fenced writes: what the programs do to the database under their locks, and what it says of them at the end.

Each write advances the key's mark and reads, computes and writes the key's row of `stock`, in one transaction; a row of
`writes` says who did so. Numbers of `writes` are drawn while the mark's row is locked, so for each key they are in the
order of the commits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import psycopg

from tests.fencing.postgres import DATABASE, USER, Postgres
from ticketing.fencing import advance_mark_async, create_marks

_SCHEMA = """
CREATE TABLE stock (key text COLLATE "C" PRIMARY KEY, sold bigint NOT NULL, token bigint NOT NULL);
CREATE TABLE writes (number bigserial PRIMARY KEY, key text COLLATE "C" NOT NULL, token bigint NOT NULL,
                     program text NOT NULL, sold bigint NOT NULL);
"""


class Write(NamedTuple):
    """One row of `writes`, in the order of the commits of its key."""

    key: str
    token: int
    program: str
    sold: int


def access(postgres: Postgres) -> str:
    """How programs reach the database."""
    return f"host={postgres.folder} dbname={DATABASE} user={USER}"


def prepare(dsn: str) -> None:
    """Makes the tables."""
    with psycopg.connect(dsn) as connection:
        create_marks(connection)
        connection.execute(_SCHEMA)


async def sell(connection: psycopg.AsyncConnection[Any], key: str, token: int, program: str) -> None:
    """One fenced write. Raises `StaleTokenError` where a later holder has written."""
    async with connection.transaction():
        await advance_mark_async(connection, key, token)
        found = await connection.execute("SELECT sold FROM stock WHERE key = %s", (key,))
        row = await found.fetchone()
        sold = 1 if row is None else row[0] + 1
        if row is None:
            await connection.execute("INSERT INTO stock VALUES (%s, %s, %s)", (key, sold, token))
        else:
            await connection.execute(
                "UPDATE stock SET sold = %s, token = %s WHERE key = %s", (sold, token, key)
            )
        await connection.execute(
            "INSERT INTO writes (key, token, program, sold) VALUES (%s, %s, %s, %s)",
            (key, token, program, sold),
        )


class Books(NamedTuple):
    """All that the database says."""

    writes: list[Write]
    stock: dict[str, int]
    marks: dict[str, int]


def read(dsn: str) -> Books:
    """Reads it when nobody writes any more."""
    with psycopg.connect(dsn) as connection:
        rows = connection.execute("SELECT key, token, program, sold FROM writes ORDER BY number").fetchall()
        stock = connection.execute("SELECT key, sold FROM stock").fetchall()
        marks = connection.execute("SELECT key, token FROM ticketing_marks").fetchall()
    return Books([Write(*row) for row in rows], dict(stock), dict(marks))


def keep(books: Books, file: Path) -> None:
    """Writes down what the database said, to be looked at later."""
    file.write_bytes(msgspec.json.encode(books))


def judge(books: Books, owners: Mapping[int, tuple[str, str]]) -> list[str]:
    """What breaks the fence. `owners`: by token, key and program as the programs themselves saw it."""
    return [*_in_turn(books.writes), *_by_owners(books.writes, owners), *_sums(books)]


def _in_turn(writes: Iterable[Write]) -> Iterable[str]:
    """For each key tokens never fall, so the writes of one ownership lie together; and no sale was lost."""
    last: dict[str, Write] = {}
    for write in writes:
        former = last.get(write.key)
        if former is not None and write.token < former.token:
            yield f"writes of one key went backwards: {former}, then {write}"
        if write.sold != (1 if former is None else former.sold + 1):
            yield f"a write was lost: {former}, then {write}"
        last[write.key] = write


def _by_owners(writes: Iterable[Write], owners: Mapping[int, tuple[str, str]]) -> Iterable[str]:
    for write in writes:
        if owners.get(write.token) != (write.key, write.program):
            yield f"written by one who was not granted it: {write}, but {owners.get(write.token)}"


def _sums(books: Books) -> Iterable[str]:
    highest: dict[str, int] = {}
    count: dict[str, int] = {}
    for write in books.writes:
        highest[write.key] = max(write.token, highest.get(write.key, 0))
        count[write.key] = count.get(write.key, 0) + 1
    if highest != books.marks:
        yield f"marks are not the highest tokens that wrote: {highest} and {books.marks}"
    if count != books.stock:
        yield f"the stock is not the number of writes: {count} and {books.stock}"
