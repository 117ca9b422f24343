"""The elapsed clock of this machine (spec, Words): true elapsed time, bent by neither step, slew nor suspend.

On Linux CLOCK_MONOTONIC_RAW, which is not slewed, plus the time spent suspended, which is CLOCK_BOOTTIME less
CLOCK_MONOTONIC. Elsewhere the nearest there is: CLOCK_MONOTONIC_RAW on macOS, where it runs on during sleep;
`time.monotonic_ns` on other systems, which may be slewed and may stand still during sleep.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial

SECOND = 1_000_000_000
MILLISECOND = 1_000_000

_SPAN_MAX_NS = 100_000
_READINGS_MAX = 1_000

Clock = Callable[[], int]
"""Nanoseconds, never going back."""


def sum_clock(monotonic: Clock, raw: Clock, boottime: Clock) -> Clock:
    """The elapsed clock made of the three clocks of Linux.

    A stop of this thread between two of the readings would bend the sum, so they are made anew until they lie
    within 100 µs. A client on a machine too busy for that goes on with the greatest suspend time it has seen:
    BOOTTIME less a MONOTONIC read after it never exceeds the true one, so no value is ever ahead of now.
    """
    suspended = -(1 << 63)
    last = -(1 << 63)

    def elapsed_ns() -> int:
        nonlocal suspended, last
        readings = 0
        while True:
            before = monotonic()
            value = raw()
            boot = boottime()
            after = monotonic()
            if boot - after > suspended:
                suspended = boot - after
            if after - before < _SPAN_MAX_NS or readings == _READINGS_MAX:
                break
            readings += 1
        value += suspended
        if value > last:
            last = value
        return last

    return elapsed_ns


def _this_machine() -> Clock:
    if sys.platform == "linux":
        read = time.clock_gettime_ns
        return sum_clock(
            time.monotonic_ns,  # CLOCK_MONOTONIC
            partial(read, time.CLOCK_MONOTONIC_RAW),
            partial(read, time.CLOCK_BOOTTIME),
        )
    elif sys.platform == "darwin":
        return partial(time.clock_gettime_ns, time.CLOCK_MONOTONIC_RAW)
    else:
        return time.monotonic_ns


elapsed_ns = _this_machine()
