"""Numbers for a person's eyes: durations, counts, bars, sparklines. Unknown is a dash, never a zero."""

from __future__ import annotations

from collections.abc import Sequence

from ticketing.tui.render.text import Glyphs

UNKNOWN = "-"


def duration(ms: float | None) -> str:
    """At most six cells: `850ms`, `4.2s`, `59s`, `3m12s`, `2h05m`, `3d04h`, `400d`."""
    if ms is None:
        return UNKNOWN
    if ms < 0:
        return "-" + duration(-ms) if ms <= -1 else "0ms"
    if ms < 1_000:
        return f"{int(ms)}ms"
    seconds = ms / 1_000
    if seconds < 10:
        return f"{int(seconds * 10) / 10:.1f}s"
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3_600:
        return f"{whole // 60}m{whole % 60:02d}s"
    if whole < 86_400:
        return f"{whole // 3_600}h{whole % 3_600 // 60:02d}m"
    days = whole // 86_400
    return f"{days}d{whole % 86_400 // 3_600:02d}h" if days < 100 else f"{days}d"


def count(value: int | None) -> str:
    """Grouped up to 999,999, from there with a letter: `1.2M`."""
    if value is None:
        return UNKNOWN
    if abs(value) < 1_000_000:
        return f"{value:,}"
    for limit, letter in ((10**9, "M"), (10**12, "G")):
        if abs(value) < limit:
            return f"{value / (limit / 1_000):.1f}{letter}"
    return f"{value / 10**12:.1f}T"


def rate(value: float | None) -> str:
    """Events a second."""
    if value is None:
        return UNKNOWN
    return f"{value:.1f}" if 0 < value < 10 else count(round(value))


def share(value: float | None) -> str:
    """0..1 as percent."""
    return UNKNOWN if value is None else f"{value * 100:.0f}%"


def difference(ms: float | None, error_ms: float | None, glyphs: Glyphs) -> str:
    """A clock's difference with its error, in milliseconds: `+1.2±0.3`."""
    if ms is None:
        return UNKNOWN
    if error_ms is None:
        return f"{ms:+.1f}"
    return f"{ms:+.1f}{glyphs.plus_minus}{error_ms:.1f}"


def bar(fraction: float | None, width: int, glyphs: Glyphs) -> str:
    """`width` cells filled from the left. Anything above zero shows, anything below one is not full."""
    if width <= 0:
        return ""
    if fraction is None:
        return " " * width
    steps = len(glyphs.bars)
    most = width * steps
    filled = round(min(1.0, max(0.0, fraction)) * most)
    if fraction > 0 and filled == 0:
        filled = 1
    if fraction < 1 and filled == most:
        filled = most - 1
    whole, rest = divmod(filled, steps)
    text = glyphs.bars[-1] * whole
    if rest:
        text += glyphs.bars[rest - 1]
    return text + glyphs.empty * (width - len(text))


def sparkline(values: Sequence[float | None], width: int, glyphs: Glyphs) -> str:
    """The last `width` values, newest at the right, scaled to the greatest of them; unknown ones are blank."""
    if width <= 0:
        return ""
    shown = list(values[-width:])
    most = max((value for value in shown if value is not None), default=0.0)
    top = len(glyphs.sparks) - 1
    drawn = []
    for value in shown:
        if value is None:
            drawn.append(" ")
        elif value <= 0 or most <= 0:
            drawn.append(glyphs.sparks[0])
        else:
            drawn.append(glyphs.sparks[max(1, round(value / most * top))])
    return "".join(drawn).rjust(width)
