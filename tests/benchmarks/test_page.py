"""The page of performance is made from results."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import page, plan
from benchmarks.goals import GOALS
from benchmarks.load.figures import figures
from benchmarks.results import Results


def filled() -> Results:
    """Two rounds of everything, every system as fast as any other."""
    results = Results()
    for act in plan.ACTS.values():
        results.note(act.name, {"redis": "Redis 7"}, 0.05)
        for workload in act.workloads:
            for one in workload.entrants:
                for number in range(2):
                    told = figures([0.001], 1000, 1.0, 10**9, 10**9, 0)
                    results.add_run(act.name, workload.name, *one, number, told)
    for share in plan.OPEN_SHARES:
        for one in plan.OPEN_ENTRANTS:
            told = figures([0.002], 10 * share, 1.0, 0, 0, 0)
            results.add_run("open", f"open-{share}", *one, 0, told, arrivals=100.0 * share)
    results.add_failovers("cluster", "probe", "SIGKILL", [{"gap_s": 0.2, "failed": 0, "lost": 0}] * 3)
    return results


def test_every_block_of_the_page_is_made_and_the_text_between_stays() -> None:
    text = page.PAGE.read_text()
    made = page.with_blocks(text, filled())
    assert page.with_blocks(made, filled()) == made
    for name in page.BLOCKS:
        assert f"<!-- {name}: made by benchmarks.page -->" in made
    assert "## What paid" in made
    assert "Redis 7" in made


def test_plots_have_a_line_for_every_system() -> None:
    systems = {one.system for act in (plan.SINGLE, plan.REPLICATED) for one in act.entrants()}
    assert page.throughput_plot(filled()).count("<polyline") == len(systems)
    assert page.open_loop_plot(filled()).count("<polyline") == len(plan.OPEN_ENTRANTS)


def test_a_page_without_place_for_a_table_is_refused() -> None:
    with pytest.raises(ValueError, match="no place for"):
        page.with_blocks("# Performance\n", filled())


def test_a_block_that_nothing_makes_is_refused() -> None:
    with pytest.raises(ValueError, match="other"):
        page.with_blocks("<!-- other: made by benchmarks.page -->\n<!-- end -->", filled())


def test_goals_are_told_as_met_missed_or_not_measured() -> None:
    results = filled()
    reached = {goal.title: goal.reached(results) for goal in GOALS}
    assert reached["failover, leader's process killed, median"] is True
    assert reached["failover, leader's host cut off, TLS, median"] is None
    assert reached["the same, against etcd with its data in memory"] is False
    assert "missed, by a factor of 10.00" in page.goals(results)


def test_results_come_back_from_their_file(tmp_path: Path) -> None:
    results = filled()
    results.write(tmp_path / "results.json")
    assert Results.read(tmp_path / "results.json").facts == results.facts


def test_trials_of_a_kind_are_replaced_by_new_ones() -> None:
    results = filled()
    for share in plan.OPEN_SHARES:
        for one in plan.OPEN_ENTRANTS:
            told = figures([0.002], 10 * share, 1.0, 0, 0, 0)
            results.add_run("open", f"open-{share}", *one, 0, told, arrivals=100.0 * share)
    results.add_failovers("cluster", "probe", "SIGKILL", [{"gap_s": 0.3, "failed": 1, "lost": 0}])
    assert results.gaps_s("cluster", "probe", "SIGKILL") == [0.3]


def test_without_leaves_a_system_out_of_every_workload() -> None:
    act = plan.SINGLE.without(["redis"])
    assert "redis" in {one.system for one in plan.SINGLE.entrants()}
    assert "redis" not in {one.system for one in act.entrants()}


def test_every_entrant_has_a_client() -> None:
    entrants = [one for act in plan.ACTS.values() for one in act.entrants()]
    for one in [*entrants, *plan.OPEN_ENTRANTS]:
        assert one.client in plan.CLIENTS[one.system]
