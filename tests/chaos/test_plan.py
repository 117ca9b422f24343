"""The schedule: its seed alone decides it, and it never takes more states than the domain survives."""

from __future__ import annotations

from itertools import islice

import pytest

from tests.chaos.faults import FAULTS
from tests.chaos.plan import LOSES_STATE, SHORT, WEIGHTS, Plan, Round


def rounds(plan: Plan, count: int) -> list[Round]:
    return list(islice(iter(plan.next_round, None), count))


@pytest.mark.parametrize("nodes", [3, 5])
def test_the_same_seed_is_the_same_schedule(nodes: int) -> None:
    assert rounds(Plan(7, nodes), 200) == rounds(Plan(7, nodes), 200)
    assert rounds(Plan(7, nodes), 20) != rounds(Plan(8, nodes), 20)


@pytest.mark.parametrize("nodes", [3, 5])
def test_one_fault_of_a_round_at_most_ends_processes(nodes: int) -> None:
    for seed in range(50):
        for planned in rounds(Plan(seed, nodes), 50):
            lossy = [fault.kind for fault in planned.faults if fault.kind in LOSES_STATE]
            assert len(lossy) <= 1, planned
            assert nodes == 5 or "kill_two" not in lossy, planned


def test_every_kind_of_fault_can_be_carried_out_and_comes_up() -> None:
    assert set(WEIGHTS) == set(FAULTS)
    drawn = {fault.kind for planned in rounds(Plan(1, 5), 400) for fault in planned.faults}
    assert drawn == set(WEIGHTS)


def test_a_short_run_has_the_telling_faults_first_and_none_that_lasts() -> None:
    planned = rounds(Plan(1, 3, longest_s=4.0, kinds=SHORT), 100)
    assert all(
        kind in {fault.kind for fault in one.faults} for kind, one in zip(SHORT, planned, strict=False)
    )
    assert max(fault.for_s for one in planned for fault in one.faults) <= 4.0
