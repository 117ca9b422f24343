from __future__ import annotations

import pytest

from ticketing.tui.render import locks, nodes
from ticketing.tui.render.columns import GAP, Column, head_line, place, row_line
from ticketing.tui.render.plan import HEIGHT_MIN, WIDTH_MIN, plan, too_small
from ticketing.tui.render.text import ASCII, UNICODE, Cell, plain, width_of


def names(columns: tuple[Column, ...], width: int) -> list[str]:
    return [placed.column.name for placed in place(columns, width)]


@pytest.mark.parametrize("columns", [locks.COLUMNS, locks.WAITER_COLUMNS, nodes.COLUMNS])
@pytest.mark.parametrize("width", [0, 1, 3, 20, 40, 79, 80, 81, 100, 120, 200, 400])
def test_a_table_never_takes_more_than_its_width(columns: tuple[Column, ...], width: int) -> None:
    placed = place(columns, width)
    line = row_line(placed, [Cell("x" * 50)] * len(columns), UNICODE)
    assert sum(width_of(cell.text) for cell in line) <= max(width, GAP * (len(placed) - 1))
    assert len(head_line(placed, UNICODE)) == len(line)


def test_at_80_columns_the_key_its_holder_and_its_queue_are_there() -> None:
    assert names(locks.COLUMNS, 79) == ["key", "holder", "age", "lease_left", "bar", "queue", "longest"]
    assert names(nodes.COLUMNS, 79)[:3] == ["place", "role", "term"]


def test_wide_terminals_show_all() -> None:
    assert names(locks.COLUMNS, 140) == [column.name for column in locks.COLUMNS]
    assert names(nodes.COLUMNS, 140) == [column.name for column in nodes.COLUMNS]


def test_at_the_least_width_what_matters_most_is_left() -> None:
    assert {"key", "age", "lease_left", "queue"} <= set(names(locks.COLUMNS, WIDTH_MIN))
    assert names(nodes.COLUMNS, WIDTH_MIN)[:2] == ["place", "role"]


def test_the_arrow_stands_at_the_order() -> None:
    columns = (Column("a", "AAA", 5), Column("b", "BBB", 5))
    assert plain(head_line(place(columns, 11), UNICODE, sorted_by="b")) == "AAA   BBB▼"
    assert plain(head_line(place(columns, 11), ASCII, sorted_by="a", rising=True)) == "AAA^  BBB"


def test_what_is_left_over_goes_to_those_that_grow_up_to_their_most() -> None:
    columns = (Column("a", "A", 5, grow=1), Column("b", "B", 5, grow=1, most=7), Column("c", "C", 5))
    assert [placed.width for placed in place(columns, 37)] == [23, 7, 5]


def test_80x24_with_three_nodes_shows_every_part() -> None:
    parts = plan(80, 24, 3)
    assert parts is not None
    assert parts.nodes == 4
    assert parts.rates == 2
    assert parts.alarm == 1
    assert parts.events >= 1


@pytest.mark.parametrize("height", range(HEIGHT_MIN, 120))
@pytest.mark.parametrize("nodes_", [1, 3, 5])
def test_at_every_height_there_is_room_for_three_locks(height: int, nodes_: int) -> None:
    parts = plan(WIDTH_MIN, height, nodes_)
    assert parts is not None
    others = 2 + 1 + 2  # health and totals, keys, titles
    assert height - others - parts.nodes - parts.rates - parts.events - parts.alarm >= 3


def test_below_the_least_size_it_says_what_it_needs() -> None:
    assert plan(WIDTH_MIN - 1, 24, 3) is None
    assert plan(80, HEIGHT_MIN - 1, 3) is None
    assert too_small(80, 5) == "terminal too small (need 40x10)"
    assert too_small(0, 0) == ""
    assert too_small(5, 1) == "termi"
    assert too_small(16, 2).split("\n") == ["terminal too sma", "ll (need 40x10)"]
