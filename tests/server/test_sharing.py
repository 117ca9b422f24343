"""A turn of the loop is shared: whoever sends much at a stroke is heard in slices, in order and in full."""

from __future__ import annotations

import asyncio
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from ticketing.server.sharing import SLICE, TURN_BYTES, Sharing


class FakeReader:
    def __init__(self, taken: list[tuple[FakeReader, bytes]]) -> None:
        self.held = b""
        self.ready = True
        self.reading = True
        self.stops_after = -1
        self.got = b""
        self._taken = taken

    def take(self, data: bytes) -> None:
        self.got += data
        self._taken.append((self, data))
        if 0 <= self.stops_after <= len(self.got):
            self.stops_after = -1
            self.ready = False

    def stop_reading(self) -> None:
        self.reading = False

    def read_on(self) -> None:
        if self.ready:
            self.reading = True


async def turn() -> None:
    await asyncio.sleep(0)


async def test_a_turn_takes_a_bounded_number_of_bytes_of_all_together() -> None:
    taken: list[tuple[FakeReader, bytes]] = []
    sharing = Sharing(asyncio.get_running_loop())
    readers = [FakeReader(taken) for _ in range(6)]
    for reader in readers:
        sharing.offer(reader, bytes(200_000))
    while any(reader.held for reader in readers):
        assert sum(len(data) for _reader, data in taken) <= TURN_BYTES
        assert [reader.reading for reader in readers] == [not reader.held for reader in readers]
        taken.clear()
        await turn()
    assert [len(reader.got) for reader in readers] == [200_000] * 6


async def test_those_that_wait_take_turns() -> None:
    taken: list[tuple[FakeReader, bytes]] = []
    sharing = Sharing(asyncio.get_running_loop())
    first, second = FakeReader(taken), FakeReader(taken)
    sharing.offer(first, bytes(TURN_BYTES + 4 * SLICE))
    sharing.offer(second, bytes(4 * SLICE))
    taken.clear()
    await turn()
    assert {reader for reader, _data in taken} == {first, second}
    assert all(one[0] is not other[0] for one, other in pairwise(taken))


async def test_one_that_is_not_ready_waits_without_reading_and_loses_nothing() -> None:
    taken: list[tuple[FakeReader, bytes]] = []
    sharing = Sharing(asyncio.get_running_loop())
    for stops_after in (1, TURN_BYTES + 1):
        reader = FakeReader(taken)
        reader.stops_after = stops_after
        data = bytes(range(256)) * 1_000
        sharing.offer(reader, data)
        for _ in range(50):
            await turn()
        assert (bool(reader.held), reader.reading) == (True, False)
        reader.ready = True
        sharing.go_on(reader)
        while reader.held:
            await turn()
        assert reader.got == data
        assert reader.reading
        await turn()


async def test_one_that_is_over_is_forgotten() -> None:
    taken: list[tuple[FakeReader, bytes]] = []
    sharing = Sharing(asyncio.get_running_loop())
    gone, other = FakeReader(taken), FakeReader(taken)
    sharing.offer(gone, bytes(200_000))
    sharing.offer(other, bytes(200_000))
    gone.ready, gone.held = False, b""
    taken.clear()
    while other.held:
        await turn()
    assert all(reader is other for reader, _data in taken)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 150_000)), max_size=8))
@settings(max_examples=50, deadline=None)
def test_all_arrives_in_order(offers: list[tuple[int, int]]) -> None:
    async def scene() -> None:
        sharing = Sharing(asyncio.get_running_loop())
        readers = [FakeReader([]) for _ in range(3)]
        sent = [b"", b"", b""]
        for number, (place, size) in enumerate(offers):
            while readers[place].held:
                await turn()
            data = number.to_bytes() * size
            sent[place] += data
            sharing.offer(readers[place], data)
        while any(reader.held for reader in readers):
            await turn()
        assert [reader.got for reader in readers] == sent

    asyncio.run(scene())
