"""How durations are counted, and what the desk counts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.locks.desk_bench import MS, Bench, S, clients
from ticketing.locks.commands import Revoke, Turn
from ticketing.locks.durations import BOUNDS_S, CLASSES, Durations


@given(st.lists(st.integers(-(1 << 70), 1 << 70), max_size=30))
def test_every_duration_is_counted_once_below_the_bounds_that_it_is_below(values: list[int]) -> None:
    durations = Durations()
    for value in values:
        durations.add(value)
    cumulative = durations.cumulative()
    assert len(cumulative) == CLASSES == len(BOUNDS_S) + 1
    assert cumulative[-1] == len(values)
    assert durations.sum_ns == sum(max(value, 0) for value in values)
    for bound_s, below in zip(BOUNDS_S, cumulative, strict=False):
        assert below == sum(value < bound_s * S for value in values)


def test_the_classes_reach_from_an_eighth_of_a_millisecond_beyond_the_longest_wait() -> None:
    assert BOUNDS_S[0] == 0.000125
    assert BOUNDS_S[-1] > 255 / 2
    assert BOUNDS_S[-1] * 2 > 255


def counted(durations: Durations) -> tuple[int, int]:
    return durations.cumulative()[-1], durations.sum_ns


def test_the_wait_of_a_grant_and_the_hold_of_what_ends_are_counted() -> None:
    bench = Bench()
    a, b = clients("ab")
    token = bench.hold(a, 1)
    assert counted(bench.desk.waits) == (1, 0)
    bench.ask(b, 2)
    bench.now += 70 * MS
    bench.release(a, token)
    bench.turn()
    assert counted(bench.desk.waits) == (2, 70 * MS)
    assert counted(bench.desk.holds) == (1, 70 * MS)
    bench.now += 30 * MS
    bench.release(b, token + 1)
    bench.turn()
    assert counted(bench.desk.holds) == (2, 100 * MS)


def test_a_revocation_ends_a_hold_and_a_vain_one_ends_none() -> None:
    bench = Bench()
    (a,) = clients("a")
    token = bench.hold(a, 1)
    bench.now += 5 * MS
    for number in (token + 1, token):
        bench.desk.revoke(
            Revoke(f"id-{number}", Turn(b"k", number), "ops", ""), lambda _outcome: None, bench.now
        )
        bench.turn()
    assert counted(bench.desk.holds) == (1, 5 * MS)


def test_the_queue_of_a_key_is_read_page_by_page_in_its_order() -> None:
    bench = Bench()
    a, b = clients("ab")
    bench.hold(a, 1)
    for owner in range(2, 7):
        bench.now += MS
        bench.ask(b, owner)
    desk = bench.desk
    first = desk.queue_page(b"k", None, 2)
    assert [view.owner & 7 for view in first.queue] == [2, 3]
    assert first.more
    last = first.queue[-1]
    rest = desk.queue_page(b"k", (last.since_ns, last.owner), 10)
    assert [view.owner & 7 for view in rest.queue] == [4, 5, 6]
    assert not rest.more
    assert desk.waiting_for(b"k") == 5
    assert desk.queue_page(b"free", None, 10).queue == ()


def test_a_page_goes_on_where_it_was_although_its_last_waiter_has_left() -> None:
    bench = Bench()
    a, b, c = clients("abc")
    bench.hold(a, 1)
    bench.ask(b, 2)
    bench.ask(c, 3)
    bench.ask(b, 4)
    page = bench.desk.queue_page(b"k", None, 2)
    last = page.queue[-1]
    bench.now += MS
    bench.ask(b, 5)
    bench.desk.session_ended(c, bench.now)
    rest = bench.desk.queue_page(b"k", (last.since_ns, last.owner), 10)
    assert [view.owner & 7 for view in rest.queue] == [2, 4, 5], (
        "read in one moment: told twice, never left out"
    )
