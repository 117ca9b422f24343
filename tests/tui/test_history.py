from __future__ import annotations

import pytest

from ticketing.tui.history import POINTS_MAX, History, Sample, Waits, percentile, sample, waits_of

S = 1_000_000_000


def read(at_s: float, granted: int, *, lead: str = "a", waits: tuple[int, ...] | None = None) -> Sample:
    histogram = None if waits is None else Waits((1.0, 10.0, 100.0), waits)
    return Sample(lead, int(at_s * S), {"lock_granted": granted, "lock_timeout": 0}, 5, histogram)


def test_rates_are_differences_over_the_time_between() -> None:
    history = History()
    history.add(read(0, 100))
    assert history.latest("grants") is None, "one reading makes no rate"
    history.add(read(2, 150))
    assert history.latest("grants") == 25
    assert history.latest("timeouts") == 0
    assert history.latest("busy") is None, "what no node counts is unknown, not zero"


def test_another_lead_begins_anew_instead_of_falling() -> None:
    history = History()
    history.add(read(0, 1_000))
    history.add(read(1, 10, lead="b"))
    assert history.latest("grants") is None
    history.add(read(2, 20, lead="b"))
    assert history.latest("grants") == 10


def test_without_a_leader_the_course_has_a_gap() -> None:
    history = History()
    history.add(read(0, 0))
    history.add(read(1, 5))
    history.add(None)
    history.add(read(2, 7))
    assert list(history.series["grants"]) == [None, 5, None, None]


def test_the_same_reading_twice_counts_once() -> None:
    history = History()
    history.add(read(0, 0))
    history.add(read(1, 5))
    history.add(read(1, 5))
    assert list(history.series["grants"]) == [None, 5]


def test_courses_are_bounded() -> None:
    history = History()
    for n in range(POINTS_MAX + 50):
        history.add(read(n, n))
    assert len(history.series["grants"]) == POINTS_MAX


@pytest.mark.parametrize(
    ("counts", "share", "value"),
    [
        ((0, 0, 0, 0), 0.5, None),
        ((10, 0, 0, 0), 0.5, 0.5),
        ((5, 5, 0, 0), 0.5, 1.0),
        ((0, 10, 0, 0), 0.5, 5.5),
        ((0, 0, 0, 4), 0.99, 100.0),
        ((90, 0, 10, 0), 0.99, 91.0),
    ],
)
def test_percentiles(counts: tuple[int, ...], share: float, value: float | None) -> None:
    assert percentile((1.0, 10.0, 100.0), counts, share) == value


def test_percentiles_are_over_the_last_ten_seconds() -> None:
    history = History()
    for n in range(30):
        slow = 0 if n < 15 else (n - 14)
        history.add(read(n, 0, waits=(10 * min(n, 15), 0, 10 * slow, 0)))
    assert history.latest("p50") == pytest.approx(55)


def test_a_histogram_of_another_shape_is_unknown() -> None:
    assert waits_of(None) is None
    assert waits_of({"bounds_ms": [1], "counts": [1]}) is None
    assert waits_of({"bounds_ms": [1], "counts": [1, "x"]}) is None
    assert waits_of({"bounds_ms": [1.5], "counts": [1, 2]}) == Waits((1.5,), (1, 2))


def test_a_sample_names_the_lead_that_counted() -> None:
    facts = {"incarnation": "7", "raft": {"term": "4"}, "counters": {"lock_granted": 3, "other": 1}}
    taken = sample(facts, 9)
    assert (taken.lead, taken.counters, taken.waits) == ("7/4", {"lock_granted": 3}, None)
