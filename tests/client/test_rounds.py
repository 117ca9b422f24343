"""Thousands of random rounds: no stuck key, no lost grant, no exception that nobody fetched, no task left."""

from __future__ import annotations

import pytest

from tests.client.rounds import storm


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_whoever_leaves_and_whatever_breaks_nothing_stays_behind(seed: int) -> None:
    outcomes = await storm(1500, seed)
    assert sum(count for name, count in outcomes.items() if not name.startswith("extension")) >= 1400
    for name in ("held", "left", "indeterminate", "timeout"):
        assert outcomes[name] > 3, outcomes


async def test_with_threads_that_have_no_loop_among_them() -> None:
    outcomes = await storm(800, 4, threads=2)
    assert outcomes["held"] > 20, outcomes
