"""What the terminal can show, told from its environment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TextIO

from ticketing.tui.render.text import ASCII, UNICODE, Glyphs


def glyphs_for(encoding: str | None, environment: Mapping[str, str], *, ascii_only: bool) -> Glyphs:
    """The signs for an output of this encoding: ASCII where it is asked for or nothing more can be shown."""
    if ascii_only or environment.get("TERM") in ("dumb", "linux", "vt100", "vt220"):
        return ASCII
    wide = (encoding or "").lower().replace("-", "").replace("_", "")
    return UNICODE if wide in ("utf8", "cp65001") else ASCII


def no_colour(environment: Mapping[str, str]) -> bool:
    """`NO_COLOR` counts where it is not empty."""
    return bool(environment.get("NO_COLOR"))


def can_draw(streams: Iterable[TextIO | None], environment: Mapping[str, str]) -> bool:
    """Whether a live picture is possible: all of these are terminals, and they can move the cursor."""
    if environment.get("TERM", "dumb") in ("dumb", ""):
        return False
    return all(stream is not None and not stream.closed and stream.isatty() for stream in streams)
