"""The elapsed clock of this machine (spec, Words): true elapsed time, bent by neither step, slew nor suspend.

Linux has no single clock of this kind. CLOCK_MONOTONIC_RAW is not slewed but stops while the machine is
suspended; CLOCK_BOOTTIME less CLOCK_MONOTONIC is the time spent suspended (both are slewed alike, so their
difference is not). The sum of the two is what we want, read as MONOTONIC, RAW, BOOTTIME, MONOTONIC.

Elsewhere the nearest there is: on macOS CLOCK_MONOTONIC_RAW, which is not slewed and runs on during sleep;
on other systems `time.monotonic_ns`, which may be slewed by the time service and may stand still during
sleep.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial

READ_WITHIN_NS = 100_000
"""The four readings of one value lie within this span, so no reading is further than this from the truth."""

TRIES_MAX = 10_000
"""At least a second of trying: a machine that never gets four readings done in time cannot run a node."""


class ClockUnreadableError(RuntimeError):
    """No reading of the elapsed clock came about within its span; every promise about leases would be a
    guess.
    """


def linux_clock(
    monotonic: Callable[[], int], raw: Callable[[], int], boottime: Callable[[], int]
) -> Callable[[], int]:
    """The elapsed clock made of three clocks, each a function that returns nanoseconds.

    BOOTTIME less the MONOTONIC read after it is never more than the time truly suspended, so the greatest
    such difference seen is the best one. Kept, it makes a value never newer than the moment it is returned,
    and it absorbs the stop of a thread between two of the readings. The clock raises `ClockUnreadableError`
    when `TRIES_MAX` tries all took too long.
    """
    suspended = -(1 << 63)
    last = -(1 << 63)

    def elapsed_ns() -> int:
        nonlocal suspended, last
        tries = 1
        before = monotonic()
        value = raw()
        boot = boottime()
        after = monotonic()
        while after - before >= READ_WITHIN_NS:
            if tries == TRIES_MAX:
                raise ClockUnreadableError(
                    f"{TRIES_MAX} readings of the elapsed clock each took longer than {READ_WITHIN_NS} ns"
                )
            tries += 1
            before = monotonic()
            value = raw()
            boot = boottime()
            after = monotonic()
        if boot - after > suspended:
            suspended = boot - after
        value += suspended
        # RAW never goes back; this holds the promise should a kernel or another thread break it.
        if value < last:
            return last
        last = value
        return value

    return elapsed_ns


def _this_machine() -> tuple[Callable[[], int], str]:
    if sys.platform == "linux":
        read = time.clock_gettime_ns
        clock = linux_clock(
            time.monotonic_ns,  # the same clock, sooner read
            partial(read, time.CLOCK_MONOTONIC_RAW),
            partial(read, time.CLOCK_BOOTTIME),
        )
        return clock, "CLOCK_MONOTONIC_RAW + suspend time"
    elif sys.platform == "darwin":
        return partial(time.clock_gettime_ns, time.CLOCK_MONOTONIC_RAW), "CLOCK_MONOTONIC_RAW"
    else:
        return time.monotonic_ns, "time.monotonic_ns"


elapsed_ns, SOURCE = _this_machine()
"""`elapsed_ns() -> int`: a fresh reading in nanoseconds, never going back. `SOURCE` says what it is made
of."""
