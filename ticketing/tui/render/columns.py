"""Tables: which columns have room, how wide they are, and lines of exactly that width."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ticketing.tui.render.text import Cell, Glyphs, Line, Tone, fit

GAP = 1


class Column(NamedTuple):
    """One column of a table."""

    name: str
    title: str
    width: int
    """Least width in cells, the title's included."""
    rank: int = 0
    """Columns of the highest rank are left out first; those of rank 0 never are."""
    right: bool = False
    grow: int = 0
    """Share of the width that is left over."""
    middle: bool = False
    """Cut in the middle."""
    most: int = 1_000
    """Greatest width."""


class Placed(NamedTuple):
    """A column with the width that it got, and its number in the table's full list."""

    column: Column
    width: int
    number: int


def place(columns: Sequence[Column], width: int) -> list[Placed]:
    """The columns that fit into `width`, in their order; what is left over goes to those that grow."""
    kept = list(enumerate(columns))

    def needed() -> int:
        return sum(column.width for _, column in kept) + GAP * max(0, len(kept) - 1)

    while needed() > width and any(column.rank for _, column in kept):
        worst = max(column.rank for _, column in kept)
        last = max(n for n, (_, column) in enumerate(kept) if column.rank == worst)
        del kept[last]
    widths = [column.width for _, column in kept]
    spare = width - needed()
    if spare < 0:
        _squeeze(widths, -spare)
    while spare > 0:
        growing = [n for n, (_, column) in enumerate(kept) if column.grow and widths[n] < column.most]
        if not growing:
            break
        total = sum(kept[n][1].grow for n in growing)
        given = 0
        for n in growing:
            column = kept[n][1]
            more = min(max(1, spare * column.grow // total), column.most - widths[n], spare - given)
            widths[n] += more
            given += more
        spare -= given
    return [
        Placed(column, column_width, number)
        for (number, column), column_width in zip(kept, widths, strict=True)
    ]


def _squeeze(widths: list[int], missing: int) -> None:
    """Takes what is missing from the widest: only where even the columns of rank 0 have no room."""
    for _ in range(missing):
        widest = max(range(len(widths)), key=lambda n: (widths[n], -n))
        if widths[widest] == 0:
            return
        widths[widest] -= 1


def head_line(placed: Sequence[Placed], glyphs: Glyphs, *, sorted_by: str = "", rising: bool = False) -> Line:
    """The titles, with an arrow at the column that the rows are sorted by."""
    line: list[Cell] = []
    for column, width, _ in placed:
        title = column.title
        if column.name == sorted_by:
            title += glyphs.up if rising else glyphs.down
        _append(line, Cell(title, Tone.HEAD), column, width, glyphs)
    return line


def row_line(placed: Sequence[Placed], cells: Sequence[Cell], glyphs: Glyphs) -> Line:
    """One row: `cells` are those of the table's full list of columns."""
    line: list[Cell] = []
    for column, width, number in placed:
        _append(line, cells[number], column, width, glyphs)
    return line


def _append(line: list[Cell], cell: Cell, column: Column, width: int, glyphs: Glyphs) -> None:
    if line:
        line.append(Cell(" " * GAP, Tone.HEAD if cell.tone is Tone.HEAD else Tone.PLAIN))
    line.append(Cell(fit(cell.text, width, glyphs, right=column.right, middle=column.middle), cell.tone))
