"""One timer for many deadlines: whoever has deadlines asks to be woken by the earliest, and then looks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ticketing.client.clock import SECOND, Clock

NEVER = 1 << 62
"""Later than any reading of the clock."""


class Alarm:
    """Calls back at or after a moment of the elapsed clock. Asking for an earlier moment moves it forward.

    The loop's own clock may stand still while the machine is suspended; the owner of the alarm judges its
    deadlines by the elapsed clock whenever it is woken.
    """

    __slots__ = ("_callback", "_clock", "_handle", "_loop", "at_ns")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, clock: Clock, callback: Callable[[int], None]
    ) -> None:
        """`callback` is given a reading of the clock; it sets the alarm again where it still needs one."""
        self._loop = loop
        self._clock = clock
        self._callback = callback
        self._handle: asyncio.TimerHandle | None = None
        self.at_ns = NEVER

    def by(self, deadline_ns: int) -> None:
        """Be woken by then, or earlier."""
        if deadline_ns >= self.at_ns:
            return
        if self._handle is not None:
            self._handle.cancel()
        self.at_ns = deadline_ns
        delay = max(0, deadline_ns - self._clock()) / SECOND
        self._handle = self._loop.call_later(delay, self._fire)

    def _fire(self) -> None:
        self._handle = None
        deadline, self.at_ns = self.at_ns, NEVER
        now = self._clock()
        if now < deadline:
            self.by(deadline)
        else:
            self._callback(now)

    def stop(self) -> None:
        """Forget the deadline."""
        self.at_ns = NEVER
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
