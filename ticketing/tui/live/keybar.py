"""The keys that work now, told by the bindings themselves: the last line, and the help."""

from __future__ import annotations

from collections.abc import Iterable

from textual.app import ComposeResult
from textual.binding import Binding
from textual.screen import Screen
from textual.widget import Widget

from ticketing.tui.live.toned import Lines
from ticketing.tui.render.text import Cell, Glyphs, Line, Tone

_NAMES = {
    "slash": "/",
    "question_mark": "?",
    "escape": "esc",
    "plus": "+",
    "minus": "-",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "pageup": "pgup",
    "pagedown": "pgdn",
    "equals_sign": "=",
    "backslash": "\\",
    "shift+tab": "s-tab",
}


def key_name(key: str) -> str:
    """As it stands on the keyboard."""
    if key.startswith("upper_"):
        return key.removeprefix("upper_").upper()
    if key.startswith("ctrl+"):
        return "^" + key.removeprefix("ctrl+").upper()
    return _NAMES.get(key, key)


_NOT_TOLD = frozenset(
    (
        "scroll_left",
        "scroll_right",
        "page_left",
        "page_right",
        "screen.copy_text",
        "app.help_quit",
        "help_quit",
    )
)
"""Of the framework's own; nothing here scrolls sideways."""

_FIRST = ("help", "quit")
"""Ids of the keys that stand first: on a narrow terminal the others are cut."""


def live_bindings(screen: Screen[object]) -> list[tuple[str, Binding]]:
    """The bindings that work on a screen now, each with all of its keys; how to get help and out come first."""
    found: dict[str, list[Binding]] = {}
    for active in screen.active_bindings.values():
        binding = active.binding
        if active.enabled and binding.description and binding.action not in _NOT_TOLD:
            found.setdefault(binding.action, []).append(binding)
    told = []
    for bindings in found.values():
        # Those that are shown first, then our own, then the framework's for the same action.
        bindings.sort(key=lambda binding: (not binding.show, not binding.id))
        names = dict.fromkeys(binding.key_display or key_name(binding.key) for binding in bindings)
        told.append((" ".join(names), bindings[0]))
    return sorted(told, key=lambda one: _FIRST.index(one[1].id) if one[1].id in _FIRST else len(_FIRST))


def help_lines(bindings: Iterable[tuple[str, Binding]]) -> list[Line]:
    """One line a binding."""
    return [
        [Cell(keys.ljust(12), Tone.NAME), Cell(binding.tooltip or binding.description)]
        for keys, binding in bindings
    ]


def bar_line(bindings: Iterable[tuple[str, Binding]]) -> Line:
    """The bindings that are shown, with their first key."""
    line: list[Cell] = []
    for keys, binding in bindings:
        if binding.show:
            line += [Cell(keys.split(" ")[0], Tone.NAME), Cell(f" {binding.description}  ", Tone.DIM)]
    return line


class KeyBar(Widget):
    """The last line."""

    DEFAULT_CSS = "KeyBar { height: 1; dock: bottom; background: $panel; }"

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__()
        self._glyphs = glyphs

    def compose(self) -> ComposeResult:
        """One line."""
        yield Lines(self._glyphs)

    def on_mount(self) -> None:
        """Follows whatever changes the bindings: focus, screens, modes."""
        self.screen.bindings_updated_signal.subscribe(self, self._refresh_keys)
        self.call_after_refresh(self._refresh_keys, self.screen)

    def _refresh_keys(self, screen: Screen[object]) -> None:
        if screen is self.app.screen:
            self.query_one(Lines).show([bar_line(live_bindings(screen))])
