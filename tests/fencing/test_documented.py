"""The examples of docs/fencing.md run as they stand; its statements are those of the code."""

from __future__ import annotations

import ast
import inspect
import re
import sqlite3
from pathlib import Path
from types import SimpleNamespace

import psycopg
import pytest

from tests.client.test_bridge import Serving
from tests.fencing.postgres import USER, Postgres
from ticketing.fencing import marks_schema
from ticketing.fencing.marks import TABLE, advance_statement

PAGE = (Path(__file__).parents[2] / "docs" / "fencing.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
WORKED, DRIVERS = BLOCKS[0], BLOCKS[1:]


def test_the_worked_example_shows_a_stale_holder_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serving = Serving()
    said: list[str] = []
    # The scripted server knows no time: the pause is where the lease ends.
    end_of_lease = SimpleNamespace(sleep=lambda _: serving.locks.free(b"seat-17"))
    monkeypatch.chdir(tmp_path)
    source = WORKED.replace("127.0.0.1:5225", serving.address).replace("import time\n", "")
    try:
        exec(
            compile(source, "<example>", "exec"),
            {"print": lambda *words: said.append(" ".join(map(str, words))), "time": end_of_lease},
        )
    finally:
        serving.stop()
    assert said == ["refused: token 1 for 'seat-17' is stale: 2 has written already", "the seat is ben's"]


@pytest.mark.parametrize("source", DRIVERS, ids=["psycopg", "asyncpg", "sqlalchemy"])
async def test_the_examples_of_the_drivers_run(source: str, postgres: Postgres) -> None:
    name = postgres.new_database()
    where = f"host={postgres.folder} dbname={name} user={USER}"
    with psycopg.connect(where) as connection:
        connection.execute(marks_schema("postgresql").encode())
        connection.execute("CREATE TABLE seats (id INTEGER PRIMARY KEY, owner TEXT)")
        connection.execute("INSERT INTO seats VALUES (17, NULL)")
    source = source.replace("dbname=shop", where)
    source = source.replace(":///shop", f"://{USER}@/{name}?host={postgres.folder}")
    names = {"ticket": SimpleNamespace(key="seat-17", token=7), "customer": "ben"}
    running = eval(compile(source, "<example>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
    if inspect.isawaitable(running):
        await running
    with psycopg.connect(where) as connection:
        assert connection.execute("SELECT owner FROM seats").fetchone() == ("ben",)
        assert connection.execute("SELECT key, token FROM ticketing_marks").fetchone() == ("seat-17", 7)


def test_the_statements_of_the_page_are_those_of_the_code() -> None:
    words = " ".join(PAGE.split())
    assert marks_schema("postgresql") in words
    assert advance_statement(":key", ":token", TABLE) in words


def test_a_conditional_write_without_marks_refuses_a_stale_token() -> None:
    statement = next(
        block for block in re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL) if "UPDATE seats" in block
    )
    shop = sqlite3.connect(":memory:")
    shop.execute("CREATE TABLE seats (id INTEGER PRIMARY KEY, owner TEXT, token INTEGER)")
    shop.execute("INSERT INTO seats VALUES (17, NULL, 0)")
    for owner, token, touched in (("anna", 7, 1), ("anna", 7, 1), ("ben", 8, 1), ("anna", 7, 0)):
        assert shop.execute(statement, {"owner": owner, "token": token}).rowcount == touched
    assert shop.execute("SELECT owner FROM seats").fetchone() == ("ben",)
    shop.close()
