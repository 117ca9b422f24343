"""Random lives of a cluster; each replays from its seed: `Chaos(seed).run()`."""

import pytest

from tests.raft.chaos import Chaos

SEEDS = 300


@pytest.mark.parametrize("first", range(0, SEEDS, 20))
def test_whatever_happens_nothing_decided_is_lost_and_peace_brings_a_leader(first: int) -> None:
    for seed in range(first, first + 20):
        try:
            Chaos(seed).run()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
