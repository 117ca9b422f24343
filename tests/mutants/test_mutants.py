"""The planted bugs can still be planted, and the simulator finds those that it finds fast."""

from __future__ import annotations

import pytest

from tests.mutants.copies import ROOT, hunt_for
from tests.mutants.planted import FAST, MUTATIONS, Mutation

BY_NAME = {mutation.name: mutation for mutation in MUTATIONS}
SEEDS = 100
TIMEOUT_S = 240


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_it_can_still_be_planted(mutation: Mutation) -> None:
    text = (ROOT / mutation.file).read_text()
    assert text.count(mutation.old) == 1, "the code has changed: give the planted bug its new text"
    compile(text.replace(mutation.old, mutation.new), mutation.file, "exec")


def test_there_are_enough_and_each_has_a_name_of_its_own() -> None:
    assert len(BY_NAME) == len(MUTATIONS)
    assert len(MUTATIONS) >= 20
    assert BY_NAME.keys() >= set(FAST)


@pytest.mark.slow
@pytest.mark.parametrize("name", FAST)
def test_the_simulator_finds_it(name: str) -> None:
    find = hunt_for(BY_NAME[name], 0, SEEDS - 1, TIMEOUT_S)
    assert find.seed is not None, f"python -m tests.mutants {name}"
