from __future__ import annotations

import gc
import sys

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.locks.table_twin import (
    AIMED_MOVES,
    FIRST_TOKEN,
    MOVES,
    Move,
    TwinTable,
    check_orders,
    filled,
    in_token_order,
)
from ticketing.locks.checksum import TableChecksum
from ticketing.locks.commands import Cancel, Extend, Turn
from ticketing.locks.held import SECOND_NS
from ticketing.locks.restore import BadSnapshot, SnapshotLoader
from ticketing.locks.snapshot import SnapshotReader
from ticketing.locks.snapshot_header import SnapshotHeader
from ticketing.locks.table import LockTable

RECEIPT_NS = 5_000_000_000_000


def load(reader: SnapshotReader, slices: list[bytes], clock_ns: int = 0) -> LockTable:
    header = msgspec.msgpack.decode(msgspec.msgpack.encode(reader.header()), type=SnapshotHeader)
    loader = SnapshotLoader(header, RECEIPT_NS, clock_ns)
    for data in slices:
        loader.feed(memoryview(data))
    return loader.finish()


def read_all(reader: SnapshotReader, max_records: int = 3) -> list[bytes]:
    return list(iter(lambda: reader.next_slice(max_records), b""))


class Reading:
    """One snapshot under way, with what the table was when it began."""

    def __init__(self, table: LockTable, clock_ns: int) -> None:
        self.checksum = table.checksum()
        self.clock_ns = clock_ns
        self.stamps = {held.token: held.stamp_ns for held in table.held.values()}
        self.reader = table.begin_snapshot()
        self.reckoning = TableChecksum(table)
        self.reckoned: int | None = None
        self.slices: list[bytes] = []
        self.done = False

    def go_on(self, max_records: int) -> None:
        data = b"" if self.done else self.reader.next_slice(max_records)
        self.done = not data
        if data:
            self.slices.append(data)
        if self.reckoned is None:
            self.reckoned = self.reckoning.step(max_records)

    def check(self) -> LockTable:
        while not self.done or self.reckoned is None:
            self.go_on(2)
        assert self.reckoned == self.checksum, "in slices as in one piece"
        loaded = load(self.reader, self.slices, self.clock_ns)
        assert loaded.checksum() == self.checksum
        check_orders(loaded)
        for held in loaded.held.values():
            age_ns = self.clock_ns - self.stamps[held.token]
            assert held.stamp_ns == RECEIPT_NS - age_ns * 998 // 1000
        return loaded


STEPS = st.lists(
    st.one_of(AIMED_MOVES, AIMED_MOVES, MOVES, st.sampled_from(["begin", "slice 1", "slice 1", "slice 2"])),
    min_size=15,
    max_size=50,
)


@given(st.lists(AIMED_MOVES, min_size=8, max_size=20), STEPS)
@settings(max_examples=150, deadline=None)
def test_a_snapshot_is_the_state_at_its_begin_whatever_is_applied_meanwhile(
    before: list[Move], meanwhile: list[Move | str]
) -> None:
    table, twin = LockTable(FIRST_TOKEN), TwinTable()
    readings: list[Reading] = []
    now_ns = 0
    for step in [*before, "begin", *meanwhile]:
        if isinstance(step, Move):
            now_ns += step.passing_ns
            command = twin.command(step)
            twin.apply(command)
            table.apply([command], now_ns)
        elif step == "begin":
            readings.append(Reading(table, now_ns))
        else:
            for reading in readings:
                reading.go_on(int(step[-1]))
    for reading in readings:
        reading.check()
    assert not table.held.walks


@given(st.lists(AIMED_MOVES, min_size=8, max_size=30), st.lists(MOVES, max_size=30))
@settings(max_examples=60, deadline=None)
def test_a_loaded_table_goes_on_like_the_one_that_was_read(before: list[Move], after: list[Move]) -> None:
    table, twin = LockTable(FIRST_TOKEN), TwinTable()
    now_ns = 0
    for move in before:
        now_ns += move.passing_ns
        command = twin.command(move)
        twin.apply(command)
        table.apply([command], now_ns)
    loaded = Reading(table, now_ns).check()
    for move in after:
        now_ns += move.passing_ns
        command = twin.command(move)
        outcome = twin.apply(command)
        assert table.apply([command], now_ns) == loaded.apply([command], RECEIPT_NS + now_ns) == [outcome]
        check_orders(loaded)
    assert loaded.checksum() == table.checksum()


