"""As many runs as the time of a test allows; `python -m tests.sim` goes through any number."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.sim.campaign import Campaign
from tests.sim.record import Record
from tests.sim.run import run_seed

SEEDS = 2_000
JOBS = 2
MINUTES = 3.0
"""Where the machine is so busy that the seeds take longer, those that were run have to do."""
SEEDS_LEAST = 200


@pytest.mark.slow
def test_no_seed_breaks_a_promise() -> None:
    broken: list[str] = []
    campaign = Campaign(Record(), None, say=broken.append)
    campaign.run(0, SEEDS - 1, jobs=JOBS, minutes=MINUTES)
    print(campaign.own)
    assert not broken, "python -m tests.sim --seed N"
    assert campaign.own.count >= SEEDS_LEAST


def test_runs_see_what_they_are_for() -> None:
    results = [run_seed(seed) for seed in range(1, 25)]
    assert sum(result.grants for result in results) > 200
    assert sum(result.leads for result in results) > 2 * len(results)
    assert any(result.conflicts for result in results)
    assert any(result.changes for result in results)
    assert any(result.snapshots for result in results)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [7, 32])
def test_a_seed_is_a_run_byte_for_byte_whatever_the_hash_seed(seed: int) -> None:
    def digest(hash_seed: str) -> str:
        command = [sys.executable, "-m", "tests.sim", "--seed", str(seed), "--no-log", "--digest"]
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        return done.stdout.splitlines()[0]

    first, second = digest("1"), digest("2")
    assert first.startswith("digest ")
    assert first == second
