"""Grants whose answer reached nobody (spec 4), and requests that take one over (spec 5)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.locks.desk_bench import MS, OWNER, ROOM, Bench, Client, clients
from ticketing.locks.commands import Turn
from ticketing.locks.keystate import Ask
from ticketing.locks.table import LockTable
from ticketing.protocol import frames


def turns(bench: Bench) -> list[tuple[int, int]]:
    """(expect, the next one's number) of what waits to be taken."""
    return [(c.expect, max(0, c.owner - OWNER)) for c in bench.desk.pending if isinstance(c, Turn)]


@pytest.mark.parametrize("op", [frames.ACQUIRE, frames.Q])
def test_an_answer_that_was_not_written_when_the_session_ends_is_taken_back_in_that_very_step(
    op: int,
) -> None:
    bench = Bench()
    a, b = clients("ab")
    bench.ask(a, 1, op=op)
    bench.ask(b, 2)
    bench.propose()
    bench.commit()
    bench.end(a)
    assert turns(bench) == [(1_000, 2)]
    bench.turn()
    assert bench.said(b) == ["A2"]
    assert bench.desk.counters["undeliverable"] == 1


def test_an_answer_that_was_handed_to_the_transport_stands() -> None:
    bench = Bench()
    (a,) = clients("a")
    bench.ask(a, 1)
    bench.turn()
    bench.release(a, 7)  # something else is in `out` when it ends
    bench.barrier()
    bench.end(a)
    bench.turn()
    assert bench.holder == 1


def test_a_grant_in_flight_whose_session_ended_is_released_when_it_is_applied_before_what_was_put_aside() -> (
    None
):
    bench = Bench()
    a, b = clients("ab")
    bench.ask(a, 1)
    bench.propose()
    bench.end(a)
    bench.release(b, 1_000)  # whoever guesses the token
    bench.ask(b, 2)
    bench.commit()
    assert turns(bench) == [(1_000, 2)]
    bench.turn()
    assert bench.said(b) == ["A2", "N1000"]


def test_what_an_earlier_term_granted_is_never_released_for_want_of_a_session() -> None:
    table = LockTable(1_000)
    table.apply([Turn(b"k", 0, OWNER + 1, 20)], 90_000 * MS)
    bench = Bench(table=table)
    (a,) = clients("a")
    # The former desk of this process had answered in the same turn; its frame still stands there.
    a.out.append(frames.encode_granted(1_000, OWNER + 1, b"k"))
    bench.end(a)
    assert not bench.desk.has_pending


def test_whoever_takes_a_grant_over_and_ends_in_turn_leaves_it_undeliverable_again() -> None:
    bench = Bench()
    a, b, c = clients("abc")
    bench.ask(a, 1)
    bench.propose()
    bench.end(a)
    bench.ask(b, 1)
    bench.end(b)
    bench.commit()
    assert turns(bench) == [(1_000, 0)]
    bench.turn()
    bench.ask(a, 1)
    bench.ask(b, 1)
    bench.ask(c, 1)
    assert bench.said(c) == []


def test_a_waiting_request_of_the_same_owner_takes_over_when_the_older_session_ends() -> None:
    bench = Bench()
    a, b, c = clients("abc")
    bench.ask(a, 1)
    bench.propose()
    bench.wait(0.1)
    bench.ask(b, 2)
    bench.ask(c, 1, op=frames.Q)
    assert bench.desk.probes == [a]
    bench.end(a)
    assert bench.desk.waiting == 1
    bench.wait(60)
    bench.run()
    bench.commit()
    bench.write()
    # Read after the grant was proposed: it has waited for nothing, and its wait did not end it.
    assert c.replies == [(frames.GRANTED_WAITED, 1_000, OWNER + 1, 0, b"k")]
    assert bench.desk.counters["taken_over"] == 1


def test_the_rival_of_a_head_takes_over_after_the_hand_over_was_proposed() -> None:
    bench = Bench()
    a, b, c, d = clients("abcd")
    token = bench.hold(a, 1)
    bench.ask(b, 2)
    bench.ask(c, 2)
    bench.ask(d, 2)
    bench.release(a, token)
    bench.propose()
    bench.end(b)
    bench.end(c)
    bench.commit()
    assert (bench.said(d), bench.holder) == (["A2"], 2)


def test_a_request_of_another_lease_or_an_ended_session_takes_nothing_over() -> None:
    bench = Bench()
    a, b, c = clients("abc")
    bench.ask(a, 1)
    bench.propose()
    bench.ask(b, 1, lease=21)
    bench.ask(c, 1)
    bench.end(c)
    bench.end(a)
    bench.commit()
    assert turns(bench) == [(1_000, 1)]
    bench.turn()
    assert bench.said(b) == ["A1"]
    assert bench.table.held[b"k"].token == 1_001


def test_a_request_whose_wait_is_over_takes_nothing_over() -> None:
    bench = Bench()
    a, b = clients("ab")
    bench.ask(a, 1)
    bench.propose()
    bench.ask(b, 1, wait=1)
    bench.wait(1)
    bench.end(a)
    bench.run()
    bench.commit()
    assert bench.said(b) == ["T1"]
    assert turns(bench) == [(1_000, 0)]


def test_an_answer_whose_token_holds_no_more_is_a_time_out() -> None:
    bench = Bench()
    (a,) = clients("a")
    bench.ask(a, 1)
    bench.propose()
    commands = bench.log.pop()
    outcomes = bench.table.apply(commands, bench.now)
    bench.table.apply([Turn(b"k", 1_000)], bench.now)
    bench.desk.applied(commands, outcomes, bench.now, mine=True)
    assert bench.said(a) == ["T1"]
    assert bench.desk.counters["void"] == 1


# --- where published 0.3.0 programs may ask again for what they hold


def test_asking_again_for_a_grant_that_nobody_received_keeps_it() -> None:
    bench = Bench(legacy=True)
    a, b, c = clients("abc")
    bench.ask(a, 1)
    bench.ask(b, 2)
    bench.ask(c, 1)
    bench.propose()
    bench.commit()
    bench.end(a)
    assert not bench.desk.has_pending
    bench.barrier()
    assert bench.said(c) == ["A1"]
    assert bench.table.held[b"k"].token == 1_000


def test_if_the_request_that_asked_again_ends_before_its_barrier_the_grant_is_released_after_all() -> None:
    bench = Bench(legacy=True)
    a, b, c = clients("abc")
    bench.ask(a, 1)
    bench.ask(b, 2)
    bench.ask(c, 1)
    bench.propose()
    bench.commit()
    bench.end(a)
    bench.end(c)
    assert turns(bench) == [(1_000, 2)]


def test_if_the_request_that_asked_again_ends_before_its_answer_is_written_the_grant_is_released_after_all() -> (
    None
):
    bench = Bench(legacy=True)
    a, c = clients("ac")
    bench.ask(a, 1)
    bench.ask(c, 1)
    bench.propose()
    bench.commit()
    bench.end(a)
    bench.barrier()
    bench.end(c)
    assert turns(bench) == [(1_000, 0)]


def test_a_grant_that_some_session_has_read_is_not_released_because_a_second_answer_was_lost() -> None:
    bench = Bench(legacy=True)
    a, b = clients("ab")
    bench.hold(a, 1)
    bench.leave(a)
    bench.ask(b, 1)
    bench.barrier()
    bench.end(b)
    bench.turn()
    assert bench.holder == 1


def test_a_resend_waits_until_its_first_session_is_found_dead() -> None:
    bench = Bench(legacy=True)
    a, b = clients("ab")
    bench.hold(a, 1)
    bench.ask(b, 1)
    assert bench.desk.probes == [a]
    assert not bench.barrier_wanted()
    bench.leave(a)
    assert bench.barrier_wanted()
    bench.barrier()
    assert bench.said(b) == ["A1"]


def test_a_resend_whose_grant_ends_before_the_barrier_is_an_acquire_like_any_other() -> None:
    bench = Bench(legacy=True)
    a, b = clients("ab")
    token = bench.hold(a, 1)
    bench.leave(a)
    bench.ask(b, 1)
    bench.release(Client("c"), token)
    bench.propose()
    bench.commit()
    bench.turn()
    assert bench.said(b) == ["A1"]
    assert bench.table.held[b"k"].token == token + 1


def test_a_resend_with_a_cancel_on_its_way_gets_no_grant() -> None:
    bench = Bench(legacy=True)
    a, b = clients("ab")
    bench.hold(a, 1)
    bench.leave(a)
    bench.ask(b, 1)
    bench.cancel(b, 1)
    bench.turn()
    assert (sorted(bench.said(b)), bench.holder) == (["R1", "T1"], 0)


def test_a_resend_is_not_told_of_a_grant_that_is_about_to_end() -> None:
    bench = Bench(legacy=True)
    a, b = clients("ab")
    token = bench.hold(a, 1)
    bench.leave(a)
    bench.ask(b, 1)
    bench.release(Client("c"), token)
    bench.propose()
    bench.barrier()
    assert bench.said(b) == []
    bench.turn()
    assert bench.said(b) == ["A1"]
    assert bench.table.held[b"k"].token == token + 1


def test_a_release_that_waits_for_room_is_given_up_when_its_grant_is_asked_for_again() -> None:
    bench = Bench(legacy=True)
    a, b = clients("ab")
    bench.ask(a, 1)
    bench.propose()
    bench.commit()
    bench.desk.room = bench.desk.reserved_room = 0
    bench.end(a)
    bench.ask(b, 1)
    bench.desk.room = bench.desk.reserved_room = ROOM
    bench.run()
    assert not bench.desk.has_pending
    bench.turn()
    assert (bench.said(b), bench.table.held[b"k"].token) == (["A1"], 1_000)


def test_a_resend_that_is_refused_after_all_leaves_its_grant_undeliverable() -> None:
    bench = Bench(legacy=True)
    a, b, c = clients("abc")
    bench.ask(a, 1)
    bench.propose()
    bench.commit()
    bench.ask(b, 1, wait=1)
    bench.end(a)
    bench.extend(c, 1_000)  # whoever guesses the token
    bench.propose()
    bench.wait(1)
    bench.barrier()
    assert bench.said(b) == ["T1"]
    bench.commit()
    assert turns(bench) == [(1_000, 0)]


def test_a_cancel_reaches_a_copy_that_waits_for_a_barrier_too() -> None:
    bench = Bench(legacy=True)
    a, b, c, d = clients("abcd")
    token = bench.hold(a, 1)
    bench.leave(a)
    bench.ask(b, 1)
    bench.ask(d, 4)
    bench.release(d, token)
    bench.propose()
    bench.commit()
    bench.ask(c, 1)
    bench.cancel(c, 1)
    bench.turn()
    assert (sorted(bench.said(c)), bench.said(b), bench.holder) == (["R1", "T1"], ["T1"], 4)


def test_whether_a_grant_is_asked_for_again_is_known_without_a_walk_over_all_who_wait_for_a_barrier() -> None:
    """Counted, not timed: thousands of cancels may come in one turn with thousands of stray releases."""

    class Counted(list[Ask]):
        walks = 0

        def __iter__(self) -> Iterator[Ask]:
            Counted.walks += 1
            return super().__iter__()

    bench = Bench(legacy=True)
    a, b = clients("ab")
    bench.hold(a, 1)
    bench.ask(b, 2)
    bench.ask(b, 3)
    bench.desk._barrier_next = Counted()
    bench.release(b, 5, b"stray")
    bench.cancel(b, 2)
    bench.cancel(b, 3)
    assert bench.said(b) == ["R2", "R3"]
    assert Counted.walks == 0
