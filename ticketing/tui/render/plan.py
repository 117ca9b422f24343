"""What has room on a screen of a given size."""

from __future__ import annotations

from typing import NamedTuple

WIDTH_MIN = 40
HEIGHT_MIN = 10


class Plan(NamedTuple):
    """Lines for each part; 0 leaves it out. The locks get the rest."""

    nodes: int
    """With the title line."""
    rates: int
    events: int
    alarm: int


def plan(width: int, height: int, nodes: int) -> Plan | None:
    """None where not even the least has room.

    The order of giving up: the log, the rates, nodes beyond the second; at 80x24 with three nodes all parts show.
    """
    if width < WIDTH_MIN or height < HEIGHT_MIN:
        return None
    fixed = 2 + 1 + 2 + 3  # health and totals, footer, the locks' two titles and three of its rows
    left = height - fixed
    node_lines = min(1 + nodes, max(0, left))
    left -= node_lines
    alarm = 1 if left > 0 else 0
    left -= alarm
    rates = min(2, max(0, left - 1)) if width >= WIDTH_MIN else 0
    left -= rates
    events = 0
    if left > 3:
        events = min(2 + (left - 4) // 4, 8)
        left -= events
    if left > 16 and rates == 2:
        rates = 3
    return Plan(node_lines, rates, events, alarm)


def too_small(width: int, height: int) -> str:
    """What is said instead, as far as there is room for it."""
    message = f"terminal too small (need {WIDTH_MIN}x{HEIGHT_MIN})"
    if width <= 0 or height <= 0:
        return ""
    lines = [message[at : at + width] for at in range(0, len(message), width)]
    return "\n".join(lines[:height])
