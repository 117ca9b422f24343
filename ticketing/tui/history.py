"""What one reading cannot tell: rates and their course, from the differences of the leader's counters."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ticketing.tui.model import number, table, text, whole

POINTS_MAX = 400
"""Values kept for each course: the widest terminal that is drawn."""

SPAN_NS = 10_000_000_000
"""Percentiles of waits are over about so long: fewer would jump with every request."""

SERIES = ("grants", "handovers", "timeouts", "expiries", "busy", "p50", "p99", "waiting")
_COUNTED: dict[str, tuple[str, ...]] = {
    "grants": ("lock_granted", "lock_handed_over"),
    "handovers": ("lock_handed_over",),
    "timeouts": ("lock_timeout",),
    "expiries": ("lock_expired",),
    "busy": (
        "lock_busy_range",
        "lock_busy_clock",
        "lock_busy_session",
        "lock_busy_key",
        "lock_busy_waiters",
        "lock_busy_keys",
    ),
}


@dataclass(frozen=True, slots=True)
class Waits:
    """A histogram of the waits that ended in a grant, since the leader's lead began."""

    bounds_ms: tuple[float, ...]
    """Upper ends of the buckets, rising; the bucket behind the last one has no end."""
    counts: tuple[int, ...]
    """One more than there are bounds; each bucket's own."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One reading of the leader's counters."""

    lead: str
    """Whose counters: they begin anew with another process or another lead."""
    at_ns: int
    counters: Mapping[str, int]
    waiting: int | None
    waits: Waits | None


def sample(facts: Mapping[str, Any], at_ns: int) -> Sample:
    """From the serving leader's status."""
    counters = table(facts.get("counters"))
    locks = table(facts.get("locks"))
    known = {
        name: value
        for names in _COUNTED.values()
        for name in names
        if (value := whole(counters.get(name))) is not None
    }
    lead = f"{text(facts.get('incarnation'))}/{text(table(facts.get('raft')).get('term'))}"
    return Sample(lead, at_ns, known, whole(locks.get("waiting")), waits_of(locks.get("waits")))


def waits_of(value: object) -> Waits | None:
    """`{"bounds_ms": [..], "counts": [..]}`, where the node tells it."""
    shape = table(value)
    bounds, counts = shape.get("bounds_ms"), shape.get("counts")
    if not isinstance(bounds, list) or not isinstance(counts, list) or len(counts) != len(bounds) + 1:
        return None
    ends, each = [number(bound) for bound in bounds], [whole(count) for count in counts]
    if any(end is None for end in ends) or any(one is None for one in each):
        return None
    return Waits(tuple(end for end in ends if end is not None), tuple(one for one in each if one is not None))


def percentile(bounds_ms: Sequence[float], counts: Sequence[int], share: float) -> float | None:
    """The value below which `share` of all lie, linear within its bucket; None where nothing was counted.

    In the last, open bucket it is that bucket's lower end: more is not known.
    """
    total = sum(counts)
    if total <= 0:
        return None
    wanted, below = share * total, 0
    low = 0.0
    for n, count in enumerate(counts):
        if n == len(bounds_ms):
            break
        if count and below + count >= wanted:
            return low + (bounds_ms[n] - low) * (wanted - below) / count
        below += count
        low = bounds_ms[n]
    return low


class History:
    """The courses of all rates. Each reading adds a point; a reading without a leader adds an unknown one."""

    def __init__(self) -> None:
        self.series: dict[str, deque[float | None]] = {name: deque(maxlen=POINTS_MAX) for name in SERIES}
        self._last: Sample | None = None
        self._recent: deque[Sample] = deque()

    def add(self, now: Sample | None) -> None:
        """Takes the leader's counters, or that there is no leader to ask. The same sample twice counts once."""
        last = self._last
        if now is not None and last is not None and now.lead == last.lead and now.at_ns <= last.at_ns:
            return
        if now is None or last is None or now.lead != last.lead:
            self._recent.clear()
            point: dict[str, float | None] = {}
        else:
            point = self._rates(last, now)
        if now is not None:
            point["waiting"] = now.waiting
            self._recent.append(now)
            point |= self._percentiles(now)
        for name, course in self.series.items():
            course.append(point.get(name))
        self._last = now

    def latest(self, name: str) -> float | None:
        """The newest value of a course."""
        course = self.series[name]
        return course[-1] if course else None

    @staticmethod
    def _rates(last: Sample, now: Sample) -> dict[str, float | None]:
        seconds = (now.at_ns - last.at_ns) / 1e9
        return {
            name: max(0.0, (_total(now.counters, names) - _total(last.counters, names)) / seconds)
            for name, names in _COUNTED.items()
            if any(counter in now.counters for counter in names)
        }

    def _percentiles(self, now: Sample) -> dict[str, float | None]:
        while len(self._recent) > 2 and now.at_ns - self._recent[1].at_ns >= SPAN_NS:
            self._recent.popleft()
        first = self._recent[0]
        if now.waits is None or first.waits is None or first.waits.bounds_ms != now.waits.bounds_ms:
            return {}
        counts = [max(0, b - a) for a, b in zip(first.waits.counts, now.waits.counts, strict=True)]
        return {
            "p50": percentile(now.waits.bounds_ms, counts, 0.50),
            "p99": percentile(now.waits.bounds_ms, counts, 0.99),
        }


def _total(counters: Mapping[str, int], names: Iterable[str]) -> int:
    return sum(counters.get(name, 0) for name in names)
