from __future__ import annotations

import sys
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.locks.table_twin import (
    FIRST_TOKEN,
    KEYS,
    MOVES,
    Move,
    TwinTable,
    check_orders,
    filled,
    in_token_order,
    plain,
)
from ticketing.locks.codec import decode_commands, encode_commands
from ticketing.locks.commands import Cancel, Extend, LockCommand, Revoke, Turn
from ticketing.locks.held import DETACHED, SECOND_NS
from ticketing.locks.table import ADMIN_IDS_MAX, NAMES_SHARED_MAX, NO_EFFECT, LockTable

A, B = 1 << 63, (1 << 63) | 1


def table_with(key: bytes = b"k", owner: int = A, lease: int = 10, stamp_ns: int = 0) -> LockTable:
    table = LockTable(FIRST_TOKEN)
    assert table.apply([Turn(key, 0, owner, lease, 5, "me")], stamp_ns) == [FIRST_TOKEN]
    return table


# --- the three entries


def test_a_grant_takes_the_next_token_and_keeps_what_it_was_told() -> None:
    table = table_with()
    assert plain(table.held[b"k"]) == {
        "key": b"k",
        "token": FIRST_TOKEN,
        "renewal": 0,
        "owner": A,
        "name": "me",
        "lease": 10,
        "granted_wall_ms": 5,
    }
    assert table.next_token == FIRST_TOKEN + 1


def test_one_turn_releases_and_grants_to_the_next() -> None:
    table = table_with()
    assert table.apply([Turn(b"k", FIRST_TOKEN, B, 20)], 0) == [FIRST_TOKEN + 1]
    assert plain(table.held[b"k"])["owner"] == B
    assert len(table.held) == 1


def test_a_turn_without_next_frees_the_key_and_its_record() -> None:
    table = table_with()
    held = table.held[b"k"]
    assert table.apply([Turn(b"k", FIRST_TOKEN)], 0) == [0]
    assert not table.held
    assert held.newer is held.older is held.due_next is held.due_prev is DETACHED


@pytest.mark.parametrize("expect", [0, FIRST_TOKEN - 1, FIRST_TOKEN + 1])
def test_a_turn_that_expects_another_token_has_no_effect_its_grant_included(expect: int) -> None:
    table = table_with()
    before = table.checksum()
    assert (
        table.apply([Turn(b"k", expect, B, 20), Turn(b"k", expect), Extend(b"k", expect, 20)], 9) == [-1] * 3
    )
    assert table.checksum() == before


def test_nothing_can_be_taken_from_a_free_key() -> None:
    table = LockTable(FIRST_TOKEN)
    before = table.checksum()
    assert (
        table.apply([Turn(b"k", 7, B, 20), Turn(b"k", 7), Extend(b"k", 7, 20), Extend(b"k", 0, 20)], 0)
        == [-1] * 4
    )
    assert table.checksum() == before


def test_the_second_of_two_grants_in_one_entry_finds_the_key_held() -> None:
    table = LockTable(FIRST_TOKEN)
    assert table.apply([Turn(b"k", 0, A, 1), Turn(b"k", 0, B, 1)], 0) == [FIRST_TOKEN, NO_EFFECT]
    assert table.held[b"k"].owner == A


def test_an_expiry_is_void_once_the_lease_was_extended() -> None:
    table = table_with()
    expiry = Turn(b"k", FIRST_TOKEN, B, 20, renewal=0)
    assert table.apply([Extend(b"k", FIRST_TOKEN, 10), expiry], 0) == [1, NO_EFFECT]
    assert table.held[b"k"].owner == A
    assert table.apply([Turn(b"k", FIRST_TOKEN, B, 20, renewal=1)], 0) == [FIRST_TOKEN + 1]
    assert table.held[b"k"].renewal == 0


