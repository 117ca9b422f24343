"""All that the dashboard remembers between two refreshes: the last reading, the courses and the log."""

from __future__ import annotations

from ticketing.tui.events import EventLog, KeyHistory
from ticketing.tui.history import History, sample
from ticketing.tui.model import Reading, age_ms, serving_reading

FRESH_MS = 2_000.0
"""Younger data, or data younger than two and a half intervals, is not called old."""


class Board:
    """Takes readings one after the other. No I/O, no clock: the readings carry their moments."""

    def __init__(self) -> None:
        self.reading: Reading | None = None
        self.history = History()
        self.log = EventLog()
        self.key_history: KeyHistory | None = None
        self.changed: set[str] = set()
        """Keys whose token is another one than in the reading before."""

    def take(self, reading: Reading) -> None:
        """The newest reading."""
        leader = serving_reading(reading.nodes, reading.view.leader)
        self.history.add(None if leader is None else sample(leader.facts or {}, leader.facts_ns))
        self.log.add(reading.view, reading.wall_ms)
        if self.key_history is not None and reading.detail is not None:
            self.key_history.add(reading.detail, reading.wall_ms)
        self.changed = _changed(self.reading, reading)
        self.reading = reading

    def watch_key(self, key: str | None) -> None:
        """Begins a key's history anew, or ends it."""
        self.key_history = None if key is None else KeyHistory(key)

    def data_age_ms(self, now_ns: int) -> float | None:
        """How old the leader's facts are; None where there never were any."""
        return None if self.reading is None else age_ms(self.reading.fresh_ns, now_ns)


def is_old(data_age_ms: float | None, interval_s: float) -> bool:
    """Whether that has to be said aloud."""
    return data_age_ms is None or data_age_ms > max(FRESH_MS, 2_500 * interval_s)


def _changed(before: Reading | None, after: Reading) -> set[str]:
    if before is None or before.locks is None or after.locks is None or before.locks is after.locks:
        return set()
    former = {row.key: row.token for row in before.locks.locks}
    return {row.key for row in after.locks.locks if former.get(row.key, row.token) != row.token}
