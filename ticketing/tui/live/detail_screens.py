"""One key with its queue, and one node in full."""

from __future__ import annotations

from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll

from ticketing.tui.live.base import TopScreen
from ticketing.tui.live.keybar import KeyBar
from ticketing.tui.live.rows import Rows
from ticketing.tui.live.toned import Lines
from ticketing.tui.model import KeyDetail, LockRow, WaiterRow
from ticketing.tui.render.columns import head_line, place, row_line
from ticketing.tui.render.locks import WAITER_COLUMNS, detail_lines, moment_lines, waiter_cells
from ticketing.tui.render.nodes import node_lines
from ticketing.tui.render.summary import health_line
from ticketing.tui.render.text import Cell, Glyphs, Line, Tone
from ticketing.tui.want import rows_for

HISTORY_LINES = 4


class KeyScreen(TopScreen):
    """A key: its holder, its queue in order, and what was seen of it since the page was opened."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "Back", id="back", tooltip="Back to all locks"),
        Binding("c", "copy_key", "Copy key", id="key.copy_key", tooltip="Copy the key"),
        Binding("t", "copy_token", "Copy token", id="key.copy_token", tooltip="Copy the fencing token"),
    ]

    def __init__(self, glyphs: Glyphs, key: str) -> None:
        super().__init__(glyphs)
        self.key = key

    def compose(self) -> ComposeResult:
        """From top to bottom."""
        yield Lines(self.glyphs, id="health")
        yield Lines(self.glyphs, id="detail")
        yield Rows(self.glyphs, titles=self._titles, draw=self._draw, identify=_owner_of, id="waiters")
        yield Lines(self.glyphs, id="history")
        yield KeyBar(self.glyphs)

    def on_mount(self) -> None:
        """The queue has the cursor."""
        self.query_one("#waiters").focus()
        self._ask_for_rows()
        self.show()

    def on_resize(self, event: events.Resize) -> None:
        """On a low terminal the history gives way."""
        self.query_one("#history").display = event.size.height >= 16
        self._ask_for_rows()
        self.call_after_refresh(self.show)

    @property
    def detail(self) -> KeyDetail | None:
        """The latest of this key."""
        reading = self.board.reading
        detail = reading.detail if reading is not None else None
        return detail if detail is not None and detail.key == self.key else None

    @property
    def grant(self) -> LockRow | None:
        """The grant that holds it, if any."""
        lock = self.detail.lock if self.detail is not None else None
        return lock if lock is not None and lock.token else None

    def show(self) -> None:
        """Draws what the board has."""
        reading = self.board.reading
        if reading is not None:
            self.query_one("#health", Lines).show(
                [health_line(reading.view, self.top.freshness(), self.glyphs)]
            )
        detail = self.detail
        self.query_one("#detail", Lines).show(detail_lines(detail, self.key, self.top.now_ns(), self.glyphs))
        self.query_one("#waiters", Rows).show(detail.waiters if detail is not None else ())
        history = self.board.key_history
        lines: list[Line] = [[Cell("seen since this page was opened (UTC)", Tone.HEAD)]]
        if history is not None:
            lines += moment_lines(history.moments, HISTORY_LINES, self.glyphs)
        self.query_one("#history", Lines).show(lines)

    def _titles(self, width: int) -> Line:
        return head_line(place(WAITER_COLUMNS, width), self.glyphs)

    def _draw(self, row: WaiterRow, width: int) -> Line:
        return row_line(place(WAITER_COLUMNS, width), waiter_cells(row, self.glyphs), self.glyphs)

    @on(Rows.Moved)
    def _ask_for_rows(self) -> None:
        cursor = self.query_one("#waiters", Rows).cursor
        self.top.ask(waiters=rows_for(cursor + self.size.height))

    def action_back(self) -> None:
        """To where it was opened."""
        self.top.close_detail()

    def action_copy_key(self) -> None:
        """The key exactly as it is."""
        self.top.copy(self.key, "the key")

    def action_copy_token(self) -> None:
        """The token that holds it."""
        if self.grant is not None:
            self.top.copy(self.grant.token, "the token")


class NodeScreen(TopScreen):
    """A node: all that is known of it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "Back", id="back", tooltip="Back to all nodes"),
    ]

    def __init__(self, glyphs: Glyphs, place: str) -> None:
        super().__init__(glyphs)
        self.place = place

    def compose(self) -> ComposeResult:
        """From top to bottom."""
        yield Lines(self.glyphs, id="health")
        with VerticalScroll():
            yield Lines(self.glyphs, id="facts")
        yield KeyBar(self.glyphs)

    def on_mount(self) -> None:
        """Keys scroll."""
        self.query_one(VerticalScroll).focus()
        self.show()

    def show(self) -> None:
        """Draws what the board has."""
        reading = self.board.reading
        if reading is None:
            return
        self.query_one("#health", Lines).show([health_line(reading.view, self.top.freshness(), self.glyphs)])
        node = next((node for node in reading.view.nodes if node.place == self.place), None)
        facts = self.query_one("#facts", Lines)
        if node is None:
            facts.show([[Cell("this place is no part of the cluster any more", Tone.WARN)]])
        else:
            facts.show(node_lines(node, reading.view.leader, self.top.now_ns(), self.glyphs))

    def action_back(self) -> None:
        """To all nodes."""
        self.top.close_detail()


def _owner_of(row: WaiterRow) -> str:
    return row.owner or str(row.place)
