"""Bounds, room, slices: what keeps one loop turn short and the memory limited (spec 4, 5, 6)."""

from __future__ import annotations

import sys
from operator import length_hint

import pytest

from tests.locks.desk_bench import OWNER, ROOM, Bench, Client, clients
from ticketing.locks import desk as desk_module
from ticketing.locks import turns as turns_module
from ticketing.locks.codec import ENTRY_OVERHEAD_MAX, encode_commands
from ticketing.locks.commands import Cancel, Extend, Turn
from ticketing.locks.desk import DeskLimits
from ticketing.locks.proposing import CANCELS_PER_TURN
from ticketing.locks.waiting import Waiter

# --- bounds on waiting


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (DeskLimits(waiters_per_session=2), "busy_session"),
        (DeskLimits(waiters_per_key=2), "busy_key"),
        (DeskLimits(waiters=2), "busy_waiters"),
    ],
)
def test_beyond_a_bound_acquires_are_refused_and_counted_until_somebody_leaves(
    limits: DeskLimits, reason: str
) -> None:
    bench = Bench(limits)
    a, b = clients("ab")
    token = bench.hold(a, 1)
    for owner in (2, 3, 4):
        bench.ask(b, owner)
    assert bench.said(b) == ["B4"]
    assert bench.desk.counters[reason] == 1
    bench.release(a, token)
    bench.turn()
    bench.ask(b, 5)
    assert bench.said(b) == ["A2"]
    assert bench.desk.waiting == 2


def test_no_more_keys_than_the_bound_whether_held_in_flight_or_waited_for() -> None:
    bench = Bench(DeskLimits(keys=3))
    (a,) = clients("a")
    bench.hold(a, 1, b"held")
    bench.ask(a, 2, b"flying")
    bench.desk.gate_open = False
    bench.ask(a, 3, b"waited")
    bench.ask(a, 4, b"too_many")
    bench.ask(a, 5, b"waited")
    bench.ask(a, 6, b"held")
    assert bench.said(a) == ["B4"]
    bench.desk.gate_open = True
    bench.turn()
    bench.release(a, bench.table.held[b"held"].token, b"held")
    bench.turn()
    bench.release(a, bench.table.held[b"held"].token, b"held")
    bench.turn()
    bench.said(a)
    bench.ask(a, 7, b"there_is_one")
    bench.turn()
    assert bench.said(a) == ["A7"]


def test_what_frees_a_key_is_outside_the_bounds() -> None:
    bench = Bench(DeskLimits(waiters=0, waiters_per_key=0, waiters_per_session=0, keys=1))
    (a,) = clients("a")
    token = bench.hold(a, 1)
    bench.extend(a, token)
    bench.cancel(a, 9)
    bench.release(a, token)
    bench.turn()
    assert sorted(bench.said(a)) == ["N9", f"R{token}", f"X{token}"]


def test_a_waiter_takes_less_than_500_bytes_and_a_held_key_nothing() -> None:
    bench = Bench()
    a, b = clients("ab")
    bench.hold(a, 1)
    assert bench.desk.keys_in_flight_or_waited_for == 0
    bench.ask(b, 2, op=0x51)
    waiter = bench.desk._waiters.by_owner[OWNER + 2]
    assert isinstance(waiter, Waiter)
    own = sys.getsizeof(waiter) + sum(sys.getsizeof(n) for n in (waiter.owner, waiter.read_ns, waiter.due_ns))
    index = sys.getsizeof(dict.fromkeys(range(10_000))) / 5_461  # an entry at its largest
    assert own + index < 500


# --- room in the log


def test_what_is_emitted_fits_into_the_room_that_was_stated() -> None:
    for room in range(0, 2_000, 37):
        bench = Bench(room=0)
        a = Client("ä" * 16)
        a.name = "pro\u00e9gram @ höst " * 4
        tokens = {b"held%d" % n: 0 for n in range(3)}
        bench.desk.room = ROOM
        for number, key in enumerate(tokens):
            tokens[key] = bench.hold(a, number + 1, key)
        bench.desk.room = room
        bench.desk.reserved_room = 100
        for number in range(40):
            bench.ask(a, 100 + number, b"key%d" % number)
            bench.cancel(a, 500 + number)
        for key, token in tokens.items():
            bench.extend(a, token, 250, key)
        commands = bench.desk.take_pending(bench.now)
        if commands:
            assert len(encode_commands(commands)) <= room + 100 + ENTRY_OVERHEAD_MAX


