"""What the desks of this process have counted, one lead after another."""

from __future__ import annotations

from ticketing.locks.desk import Desk
from ticketing.locks.durations import Durations
from ticketing.locks.figures import new_counters


class LockFigures:
    """Lent to each desk, so that what is shown never falls while the process lives."""

    __slots__ = ("counters", "holds", "waits")

    def __init__(self) -> None:
        self.counters = new_counters()
        """By reason, see `ticketing.locks.figures`."""
        self.waits = Durations()
        self.holds = Durations()

    def lend(self, desk: Desk) -> None:
        """This desk counts here from now on."""
        desk.counters = self.counters
        desk.waits = self.waits
        desk.holds = self.holds
