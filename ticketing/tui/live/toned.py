"""Widgets that draw lines of toned cells. Nothing that a user wrote is ever parsed as markup: it is only drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Size
from textual.strip import Strip
from textual.widget import Widget

from ticketing.tui.render.text import Glyphs, Line, Tone, fit_line

TONE_CLASSES = {f"tone--{tone.value}" for tone in Tone}

DIMMED = 0.62
"""How much of the text's colour is left in a dim one."""

TONE_CSS = """
.tone--dim { text-style: none; }
.tone--good { color: $text-success; }
.tone--warn { color: $text-warning; text-style: bold; }
.tone--bad { color: $text-error; text-style: bold; }
.tone--head { text-style: bold underline; }
.tone--name { text-style: bold; }
.tone--bar { color: $text-primary; }
.tone--changed { color: $text-secondary; text-style: bold; }
App:ansi .tone--changed { color: ansi_magenta; text-style: bold; }
App:nocolor .tone--changed { text-style: bold underline; }
App:nocolor .tone--bad { text-style: bold reverse; }
App:nocolor .tone--warn { text-style: bold; }
App:ansi .tone--dim { color: ansi_default; text-style: dim; }
App:ansi .tone--bar { color: ansi_cyan; }
App:ansi .tone--good { color: ansi_green; }
App:ansi .tone--warn { color: ansi_yellow; text-style: bold; }
App:ansi .tone--bad { color: ansi_red; text-style: bold; }
App:ansi .tone--head { color: ansi_default; text-style: bold underline; }
"""


def tone_styles(widget: Widget) -> dict[Tone, Style]:
    """What each tone looks like on this widget under the present theme."""
    base = widget.rich_style
    styles = {
        tone: base + widget.get_component_rich_style(f"tone--{tone.value}", partial=True) for tone in Tone
    }
    if not widget.app.native_ansi_color:
        # A sheet's half-transparent colour would be laid over nothing here.
        _, _, background, colour = widget.colors
        styles[Tone.DIM] = base + Style(color=background.blend(colour, DIMMED).rich_color)
    return styles


def strip_of(
    line: Line, width: int, styles: dict[Tone, Style], glyphs: Glyphs, over: Style | None = None
) -> Strip:
    """A line of exactly `width` cells; `over` is laid upon all of them."""
    segments = [
        Segment(cell.text, styles[cell.tone] if over is None else styles[cell.tone] + over)
        for cell in fit_line(line, width, glyphs)
    ]
    return Strip(segments, width)


class Lines(Widget):
    """Some lines, drawn as they are."""

    COMPONENT_CLASSES: ClassVar[set[str]] = TONE_CLASSES
    DEFAULT_CSS = "Lines { height: 1; width: 1fr; }"

    def __init__(self, glyphs: Glyphs, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id, classes=classes)
        self._glyphs = glyphs
        self._lines: list[Line] = []
        self._styles: dict[Tone, Style] | None = None

    @property
    def lines(self) -> Sequence[Line]:
        """What is drawn."""
        return self._lines

    def show(self, lines: Sequence[Line]) -> None:
        """Draws these; nothing is done where they are the same."""
        drawn = [list(line) for line in lines]
        if drawn == self._lines:
            return
        grown = len(drawn) != len(self._lines)
        self._lines = list(drawn)
        self.refresh(layout=grown and self.styles.height is not None and self.styles.height.is_auto)

    def notify_style_update(self) -> None:
        """The theme has changed."""
        self._styles = None
        super().notify_style_update()

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:  # noqa: ARG002
        """As many lines as there are, where the height is automatic."""
        return len(self._lines)

    def render_line(self, y: int) -> Strip:
        """One line."""
        if self._styles is None:
            self._styles = tone_styles(self)
        line: Line = self._lines[y] if y < len(self._lines) else ()
        return strip_of(line, self.size.width, self._styles, self._glyphs)
