"""The guard on every driver, on SQLite and on a real PostgreSQL server: what passes, what is refused, what stays."""

from __future__ import annotations

import pickle
import random
import threading
from functools import partial
from pathlib import Path
from typing import cast

import pytest

from tests.fencing.postgres import Postgres
from tests.fencing.shops import POSTGRES_SHOPS, SQLITE_SHOPS, BusinessError, Shop, postgres_shop, sqlite_shop
from ticketing.fencing import StaleTokenError, advance_mark, advance_mark_async, marks_schema

GREATEST = (1 << 62) - 1


@pytest.fixture(params=[*SQLITE_SHOPS, *POSTGRES_SHOPS])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Shop:
    if request.param in SQLITE_SHOPS:
        return sqlite_shop(request.param, tmp_path / "shop.db")
    return postgres_shop(request.param, request.getfixturevalue("postgres"))


def test_a_stale_token_is_refused_and_its_write_is_not_there(shop: Shop) -> None:
    shop.sell(11)
    with pytest.raises(StaleTokenError) as refused:
        shop.sell(10)
    assert (refused.value.key, refused.value.token, refused.value.mark) == ("stock/42", 10, 11)
    assert shop.sold() == 1


def test_one_ticket_may_write_twice_and_a_later_one_after_it(shop: Shop) -> None:
    for token in (10, 10, 12, GREATEST):
        shop.sell(token)
    assert shop.sold() == 4
    with pytest.raises(StaleTokenError):
        shop.sell(GREATEST - 1)


def test_marks_of_different_keys_do_not_meet(shop: Shop) -> None:
    shop.sell(12)
    shop.sell(10, "stock/43")
    shop.sell(10, "STOCK/42")
    shop.sell(10, "좌석/42")
    shop.sell(10, "stock/42'; DROP TABLE stock; --")
    assert shop.sold() == 5


def test_a_mark_that_was_rolled_back_refuses_nobody(shop: Shop) -> None:
    with pytest.raises(BusinessError):
        shop.sell(99, fail=True)
    shop.sell(10)
    assert shop.sold() == 1


def test_a_stale_writer_waits_for_the_one_before_it_and_is_refused(shop: Shop) -> None:
    """Both are in their transactions at once: the stale one cannot slip in before the other's commit."""
    shop.sell(5)
    refused: list[int] = []

    def stale() -> None:
        try:
            shop.sell(6)
        except StaleTokenError as error:
            refused.append(error.token)

    thread = threading.Thread(target=stale)

    def overlap() -> None:
        thread.start()
        thread.join(0.15)
        assert thread.is_alive()

    shop.sell(7, before_commit=overlap)
    thread.join(20)
    assert refused == [6]
    assert shop.sold() == 2


@pytest.mark.parametrize("kind", ["psycopg", "sqlalchemy psycopg"])
def test_writers_in_any_order_never_let_the_mark_fall(kind: str, postgres: Postgres) -> None:
    """What was sold is the number of writers that were not refused, and refused is who came after a greater one."""
    shop = postgres_shop(kind, postgres)
    rng = random.Random(4)
    tokens = list(range(1, 41))
    rng.shuffle(tokens)
    passed: list[int] = []
    refused: list[tuple[int, int | None]] = []

    def work(mine: list[int]) -> None:
        for token in mine:
            try:
                shop.sell(token, before_commit=partial(passed.append, token))
            except StaleTokenError as error:
                refused.append((token, error.mark))

    threads = [threading.Thread(target=work, args=(tokens[number::4],)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # The mark is held from its advance to the commit, so the order of these is the order of the commits.
    assert passed == sorted(passed)
    assert all(mark is not None and mark > token for token, mark in refused)
    assert len(passed) + len(refused) == 40
    assert passed[-1] == 40
    assert shop.sold() == len(passed)


@pytest.mark.parametrize("token", [0, -1, 1 << 62, True, "7", 7.0, None])
def test_what_is_no_token_is_refused(token: object, tmp_path: Path) -> None:
    shop = sqlite_shop("sqlite3", tmp_path / "shop.db")
    with pytest.raises(ValueError, match="token"):
        shop.sell(cast("int", token))
    assert shop.sold() == 0


@pytest.mark.parametrize("table", ["", "1x", "a b", "a;b", "a.b.c", 'a"', "x" * 64, "a\n"])
def test_what_is_no_name_of_a_table_is_refused(table: str) -> None:
    with pytest.raises(ValueError, match="table"):
        marks_schema("sqlite", table)


def test_other_databases_and_connections_are_refused() -> None:
    with pytest.raises(ValueError, match="mysql"):
        marks_schema("mysql")
    with pytest.raises(TypeError, match=r"builtins\.object"):
        advance_mark(object(), "key", 7)  # type: ignore[arg-type]


async def test_blocking_connections_are_refused_where_one_has_to_await() -> None:
    with pytest.raises(TypeError, match="advance_mark"):
        await advance_mark_async(object(), "key", 7)


def test_the_error_can_go_between_processes() -> None:
    error = pickle.loads(pickle.dumps(StaleTokenError("key", 1, 2)))
    assert (error.key, error.token, error.mark, str(error)) == (
        "key",
        1,
        2,
        "token 1 for 'key' is stale: 2 has written already",
    )
