from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ticketing.locks.ring import RING_SIZE, OwnerRing

BIG = (1 << 64) - 1


@given(st.lists(st.integers(0, 9), max_size=60), st.integers(1, 7))
@settings(max_examples=150)
def test_the_ring_contains_exactly_the_owners_of_the_last_cancels(owners: list[int], size: int) -> None:
    ring = OwnerRing(size)
    for count, owner in enumerate(owners, start=1):
        ring.add(owner)
        last = owners[max(0, count - size) : count]
        assert len(ring) == len(last)
        assert [number for number in range(10) if ring.contains(number)] == sorted(set(last))


@given(
    st.lists(st.integers(0, BIG), max_size=40), st.lists(st.integers(0, 3), max_size=20), st.integers(1, 7)
)
@settings(max_examples=100)
def test_a_ring_read_back_goes_on_as_the_original(owners: list[int], later: list[int], size: int) -> None:
    ring = OwnerRing(size)
    ring.extend(owners)
    copy = OwnerRing.from_bytes(ring.to_bytes(), size)
    for owner in [*later, BIG]:
        ring.add(owner)
        copy.add(owner)
        assert copy.to_bytes() == ring.to_bytes()
        assert all(copy.contains(known) == ring.contains(known) for known in [*owners, *later, BIG])


def test_the_bytes_are_big_endian_and_oldest_first() -> None:
    ring = OwnerRing(2)
    ring.extend([1, 2, 3])
    assert ring.to_bytes() == bytes(7) + b"\x02" + bytes(7) + b"\x03"


@pytest.mark.parametrize("length", [7, 8 * RING_SIZE + 8])
def test_bytes_that_are_no_ring_are_refused(length: int) -> None:
    with pytest.raises(ValueError, match="no ring"):
        OwnerRing.from_bytes(bytes(length))


def test_the_65537th_cancel_forgets_the_first() -> None:
    ring = OwnerRing()
    ring.extend(range(RING_SIZE))
    assert 0 in ring
    ring.add(RING_SIZE)
    assert 0 not in ring
    assert 1 in ring
    assert RING_SIZE in ring
