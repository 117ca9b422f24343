"""The owners that were cancelled last, replicated in the order of their cancel entries (spec 5)."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable

RING_SIZE = 65_536


class OwnerRing:
    """The last `size` cancels. An owner is contained while its newest cancel is among them.

    A repeated cancel takes a new place (its late copies may be as late as the cancel is); the former place
    stays occupied, so that what the ring forgets depends on the number of cancels alone.
    """

    __slots__ = ("_begin", "_newest", "_places", "size")

    def __init__(self, size: int = RING_SIZE) -> None:
        self.size = size
        self._places = array("Q")
        self._begin = 0  # of the oldest, once all places are taken
        self._newest: dict[int, int] = {}  # owner -> place of its newest cancel

    def __len__(self) -> int:
        return len(self._places)

    def contains(self, owner: int) -> bool:
        """Whether no late copy of this owner's request may be granted any more."""
        return owner in self._newest

    def __contains__(self, owner: int) -> bool:
        return owner in self._newest

    def add(self, owner: int) -> None:
        """Notes one cancel; the oldest one is forgotten where the ring was full."""
        places = self._places
        place = self._begin
        if len(places) < self.size:
            place = len(places)
            places.append(owner)
        else:
            forgotten = places[place]
            if self._newest[forgotten] == place:
                del self._newest[forgotten]
            places[place] = owner
            self._begin = (place + 1) % self.size
        self._newest[owner] = place

    def extend(self, owners: Iterable[int]) -> None:
        """Notes several cancels in this order."""
        for owner in owners:
            self.add(owner)

    def to_bytes(self) -> bytes:
        """All cancels, oldest first, 8 big-endian bytes each."""
        ordered = self._places[self._begin :] + self._places[: self._begin]
        if sys.byteorder == "little":
            ordered.byteswap()
        return ordered.tobytes()

    @classmethod
    def from_bytes(cls, data: bytes, size: int = RING_SIZE) -> OwnerRing:
        """The ring that `to_bytes` told. Raises ValueError where `data` is no such thing."""
        places = array("Q")
        if len(data) % places.itemsize or len(data) > size * places.itemsize:
            raise ValueError(f"{len(data)} bytes are no ring of at most {size} owners")
        places.frombytes(data)
        if sys.byteorder == "little":
            places.byteswap()
        ring = cls(size)
        ring._places = places
        ring._newest = dict(zip(places, range(len(places)), strict=True))
        return ring
