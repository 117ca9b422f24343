"""All held keys of a table: by their bytes, and in the order of their tokens.

Python rebuilds a dict that has to grow, or to be tidied after many removals, in one piece: a sixth of a second at a
million keys. So the keys are spread over `PARTS` dicts, none of which is ever large.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ticketing.locks.held import DETACHED, Held, sentinel

if TYPE_CHECKING:
    from ticketing.locks.walk import TokenWalk

_PART_BITS = 8
PARTS = 1 << _PART_BITS
_SHIFT = sys.hash_info.width - _PART_BITS


class HeldKeys:
    """The held keys. Readable by anybody, changed by the table alone.

    A key's part follows from the upper bits of its hash (a dict goes by the lower ones), so it differs from process
    to process. It shows nowhere: whatever visits keys does so in token order.
    """

    __slots__ = ("_count", "_parts", "tokens", "walks")

    def __init__(self) -> None:
        self.tokens = sentinel()
        """Closes the ring of all held keys in token order."""
        self.walks: list[TokenWalk] = []
        """Are told what is about to leave."""
        # The shift keeps the sign: parts are -128..127, which a list takes as they are.
        self._parts: list[dict[bytes, Held]] = [{} for _ in range(PARTS)]
        self._count = 0

    def get(self, key: bytes) -> Held | None:
        """Who holds `key`, if anybody does."""
        return self._parts[hash(key) >> _SHIFT].get(key)

    def __getitem__(self, key: bytes) -> Held:
        return self._parts[hash(key) >> _SHIFT][key]

    def __contains__(self, key: bytes) -> bool:
        return key in self._parts[hash(key) >> _SHIFT]

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[bytes]:
        return (held.key for held in self.values())

    def values(self) -> Iterator[Held]:
        """All, the oldest token first. Nothing may be changed meanwhile: `TokenWalk` allows that."""
        end = self.tokens
        held = end.newer
        while held is not end:
            yield held
            held = held.newer

    def items(self) -> Iterator[tuple[bytes, Held]]:
        """As `values`, with the keys."""
        return ((held.key, held) for held in self.values())

    def add(self, held: Held) -> None:
        """A free key is held from now on, under a token above all others."""
        self._count += 1
        key = held.key
        self._parts[hash(key) >> _SHIFT][key] = held
        self._enter_newest(held)

    def replace(self, former: Held, held: Held) -> None:
        """A held key passes on, under a token above all others."""
        key = held.key
        assert key is former.key, "the dict keeps its first key object: the records share it"
        self._parts[hash(key) >> _SHIFT][key] = held
        self._enter_newest(held)
        # Only now: a walk that stood at this last record goes on to its successor, not to the end.
        self._leave(former)

    def remove(self, held: Held) -> None:
        """A held key becomes free."""
        self._count -= 1
        del self._parts[hash(held.key) >> _SHIFT][held.key]
        self._leave(held)

    def take_any(self) -> Held | None:
        """Takes a table apart, whatever order that is in; None once nothing is left. Nothing else may be asked of it
        any more but its length.
        """
        parts = self._parts
        while parts:
            if parts[-1]:
                self._count -= 1
                held = parts[-1].popitem()[1]
                self._leave(held)
                return held
            parts.pop()
        return None

    def _enter_newest(self, held: Held) -> None:
        end = self.tokens
        newest = end.older
        held.older = newest
        held.newer = end
        newest.newer = end.older = held

    def _leave(self, held: Held) -> None:
        for walk in self.walks:
            walk.leaving(held)
        before, after = held.older, held.newer
        before.newer = after
        after.older = before
        held.older = held.newer = DETACHED