def test_an_empty_table_has_a_header_and_no_slice() -> None:
    table = LockTable(FIRST_TOKEN)
    reader = table.begin_snapshot()
    assert reader.next_slice(10) == b""
    assert load(reader, []).checksum() == table.checksum()


def test_slices_hold_at_most_what_was_asked_for() -> None:
    table = filled(10)
    slices = read_all(table.begin_snapshot(), 4)
    assert [len(msgspec.msgpack.decode(data)) for data in slices] == [4, 4, 2]


def test_a_closed_reader_tells_nothing_more_and_costs_nothing() -> None:
    table = filled(10)
    reader = table.begin_snapshot()
    reader.next_slice(3)
    table.apply([Turn(b"key-000005", FIRST_TOKEN + 5)], 0)
    reader.close()
    reader.close()
    assert not table.held.walks
    assert reader.next_slice(3) == b""


def test_a_key_that_changes_before_it_was_told_is_told_as_it_was_and_once() -> None:
    table = filled(4)
    reader = table.begin_snapshot()
    before = table.checksum()
    slices = [reader.next_slice(1)]
    middle = (b"key-000002", FIRST_TOKEN + 2)
    table.apply(
        [
            Extend(*middle, 60),
            Extend(*middle, 60),
            Turn(*middle, 9, 60),
            Turn(b"key-000003", FIRST_TOKEN + 3),
        ],
        5,
    )
    slices += read_all(reader, 1)
    assert load(reader, slices).checksum() == before


def test_the_header_is_fixed_at_begin() -> None:
    table = filled(2)
    table.apply([Cancel((7,))], 0)
    table.remember_admin("first")
    reader = table.begin_snapshot()
    before = table.checksum()
    table.apply([Cancel((8,)), Turn(b"new", 0, 9, 9)], 0)
    table.remember_admin("second")
    loaded = load(reader, read_all(reader))
    assert loaded.checksum() == before
    assert (7 in loaded.ring, 8 in loaded.ring) == (True, False)
    assert list(loaded.admin_ids) == ["first"]


# --- stamps


def test_an_age_counts_for_less_here_so_that_no_lease_ends_early() -> None:
    table = filled(1, stamp_ns=1_000 * SECOND_NS)
    reader = table.begin_snapshot()
    loaded = load(reader, read_all(reader), clock_ns=1_050 * SECOND_NS)
    assert loaded.held[b"key-000000"].stamp_ns == RECEIPT_NS - 49_900_000_000


def test_a_stamp_after_the_senders_clock_becomes_the_receipt() -> None:
    table = filled(1, stamp_ns=2_000)
    reader = table.begin_snapshot()
    loaded = load(reader, read_all(reader), clock_ns=1_999)
    assert loaded.held[b"key-000000"].stamp_ns == RECEIPT_NS


def test_one_extension_late_in_time_does_not_delay_the_leases_granted_after_it() -> None:
    table = filled(1, lease=60, stamp_ns=0)
    table.apply([Turn(b"second", 0, 9, 60)], 10 * SECOND_NS)
    table.apply([Extend(b"key-000000", FIRST_TOKEN, 60)], 50 * SECOND_NS)
    reader = table.begin_snapshot()
    loaded = load(reader, read_all(reader), clock_ns=50 * SECOND_NS)
    assert loaded.held[b"second"].stamp_ns == RECEIPT_NS - 40 * SECOND_NS * 998 // 1000
    assert [held.key for held in loaded.least_left(2)] == [b"second", b"key-000000"]


def test_the_last_work_of_loading_comes_in_slices_too() -> None:
    table = filled(100, lease=60)
    extended = [held for held in in_token_order(table) if held.token % 2]
    for held in reversed(extended):
        table.apply([Extend(held.key, held.token, 60)], SECOND_NS)
    reader = table.begin_snapshot()
    slices = read_all(reader, 50)
    loader = SnapshotLoader(reader.header(), RECEIPT_NS, SECOND_NS)
    for data in slices:
        loader.feed(data)
    count = 1
    while (loaded := loader.finish_slice(10)) is None:
        count += 1
    assert 10 <= count <= 20
    assert loaded.checksum() == table.checksum()
    check_orders(loaded)


