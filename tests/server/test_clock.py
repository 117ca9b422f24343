"""The elapsed clock, from faked readings."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ticketing.server import clock

US = 1_000
MS = 1_000_000


class Machine:
    """True time, time spent suspended, and the three clocks of Linux; each reading takes as long as told."""

    def __init__(self) -> None:
        self.true = 5 * MS
        self.suspended = 0
        self.slew = 0
        """What the time service has added to MONOTONIC and BOOTTIME alike."""
        self.reading_takes: list[int] = []
        self.readings = 0

    def _read(self) -> None:
        self.readings += 1
        self.true += self.reading_takes.pop(0) if self.reading_takes else 50

    def monotonic(self) -> int:
        self._read()
        return self.true - self.suspended + self.slew

    def raw(self) -> int:
        self._read()
        return self.true - self.suspended

    def boottime(self) -> int:
        self._read()
        return self.true + self.slew

    def suspend(self, ns: int) -> None:
        self.true += ns
        self.suspended += ns


def test_a_reading_is_true_elapsed_time_to_within_the_readings() -> None:
    machine = Machine()
    elapsed_ns = clock.linux_clock(machine.monotonic, machine.raw, machine.boottime)
    first, began = elapsed_ns(), machine.true
    machine.true += 40 * MS
    assert abs((elapsed_ns() - first) - (machine.true - began)) <= 200


def test_time_spent_suspended_counts() -> None:
    machine = Machine()
    elapsed_ns = clock.linux_clock(machine.monotonic, machine.raw, machine.boottime)
    first = elapsed_ns()
    machine.suspend(3_600_000 * MS)
    assert elapsed_ns() - first == pytest.approx(3_600_000 * MS, abs=300)


def test_a_slew_does_not_count() -> None:
    machine = Machine()
    elapsed_ns = clock.linux_clock(machine.monotonic, machine.raw, machine.boottime)
    first = elapsed_ns()
    machine.slew += 30 * MS
    assert elapsed_ns() - first <= 300


def test_a_reading_that_took_100_us_is_read_again() -> None:
    machine = Machine()
    elapsed_ns = clock.linux_clock(machine.monotonic, machine.raw, machine.boottime)
    # The four readings of the first try span exactly 100 us, those of the second 1 ns less.
    machine.reading_takes = [0, 50 * US, 50 * US, 0, 0, 50 * US, 50 * US - 1, 0]
    elapsed_ns()
    assert machine.readings == 8


def test_a_stop_between_two_readings_bends_nothing() -> None:
    machine = Machine()
    elapsed_ns = clock.linux_clock(machine.monotonic, machine.raw, machine.boottime)
    first, began = elapsed_ns(), machine.true
    machine.reading_takes = [0, 0, 0, 700 * MS]
    second = elapsed_ns()
    assert machine.true - began >= 700 * MS
    assert abs((second - first) - (machine.true - began)) <= 300


def test_a_machine_that_is_never_quick_enough_stops_the_node() -> None:
    machine = Machine()
    machine.reading_takes = [100 * US] * (4 * clock.TRIES_MAX)
    elapsed_ns = clock.linux_clock(machine.monotonic, machine.raw, machine.boottime)
    with pytest.raises(clock.ClockUnreadableError, match="100000 ns"):
        elapsed_ns()


def test_a_source_that_goes_back_is_held() -> None:
    raws = iter([1000, 900, 1001])
    elapsed_ns = clock.linux_clock(lambda: 0, lambda: next(raws), lambda: 0)
    assert [elapsed_ns(), elapsed_ns(), elapsed_ns()] == [1000, 1000, 1001]


@settings(max_examples=100)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["run", "suspend", "slew"]),
            st.integers(0, 10**12),
            st.lists(st.integers(0, 60 * US), min_size=4, max_size=4),
        ),
        max_size=20,
    )
)
def test_no_reading_is_newer_than_now_nor_older_than_its_span(
    events: list[tuple[str, int, list[int]]],
) -> None:
    machine = Machine()
    elapsed_ns = clock.linux_clock(machine.monotonic, machine.raw, machine.boottime)
    last = 0
    for kind, amount, takes in events:
        if kind == "run":
            machine.true += amount
        elif kind == "suspend":
            machine.suspend(amount)
        else:
            machine.slew += amount // 1000
        began = machine.true
        machine.reading_takes = list(takes)
        value = elapsed_ns()
        machine.reading_takes = []
        assert began - clock.READ_WITHIN_NS <= value <= machine.true
        assert value >= last
        last = value


@pytest.mark.skipif(sys.platform != "linux", reason="the sum of three clocks is Linux's")
def test_the_clock_of_this_machine_runs() -> None:
    assert clock.SOURCE == "CLOCK_MONOTONIC_RAW + suspend time"
    readings = [clock.elapsed_ns() for _ in range(100)]
    assert readings == sorted(readings)
    assert readings[-1] > readings[0]
