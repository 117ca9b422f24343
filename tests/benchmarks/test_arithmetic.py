"""What the figures of a benchmark are made of."""

from __future__ import annotations

import asyncio
import itertools
import time

import pytest

from benchmarks.figures import percentile
from benchmarks.load.arrivals import Pacer, poisson
from benchmarks.load.figures import figures
from benchmarks.load.order import Order
from benchmarks.load.outage import longest_gap
from benchmarks.plan import CLUSTER, NULL
from benchmarks.plot import Line, plot, short, spread, ticks
from benchmarks.results import Results


def test_a_percentile_is_the_nearest_rank() -> None:
    hundred = [float(number) for number in range(1, 101)]
    assert percentile(hundred, 0.5) == 51
    assert percentile(hundred, 0.99) == 100
    assert percentile([7.0], 0.999) == 7
    assert percentile([3.0, 1.0, 2.0], 0.0) == 1


def test_figures_are_told_a_pair_and_in_microseconds() -> None:
    told = figures([0.001, 0.003], 2, 0.5, server_ns=40_000, client_ns=10_000, overtaken=1)
    assert (told["rate"], told["p50_us"], told["max_us"]) == (4.0, 3000.0, 3000.0)
    assert (told["server_cpu_us"], told["client_cpu_us"], told["overtaken"]) == (20.0, 5.0, 1)


def test_a_run_without_a_pair_has_no_figures() -> None:
    with pytest.raises(RuntimeError, match="no pair"):
        figures([], 0, 1.0, 0, 0, 0)


def test_arrivals_come_at_the_rate_and_in_the_same_way_each_time() -> None:
    due = poisson(1000, 20)
    assert due == poisson(1000, 20) == sorted(due)
    assert due != poisson(1000, 20, seed=2)
    assert len(due) == pytest.approx(20_000, rel=0.03)
    assert due[0] > 0
    assert due[-1] < 20
    gaps = [after - before for before, after in itertools.pairwise(due)]
    # Independent arrivals: the share of gaps above the mean is 1/e.
    assert sum(gap > 0.001 for gap in gaps) / len(gaps) == pytest.approx(0.368, abs=0.02)


async def test_a_stalled_loop_is_told_of_all_that_was_due_meanwhile_and_nothing_is_early() -> None:
    start = time.perf_counter() + 0.01
    due = [start + number / 1000 for number in range(20)]
    called: list[tuple[int, float]] = []

    def call(number: int) -> None:
        called.append((number, time.perf_counter()))
        if number == 3:
            time.sleep(0.03)

    await asyncio.wait_for(Pacer(due, call).over, 10)
    assert [number for number, _ in called] == list(range(20))
    assert all(at >= due[number] for number, at in called)


def test_a_grant_that_overtakes_an_earlier_request_is_counted() -> None:
    order = Order()
    first, second, third = order.asked(), order.asked(), order.asked()
    order.granted(second)
    assert order.overtaken == 1
    order.granted(first)
    order.granted(third)
    assert order.overtaken == 1


def test_an_outage_lasts_from_the_last_grant_before_to_the_first_one_after() -> None:
    granted = [*(number / 100 for number in range(100)), 1.35, 1.36, 1.37]
    assert longest_gap(granted, struck=1.0) == pytest.approx(0.36)
    # What was slow long before the strike is none of it.
    assert longest_gap([0.1, 0.9, 0.99, 1.01, 1.02], struck=1.0) == pytest.approx(0.02)


def test_ratios_are_taken_within_a_round() -> None:
    results = Results()
    for number, (ours, null) in enumerate([(50.0, 100.0), (8.0, 10.0), (60.0, 100.0)]):
        for entrant, rate in ((CLUSTER, ours), (NULL, null)):
            told = figures([0.1], 10, 10 / rate, 0, 0, 0)
            results.add_run("ours", "own-64", *entrant, number, told)
    assert results.ratio("ours", "own-64", CLUSTER, NULL, "rate") == pytest.approx(0.6)
    assert results.median_of(("single", "ours"), "own-64", CLUSTER, "rate") == 50
    assert results.ratio("ours", "own-1", CLUSTER, NULL, "rate") is None
    results.forget("ours")
    assert results.median_of(("ours",), "own-64", CLUSTER, "rate") is None


def test_axes_have_ticks_within_their_range() -> None:
    assert ticks(80, 1200) == [100, 200, 500, 1000]
    assert [short(value) for value in (0.5, 200, 1000, 2_500_000)] == ["0.5", "200", "1k", "2.5M"]


def test_names_of_lines_that_end_together_do_not_cover_each_other() -> None:
    assert spread([30, 10, 12, 11], 5) == [30, 10, 20, 15]


def test_a_plot_names_its_lines_and_escapes_them() -> None:
    picture = plot(
        "t", "x", "y", [Line("a<b", [(1, 10), (64, 1000)]), Line("c", [(1, 20), (64, 20)], dashed=True)]
    )
    assert "a&lt;b" in picture
    assert picture.count("<polyline") == 2
    assert picture.count("stroke-dasharray") == 1
