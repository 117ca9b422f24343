"""What operators do and see: revocations, views, figures."""

from __future__ import annotations

from tests.locks.desk_bench import OWNER, Bench, S, clients
from ticketing.locks.commands import Revoke, Turn
from ticketing.locks.desk import LOST, DeskLimits
from ticketing.locks.table import NO_EFFECT


def revoke(bench: Bench, token: int, ident: str = "id") -> list[int]:
    outcomes: list[int] = []
    command = Revoke(ident, Turn(b"k", token), "ops", "stuck")
    bench.desk.revoke(command, outcomes.append, bench.now)
    return outcomes


def test_a_revocation_hands_the_key_to_the_head_of_the_queue() -> None:
    bench = Bench()
    a, b = clients("ab")
    token = bench.hold(a, 1)
    bench.ask(b, 2)
    outcomes = revoke(bench, token)
    bench.turn()
    assert outcomes == [token + 1]
    assert (bench.said(a), bench.said(b)) == ([], ["A2"])
    assert bench.desk.counters["revoked"] == 1


def test_a_revocation_of_what_holds_no_more_has_no_effect_and_nobody_is_granted_anything() -> None:
    bench = Bench()
    a, b = clients("ab")
    token = bench.hold(a, 1)
    bench.ask(b, 2)
    outcomes = revoke(bench, token + 5)
    bench.turn()
    assert outcomes == [NO_EFFECT]
    assert bench.holder == 1


def test_a_free_key_is_within_the_bound_on_keys_though_a_revocation_of_it_is_under_way() -> None:
    bench = Bench(DeskLimits(keys=2))
    a, b = clients("ab")
    first = bench.hold(a, 1, b"one")
    bench.hold(a, 2, b"two")
    outcomes = revoke(bench, 5)
    bench.ask(b, 3)
    assert (bench.said(b), bench.desk.counters["busy_keys"]) == (["B3"], 1)
    bench.release(a, first, b"one")
    bench.turn()
    assert outcomes == [NO_EFFECT]
    revoke(bench, 5, "another")
    bench.ask(b, 4)  # there is room for one key, and this is it
    bench.turn()
    assert [said[0] for said in bench.said(b)] == ["A"]
    assert len(bench.table.held) == 2


def test_a_revocation_repeated_under_its_id_puts_the_head_back_in_its_place() -> None:
    bench = Bench()
    a, b, c = clients("abc")
    revoke(bench, bench.hold(a, 1), "same")
    bench.turn()
    token = bench.hold(a, 1)
    bench.ask(b, 2)
    bench.ask(c, 3)
    outcomes = revoke(bench, token, "same")
    bench.turn()
    assert outcomes == [NO_EFFECT]
    assert bench.holder == 1
    bench.release(a, token)
    bench.turn()
    assert (bench.said(b), bench.said(c)) == (["A2"], [])


def test_a_head_that_was_cancelled_while_a_vain_revocation_was_in_flight_is_not_put_back() -> None:
    bench = Bench()
    a, b = clients("ab")
    revoke(bench, bench.hold(a, 1), "same")
    bench.turn()
    token = bench.hold(a, 1)
    bench.ask(b, 2)
    bench.cancel(a, 2)
    bench.desk.take_pending(bench.now)
    bench.desk._cancels_in_flight.clear()
    bench.desk.cancelling.clear()
    revoke(bench, token, "same")
    bench.propose()
    bench.table.ring.add(OWNER + 2)
    bench.commit()
    assert bench.said(b) == ["T2"]


def test_a_revocation_waits_for_what_is_in_flight() -> None:
    bench = Bench()
    (a,) = clients("a")
    token = bench.hold(a, 1)
    bench.extend(a, token)
    outcomes = revoke(bench, token)
    bench.propose()
    assert len(bench.in_flight) == 1
    bench.turn()
    assert (outcomes, bench.said(a), bench.holder) == ([0], [f"X{token}"], 0)


def test_a_lead_that_ends_leaves_a_revocation_open() -> None:
    bench = Bench()
    (a,) = clients("a")
    outcomes = revoke(bench, bench.hold(a, 1))
    bench.propose()
    bench.desk.step_down(bench.now)
    assert bench.desk.stranded == []
    assert outcomes == [LOST]
    bench.commit()  # whatever becomes of the entry is the next leader's to tell
    assert outcomes == [LOST]


def test_the_view_of_a_key_shows_holder_and_queue_in_order() -> None:
    bench = Bench()
    a, b, c = clients("abc")
    token = bench.hold(a, 1, lease=30)
    bench.wait(1)
    bench.ask(b, 2, wait=5)
    bench.ask(c, 3)
    view = bench.desk.view(b"k", 10)
    assert view is not None
    assert (view.token, view.owner, view.name, view.waiting, view.in_flight) == (
        token,
        OWNER + 1,
        "client a",
        2,
        False,
    )
    assert view.due_ns == bench.now + 29 * S
    assert [(w.owner - OWNER, w.name, w.source) for w in view.queue] == [
        (2, "client b", "host-b"),
        (3, "client c", "host-c"),
    ]
    assert view.queue[0].due_ns == bench.now + 5 * S
    first_only = bench.desk.view(b"k", 1)
    assert first_only is not None
    assert len(first_only.queue) == 1
    assert bench.desk.view(b"unknown", 10) is None


def test_a_free_key_with_waiters_has_a_view_too() -> None:
    bench = Bench(gate=False)
    (a,) = clients("a")
    bench.ask(a, 1)
    view = bench.desk.view(b"k", 10)
    assert view is not None
    assert (view.token, view.waiting) == (0, 1)


def test_queues_are_listed_by_their_length() -> None:
    bench = Bench(gate=False)
    (a,) = clients("a")
    lengths = {b"a": 1, b"b": 7, b"c": 3, b"d": 64, b"e": 2, b"f": 7}
    owner = 0
    for key, length in lengths.items():
        for _ in range(length):
            owner += 1
            bench.ask(a, owner, key)
    assert [(v.key, v.waiting) for v in bench.desk.longest_queues(4)] == [
        (b"d", 64),
        (b"b", 7),
        (b"f", 7),
        (b"c", 3),
    ]
    assert bench.desk.keys_waited_for == len(lengths)


def test_the_longest_wait_is_that_of_the_oldest_request_still_waiting() -> None:
    bench = Bench()
    a, b, c = clients("abc")
    bench.hold(a, 1)
    assert bench.desk.longest_wait_ns(bench.now) == 0
    bench.ask(b, 2, wait=100)
    bench.wait(2)
    bench.ask(c, 3, wait=5)
    bench.wait(1)
    assert bench.desk.longest_wait_ns(bench.now) == 3 * S
    bench.cancel(b, 2)
    assert bench.desk.longest_wait_ns(bench.now) == 1 * S


def test_reused_owners_have_their_older_sessions_probed_once_in_a_row() -> None:
    bench = Bench()
    a, b, c = clients("abc")
    bench.hold(a, 1)
    bench.ask(b, 2)
    bench.ask(c, 2)
    bench.ask(c, 2)
    bench.ask(b, 2)
    assert bench.desk.probes == [b, c]  # and nobody is probed for a request of its own


def test_entries_of_earlier_terms_concern_nobody_here() -> None:
    bench = Bench()
    commands = [Turn(b"k", 0, OWNER + 1, 20)]
    outcomes = bench.table.apply(commands, bench.now)
    bench.desk.applied(commands, outcomes, bench.now, mine=False)
    assert bench.desk.keys_in_flight_or_waited_for == 0
    assert bench.desk.counters["granted"] == 0
