"""Boxes above a screen: the help, and the question before anything is changed."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Input

from ticketing.tui.live.toned import Lines
from ticketing.tui.render.text import Cell, Glyphs, Line, Tone


class HelpScreen(ModalScreen[None]):
    """The keys that worked on the screen below when it was called."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark", "dismiss", "Close", id="help.close"),
    ]

    def __init__(self, glyphs: Glyphs, lines: list[Line]) -> None:
        super().__init__()
        self._glyphs = glyphs
        self._lines = lines

    def compose(self) -> ComposeResult:
        """One scrolling box."""
        with VerticalScroll():
            yield Lines(self._glyphs)

    def on_mount(self) -> None:
        """Keys scroll."""
        title: list[Line] = [[Cell("Keys", Tone.HEAD), Cell("   esc closes, arrows scroll", Tone.DIM)], []]
        self.query_one(Lines).show(title + self._lines)
        self.query_one(VerticalScroll).focus()


class ConfirmScreen(ModalScreen[str | None]):
    """Asks before something is changed. Its result is the reason that was typed, or None: nothing is to be done.

    Enter alone confirms nothing: it is pressed too easily. Without a reason to type `y` confirms; with one, enter
    does once there is text.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "cancel", "Cancel", id="confirm.cancel")]

    def __init__(self, glyphs: Glyphs, lines: list[Line], *, asks_reason: bool) -> None:
        super().__init__()
        self._glyphs = glyphs
        self._lines = lines
        self._asks_reason = asks_reason

    def compose(self) -> ComposeResult:
        """The question, and a line for the reason."""
        with Vertical():
            yield Lines(self._glyphs)
            if self._asks_reason:
                yield Input(
                    placeholder="reason (goes to the audit log)", max_length=200, select_on_focus=False
                )

    def on_mount(self) -> None:
        """Says how to answer."""
        how = "enter with a reason confirms, esc cancels" if self._asks_reason else "y confirms, esc cancels"
        self.query_one(Lines).show([*self._lines, [], [Cell(how, Tone.DIM)]])
        if self._asks_reason:
            self.query_one(Input).focus()

    def key_y(self) -> None:
        """Yes, where nothing is typed."""
        if not self._asks_reason:
            self.dismiss("")

    @on(Input.Submitted)
    def _typed(self, message: Input.Submitted) -> None:
        if message.value.strip():
            self.dismiss(message.value.strip())

    def action_cancel(self) -> None:
        """Nothing is done."""
        self.dismiss(None)