def test_a_loader_that_is_dropped_half_way_frees_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    table = filled(4, lease=60)
    table.apply([Extend(held.key, held.token, 60) for held in in_token_order(table)[:2]], SECOND_NS)
    reader = table.begin_snapshot()
    loader = SnapshotLoader(reader.header(), RECEIPT_NS, SECOND_NS)
    loader.feed(reader.next_slice(3))
    raised: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", raised.append)
    del loader
    gc.collect()
    assert not raised


# --- what did not come from a reader


def header_of(table: LockTable, **changes: object) -> SnapshotHeader:
    reader = table.begin_snapshot()
    reader.close()
    return msgspec.structs.replace(reader.header(), **changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"format": 2},
        {"format": 0},
        {"next_token": 0},
        {"next_token": 1 << 62},
        {"ring": b"odd"},
        {"admin_ids": ("id",) * 1_025},
    ],
    ids=["newer", "older", "no-token", "token-too-large", "ring", "admin-ids"],
)
def test_a_header_that_cannot_be_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(BadSnapshot):
        SnapshotLoader(header_of(filled(1), **changes), 0, 0)


GOOD = (b"k", FIRST_TOKEN, 0, 1 << 63, "", 60, 0, 0)


@pytest.mark.parametrize(
    "data",
    [
        b"\xc1",
        msgspec.msgpack.encode([GOOD[:-1]]),
        msgspec.msgpack.encode([GOOD, (b"other", *GOOD[1:])]),
        msgspec.msgpack.encode([GOOD, (b"k", FIRST_TOKEN + 1, *GOOD[2:])]),
        msgspec.msgpack.encode([(b"k", FIRST_TOKEN + 2, *GOOD[2:])]),
        msgspec.msgpack.encode([(*GOOD[:5], 251, 0, 0)]),
        msgspec.msgpack.encode([(*GOOD[:5], 0, 0, 0)]),
        msgspec.msgpack.encode([(*GOOD[:3], 0, *GOOD[4:])]),
    ],
    ids=["bytes", "fields", "token-twice", "key-twice", "token-beyond", "lease-long", "lease-0", "no-owner"],
)
def test_a_slice_that_cannot_be_is_refused(data: bytes) -> None:
    loader = SnapshotLoader(header_of(filled(2)), 0, 0)
    with pytest.raises(BadSnapshot):
        loader.feed(data)


def test_missing_keys_are_noticed() -> None:
    loader = SnapshotLoader(header_of(filled(2)), 0, 0)
    loader.feed(msgspec.msgpack.encode([GOOD]))
    with pytest.raises(BadSnapshot, match="1 held keys, the header said 2"):
        loader.finish()


def test_format_1_is_pinned() -> None:
    # Nodes of two versions send each other snapshots: other bytes need another format number.
    table = filled(1)
    table.ring.add(7)
    table.remember_admin("id")
    reader = table.begin_snapshot()
    header = msgspec.msgpack.encode(reader.header())
    assert header.hex() == "9501" + "cf0004000000000001" + "01" + "c4080000000000000007" + "91a26964"
    assert reader.next_slice(1).hex() == (
        "9198c40a" + b"key-000000".hex() + "cf0004000000000000" + "00" + "cf8000000000000000" + "a03c0000"
    )


def test_a_snapshot_that_breaks_off_can_be_taken_apart() -> None:
    """Extended keys stand in no expiry order yet: they are merged at the end, which may never come."""
    table = filled(10)
    table.apply([Extend(held.key, held.token, 60) for held in list(table.held.values())[::2]], 1_000)
    reader = table.begin_snapshot()
    loader = SnapshotLoader(reader.header(), RECEIPT_NS, 0)
    loader.feed(reader.next_slice(7))
    unfinished = loader.abandon()
    assert len(unfinished.held) == 7
    assert unfinished.dismantle(10)
    reader.close()
