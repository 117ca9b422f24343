"""The faults of the list can still be planted; `python -m tests.conformance.planted` shows that each is noticed."""

from __future__ import annotations

import pytest

from tests.conformance.library import PROJECT
from tests.conformance.planted import PLANTED, Planted


@pytest.mark.parametrize("fault", PLANTED, ids=lambda fault: fault.name)
def test_it_can_still_be_planted(fault: Planted) -> None:
    text = (PROJECT / fault.file).read_text()
    assert text.count(fault.old) == 1, "the code has changed: give the fault its new text"
    compile(text.replace(fault.old, fault.new), fault.file, "exec")


def test_each_has_a_name_of_its_own() -> None:
    assert len({fault.name for fault in PLANTED}) == len(PLANTED) >= 35
