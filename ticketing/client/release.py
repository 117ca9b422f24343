"""Errands: releases, extensions and cancels, each tried again until it is answered or its time is over.

All three may be repeated without harm: they name an exact token, or an owner that is never used again. The time is
absolute, five seconds from the call, whatever happens in between; one try has at most 1.5 s. A release nobody waits
for, a compensation, is an errand like any other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ticketing.client.alarm import NEVER, Alarm
from ticketing.client.clock import SECOND
from ticketing.client.requests import UNANSWERED, Errand
from ticketing.protocol.frames import NOT_HELD, RELEASE

if TYPE_CHECKING:
    from ticketing.client.cluster import Cluster

ERRAND_NS = 5 * SECOND
ERRANDS_MAX = 65_536
_SCAN_NS = 2_000
"""Alarms keep this distance for each errand that is looked at, so looking takes a small share of the time."""


class _Watch:
    """Somebody who waits for the answers to certain errands."""

    __slots__ = ("_left", "future")

    def __init__(self, loop: asyncio.AbstractEventLoop, errands: Iterable[Errand]) -> None:
        self._left = dict.fromkeys(errands)
        self.future: asyncio.Future[bool] = loop.create_future()

    def ended(self, errand: Errand, outcome: int) -> None:
        """One was answered, or never will be."""
        if errand not in self._left:
            return
        del self._left[errand]
        if outcome == UNANSWERED:
            self.end(False)
        elif not self._left:
            self.end(True)

    def end(self, result: bool) -> None:
        """Tells."""
        if not self.future.done():
            self.future.set_result(result)


class Errands:
    """The bounded queue of a cluster's errands."""

    __slots__ = ("_alarm", "_cluster", "_idle", "_open", "_stopped", "_waiting", "_watches")

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._open: dict[Errand, None] = {}
        self._waiting: dict[Errand, None] = {}
        """Those of `_open` that have no session at the moment."""
        self._alarm = Alarm(cluster.loop, cluster.clock, self._look)
        self._idle: asyncio.Future[None] | None = None
        self._stopped = False
        self._watches: list[_Watch] = []

    def __len__(self) -> int:
        return len(self._open)

    def run(self, errand: Errand, now: int = 0) -> bool:
        """Takes an errand; False where the queue is full. `now` may give a reading made just before."""
        if len(self._open) >= ERRANDS_MAX or self._stopped:
            return False
        self._open[errand] = None
        if errand.deadline_ns < self._alarm.at_ns:
            self._alarm.by(errand.deadline_ns)
        self._send(errand, now)
        return True

    def adopt(self, errand: Errand) -> bool:
        """Takes an errand that somebody else puts on a session, for the time after that."""
        if len(self._open) >= ERRANDS_MAX or self._stopped:
            return False
        self._open[errand] = None
        self._alarm.by(errand.deadline_ns)
        return True

    def _send(self, errand: Errand, now: int = 0) -> None:
        cluster = self._cluster
        if errand.domain != cluster.domains.current and cluster.domains.is_over(errand.domain):
            # No domain ever comes back: nothing of it is held.
            self.answered(errand, NOT_HELD)
            return
        session = cluster.errand_session(errand.opcode != RELEASE)
        if session is None:
            self._waiting[errand] = None
        else:
            session.submit(errand, now)

    def pump(self) -> None:
        """Something about sessions has changed."""
        if not self._waiting or self._cluster.errand_session(False) is None:
            return
        waiting, self._waiting = self._waiting, {}
        for errand in waiting:
            self._send(errand)

    def domain_changed(self) -> None:
        """Ends what belongs to the domain that is over."""
        for errand in [errand for errand in self._open if self._cluster.domains.is_over(errand.domain)]:
            self.answered(errand, NOT_HELD)

    def answered(self, errand: Errand, outcome: int) -> None:
        """Ends an errand."""
        if errand.over:
            return
        errand.over = True
        self._open.pop(errand, None)
        if self._waiting:
            self._waiting.pop(errand, None)
        if errand.session is not None and outcome == UNANSWERED:
            errand.session.forget(errand)
        errand.session = None
        if errand.done is not None:
            errand.done(errand, outcome)
        for watch in self._watches:
            watch.ended(errand, outcome)
        if not self._open and self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    def back(self, errand: Errand) -> None:
        """A try came to nothing."""
        if not errand.over:
            self._send(errand)

    def _look(self, now: int) -> None:
        earliest = NEVER
        over = []
        for errand in self._open:
            if now >= errand.deadline_ns:
                over.append(errand)
            elif errand.deadline_ns < earliest:
                earliest = errand.deadline_ns
        for errand in over:
            self.answered(errand, UNANSWERED)
        if self._open:
            self._alarm.by(max(earliest, now + _SCAN_NS * len(self._open)))

    async def drained(self) -> None:
        """Returns when nothing is open; errands that are taken meanwhile count."""
        while self._open:
            if self._idle is None or self._idle.done():
                self._idle = self._cluster.loop.create_future()
            # Shared: one who waits no longer must not end it for the others.
            await asyncio.shield(self._idle)

    async def settled(self, timeout_s: float) -> bool:
        """Whether all errands that are open now are answered within the timeout."""
        if not self._open:
            return True
        watch = _Watch(self._cluster.loop, self._open)
        self._watches.append(watch)
        timer = self._cluster.loop.call_later(timeout_s, watch.end, False)
        try:
            return await watch.future
        finally:
            timer.cancel()
            self._watches.remove(watch)

    def stop(self) -> None:
        """Ends what is left without an answer, and takes no more."""
        self._stopped = True
        for errand in list(self._open):
            self.answered(errand, UNANSWERED)
        self._alarm.stop()
