"""docs/field-reports.md and docs/guarantees.md: every test that they name exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
DOCS = TESTS.parent / "docs"
NAMED = re.compile(r"`((?:\w+/)+\w+\.py)::(\w+)`")


def missing(text: str) -> list[str]:
    """What is named and is not there."""
    found = []
    for file, start in NAMED.findall(text):
        path = TESTS / file
        begin = "async def " if file.startswith("conformance/scenarios/") else "def test_"
        if not path.exists() or f"{begin}{start}" not in path.read_text(encoding="utf-8"):
            found.append(f"{file}::{start}")
    return found


@pytest.mark.parametrize("page", ["field-reports.md", "guarantees.md"])
def test_every_test_that_a_page_names_exists(page: str) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    assert len(NAMED.findall(text)) > 40
    assert missing(text) == []


def test_a_test_that_is_not_there_is_noticed() -> None:
    assert missing("`client/test_lease.py::nobody_wrote_this`, `nowhere/test_lease.py::an_n`") == [
        "client/test_lease.py::nobody_wrote_this",
        "nowhere/test_lease.py::an_n",
    ]


def test_every_report_has_its_source_its_answer_and_a_test() -> None:
    rows = re.findall(
        r"^\| (F\d{3}) \|(.*)\|$", (DOCS / "field-reports.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    numbers = [number for number, _ in rows]
    assert len(numbers) == len(set(numbers)) == 107
    for number, row in rows:
        _, reports, here, shown = row.split(" | ")
        assert re.match(r"\[[\w.-]+/[\w.-]+#\d+\]\(https://github.com/", reports.strip()), number
        assert here.strip(), number
        assert NAMED.search(shown), number
