"""When the requests of an open loop are due, and a clock that wakes for them."""

from __future__ import annotations

import asyncio
import ctypes
import os
import random
import time
from collections.abc import Callable, Sequence

_CLOCK_MONOTONIC = 1
_TFD_NONBLOCK = os.O_NONBLOCK
_TFD_CLOEXEC = os.O_CLOEXEC
_TFD_TIMER_ABSTIME = 1


def poisson(rate: float, seconds: float, seed: int = 1) -> list[float]:
    """Arrivals of independent callers, `rate` a second on average: seconds from the start, rising.

    They depend on nothing that the system does: a slow answer delays no later request.
    """
    source = random.Random(seed)
    due, at = [], source.expovariate(rate)
    while at < seconds:
        due.append(at)
        at += source.expovariate(rate)
    return due


class _TimeSpec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _TimerSpec(ctypes.Structure):
    _fields_ = (("interval", _TimeSpec), ("value", _TimeSpec))


class Pacer:
    """Calls back at each moment that is due, to some ten µs (timerfd(2)); a loop's own timers know milliseconds.

    What has become due while the loop was busy is called at once, one after the other.
    """

    def __init__(self, due: Sequence[float], call: Callable[[int], None]) -> None:
        """`due` on `time.perf_counter`, rising; `call` gets the number of the moment."""
        self._due = due
        self._call = call
        self._next = 0
        self._loop = asyncio.get_running_loop()
        self.over = self._loop.create_future()
        """Done once the last one was called."""
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._timer = self._libc.timerfd_create(_CLOCK_MONOTONIC, _TFD_NONBLOCK | _TFD_CLOEXEC)
        if self._timer < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self._loop.add_reader(self._timer, self._woken)
        self._arm()

    def _arm(self) -> None:
        if self._next == len(self._due):
            self._loop.remove_reader(self._timer)
            os.close(self._timer)
            self.over.set_result(None)
            return
        nanoseconds = max(1, int(self._due[self._next] * 1e9))
        spec = _TimerSpec(_TimeSpec(0, 0), _TimeSpec(*divmod(nanoseconds, 1_000_000_000)))
        if self._libc.timerfd_settime(self._timer, _TFD_TIMER_ABSTIME, ctypes.byref(spec), None):
            raise OSError(ctypes.get_errno(), "timerfd_settime")

    def _woken(self) -> None:
        os.read(self._timer, 8)
        due, number = self._due, self._next
        now = time.perf_counter()
        while number < len(due) and due[number] <= now:
            self._call(number)
            number += 1
        self._next = number
        self._arm()
