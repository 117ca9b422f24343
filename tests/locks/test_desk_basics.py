"""The desk's plain ways: take a key, queue for it, hand it over, let it go, run out of time."""

from __future__ import annotations

import pytest

from tests.locks.desk_bench import FIRST_TOKEN, MS, OWNER, Bench, clients
from ticketing.locks.commands import Turn
from ticketing.protocol import frames


def test_a_free_key_is_granted_when_its_entry_is_applied_and_not_before() -> None:
    bench = Bench()
    (a,) = clients("a")
    bench.ask(a, 1)
    bench.propose()
    assert bench.said(a) == []
    bench.commit()
    assert bench.said(a) == ["A1"]
    assert bench.holder == 1
    assert bench.desk.keys_in_flight_or_waited_for == 0


def test_a_release_hands_the_key_to_the_head_of_the_queue_with_one_entry() -> None:
    bench = Bench()
    a, b, c = clients("abc")
    token = bench.hold(a, 1)
    bench.ask(b, 2)
    bench.ask(c, 3)
    assert not bench.desk.has_pending
    bench.release(a, token)
    bench.propose()
    (turn,) = bench.in_flight
    assert isinstance(turn, Turn)
    assert (turn.expect, turn.owner, turn.name) == (token, OWNER + 2, "client b")
    bench.commit()
    assert (bench.said(a), bench.said(b), bench.said(c)) == ([f"R{token}"], ["A2"], [])
    assert bench.table.held[b"k"].token == token + 1


def test_a_queue_is_served_in_the_order_of_arrival() -> None:
    bench = Bench()
    a, *others = clients("abcdefgh")
    bench.hold(a, 1)
    for number, client in enumerate(others):
        bench.ask(client, 10 + number)
    order = []
    for _ in others:
        bench.release(a, bench.table.held[b"k"].token)
        bench.turn()
        order.append(bench.holder)
    assert order == [10, 11, 12, 13, 14, 15, 16]


def test_a_wait_that_runs_out_is_answered_and_leaves_the_queue() -> None:
    bench = Bench()
    a, b, c = clients("abc")
    token = bench.hold(a, 1, lease=100)
    bench.ask(b, 2, wait=2)
    bench.ask(c, 3, wait=5)
    assert bench.desk.next_deadline_ns == bench.now + 2_000 * MS
    bench.wait(2)
    bench.run()
    assert bench.said(b) == ["T2"]
    bench.release(a, token)
    bench.turn()
    assert bench.holder == 3


def test_a_lease_that_runs_out_hands_the_key_on() -> None:
    bench = Bench()
    a, b = clients("ab")
    token = bench.hold(a, 1, lease=3)
    bench.ask(b, 2)
    bench.wait(2.999)
    bench.run()
    assert not bench.desk.has_pending
    bench.wait(0.001)
    assert bench.desk.next_deadline_ns == bench.now
    bench.turn()
    assert bench.said(b) == ["A2"]
    bench.release(a, token)
    bench.turn()
    assert bench.said(a) == [f"N{token}"]
    assert bench.desk.counters["expired"] == 1


def test_an_expiry_in_flight_is_not_proposed_twice_and_does_not_keep_the_desk_awake() -> None:
    bench = Bench()
    (a,) = clients("a")
    bench.hold(a, 1, lease=1)
    bench.wait(1)
    bench.run()
    bench.propose()
    bench.run()
    assert len(bench.in_flight) == 1
    assert not bench.desk.has_pending
    due_ns = bench.desk.next_deadline_ns
    assert due_ns is not None
    assert due_ns > bench.now


def test_no_lease_expires_while_the_leaders_clock_rate_is_proved_wrong() -> None:
    bench = Bench()
    (a,) = clients("a")
    bench.hold(a, 1, lease=1)
    bench.desk.rate_ok = False
    bench.wait(5)
    bench.turn()
    assert bench.holder == 1
    assert bench.desk.next_deadline_ns is None
    bench.desk.rate_ok = True
    bench.turn()
    assert bench.holder == 0


def test_an_extension_counts_the_lease_anew_and_never_shortens_it() -> None:
    bench = Bench()
    (a,) = clients("a")
    token = bench.hold(a, 1, lease=10)
    bench.wait(8)
    bench.extend(a, token, 3)
    bench.turn()
    assert bench.said(a) == [f"X{token}"]
    bench.wait(9.9)
    bench.turn()
    assert bench.holder == 1
    bench.wait(0.1)
    bench.turn()
    assert bench.holder == 0


def test_waited_lies_between_the_reading_of_the_request_and_the_proposal_of_its_grant() -> None:
    bench = Bench()
    a, b = clients("ab")
    token = bench.hold(a, 1)
    bench.ask(b, 2, op=frames.Q)
    bench.wait(1.2345678)
    bench.release(a, token)
    bench.wait(0.001)
    bench.propose()
    bench.wait(0.5)
    bench.commit()
    bench.write()
    assert b.replies == [(frames.GRANTED_WAITED, FIRST_TOKEN + 1, OWNER + 2, 1235, b"k")]


@pytest.mark.parametrize(
    ("wait", "lease", "owner"),
    [(256, 20, 1), (65_535, 20, 1), (10, 0, 1), (10, 251, 1), (0, 251, 1), (10, 20, -OWNER)],
)
def test_out_of_range_is_refused_for_itself_alone(wait: int, lease: int, owner: int) -> None:
    bench = Bench()
    a, b = clients("ab")
    bench.ask(a, owner, wait=wait, lease=lease)
    bench.ask(b, 2, wait=255, lease=250)
    bench.turn()
    assert (bench.said(a)[0][0], bench.said(b)) == ("B", ["A2"])
    assert bench.desk.counters["busy_range"] == 1


def test_stepping_down_answers_what_was_never_proposed_and_names_who_cannot_be_answered() -> None:
    bench = Bench()
    a, b, c, d, e = clients("abcde")
    token = bench.hold(a, 1)
    bench.ask(b, 2)
    bench.ask(c, 3, op=frames.Q)
    bench.ask(d, 4, b"other")
    bench.propose()
    bench.ask(e, 5, b"third", op=frames.Q)  # emitted, not taken: never proposed
    bench.release(a, token)
    bench.desk.step_down(bench.now)
    assert bench.desk.stranded == [a, d]
    assert (bench.said(b), bench.said(c), bench.said(d), bench.said(e)) == (["B2"], ["V3"], [], ["V5"])
    assert not bench.desk.has_pending
    assert bench.desk.waiting == 0


def test_a_barrier_that_is_begun_twice_before_it_was_sent_serves_all_who_asked_by_then() -> None:
    """Raft shares one barrier among all who ask before a round is sent, and a turn may propose twice."""
    bench = Bench()
    a, b, c = clients("abc")
    bench.release(a, 5)
    bench.desk.barrier_begun(1)
    bench.release(b, 6)
    bench.desk.barrier_begun(1)
    bench.release(c, 7)
    bench.desk.barrier_begun(2)
    bench.desk.barrier_passed(1, bench.now)
    assert [bench.said(client) for client in (a, b, c)] == [["N5"], ["N6"], []]
    bench.desk.barrier_passed(2, bench.now)
    assert bench.said(c) == ["N7"]