def test_room_counts_what_is_emitted_and_not_taken_yet() -> None:
    bench = Bench(room=200)
    (a,) = clients("a")
    bench.ask(a, 1)
    left = bench.desk.room
    assert left < 200
    bench.desk.room = 200  # the same figure again, before anything was proposed
    assert bench.desk.room == left
    bench.desk.take_pending(bench.now)
    assert bench.desk.room == left


def test_what_ends_an_ownership_may_use_the_reserve_and_grants_may_not() -> None:
    bench = Bench()
    a, b = clients("ab")
    tokens = {key: bench.hold(a, owner, key) for owner, key in ((1, b"r"), (2, b"x"), (3, b"c"))}
    bench.hold(a, 4, b"e", lease=1)
    bench.wait(1)
    bench.desk.room = 0
    bench.ask(b, 9, b"free")
    bench.ask(b, 8, b"r")
    bench.release(a, tokens[b"r"], b"r")
    bench.extend(a, tokens[b"x"], 20, b"x")
    bench.cancel(b, 3, b"c")
    bench.turn()
    assert sorted(bench.said(b)) == ["A8", "R3"]
    assert sorted(bench.said(a)) == ["R1000", "X1001"]
    assert b"e" not in bench.table.held
    assert bench.desk.starved
    bench.desk.room = ROOM
    bench.turn()
    assert bench.said(b) == ["A9"]


def test_when_room_comes_back_releases_cancels_and_expiries_go_before_grants() -> None:
    bench = Bench()
    a, b = clients("ab")
    token = bench.hold(a, 1, b"r")
    bench.hold(a, 2, b"e", lease=1)
    bench.desk.room = bench.desk.reserved_room = 0
    bench.ask(b, 9, b"free")
    bench.ask(b, 10, b"free_too", wait=0)
    bench.cancel(b, 3)
    bench.wait(1)
    bench.run()
    bench.release(a, token, b"r")
    assert not bench.desk.has_pending
    bench.desk.room = bench.desk.reserved_room = ROOM
    bench.desk.make_room(bench.now)
    kinds = [type(c) for c in bench.desk.take_pending(bench.now)]
    assert kinds == [Turn, Turn, Turn, Turn, Cancel]
    # The order of the log: what ends comes first, the cancel touches no key.
    assert not bench.desk.starved


def test_a_transfer_that_fails_lets_everything_go_on() -> None:
    bench = Bench()
    a, b = clients("ab")
    token = bench.hold(a, 1)
    bench.desk.room = bench.desk.reserved_room = 0
    bench.ask(b, 2)
    bench.release(a, token)
    bench.extend(a, token, 20)
    bench.run()
    assert not bench.more()
    bench.desk.room = bench.desk.reserved_room = ROOM
    assert bench.more()
    bench.turn()
    assert (bench.said(a), bench.said(b)) == ([f"R{token}", f"N{token}"], ["A2"])


def test_newcomers_do_not_take_the_room_from_those_that_were_kept_for_it() -> None:
    bench = Bench(room=0)
    a, b = clients("ab")
    bench.ask(a, 1, b"first")
    size = 100
    bench.desk.room = size  # for one grant
    bench.ask(b, 2, b"second")
    bench.run()
    assert [c.key for c in bench.desk.pending if isinstance(c, Turn)] == [b"first"]
    bench.propose()
    bench.desk.room = size
    bench.run()
    assert [c.key for c in bench.desk.pending if isinstance(c, Turn)] == [b"second"]
    bench.propose()
    bench.desk.room = size
    bench.ask(b, 3, b"third")
    assert [c.key for c in bench.desk.pending if isinstance(c, Turn)] == [b"third"]


