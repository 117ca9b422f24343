"""A table of many rows of which only those in sight are drawn. The cursor follows what it stands on, not its place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from ticketing.tui.live.toned import TONE_CLASSES, strip_of, tone_styles
from ticketing.tui.render.text import Glyphs, Line, Tone


class Rows(ScrollView, can_focus=True):
    """Titles, and rows drawn on demand.

    As long as nobody has moved the cursor it stays on top: whoever watches the longest queues wants to see the
    longest one. Once moved it stays with its row wherever that goes, until `home`.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Up", show=False, id="rows.up"),
        Binding("down,j", "move(1)", "Down", show=False, id="rows.down"),
        Binding("pageup", "page(-1)", "Page up", show=False, id="rows.page_up"),
        Binding("pagedown", "page(1)", "Page down", show=False, id="rows.page_down"),
        Binding("home,g", "top", "First row", show=False, id="rows.home"),
        Binding("end,G", "bottom", "Last row", show=False, id="rows.end"),
        Binding("enter", "choose", "Open", id="rows.open"),
    ]
    COMPONENT_CLASSES: ClassVar[set[str]] = TONE_CLASSES | {"rows--cursor", "rows--resting"}
    DEFAULT_CSS = """
    Rows { height: 1fr; width: 1fr; overflow-x: hidden; overflow-y: auto; scrollbar-size-vertical: 1; }
    Rows .rows--cursor { background: $primary; color: $text; text-style: bold; }
    Rows .rows--resting { background: $surface-lighten-2; }
    """

    class Chosen(Message):
        """A row was opened."""

        def __init__(self, rows: Rows, row: Any) -> None:
            super().__init__()
            self.rows = rows
            self.row = row

        @property
        def control(self) -> Rows:
            """Which table."""
            return self.rows

    class Moved(Message):
        """The cursor stands elsewhere, or more rows are in sight."""

    def __init__(
        self,
        glyphs: Glyphs,
        *,
        titles: Callable[[int], Line],
        draw: Callable[[Any, int], Line],
        identify: Callable[[Any], str],
        id: str | None = None,  # noqa: A002
    ) -> None:
        super().__init__(id=id)
        self._glyphs = glyphs
        self._titles = titles
        self._draw = draw
        self._identify = identify
        self._rows: Sequence[Any] = ()
        self._cursor = 0
        self._held: str | None = None
        self._styles: dict[Tone, Style] | None = None

    # --- what is shown

    def show(self, rows: Sequence[Any]) -> None:
        """Other rows, or the same ones with other facts. The cursor stays on its row, the scroll place where it is."""
        in_sight = self._cursor_in_sight()
        self._rows = rows
        if self._held is not None:
            self._cursor = next(
                (n for n, row in enumerate(rows) if self._identify(row) == self._held), self._cursor
            )
        self._cursor = min(self._cursor, max(0, len(rows) - 1))
        size = Size(max(1, self.size.width), len(rows) + 1)
        if size != self.virtual_size:
            self.virtual_size = size
        if in_sight:
            self._bring_into_sight()
        self.refresh()

    def redraw(self) -> None:
        """The same rows, whose look depends on something that has changed."""
        self.refresh()

    @property
    def row(self) -> Any | None:
        """What the cursor stands on."""
        return self._rows[self._cursor] if self._rows else None

    @property
    def rows(self) -> Sequence[Any]:
        """All that is listed."""
        return self._rows

    @property
    def cursor(self) -> int:
        """The cursor's place, from 0."""
        return self._cursor

    def let_go(self) -> None:
        """Back to the top, as at the start."""
        self._cursor, self._held = 0, None
        self.scroll_to(y=0, animate=False, immediate=True)
        self.refresh()

    # --- drawing

    def notify_style_update(self) -> None:
        """The theme has changed."""
        self._styles = None
        super().notify_style_update()

    def render_line(self, y: int) -> Strip:
        """The titles, or a row."""
        if self._styles is None:
            self._styles = tone_styles(self)
        width = self.scrollable_content_region.width
        if y == 0:
            return strip_of(self._titles(width), width, self._styles, self._glyphs)
        place = y - 1 + round(self.scroll_y)
        if place >= len(self._rows):
            return strip_of((), width, self._styles, self._glyphs)
        over = None
        if place == self._cursor and (self.has_focus or self._held is not None):
            name = "rows--cursor" if self.has_focus else "rows--resting"
            over = self.get_component_rich_style(name, partial=True)
        return strip_of(self._draw(self._rows[place], width), width, self._styles, self._glyphs, over)

    # --- hands

    def action_move(self, by: int) -> None:
        """One row up or down."""
        self._go(self._cursor + by)

    def action_page(self, by: int) -> None:
        """One screen up or down."""
        self._go(self._cursor + by * max(1, self.size.height - 2))

    def action_top(self) -> None:
        """The first row; the cursor holds on to nothing any more."""
        self.let_go()
        self.post_message(self.Moved())

    def action_bottom(self) -> None:
        """The last row."""
        self._go(len(self._rows) - 1)

    def action_choose(self) -> None:
        """Opens the row."""
        if self.row is not None:
            self.post_message(self.Chosen(self, self.row))

    def on_click(self, event: events.Click) -> None:
        """A click puts the cursor there, a second one opens the row."""
        place = event.y - 1 + round(self.scroll_y)
        if event.y < 1 or place >= len(self._rows):
            return
        self._go(place)
        if event.chain > 1:
            self.action_choose()

    def _go(self, place: int) -> None:
        if not self._rows:
            return
        self._cursor = max(0, min(place, len(self._rows) - 1))
        self._held = self._identify(self._rows[self._cursor])
        self._bring_into_sight()
        self.refresh()
        self.post_message(self.Moved())

    def _room(self) -> int:
        return max(1, self.size.height - 1)

    def _cursor_in_sight(self) -> bool:
        top = round(self.scroll_y)
        return top <= self._cursor < top + self._room()

    def _bring_into_sight(self) -> None:
        top, room = round(self.scroll_y), self._room()
        if self._cursor < top:
            self.scroll_to(y=self._cursor, animate=False, immediate=True)
        elif self._cursor >= top + room:
            self.scroll_to(y=self._cursor - room + 1, animate=False, immediate=True)
