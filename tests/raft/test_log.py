"""The log against a twin that is a plain list."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticketing.raft.log import ENTRY_OVERHEAD, Log
from ticketing.raft.types import Entry, EntryKind

BASE = 10


def filled(terms: list[int], sizes: list[int] | None = None) -> Log:
    log = Log(BASE, 1)
    for offset, term in enumerate(terms):
        data = b"x" * (sizes[offset] if sizes else 0)
        log.append(Entry(BASE + 1 + offset, term, EntryKind.COMMANDS, data, 1000 + offset))
    return log


terms = st.lists(st.integers(1, 5), max_size=12).map(sorted)
sizes = st.lists(st.integers(0, 900), min_size=12, max_size=12)


def size_of(log: Log, after: int, upto: int) -> int:
    first = max(after, log.base_index) + 1
    return sum(len(entry.data) + ENTRY_OVERHEAD for entry in log.entries(first, max(upto, first - 1)))


@given(terms, sizes, st.booleans(), st.data())
def test_the_size_of_a_stretch_is_that_of_its_entries_after_any_cut(
    terms: list[int], sizes: list[int], cut: bool, data: st.DataObject
) -> None:
    log = filled(terms, sizes)
    if terms and cut:
        log.truncate(data.draw(st.integers(BASE + 1, log.last_index)))
    log.compact(data.draw(st.integers(BASE, log.last_index)))
    after = data.draw(st.integers(log.base_index, log.last_index))
    upto = data.draw(st.integers(after, log.last_index))
    assert log.bytes_between(after, upto) == size_of(log, after, upto)
    assert log.bytes_between(0, upto) == size_of(log, log.base_index, upto)


@given(terms, sizes, st.data())
def test_as_many_entries_fit_as_their_sizes_allow(
    terms: list[int], sizes: list[int], data: st.DataObject
) -> None:
    log = filled(terms, sizes)
    first = data.draw(st.integers(BASE + 1, log.last_index + 1))
    limit = data.draw(st.integers(0, 4000))
    last = log.last_fitting(first, limit)
    assert first - 1 <= last <= log.last_index
    assert log.bytes_between(first - 1, last) <= limit
    assert last == log.last_index or log.bytes_between(first - 1, last + 1) > limit


@given(terms, sizes, st.data())
def test_the_base_that_keeps_enough_is_the_lowest_one(
    terms: list[int], sizes: list[int], data: st.DataObject
) -> None:
    log = filled(terms, sizes)
    upto = data.draw(st.integers(BASE, log.last_index))
    keep = data.draw(st.integers(0, 4000))
    base = log.base_keeping(upto, keep)
    assert BASE <= base <= upto
    assert log.bytes_between(base, upto) <= keep
    assert base == BASE or log.bytes_between(base - 1, upto) > keep


@given(terms, st.integers(BASE, BASE + 14), st.integers(0, 6))
def test_the_last_entry_of_a_term_is_found_as_by_walking_back(
    terms: list[int], index: int, term: int
) -> None:
    log = filled(terms)
    expected = min(index, log.last_index)
    while expected > BASE and log.term_at(expected) > term:
        expected -= 1
    assert log.last_of_term(index, term) == expected


def test_compaction_keeps_the_term_of_the_new_base_and_what_lies_after_it() -> None:
    log = filled([1, 2, 2, 3])
    log.compact(BASE + 3)
    assert (log.base_index, log.base_term, log.last_index, log.last_term) == (BASE + 3, 2, BASE + 4, 3)
    assert log.term_at(BASE + 3) == 2
    assert [entry.index for entry in log.entries(BASE + 4, BASE + 4)] == [BASE + 4]


def test_an_empty_log_ends_with_its_base() -> None:
    log = Log(7, 3)
    assert (log.last_index, log.last_term, log.last_stamp_ns) == (7, 3, None)
    assert log.contains(7, 3)
    assert not log.contains(7, 2)
    assert not log.contains(8, 3)


def test_after_a_snapshot_nothing_of_the_old_log_is_left() -> None:
    log = filled([1, 2, 3], [10, 20, 30])
    log.reset(50, 4)
    log.append(Entry(51, 5, EntryKind.COMMANDS, b"abc", 5))
    assert (log.base_index, log.last_index, log.last_term) == (50, 51, 5)
    assert log.bytes_between(50, 51) == 3 + ENTRY_OVERHEAD


@pytest.mark.parametrize(
    "entry",
    [Entry(BASE + 2, 2, 1, b"", 0), Entry(BASE, 2, 1, b"", 0), Entry(BASE + 1, 0, 1, b"", 0)],
)
def test_a_gap_and_a_falling_term_are_our_own_mistakes(entry: Entry) -> None:
    with pytest.raises(AssertionError):
        Log(BASE, 1).append(entry)


def test_what_was_compacted_cannot_be_read() -> None:
    log = filled([1, 2, 3])
    log.compact(BASE + 2)
    with pytest.raises(AssertionError):
        log.entries(BASE + 2, BASE + 3)
    with pytest.raises(AssertionError):
        log.term_at(BASE + 1)


@given(terms)
def test_terms_never_fall_along_the_log(terms: list[int]) -> None:
    log = filled(terms)
    along = [log.term_at(index) for index in range(BASE, log.last_index + 1)]
    assert all(one <= other for one, other in pairwise(along))
