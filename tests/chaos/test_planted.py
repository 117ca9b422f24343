"""The planted bugs fit the tree as it stands; that each is found takes minutes: `python -m tests.chaos.planted`."""

from __future__ import annotations

import pytest

from tests.chaos.planted import PLANTED, SHARED
from tests.mutants.copies import ROOT
from tests.mutants.planted import Mutation


def test_all_that_are_shared_with_the_simulator_are_there() -> None:
    assert set(SHARED) <= {mutation.name for mutation in PLANTED}


@pytest.mark.parametrize("mutation", PLANTED, ids=lambda mutation: mutation.name)
def test_each_text_stands_once(mutation: Mutation) -> None:
    assert (ROOT / mutation.file).read_text().count(mutation.old) == 1
