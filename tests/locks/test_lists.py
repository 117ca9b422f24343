from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.locks.table_twin import AIMED_MOVES, FIRST_TOKEN, Move, TwinTable, filled
from ticketing.locks.commands import Extend, Turn
from ticketing.locks.held import SECOND_NS
from ticketing.locks.lists import KeyPage
from ticketing.locks.table import LockTable


def keys_of(page: KeyPage) -> list[bytes]:
    while not page.step(2):
        pass
    return [held.key for held in page.result]


def test_oldest_lists_by_token() -> None:
    table = filled(5)
    table.apply([Turn(b"key-000000", FIRST_TOKEN, 9, 60)], 0)
    assert [held.key[-1:] for held in table.oldest(3)] == [b"1", b"2", b"3"]
    assert [held.key[-1:] for held in table.oldest(9)] == [b"1", b"2", b"3", b"4", b"0"]


def test_least_left_lists_by_the_end_of_the_lease() -> None:
    table = LockTable(FIRST_TOKEN)
    for number, (lease, stamp_s) in enumerate([(9, 0), (1, 3), (9, 5), (3, 5), (1, 6)]):
        table.apply([Turn(b"%d" % number, 0, 9, lease)], stamp_s * SECOND_NS)
    table.apply([Extend(b"0", FIRST_TOKEN, 9)], 8 * SECOND_NS)
    assert [held.key for held in table.least_left(9)] == [b"1", b"4", b"3", b"2", b"0"]
    assert [held.key for held in table.least_left(2)] == [b"1", b"4"]


def test_a_page_takes_up_after_the_last_key_of_the_one_before() -> None:
    table = filled(25)
    seen: list[bytes] = []
    pages = 0
    after_key: bytes | None = b""
    while after_key is not None:
        page = table.page(after_key, b"", 10)
        seen += keys_of(page)
        after_key = page.last_key
        pages += 1
    assert seen == sorted(table.held)
    assert pages == 3


def test_a_full_page_knows_whether_it_is_the_last() -> None:
    table = filled(10)
    page = table.page(b"", b"", 10)
    assert len(keys_of(page)) == 10
    assert page.last_key is None


def test_a_page_of_keys_that_came_in_falling_order_is_still_the_smallest() -> None:
    table = LockTable(FIRST_TOKEN)
    table.apply([Turn(b"%03d" % number, 0, 9, 9) for number in reversed(range(200))], 0)
    page = table.page(b"", b"", 3)
    assert keys_of(page) == [b"000", b"001", b"002"]
    assert page.last_key == b"002"


def test_a_prefix_chooses() -> None:
    table = LockTable(FIRST_TOKEN)
    table.apply([Turn(key, 0, 9, 9) for key in (b"a", b"b/2", b"b", b"b/1", b"c")], 0)
    assert keys_of(table.page(b"", b"b/", 10)) == [b"b/1", b"b/2"]
    assert keys_of(table.page(b"b/1", b"b/", 10)) == [b"b/2"]


def test_a_page_of_an_empty_table_is_complete_at_once() -> None:
    page = LockTable(FIRST_TOKEN).page(b"", b"", 10)
    assert page.step()
    assert page.result == []


def test_a_key_handed_over_while_it_was_the_last_to_visit_is_not_missed() -> None:
    table = filled(2)
    page = table.page(b"", b"", 10)
    page.step(1)
    table.apply([Turn(b"key-000001", FIRST_TOKEN + 1, 9, 60)], 0)
    assert keys_of(page) == [b"key-000000", b"key-000001"]


def test_a_page_given_up_is_closed() -> None:
    table = filled(10)
    page = table.page(b"", b"", 10)
    page.step(2)
    page.close()
    assert not table.held.walks
    table.apply([Turn(b"key-000002", FIRST_TOKEN + 2)], 0)
    with pytest.raises(AssertionError):
        page.step()


@given(
    st.lists(AIMED_MOVES, min_size=8, max_size=25),
    st.lists(st.one_of(AIMED_MOVES, st.just("step")), max_size=30),
    st.sampled_from([b"", b"a", b"b"]),
    st.sampled_from([b"", b"", b"b"]),
    st.integers(1, 4),
)
@settings(max_examples=150, deadline=None)
def test_a_page_has_every_key_that_was_held_all_the_while(
    before: list[Move], meanwhile: list[Move | str], after_key: bytes, prefix: bytes, count: int
) -> None:
    table, twin = LockTable(FIRST_TOKEN), TwinTable()

    def move_on(move: Move) -> None:
        command = twin.command(move)
        twin.apply(command)
        table.apply([command], 0)

    for move in before:
        move_on(move)
    page = table.page(after_key, prefix, count)
    held_throughout = set(table.held)
    done = False
    for step in meanwhile:
        if isinstance(step, Move):
            move_on(step)
            held_throughout &= set(table.held)
        else:
            done = page.step(1)
            if done:
                break
    while not done:
        done = page.step(1)
    keys = [held.key for held in page.result]
    assert keys == sorted(set(keys))
    assert len(keys) <= count
    assert all(table.held[held.key] is held for held in page.result)
    assert all(key > after_key and key.startswith(prefix) for key in keys)
    wanted = sorted(key for key in held_throughout if key > after_key and key.startswith(prefix))
    assert [key for key in wanted if page.last_key is None or key <= page.last_key] == [
        key for key in keys if key in held_throughout
    ]
    assert not table.held.walks
