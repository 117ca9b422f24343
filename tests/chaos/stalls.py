"""When the machine served somebody else: what stood still then is no fault of the cluster's."""

from __future__ import annotations

import threading
import time
from types import TracebackType

EVERY_S = 0.05
STALL_S = 0.3
"""What is shorter is told of in no report."""


class Stalls:
    """A thread that sleeps and looks how late it wakes, as long as the block lasts."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, float]] = []
        """When it was to wake, and how late it did."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="stalls", daemon=True)

    def __enter__(self) -> Stalls:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.is_set():
            due = time.monotonic() + EVERY_S
            self._over.wait(EVERY_S)
            late_s = time.monotonic() - due
            if late_s > STALL_S:
                self.seen.append((due, late_s))

    def within(self, begin: float, end: float) -> float:
        """How many seconds of that time are known as stalls."""
        return sum(max(0.0, min(end, due + late_s) - max(begin, due)) for due, late_s in self.seen)

    @property
    def longest_s(self) -> float:
        return max((late_s for _, late_s in self.seen), default=0.0)