@pytest.mark.parametrize(("asked", "kept"), [(5, 10), (10, 10), (25, 25)])
def test_an_extension_counts_anew_and_never_shortens(asked: int, kept: int) -> None:
    table = table_with(lease=10, stamp_ns=100)
    assert table.apply([Extend(b"k", FIRST_TOKEN, asked)], 2_000) == [1]
    held = table.held[b"k"]
    assert (held.lease, held.stamp_ns, held.token, held.renewal) == (kept, 2_000, FIRST_TOKEN, 1)


def test_an_extension_with_an_older_stamp_keeps_the_later_one() -> None:
    table = table_with(stamp_ns=5_000)
    table.apply([Extend(b"k", FIRST_TOKEN, 10)], 4_000)
    assert table.held[b"k"].stamp_ns == 5_000


def test_a_cancel_fills_the_ring_and_touches_no_key() -> None:
    table = table_with()
    assert table.apply([Cancel((A, B))], 0) == [0]
    assert A in table.ring
    assert B in table.ring
    assert table.held[b"k"].owner == A


def test_apply_does_not_ask_the_ring() -> None:
    # The leader does, before it proposes; the outcome of an entry in flight stands (spec 5).
    table = LockTable(FIRST_TOKEN)
    assert table.apply([Cancel((A,)), Turn(b"k", 0, A, 1)], 0) == [0, FIRST_TOKEN]


def test_an_operators_turn_acts_once_by_its_id() -> None:
    table = table_with()
    revoke = Revoke("id", Turn(b"k", FIRST_TOKEN), "me", "stuck")
    again = Revoke("id", Turn(b"k", FIRST_TOKEN + 1), "me", "stuck")
    assert table.apply([revoke, Turn(b"k", 0, B, 5), again], 0) == [0, FIRST_TOKEN + 1, NO_EFFECT]
    assert table.held[b"k"].owner == B


def test_the_last_1024_admin_ids_are_remembered() -> None:
    table = LockTable(FIRST_TOKEN)
    assert all(table.remember_admin(str(number)) for number in range(ADMIN_IDS_MAX + 1))
    assert len(table.admin_ids) == ADMIN_IDS_MAX
    assert not table.remember_admin("1")
    assert table.remember_admin("0")


@pytest.mark.parametrize("lease", [0, -1, 251])
def test_a_grant_with_an_impossible_lease_stops_the_node(lease: int) -> None:
    with pytest.raises(AssertionError):
        LockTable(FIRST_TOKEN).apply([Turn(b"k", 0, A, lease)], 0)


# --- expiry


def test_a_lease_is_over_when_the_clock_is_past_the_stamp_by_it_and_not_before() -> None:
    table = table_with(lease=10, stamp_ns=7)
    due_ns = 7 + 10 * SECOND_NS
    assert table.next_due_ns() == due_ns
    assert table.overdue(due_ns - 1, 10) == []
    assert table.overdue(due_ns, 10) == [table.held[b"k"]]
    assert table.overdue(due_ns, 10) == [table.held[b"k"]], "still due until the expiry is applied"


def test_nothing_held_is_never_due() -> None:
    table = table_with()
    table.apply([Turn(b"k", FIRST_TOKEN)], 0)
    assert table.next_due_ns() is None
    assert table.overdue(1 << 61, 10) == []


def test_a_release_lets_the_next_look_move_the_due_time_on() -> None:
    table = table_with(lease=1)
    table.apply([Turn(b"later", 0, B, 3), Turn(b"k", FIRST_TOKEN)], 0)
    assert table.overdue(SECOND_NS, 10) == []
    assert table.next_due_ns() == 3 * SECOND_NS


def test_the_next_due_time_is_the_least_over_all_leases() -> None:
    table = table_with(lease=1)
    table.apply([Turn(b"middle", 0, B, 3), Turn(b"long", 0, B, 9), Turn(b"k", FIRST_TOKEN)], 0)
    table.overdue(SECOND_NS, 10)
    assert table.next_due_ns() == 3 * SECOND_NS
    assert [held.key for held in table.overdue(3 * SECOND_NS, 10)] == [b"middle"]


