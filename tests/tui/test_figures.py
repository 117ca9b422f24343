from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ticketing.tui.render.figures import bar, count, difference, duration, rate, share, sparkline
from ticketing.tui.render.text import ASCII, UNICODE


@pytest.mark.parametrize(
    ("ms", "shown"),
    [
        (None, "-"),
        (0, "0ms"),
        (999.9, "999ms"),
        (1_000, "1.0s"),
        (9_990, "9.9s"),
        (10_000, "10s"),
        (59_999, "59s"),
        (60_000, "1m00s"),
        (3_599_000, "59m59s"),
        (3_600_000, "1h00m"),
        (86_399_000, "23h59m"),
        (86_400_000, "1d00h"),
        (100 * 86_400_000, "100d"),
        (-0.4, "0ms"),
        (-1_500, "-1.5s"),
    ],
)
def test_durations(ms: float | None, shown: str) -> None:
    assert duration(ms) == shown


@settings(max_examples=100)
@given(st.floats(0, 86_400_000 * 9_999))
def test_no_duration_is_wider_than_its_column(ms: float) -> None:
    assert len(duration(ms)) <= 6


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "-"), (0, "0"), (1_000, "1,000"), (999_999, "999,999"), (1_200_000, "1.2M"), (7 * 10**9, "7.0G")],
)
def test_counts(value: int | None, shown: str) -> None:
    assert count(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "-"), (0.0, "0"), (0.25, "0.2"), (9.94, "9.9"), (12.4, "12"), (12_345.6, "12,346")],
)
def test_rates(value: float | None, shown: str) -> None:
    assert rate(value) == shown


def test_shares_and_clock_differences() -> None:
    assert share(None) == "-"
    assert share(0.074) == "7%"
    assert difference(None, None, UNICODE) == "-"
    assert difference(1.25, 0.31, UNICODE) == "+1.2±0.3"
    assert difference(-412.0, 0.5, ASCII) == "-412.0+-0.5"
    assert difference(0.0, None, UNICODE) == "+0.0"


@pytest.mark.parametrize(
    ("fraction", "shown"),
    [
        (None, "    "),
        (0.0, "░░░░"),
        (0.001, "▏░░░"),
        (0.5, "██░░"),
        (0.99, "███▉"),
        (0.9999, "███▉"),
        (1.0, "████"),
        (7.0, "████"),
        (-1.0, "░░░░"),
    ],
)
def test_bars(fraction: float | None, shown: str) -> None:
    assert bar(fraction, 4, UNICODE) == shown


def test_bars_in_ascii() -> None:
    assert bar(0.5, 4, ASCII) == "##.."
    assert bar(0.01, 4, ASCII) == "#..."
    assert bar(0.5, 0, ASCII) == ""


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ([], "     "),
        ([0.0, 0.0], "   ▁▁"),
        ([0.0, 1.0, 2.0], "  ▁▅█"),
        ([5.0, None, 5.0], "  █ █"),
        ([0.0, 0.001, 100.0], "  ▁▂█"),
        ([9.0, 1.0, 1.0, 1.0, 1.0, 1.0], "█████"),
    ],
)
def test_sparklines_show_the_newest_at_the_right(values: list[float | None], shown: str) -> None:
    assert sparkline(values, 5, UNICODE) == shown