def test_one_entry_carries_the_cancels_of_a_turn_but_not_any_number() -> None:
    bench = Bench()
    (a,) = clients("a")
    for owner in range(CANCELS_PER_TURN + 5):
        bench.cancel(a, owner + 1)
    bench.propose()
    (cancel,) = bench.in_flight
    assert isinstance(cancel, Cancel)
    assert len(cancel.owners) == CANCELS_PER_TURN
    bench.turn()
    assert len(bench.said(a)) == CANCELS_PER_TURN + 5


# --- slices


def test_the_end_of_a_session_with_many_waiters_is_worked_off_in_slices() -> None:
    bench = Bench()
    a, b, c = clients("abc")
    count = 2 * desk_module.DROPPED_PER_SLICE
    bench.hold(a, 1)
    for number in range(count + 1):
        bench.ask(b, 10 + number)
    bench.ask(c, 2)
    bench.end(b)
    assert bench.desk.waiting == desk_module.DROPPED_PER_SLICE + 2
    assert bench.more()
    bench.run()
    assert bench.desk.waiting == 1
    assert bench.desk.counters["dropped"] == count + 1


def test_a_release_waits_for_a_head_that_stands_behind_many_dead_waiters_and_then_goes_straight_to_it() -> (
    None
):
    bench = Bench()
    a, b, c = clients("abc")
    token = bench.hold(a, 1)
    for number in range(desk_module.DROPPED_PER_SLICE + turns_module.DEAD_SKIPPED_MAX + 500):
        bench.ask(b, 10 + number)
    bench.ask(c, 2)
    bench.end(b)
    bench.release(a, token)
    assert not bench.desk.has_pending  # not {token -> nobody}: there is a head, it is not found yet
    assert bench.more()
    bench.turn()
    assert (bench.said(a), bench.said(c)) == ([f"R{token}"], ["A2"])
    assert bench.table.held[b"k"].token == token + 1


def test_many_sessions_that_end_in_one_turn_are_worked_off_in_slices_all_together() -> None:
    bench = Bench()
    holder, *others = clients("abcdefgh")
    bench.hold(holder, 1)
    each = desk_module.DROPPED_PER_SLICE
    for number in range(each * len(others)):
        bench.ask(others[number % len(others)], 10 + number)
    for client in others:
        bench.end(client)
    assert bench.desk.counters["dropped"] == each
    bench.desk.run_due(bench.now)
    assert bench.desk.counters["dropped"] == 2 * each
    bench.run()
    assert bench.desk.waiting == 0


def test_dead_waiters_of_many_keys_are_passed_over_in_slices_all_together() -> None:
    """The waits of all queues and the leases of all holders end in the same moment."""
    bench = Bench()
    a, b = clients("ab")
    keys, each = 8, turns_module.DEAD_SKIPPED_MAX
    for number in range(keys):
        bench.ask(a, 1 + number, b"k%d" % number, lease=1)
    bench.turn()
    for number in range(keys * each):
        bench.ask(b, 100 + number, b"k%d" % (number % keys), wait=1)
    bench.wait(1)
    bench.desk.run_due(bench.now)
    at_most = desk_module.TIMEOUTS_PER_SLICE + turns_module.DEAD_SKIPPED_MAX
    assert 0 < len(bench.said(b)) <= at_most
    for _ in range(2 * keys):
        bench.turn()
        bench.wait(0.01)
    assert bench.desk.waiting == 0
    assert not bench.table.held


def test_a_head_that_lives_is_found_though_others_used_up_the_search_of_this_turn() -> None:
    bench = Bench()
    a, b, c = clients("abc")
    first, second = bench.hold(a, 1, b"one"), bench.hold(a, 2, b"two")
    for number in range(desk_module.DROPPED_PER_SLICE + turns_module.DEAD_SKIPPED_MAX + 1):
        bench.ask(b, 10 + number, b"one")
    bench.ask(c, 3, b"two")
    bench.end(b)
    bench.release(a, first, b"one")
    bench.release(a, second, b"two")
    bench.propose()
    bench.commit()
    assert bench.said(c) == ["A3"]
    bench.turn()
    assert b"one" not in bench.table.held


