"""Text that fits: what users wrote made safe, cut and padded by terminal cells instead of characters."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from enum import Enum
from functools import lru_cache
from typing import NamedTuple

from rich.cells import cell_len

from ticketing.protocol.fields import escaped

LEFT_TO_RIGHT_MARK = "\u200e"
"""Shows nothing, and ends a right-to-left run: the columns behind a Hebrew key stay where they are."""


class Tone(Enum):
    """What a piece of text means; themes decide how that looks. No meaning rests on colour alone."""

    PLAIN = "plain"
    DIM = "dim"
    GOOD = "good"
    WARN = "warn"
    BAD = "bad"
    HEAD = "head"
    NAME = "name"
    BAR = "bar"
    CHANGED = "changed"


class Cell(NamedTuple):
    """A piece of a line: its text, safe to print, and its tone."""

    text: str
    tone: Tone = Tone.PLAIN


Line = Sequence[Cell]


class Glyphs(NamedTuple):
    """The signs in use: a terminal that cannot show one shows none of the set."""

    ascii: bool
    ellipsis: str
    up: str
    down: str
    alive: str
    gone: str
    bars: str
    """Rising fillings of one cell, the last one full."""
    empty: str
    sparks: str
    """Rising heights of one cell."""
    plus_minus: str
    rule: str


UNICODE = Glyphs(False, "…", "▲", "▼", "●", "○", "▏▎▍▌▋▊▉█", "░", "▁▂▃▄▅▆▇█", "±", "─")
ASCII = Glyphs(True, "~", "^", "v", "*", "o", "#", ".", "_.:-=+*#", "+-", "-")


@lru_cache(maxsize=8_192)
def safe(text: str, *, ascii_only: bool = False) -> str:
    """A key or name of a user's on one line: nothing in it moves the cursor, turns the direction or is markup."""
    shown = escaped(text.encode("utf-8", "surrogatepass"))
    if shown.isascii():
        return shown
    if ascii_only:
        return shown.encode("ascii", "backslashreplace").decode("ascii")
    if any(unicodedata.bidirectional(char) in ("R", "AL", "AN") for char in shown):
        return LEFT_TO_RIGHT_MARK + shown + LEFT_TO_RIGHT_MARK
    return shown


def width_of(text: str) -> int:
    """In terminal cells."""
    return len(text) if text.isascii() else cell_len(text)


def fit(text: str, width: int, glyphs: Glyphs, *, right: bool = False, middle: bool = False) -> str:
    """Exactly `width` cells: padded, or cut with a sign that it was cut.

    `middle` cuts there: keys of one kind begin alike, and their ends tell them apart.
    """
    if width <= 0:
        return ""
    length = width_of(text)
    if length > width:
        text = _cut(text, width, glyphs, middle)
        length = width_of(text)
    gap = " " * (width - length)
    return gap + text if right else text + gap


def _cut(text: str, width: int, glyphs: Glyphs, middle: bool) -> str:
    room = width - 1
    back = room // 2 if middle and room >= 6 else 0
    front = head(text, room - back)
    mark = LEFT_TO_RIGHT_MARK if text.startswith(LEFT_TO_RIGHT_MARK) else ""
    return front + mark + glyphs.ellipsis + (tail(text, back) if back else "")


def head(text: str, width: int) -> str:
    """The longest beginning within `width` cells; marks that combine stay with their letter."""
    if text.isascii():
        return text[: max(0, width)]
    used = 0
    for place, char in enumerate(text):
        used += cell_len(char)
        if used > width:
            return text[:place]
    return text


def tail(text: str, width: int) -> str:
    """The longest end within `width` cells that does not begin in the middle of a letter."""
    if text.isascii():
        return text[len(text) - width :] if width > 0 else ""
    used = 0
    start = len(text)
    for place in range(len(text) - 1, -1, -1):
        used += cell_len(text[place])
        if used > width:
            break
        start = place
    while start < len(text) and unicodedata.combining(text[start]):
        start += 1
    return text[start:]


def plain(line: Line) -> str:
    """The text alone, without blanks at its end."""
    return "".join(cell.text for cell in line).rstrip()


def fit_line(line: Line, width: int, glyphs: Glyphs) -> list[Cell]:
    """The cells that fit into `width`, the last one cut, and padding up to it."""
    fitted: list[Cell] = []
    left = width
    for cell in line:
        if left <= 0:
            break
        length = width_of(cell.text)
        if length > left:
            fitted.append(Cell(fit(cell.text, left, glyphs), cell.tone))
            left = 0
        else:
            fitted.append(cell)
            left -= length
    if left > 0:
        fitted.append(Cell(" " * left))
    return fitted