def test_stamps_never_fall_within_one_lease() -> None:
    table = table_with(lease=10, stamp_ns=900)
    table.apply([Turn(b"same", 0, B, 10), Turn(b"other", 0, B, 11)], 400)
    assert table.held[b"same"].stamp_ns == 900
    assert table.held[b"other"].stamp_ns == 400


def test_a_stamp_may_lie_before_the_machine_was_started() -> None:
    table = table_with(lease=1, stamp_ns=-5 * SECOND_NS)
    assert table.next_due_ns() == -4 * SECOND_NS
    assert len(table.overdue(0, 1)) == 1


def test_overdue_comes_in_slices_that_pass_over_what_is_in_flight() -> None:
    table = filled(10, lease=1)
    table.apply([Turn(b"longer", 0, A, 2)], 0)
    in_flight: dict[bytes, None] = {}
    slices = []
    while found := table.overdue(2 * SECOND_NS, 4, in_flight):
        slices.append(len(found))
        in_flight.update(dict.fromkeys(held.key for held in found))
    assert slices == [4, 4, 3]
    assert sorted(in_flight) == sorted(table.held)


# --- any sequence of entries


@given(st.lists(MOVES, max_size=60), st.integers(1, 4))
@settings(max_examples=150, deadline=None)
def test_the_table_does_what_its_naive_twin_does(moves: list[Move], batch: int) -> None:
    table, replica, twin = LockTable(FIRST_TOKEN), LockTable(FIRST_TOKEN), TwinTable()
    now_ns = 0
    while moves:
        now_ns += moves[0].passing_ns
        commands: list[LockCommand] = []
        expected = []
        for move in moves[:batch]:
            commands.append(twin.command(move))
            expected.append(twin.apply(commands[-1]))
        moves = moves[batch:]
        assert table.apply(commands, now_ns) == expected
        assert replica.apply(decode_commands(encode_commands(commands)), 7 * SECOND_NS - now_ns) == expected
        assert [plain(held) for held in in_token_order(table)] == twin.holds
        assert table.next_token == twin.next_token
        assert list(table.admin_ids) == twin.admin_ids
        assert all(owner in table.ring for owner in twin.cancelled)
        check_orders(table)
        check_orders(replica)
        due = [held for held in in_token_order(table) if held.due_ns <= now_ns]
        found = table.overdue(now_ns, 1_000)
        assert sorted(held.token for held in found) == [held.token for held in due]
        check_orders(table)
    assert replica.checksum() == table.checksum()


@given(st.lists(MOVES, max_size=40))
@settings(max_examples=50, deadline=None)
def test_a_lease_never_ends_before_the_stamp_of_its_last_entry_plus_its_length(moves: list[Move]) -> None:
    table, twin = LockTable(FIRST_TOKEN), TwinTable()
    stamped: dict[int, int] = {}
    now_ns = 0
    for move in moves:
        # Entries sent again carry an age: the next one's stamp may lie before this one's.
        now_ns += move.passing_ns - SECOND_NS
        command = twin.command(move)
        twin.apply(command)
        outcome = table.apply([command], now_ns)[0]
        if isinstance(command, Turn) and outcome > 0:
            stamped[outcome] = now_ns
        elif isinstance(command, Extend) and outcome > 0:
            stamped[command.expect] = now_ns
        assert all(held.stamp_ns >= stamped[held.token] for held in table.held.values())


# --- checksum