def test_a_cancel_of_an_owner_that_stands_everywhere_is_worked_off_in_slices() -> None:
    bench = Bench()
    a, b, c = clients("abc")
    first, second = bench.hold(a, 1, b"one"), bench.hold(a, 7, b"two")
    each = turns_module.CANCELLED_PER_SLICE
    for number in range(3 * each):
        bench.ask(b, 7, (b"one", b"two")[number % 2])
    bench.ask(c, 3, b"two")
    bench.cancel(a, 7, b"two")
    bench.propose()
    bench.commit()
    assert bench.said(b) == ["T7"] * each
    assert bench.more()
    bench.release(a, first, b"one")  # the cancelled ones get nothing while they leave
    bench.ask(b, 7, b"one")
    for _ in range(4):
        bench.turn()
    assert bench.said(b) == ["T7"] * (2 * each + 1)
    assert (bench.said(a), bench.said(c)) == ([f"R{first}", "R7"], ["A3"])
    assert list(bench.table.held) == [b"two"]
    assert bench.table.held[b"two"].token == second + 1
    assert not bench.desk.cancelling


def test_a_cancel_whose_waiters_have_not_all_left_is_unanswerable_once_the_lead_ends() -> None:
    bench = Bench()
    a, b = clients("ab")
    bench.hold(a, 1)
    for _ in range(turns_module.CANCELLED_PER_SLICE + 1):
        bench.ask(b, 7)
    bench.cancel(a, 7)
    bench.propose()
    bench.commit()
    bench.desk.step_down(bench.now)
    assert bench.desk.stranded == [a]


def test_the_gate_opens_for_many_keys_in_slices() -> None:
    bench = Bench(gate=False)
    (a,) = clients("a")
    keys = 2 * desk_module.KEYS_PER_SLICE + 1
    for number in range(keys):
        bench.ask(a, 1 + number, b"k%d" % number)
    assert not bench.desk.has_pending
    bench.run()
    bench.desk.gate_open = True
    assert bench.more()
    bench.desk.run_due(bench.now)
    assert len(bench.desk.pending) == desk_module.KEYS_PER_SLICE
    bench.turn()
    assert len(bench.table.held) == keys


def test_the_gate_closing_refuses_the_tries_that_were_kept_for_room() -> None:
    bench = Bench(room=0)
    (a,) = clients("a")
    bench.ask(a, 1, wait=0)
    bench.run()
    assert bench.said(a) == []
    bench.desk.gate_open = False
    bench.run()
    assert bench.said(a) == ["B1"]
    assert bench.desk.waiting == 0


def test_waits_that_end_together_are_answered_in_slices() -> None:
    bench = Bench()
    a, b = clients("ab")
    bench.hold(a, 1)
    for number in range(desk_module.TIMEOUTS_PER_SLICE + 10):
        bench.ask(b, 10 + number, wait=1)
    bench.wait(1)
    bench.desk.run_due(bench.now)
    assert len(bench.said(b)) == desk_module.TIMEOUTS_PER_SLICE
    assert bench.more()
    bench.run()
    assert len(bench.said(b)) == 10


def test_leases_that_end_together_are_ended_in_slices_and_not_all_at_a_time() -> None:
    bench = Bench()
    (a,) = clients("a")
    keys = desk_module.EXPIRIES_IN_FLIGHT_MAX + 300
    for number in range(keys):
        bench.ask(a, 1 + number, b"k%d" % number, lease=1)
    bench.turn()
    bench.wait(1)
    bench.desk.run_due(bench.now)
    assert len(bench.desk.pending) == desk_module.EXPIRIES_PER_SLICE
    bench.run()
    assert len(bench.desk.pending) == desk_module.EXPIRIES_IN_FLIGHT_MAX
    due_ns = bench.desk.next_deadline_ns
    assert due_ns is not None
    assert due_ns > bench.now  # it does not keep the loop busy until they are applied
    bench.turn()
    bench.turn()
    assert not bench.table.held
    assert bench.desk.counters["expired"] == keys


