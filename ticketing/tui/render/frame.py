"""The whole dashboard as plain text: `--once`, for scripts and bug reports. The live screens use the same rows."""

from __future__ import annotations

from ticketing.tui.board import Board
from ticketing.tui.model import NodeView
from ticketing.tui.render import locks as lock_rows
from ticketing.tui.render import nodes as node_rows
from ticketing.tui.render.columns import head_line, place, row_line
from ticketing.tui.render.locks import event_lines, lock_cells
from ticketing.tui.render.moments import wall_moment
from ticketing.tui.render.nodes import error_of, node_cells
from ticketing.tui.render.summary import Freshness, health_line, locks_title, rate_lines, totals_line
from ticketing.tui.render.text import Cell, Glyphs, Line, fit_line, plain, safe
from ticketing.tui.want import Want

ROWS = 20
"""Locks in a frame, unless asked for more."""


def frame(
    board: Board, want: Want, freshness: Freshness, width: int, glyphs: Glyphs, *, rows: int = ROWS
) -> list[str]:
    """Lines without blanks at their ends, none wider than `width`."""
    reading = board.reading
    assert reading is not None, "there is a reading"
    now_ns = reading.taken_ns
    lines: list[Line] = [
        [Cell(f"ticketing top  {wall_moment(reading.wall_ms)}")],
        health_line(reading.view, freshness, glyphs),
        totals_line(reading.view, glyphs),
        *([Cell("! " + safe(fault, ascii_only=glyphs.ascii))] for fault in reading.view.faults),
        [],
        *node_table(reading.view.nodes, reading.view.leader, now_ns, freshness.interval_s, width, glyphs),
        [],
        *rate_lines(board.history, width, 2, glyphs),
        [],
        locks_title(reading.locks, reading.view, want.order, want.prefix, now_ns, glyphs),
    ]
    placed = place(lock_rows.COLUMNS, width)
    lines.append(head_line(placed, glyphs, sorted_by=want.order, rising=lock_rows.SORT_RISES[want.order]))
    shown = reading.locks.locks[:rows] if reading.locks is not None else ()
    lines += [row_line(placed, lock_cells(row, glyphs), glyphs) for row in shown]
    lines += [[], *event_lines(board.log.events, 5, glyphs)]
    return [plain(fit_line(line, width, glyphs)) for line in lines]


def node_table(
    nodes: tuple[NodeView, ...], leader: str, now_ns: int, interval_s: float, width: int, glyphs: Glyphs
) -> list[Line]:
    """Titles and rows; an unreachable node's reason stands where its figures would."""
    placed = place(node_rows.COLUMNS, width)
    lines = [head_line(placed, glyphs)]
    lines += [node_line(node, leader, now_ns, interval_s, width, glyphs) for node in nodes]
    return lines


def node_line(
    node: NodeView, leader: str, now_ns: int, interval_s: float, width: int, glyphs: Glyphs
) -> Line:
    """One node's row."""
    placed = place(node_rows.COLUMNS, width)
    cells = node_cells(node, leader, now_ns, interval_s, glyphs)
    if node.reachable:
        return row_line(placed, cells, glyphs)
    named = row_line(placed[:1], cells, glyphs)
    age = row_line(placed[-1:], cells, glyphs) if placed[-1].column.name == "age" else []
    room = (
        width
        - sum(len(cell.text) for cell in age)
        - sum(part.width for part in placed[:1])
        - (2 if age else 1)
    )
    reason = fit_line([Cell(error_of(node, glyphs), cells[1].tone)], max(0, room), glyphs)
    return [*named, Cell(" "), *reason, *([Cell(" ")] if age else []), *age]