def test_the_checksum_tells_every_replicated_field_apart_and_no_stamp() -> None:
    def checksum(*commands: LockCommand, stamp_ns: int = 0) -> int:
        table = LockTable(FIRST_TOKEN)
        table.apply([Turn(b"k", 0, A, 10, 5, "me"), *commands], stamp_ns)
        return table.checksum()

    present = checksum()
    assert checksum(stamp_ns=99) == present
    release = Turn(b"k", FIRST_TOKEN)
    others = [
        checksum(release),
        checksum(Extend(b"k", FIRST_TOKEN, 10)),
        checksum(Extend(b"k", FIRST_TOKEN, 11)),
        checksum(Turn(b"k", FIRST_TOKEN, A, 10, 5, "me")),
        checksum(Turn(b"k", FIRST_TOKEN, B, 10, 5, "me")),
        checksum(Turn(b"k", FIRST_TOKEN, A, 10, 6, "me")),
        checksum(Turn(b"k", FIRST_TOKEN, A, 10, 5, "you")),
        checksum(Turn(b"k2", 0, A, 10, 5, "me")),
        checksum(Cancel((A, B))),
        checksum(Cancel((B, A))),
        checksum(Revoke("id", Turn(b"free", 9), "", "")),
        checksum(release, Turn(b"k", 0, A, 10, 5, "me"), Turn(b"k", FIRST_TOKEN + 1)),
        present,
    ]
    assert len(set(others)) == len(others)


# --- memory


SHARED_NAME = "client " + str(A)


def live_records() -> int:
    """How many records there are: the garbage collector does not know them, but each refers to its name."""
    return sys.getrefcount(SHARED_NAME)


def named(count: int) -> LockTable:
    table = LockTable(FIRST_TOKEN)
    table.apply([Turn(b"key-%06d" % number, 0, A | number, 60, 0, SHARED_NAME) for number in range(count)], 0)
    return table


def test_records_are_freed_at_once_without_garbage_collection() -> None:
    table = named(100)
    before = live_records()
    tokens = {key: held.token for key, held in table.held.items()}
    table.apply([Turn(key, token, A, 3, 0, SHARED_NAME) for key, token in tokens.items()], 0)
    assert live_records() == before
    table.apply([Turn(key, held.token) for key, held in list(table.held.items())], 0)
    assert live_records() == before - 100


def test_a_replaced_table_is_dismantled_in_slices_and_leaves_nothing() -> None:
    table = named(100)
    before = live_records()
    table.begin_snapshot()
    assert not table.dismantle(60)
    assert (live_records(), len(table.held)) == (before - 60, 40)
    assert table.dismantle(60)
    assert live_records() == before - 100


def test_a_table_that_is_merely_dropped_leaves_nothing() -> None:
    before = live_records()
    table = named(100)
    assert live_records() > before + 100
    del table
    assert live_records() == before


def test_a_held_lock_takes_at_most_360_bytes() -> None:
    count = 5_000
    entries = [
        encode_commands(
            [Turn(b"event:2026:seat:%014d" % number, 0, A | number, 60, 1 << 41, "shop@host-7:1234")]
        )
        for number in range(count)
    ]
    table = LockTable(FIRST_TOKEN)
    tracemalloc.start()
    try:
        for number, data in enumerate(entries):
            table.apply(decode_commands(data), (1 << 50) + number)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(table.held) == count
    assert 128 * count < taken <= 360 * count


def test_equal_names_and_hand_overs_share_one_string_and_one_key() -> None:
    table = LockTable(FIRST_TOKEN)
    for expect in (0, FIRST_TOKEN):
        (turn,) = decode_commands(encode_commands([Turn(b"some key", expect, A, 5, 0, "one client")]))
        table.apply([turn], 0)
    held = table.held[b"some key"]
    assert held.key is next(iter(table.held))
    assert held.name is table.share_name("one " + "client")


def test_the_names_shared_are_bounded() -> None:
    table = LockTable(FIRST_TOKEN)
    for number in range(NAMES_SHARED_MAX + 5):
        assert table.share_name(f"client {number}") == f"client {number}"
    assert len(table._names) <= NAMES_SHARED_MAX


def test_keys_are_compared_as_bytes() -> None:
    table = LockTable(FIRST_TOKEN)
    assert min(table.apply([Turn(key, 0, A, 1) for key in KEYS], 0)) > 0
    assert len(table.held) == len(KEYS)