def test_a_queue_shares_the_key_of_its_holder() -> None:
    bench = Bench()
    a, b = clients("ab")
    bench.ask(a, 1, b"one-key")
    bench.turn()
    bench.ask(b, 2, bytes(bytearray(b"one-key")))
    assert bench.desk._states[b"one-key"].key is bench.table.held[b"one-key"].key


def test_stepping_down_can_be_answered_in_slices() -> None:
    bench = Bench()
    a, b = clients("ab")
    bench.hold(a, 1)
    for number in range(30):
        bench.ask(b, 10 + number)
    bench.desk.step_down(bench.now, limit=10)
    assert len(bench.said(b)) == 9  # and the key itself was looked at
    assert bench.more()
    bench.desk.run_due(bench.now)
    assert len(bench.said(b)) == 21
    assert not bench.more()


def test_stepping_down_looks_at_so_many_keys_in_one_slice() -> None:
    """Waiting or in flight, 150,000 of them at once must not stop the loop: an election could follow on it."""
    bench = Bench()
    (a,) = clients("a")
    for number in range(25):
        bench.ask(a, 10 + number, b"key-%d" % number)
    bench.propose()
    bench.ask(a, 99, b"never-proposed")
    bench.desk.step_down(bench.now, limit=10)
    left = bench.desk._states_left
    assert (length_hint(left), bench.more(), bench.said(a)) == (16, True, [])
    bench.desk.run_due(bench.now)
    assert (bench.desk._states_left, bench.more(), bench.said(a)) == (None, False, ["B99"])
    assert bench.desk.stranded == [a]


def test_one_owner_for_everything_does_not_make_the_desk_slow() -> None:
    """Counted, not timed: what is looked through for a rival stays bounded."""
    bench = Bench()
    a, b = clients("ab")
    bench.hold(a, 1)
    for _ in range(3_000):
        bench.ask(b, 7)
    waiters = bench.desk._waiters
    state = bench.desk._states[b"k"]
    assert waiters.rival(state, 7 + OWNER, bench.now, lease=99) is None
    assert isinstance(waiters.by_owner[OWNER + 7], dict)
    bench.end(b)
    bench.run()
    assert not waiters.by_owner


def test_an_expiry_kept_for_room_is_proposed_once_when_there_is_some() -> None:
    bench = Bench()
    (a,) = clients("a")
    bench.hold(a, 1, lease=1)
    bench.desk.room = bench.desk.reserved_room = 0
    bench.wait(1)
    bench.run()
    assert bench.desk.starved
    assert not bench.more()
    bench.desk.reserved_room = ROOM
    assert bench.more()
    bench.run()
    assert len(bench.desk.pending) == 1
    assert not bench.desk.starved


def test_a_wait_that_ends_while_its_grant_is_in_flight_is_decided_by_the_outcome() -> None:
    bench = Bench()
    a, b = clients("ab")
    token = bench.hold(a, 1)
    bench.ask(b, 2, wait=1)
    bench.release(a, token)
    bench.propose()
    bench.wait(9)
    bench.run()
    assert bench.said(b) == []
    bench.commit()
    assert bench.said(b) == ["A2"]


def test_a_try_behind_a_dead_queue_on_a_free_key_leaves_no_state_behind() -> None:
    bench = Bench(gate=False)
    a, b = clients("ab")
    bench.ask(a, 1, wait=1)
    bench.wait(1)
    bench.ask(b, 2, wait=0)
    assert (bench.said(a), bench.said(b)) == (["T1"], ["B2"])
    assert bench.desk.keys_in_flight_or_waited_for == 0


def test_extensions_keep_their_room_too() -> None:
    bench = Bench()
    (a,) = clients("a")
    token = bench.hold(a, 1)
    bench.desk.room = bench.desk.reserved_room = 0
    bench.extend(a, token, 20)
    assert not bench.desk.has_pending
    bench.desk.reserved_room = ROOM
    bench.run()
    assert [type(c) for c in bench.desk.pending] == [Extend]
