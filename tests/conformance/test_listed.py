"""docs/conformance.md names every scenario, and no other."""

from __future__ import annotations

from tests.conformance.listed import BEGIN, PAGE, listed
from tests.conformance.scenarios import SCENARIOS, SUBJECTS


def test_the_page_has_the_list_as_it_is() -> None:
    _, begin, told = PAGE.read_text().partition(BEGIN)
    assert begin
    assert told.strip() == listed().strip(), "write it anew: python -m tests.conformance.listed"


def test_every_subject_is_on_the_list() -> None:
    names = {subject.__name__.rpartition(".")[2] for subject in SUBJECTS}
    assert {scenario.subject for scenario in SCENARIOS} == names
    assert all(scenario.clause for scenario in SCENARIOS)
