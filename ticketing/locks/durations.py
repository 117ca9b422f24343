"""How long things took, counted by powers of two: one shift and two additions for each."""

from __future__ import annotations

UNIT_NS = 125_000
"""What the first class ends at: an eighth of a millisecond. Each class ends at twice the end of the one before."""
CLASSES = 22
"""Up to 262 s, above the longest wait and the longest lease; the last class has no end."""

BOUNDS_S = tuple((UNIT_NS << n) / 1_000_000_000 for n in range(CLASSES - 1))
"""Where the classes end, in seconds; the last one is left out."""


class Durations:
    """Counts by class, and their sum."""

    __slots__ = ("counts", "sum_ns")

    def __init__(self) -> None:
        self.counts = [0] * CLASSES
        self.sum_ns = 0

    def add(self, duration_ns: int) -> None:
        """One more. Below zero (a wall clock was set back) counts as zero."""
        if duration_ns < 0:
            duration_ns = 0
        self.sum_ns += duration_ns
        at = (duration_ns // UNIT_NS).bit_length()
        self.counts[at if at < CLASSES else CLASSES - 1] += 1

    def cumulative(self) -> list[int]:
        """How many took less than each of `BOUNDS_S`, and last how many there are."""
        totals, total = [], 0
        for count in self.counts:
            total += count
            totals.append(total)
        return totals
