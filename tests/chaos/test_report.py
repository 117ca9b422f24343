"""A run says what was under way while nobody was served for long."""

from __future__ import annotations

from tests.chaos.report import LongGap, Report


def report(*gaps: LongGap) -> Report:
    longest_s = max((gap.seconds for gap in gaps), default=0.0)
    return Report(
        seed=1, nodes=5, minutes=1, version="1", longest_without_grant_s=longest_s, longest_gaps=list(gaps)
    )


def test_a_long_time_without_a_grant_is_printed_with_what_was_struck_then() -> None:
    told = report(LongGap(7.25, 60.5, ["   58.000 isolated leader"]), LongGap(2.0, 90.0, ["   89.000 kill"]))
    lines = told.text().splitlines()
    at = lines.index("  7.25 s from second 60.50 on, of which the log says:")
    assert lines[at + 1] == "       58.000 isolated leader"
    assert not any("kill" in line for line in lines)


def test_a_run_that_says_nothing_new_is_not_kept() -> None:
    assert not report(LongGap(2.9, 1.0, [])).telling
    assert report(LongGap(3.1, 1.0, [])).telling
    broken = report()
    broken.violations.append("one holder")
    assert broken.telling
