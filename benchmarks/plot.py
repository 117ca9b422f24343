"""Line plots on logarithmic axes, as SVG: no library, the same picture from the same figures."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import NamedTuple

WIDTH, HEIGHT = 860, 460
LEFT, RIGHT, TOP, BOTTOM = 72, 236, 34, 52
COLOURS = (
    "#c0392b",
    "#2471a3",
    "#1e8449",
    "#b7950b",
    "#7d3c98",
    "#117a65",
    "#ba4a00",
    "#566573",
    "#d4ac0d",
    "#6e2c00",
    "#1b2631",
)
LABEL_PX = 15
"""Between two names of lines."""


class Line(NamedTuple):
    """One line of a plot; points from left to right."""

    name: str
    points: Sequence[tuple[float, float]]
    dashed: bool = False
    """A reference, not a system to choose."""


def ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 times the powers of ten from `low` to `high`, both positive; powers alone over many decades."""
    steps = (1, 2, 5) if high / low < 1000 else (1,)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [step * 10.0**decade for decade in decades for step in steps if low <= step * 10.0**decade <= high]


def short(value: float) -> str:
    """1,200 as 1.2k."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def spread(places: Sequence[float], apart: float) -> list[float]:
    """The same places in the same order, moved down until they are `apart`."""
    moved: dict[int, float] = {}
    last = -math.inf
    for number in sorted(range(len(places)), key=lambda one: places[one]):
        last = max(places[number], last + apart)
        moved[number] = last
    return [moved[number] for number in range(len(places))]


def plot(title: str, x_name: str, y_name: str, lines: Sequence[Line], x_ticks: Sequence[float] = ()) -> str:
    """An SVG picture. Both axes are logarithmic; every coordinate must be positive."""
    xs = [x for line in lines for x, _ in line.points]
    ys = [y for line in lines for _, y in line.points]
    left, right = min(xs), max(xs)
    low, high = min(ys) / 1.3, max(ys) * 1.3

    def across(x: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * _share(x, left, right)

    def down(y: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * _share(y, low, high)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        _text(LEFT, 20, title, size=14, weight="bold"),
        _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, x_name, anchor="middle"),
        _text(14, TOP - 6, y_name),
    ]
    for y in ticks(low, high):
        parts.append(_rule(LEFT, down(y), WIDTH - RIGHT, down(y)))
        parts.append(_text(LEFT - 6, down(y) + 4, short(y), anchor="end"))
    for x in x_ticks or ticks(left, right):
        parts.append(_rule(across(x), TOP, across(x), HEIGHT - BOTTOM))
        parts.append(_text(across(x), HEIGHT - BOTTOM + 17, short(x), anchor="middle"))
    ends = spread([down(line.points[-1][1]) for line in lines], LABEL_PX)
    for number, (line, end) in enumerate(zip(lines, ends, strict=True)):
        colour = COLOURS[number % len(COLOURS)]
        dash = ' stroke-dasharray="5 4"' if line.dashed else ""
        places = [(across(x), down(y)) for x, y in line.points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
        x, y = places[-1]
        at = WIDTH - RIGHT + 14
        parts.append(
            f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{at - 3}" y2="{end:.1f}" stroke="{colour}" stroke-width="0.6"/>'
        )
        parts.append(_text(at, end + 4, line.name, colour=colour))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _share(value: float, low: float, high: float) -> float:
    return 0.5 if low == high else math.log(value / low) / math.log(high / low)


def _rule(x1: float, y1: float, x2: float, y2: float) -> str:
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="#d5d8dc" stroke-width="0.7"/>'
    )


def _text(
    x: float,
    y: float,
    text: str,
    *,
    anchor: str = "start",
    size: int = 12,
    weight: str = "",
    colour: str = "#212f3d",
) -> str:
    bold = f' font-weight="{weight}"' if weight else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{colour}"{bold}>'
        f"{html.escape(text)}</text>"
    )
