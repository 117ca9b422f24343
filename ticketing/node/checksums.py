"""Whether all nodes have the same state: each tells the checksum of its own at an index that the asker names (spec 6).

States can be compared at equal index alone. Whoever compares asks every node for the same index, a little ahead of
all; each begins when it has applied exactly that far, and reckons in slices. A node that does not come so far in time,
as nothing is going on, tells of where it stands.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ticketing.locks.checksum import TableChecksum
from ticketing.node.asked import CannotError
from ticketing.node.settings import S
from ticketing.node.state import ReplicatedState
from ticketing.raft.types import MS

ASKED_MAX = 4
"""At a time; each may keep a copy of what changes meanwhile."""
REACH_NS = 3 * S
"""How long it is waited for the index."""
SLICE = 500
SLICE_NS = 2 * MS
NEVER = 1 << 63


class StateChecksum(NamedTuple):
    """A node's whole replicated state at one index."""

    applied_index: int
    checksum: int
    held: int
    """Locks held then."""


Told = Callable[[StateChecksum | None], None]
"""Called once; with None where the state was replaced meanwhile, or is gone."""


class _Reckoning:
    """One that has begun."""

    __slots__ = ("held", "index", "rest", "table", "told")

    def __init__(self, state: ReplicatedState, told: Told) -> None:
        self.told = told
        self.index = state.applied_index
        self.held = len(state.table.held)
        self.rest = state.checksum_without_table()
        self.table = TableChecksum(state.table)


class Checksums:
    """Those that are asked for. Nothing of it costs anything while nobody asks."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, int, Told]] = []
        """Index, until when it is waited for, and whom to tell."""
        self._reckoning: list[_Reckoning] = []
        self.next_index = NEVER
        """The smallest index that is waited for: `applied` is to be called when it has been applied."""

    @property
    def busy(self) -> bool:
        """Whether there is work for `step` now."""
        return bool(self._reckoning)

    @property
    def asked(self) -> bool:
        """Whether `step` is wanted at all: also for those whose time to wait may be over."""
        return bool(self._reckoning or self._waiting)

    def ask(self, state: ReplicatedState, index: int, now_ns: int, told: Told) -> None:
        """Wants the checksum at this index, or at the present one where that has been passed."""
        if len(self._waiting) + len(self._reckoning) >= ASKED_MAX:
            raise CannotError(
                "busy", f"{ASKED_MAX} checksums are being reckoned already: ask again in a moment"
            )
        if index <= state.applied_index:
            self._reckoning.append(_Reckoning(state, told))
        else:
            self._waiting.append((index, now_ns + REACH_NS, told))
            self._look_ahead()

    def applied(self, state: ReplicatedState) -> None:
        """An entry was applied whose index is waited for."""
        self._begin(state, [one for one in self._waiting if one[0] <= state.applied_index])

    def step(self, state: ReplicatedState, now_ns: int, clock_ns: Callable[[], int]) -> None:
        """A slice of the work; to be called at every tick while `asked`, soon while `busy`."""
        self._begin(state, [one for one in self._waiting if one[1] <= now_ns])
        until_ns = now_ns + SLICE_NS
        while self._reckoning and clock_ns() <= until_ns:
            one = self._reckoning[0]
            found = one.table.step(SLICE)
            if found is not None:
                del self._reckoning[0]
                one.told(StateChecksum(one.index, found ^ one.rest, one.held))

    def drop(self) -> None:
        """The state is replaced, or gone: whoever waits is told so. Before its table is taken apart."""
        waiting, self._waiting = self._waiting, []
        reckoning, self._reckoning = self._reckoning, []
        self.next_index = NEVER
        for _, _, told in waiting:
            told(None)
        for one in reckoning:
            one.table.close()
            one.told(None)

    def _begin(self, state: ReplicatedState, due: list[tuple[int, int, Told]]) -> None:
        if due:
            self._waiting = [one for one in self._waiting if one not in due]
            self._reckoning += [_Reckoning(state, told) for _, _, told in due]
            self._look_ahead()

    def _look_ahead(self) -> None:
        self.next_index = min((index for index, _, _ in self._waiting), default=NEVER)
