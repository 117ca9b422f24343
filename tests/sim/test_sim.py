"""As many runs as the time of a test allows; `python -m tests.sim` goes through any number."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.sim.__main__ import run_seed

SEEDS = 40
SLICES = 8


@pytest.mark.slow
@pytest.mark.parametrize("part", range(SLICES))
def test_no_seed_breaks_a_promise(part: int) -> None:
    for seed in range(part, SEEDS, SLICES):
        result = run_seed(seed)
        assert not result.failure, f"python -m tests.sim --seed {seed} --log: {result.failure}"


def test_runs_see_grants_leaders_and_snapshots() -> None:
    results = [run_seed(seed) for seed in (1, 4, 8)]
    assert all(result.leads for result in results)
    assert any(result.grants for result in results)


@pytest.mark.slow
def test_a_seed_is_a_run_byte_for_byte_whatever_the_hash_seed() -> None:
    def digest(hash_seed: str) -> str:
        command = [sys.executable, "-m", "tests.sim", "--seed", "7", "--digest"]
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        return done.stdout.splitlines()[0]

    first, second = digest("1"), digest("2")
    assert first.startswith("digest ")
    assert first == second
