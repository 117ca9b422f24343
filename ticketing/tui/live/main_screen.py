"""The first screen: health on top, nodes, rates, locks, and what happened."""

from __future__ import annotations

from typing import ClassVar

from textual import events, on
from textual.actions import SkipAction
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input

from ticketing.tui.live.base import TopScreen
from ticketing.tui.live.keybar import KeyBar
from ticketing.tui.live.rows import Rows
from ticketing.tui.live.toned import Lines
from ticketing.tui.model import LockRow, NodeView
from ticketing.tui.render import locks as lock_rows
from ticketing.tui.render import nodes as node_rows
from ticketing.tui.render.columns import head_line, place, row_line
from ticketing.tui.render.frame import node_line
from ticketing.tui.render.locks import event_lines, lock_cells
from ticketing.tui.render.plan import plan, too_small
from ticketing.tui.render.summary import alarm_line, health_line, locks_title, rate_lines, totals_line
from ticketing.tui.render.text import Cell, Glyphs, Line
from ticketing.tui.want import rows_for

FILTER_CHARS_MAX = 128
PARTS = ("#health", "#totals", "#alarm", "#nodes", "#rates", "#title", "#locks", "#events", "KeyBar")


class MainScreen(TopScreen):
    """Reads only."""

    BINDINGS: ClassVar[list[BindingType]] = [
        # Before all others: what is typed right behind it belongs into the filter.
        Binding(
            "slash",
            "filter",
            "Filter",
            priority=True,
            id="locks.filter",
            tooltip="Show the keys that begin with a text",
        ),
        Binding("s", "next_order", "Sort", id="locks.sort", tooltip="Sort by the next order"),
        Binding(
            "W", "order('queue')", "By queue", show=False, id="locks.by_queue", tooltip="Sort by queue length"
        ),
        Binding(
            "A",
            "order('age')",
            "By age",
            show=False,
            id="locks.by_age",
            tooltip="Sort by how long it is held",
        ),
        Binding(
            "L",
            "order('lease_left')",
            "By lease",
            show=False,
            id="locks.by_lease",
            tooltip="Sort by lease left",
        ),
        Binding("K", "order('key')", "By key", show=False, id="locks.by_key", tooltip="Sort by key"),
        Binding(
            "right_square_bracket",
            "next_page",
            "Next page",
            show=False,
            id="locks.next",
            tooltip="Next page, by key",
        ),
        Binding(
            "left_square_bracket",
            "first_page",
            "First page",
            show=False,
            id="locks.first",
            tooltip="First page again",
        ),
        Binding("c", "copy_key", "Copy key", show=False, id="locks.copy_key", tooltip="Copy the key"),
        Binding(
            "t",
            "copy_token",
            "Copy token",
            show=False,
            id="locks.copy_token",
            tooltip="Copy the fencing token",
        ),
        Binding("escape", "back", "Back", show=False, id="back", tooltip="Close the filter, then clear it"),
        Binding(
            "tab", "app.focus_next", "Nodes", id="focus.next", tooltip="From the locks to the nodes and back"
        ),
    ]

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__(glyphs)
        self._small = False
        self._node_count = 0

    def compose(self) -> ComposeResult:
        """From top to bottom."""
        glyphs = self.glyphs
        yield Lines(glyphs, id="small")
        yield Lines(glyphs, id="health")
        yield Lines(glyphs, id="totals")
        yield Lines(glyphs, id="alarm")
        yield Rows(glyphs, titles=self._node_titles, draw=self._draw_node, identify=_place_of, id="nodes")
        yield Lines(glyphs, id="rates")
        yield Lines(glyphs, id="title")
        yield Input(
            placeholder="keys that begin with; enter applies, esc leaves",
            id="filter",
            max_length=FILTER_CHARS_MAX,
            select_on_focus=False,
        )
        yield Rows(glyphs, titles=self._lock_titles, draw=self._draw_lock, identify=_key_of, id="locks")
        yield Lines(glyphs, id="events")
        yield KeyBar(glyphs)

    def on_mount(self) -> None:
        """The locks have the cursor."""
        self.query_one("#locks").focus()
        self._lay_out()

    # --- drawing

    def show(self) -> None:
        """Draws what the board has."""
        reading = self.board.reading
        glyphs, freshness = self.glyphs, self.top.freshness()
        if reading is None:
            self.query_one("#health", Lines).show([[Cell("asking the nodes")]])
            return
        if len(reading.view.nodes) != self._node_count:
            self._node_count = len(reading.view.nodes)
            self._lay_out()
        if self._small:
            return
        view = reading.view
        self.query_one("#health", Lines).show([health_line(view, freshness, glyphs)])
        self.query_one("#totals", Lines).show([totals_line(view, glyphs)])
        self.query_one("#alarm", Lines).show([alarm_line(view, reading.changes, glyphs)])
        self.query_one("#nodes", Rows).show(view.nodes)
        self._show_title()
        self.query_one("#locks", Rows).show(reading.locks.locks if reading.locks is not None else ())
        self._show_courses()

    def show_age(self) -> None:
        """Draws what grows older by itself."""
        reading = self.board.reading
        if reading is None or self._small:
            return
        self.query_one("#health", Lines).show([health_line(reading.view, self.top.freshness(), self.glyphs)])
        self.query_one("#nodes", Rows).redraw()
        self._show_title()

    def _show_title(self) -> None:
        reading, want = self.board.reading, self.top.want
        if reading is None:
            return
        locks = reading.locks
        if locks is not None and (locks.order, locks.prefix, locks.after) != want.page():
            locks = None
        line = locks_title(locks, reading.view, want.order, want.prefix, self.top.now_ns(), self.glyphs)
        self.query_one("#title", Lines).show([line])

    def _show_courses(self) -> None:
        rates, log = self.query_one("#rates", Lines), self.query_one("#events", Lines)
        rates.show(rate_lines(self.board.history, rates.size.width, rates.size.height, self.glyphs))
        log.show(event_lines(self.board.log.events, log.size.height, self.glyphs))

    def _node_titles(self, width: int) -> Line:
        return head_line(place(node_rows.COLUMNS, width), self.glyphs)

    def _draw_node(self, node: NodeView, width: int) -> Line:
        reading = self.board.reading
        leader = reading.view.leader if reading is not None else ""
        return node_line(node, leader, self.top.now_ns(), self.top.interval_s, width, self.glyphs)

    def _lock_titles(self, width: int) -> Line:
        order = self.top.want.order
        return head_line(
            place(lock_rows.COLUMNS, width), self.glyphs, sorted_by=order, rising=lock_rows.SORT_RISES[order]
        )

    def _draw_lock(self, row: LockRow, width: int) -> Line:
        cells = lock_cells(row, self.glyphs, changed=row.key in self.board.changed)
        return row_line(place(lock_rows.COLUMNS, width), cells, self.glyphs)

    # --- sizes

    def on_resize(self, event: events.Resize) -> None:
        """Lays out anew for the terminal's new size."""
        self._lay_out(event.size.width, event.size.height)
        self.call_after_refresh(self.show)

    def _lay_out(self, width: int | None = None, height: int | None = None) -> None:
        width = self.size.width if width is None else width
        height = self.size.height if height is None else height
        parts = plan(width, height, self._node_count or 3)
        self._small = parts is None
        for selector in PARTS:
            self.query_one(selector).display = not self._small
        self.query_one("#small").display = self._small
        if parts is None:
            said = too_small(width, height).split("\n")
            self.query_one("#small", Lines).show([[Cell(line)] for line in said])
            return
        for name, lines in (
            ("nodes", parts.nodes),
            ("rates", parts.rates),
            ("events", parts.events),
            ("alarm", parts.alarm),
        ):
            part = self.query_one(f"#{name}")
            part.display = lines > 0
            if lines:
                part.styles.height = lines
        self._ask_for_rows(height)

    def _ask_for_rows(self, height: int) -> None:
        cursor = self.query_one("#locks", Rows).cursor
        self.top.ask(limit=rows_for(max(height, cursor + height)))

    # --- hands

    @on(Rows.Moved)
    def _moved(self) -> None:
        self._ask_for_rows(self.size.height)

    @on(Rows.Chosen)
    def _chosen(self, message: Rows.Chosen) -> None:
        if isinstance(message.row, LockRow):
            self.top.open_key(message.row.key)
        else:
            self.top.open_node(message.row.place)

    def action_order(self, order: str) -> None:
        """Lists the locks in this order."""
        self.top.ask(order=order, after="")
        self.query_one("#locks", Rows).let_go()
        self._show_title()

    def action_next_order(self) -> None:
        """Lists the locks in the next order."""
        orders = list(lock_rows.SORT_RISES)
        self.action_order(orders[(orders.index(self.top.want.order) + 1) % len(orders)])

    def action_next_page(self) -> None:
        """The page behind this one."""
        locks = self.board.reading.locks if self.board.reading is not None else None
        if self.top.want.order != "key":
            self.top.say("pages follow each other by key alone: press K")
        elif locks is None or locks.next is None:
            self.top.say("this is the last page")
        else:
            self.top.ask(after=locks.next)
            self.query_one("#locks", Rows).let_go()

    def action_first_page(self) -> None:
        """The first page again."""
        self.top.ask(after="")
        self.query_one("#locks", Rows).let_go()

    def action_filter(self) -> None:
        """Opens the filter."""
        box = self.query_one("#filter", Input)
        if self.focused is box:
            raise SkipAction  # a slash like any other
        box.value = self.top.want.prefix
        box.display = True
        self.set_focus(box)

    @on(Input.Submitted, "#filter")
    def _filtered(self, message: Input.Submitted) -> None:
        self._close_filter()
        self.top.ask(prefix=message.value.strip(), after="")
        self.query_one("#locks", Rows).let_go()
        self._show_title()

    def _close_filter(self) -> None:
        self.set_focus(self.query_one("#locks"))
        self.query_one("#filter", Input).display = False

    def action_back(self) -> None:
        """One level back: the open filter, then the filter itself, then the later page."""
        if self.query_one("#filter", Input).display:
            self._close_filter()
        elif self.top.want.prefix:
            self.top.ask(prefix="", after="")
        elif self.top.want.after:
            self.top.ask(after="")
        self._show_title()

    def action_copy_key(self) -> None:
        """The key that the cursor stands on, exactly as it is."""
        if (row := self.grant) is not None:
            self.top.copy(row.key, "the key")

    def action_copy_token(self) -> None:
        """Its token."""
        if (row := self.grant) is not None and row.token:
            self.top.copy(row.token, "the token")

    @property
    def grant(self) -> LockRow | None:
        """What the locks' cursor stands on."""
        row = self.query_one("#locks", Rows).row
        return row if isinstance(row, LockRow) else None

    @property
    def node_view(self) -> NodeView | None:
        """What the nodes' cursor stands on."""
        row = self.query_one("#nodes", Rows).row
        return row if isinstance(row, NodeView) else None


def _place_of(node: NodeView) -> str:
    return node.place


def _key_of(row: LockRow) -> str:
    return row.key
