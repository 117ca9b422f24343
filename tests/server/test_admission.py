"""The pool of connections that have not authenticated."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from ticketing.server.admission import Admission, Applicant
from ticketing.server.settings import ShellLimits

SMALL = ShellLimits(unauthenticated=4, unauthenticated_per_source=2, tls_handshakes=2, silent_s=1.0)


def enter(pool: Admission, source: str, now: float) -> Applicant:
    applicant = Applicant(source)
    assert pool.arrive(applicant, now) == (True, None)
    return applicant


def test_a_source_over_its_bound_loses_its_own_oldest_silent_one_not_anothers() -> None:
    pool = Admission(SMALL)
    enter(pool, "a", 0.0)
    oldest_of_b = enter(pool, "b", 0.1)
    enter(pool, "b", 0.2)
    assert pool.arrive(Applicant("b"), 2.0) == (True, oldest_of_b)


def test_a_source_over_its_bound_is_turned_away_while_none_of_its_own_is_silent() -> None:
    pool = Admission(SMALL)
    enter(pool, "a", 0.0)
    enter(pool, "b", 1.5)
    enter(pool, "b", 1.5)
    assert pool.arrive(Applicant("b"), 2.0) == (False, None)
    assert len(pool) == 3


def test_a_full_pool_drops_the_one_silent_longest_in_order_of_arrival() -> None:
    pool = Admission(SMALL)
    first, second, _, _ = (enter(pool, source, 0.0) for source in "abcd")
    pool.heard(first, 5.0)
    assert pool.arrive(Applicant("e"), 5.5) == (True, second)


def test_a_second_of_silence_is_not_yet_too_long() -> None:
    pool = Admission(SMALL)
    first = enter(pool, "a", 0.0)
    for source in "bcd":
        enter(pool, source, 0.0)
    assert pool.arrive(Applicant("e"), 1.0) == (False, None)
    assert pool.arrive(Applicant("e"), 1.001) == (True, first)


def test_whoever_leaves_makes_room_and_leaving_twice_is_harmless() -> None:
    pool = Admission(SMALL)
    applicants = [enter(pool, source, 0.0) for source in "abcd"]
    pool.leave(applicants[1])
    pool.leave(applicants[1])
    enter(pool, "e", 0.0)
    assert len(pool) == 4


def test_handshakes_beyond_the_bound_wait_in_order() -> None:
    pool = Admission(SMALL)
    first, second, third, fourth = (enter(pool, source, 0.0) for source in "abcd")
    for applicant in (second, first, fourth, third):
        pool.handshake_ready(applicant)
    assert pool.congested
    assert pool.next_handshake(0.0) == (second, None)
    assert pool.next_handshake(0.0) == (first, None)
    assert pool.next_handshake(0.0) == (None, None)
    pool.handshake_done(first)
    assert pool.next_handshake(0.0) == (fourth, None)
    assert not pool.congested


def test_a_silent_handshake_is_dropped_only_where_another_waits() -> None:
    pool = Admission(SMALL)
    first, second, third = (enter(pool, source, 0.0) for source in "abc")
    for applicant in (first, second):
        pool.handshake_ready(applicant)
        pool.next_handshake(0.0)
    assert pool.next_handshake(60.0) == (None, None)
    pool.heard(first, 60.0)
    pool.handshake_ready(third)
    assert pool.next_handshake(60.5) == (third, second)
    assert len(pool) == 2


def test_whoever_goes_while_it_waits_is_not_begun() -> None:
    pool = Admission(SMALL)
    first, second = enter(pool, "a", 0.0), enter(pool, "b", 0.0)
    pool.handshake_ready(first)
    pool.handshake_ready(second)
    pool.leave(first)
    assert pool.next_handshake(0.0) == (second, None)
    assert pool.waiting_count == 0


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("asrdnhl"), st.integers(0, 5), st.floats(0, 0.7)), max_size=80))
def test_no_order_of_events_breaks_a_bound(events: list[tuple[str, int, float]]) -> None:
    pool = Admission(SMALL)
    inside: list[Applicant] = []
    ready: set[Applicant] = set()
    now = 0.0
    for what, number, step in events:
        now += step
        chosen = inside[number % len(inside)] if inside else None
        if what in "as":
            newcomer = Applicant(f"source {number % 3}")
            let_in, victim = pool.arrive(newcomer, now)
            if victim is not None:
                assert victim.heard < now - SMALL.silent_s
                inside.remove(victim)
            if let_in:
                inside.append(newcomer)
            else:
                assert not newcomer.inside
        elif what == "n":
            begun, victim = pool.next_handshake(now)
            if victim is not None:
                inside.remove(victim)
            assert begun is None or begun in inside
        elif chosen is None:
            continue
        elif what == "r" and chosen not in ready:
            ready.add(chosen)
            pool.handshake_ready(chosen)
        elif what == "d":
            pool.handshake_done(chosen)
        elif what == "h":
            pool.heard(chosen, now)
        elif what == "l":
            pool.leave(chosen)
            inside.remove(chosen)
        assert len(pool) == len(inside) <= SMALL.unauthenticated
        assert pool.running_count <= SMALL.tls_handshakes
        for source in range(3):
            of_source = [one for one in inside if one.source == f"source {source}"]
            assert len(of_source) <= SMALL.unauthenticated_per_source
