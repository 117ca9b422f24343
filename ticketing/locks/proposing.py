"""What one turn of the leader's loop proposes: its commands in order, its cancels, the room for both."""

from __future__ import annotations

from collections import deque

from ticketing.locks.codec import size_of
from ticketing.locks.commands import Cancel, LockCommand
from ticketing.locks.keystate import Ask

CANCELS_PER_TURN = 2_000
"""Owners in one cancel entry: applying it stays within a few milliseconds. The rest go with the next turn."""
OWNER_BYTES_MAX = 9
_CANCEL_BYTES = size_of(Cancel(()))


class Batch:
    """The commands of one turn, as far as their grants need it."""

    __slots__ = ("taken_ns",)

    def __init__(self) -> None:
        self.taken_ns = -1
        """The elapsed clock when they were taken for proposing; below zero: not yet."""


class Proposals:
    """The outgoing side of the desk."""

    def __init__(self) -> None:
        self.wall_ms = 0
        """The wall clock, Unix milliseconds, for the records that people read. Set by the node."""
        self.pending: list[LockCommand] = []
        """Turns and extensions to be proposed, in order. The turn's cancel joins them in `take_pending`."""
        self.cancelling: dict[int, int] = {}
        """Owners with cancels that are not applied yet, and how many. None of them is granted anything."""
        self._batch = Batch()
        self._cancels: list[Ask] = []
        self._cancel_owners: dict[int, None] = {}
        self._cancels_in_flight: deque[list[Ask]] = deque()
        self._cancels_kept: deque[Ask] = deque()
        self._room = 0
        self._reserved_room = 0
        self._untaken = 0  # bytes emitted since the last `take_pending`
        # Something did not fit, and there has not been more room since.
        self._grants_short = False
        self._ends_short = False
        self._room_queue = False  # a grant was kept for room: later ones stand behind it

    @property
    def room(self) -> int:
        """Bytes that Raft would still take for grants. Set by the node when that changes; 0 while a transfer
        is under way. What was emitted and is not taken yet counts against it whenever it is set.
        """
        return max(0, self._room - self._untaken)

    @room.setter
    def room(self, value: int) -> None:
        self.allow(value, self._reserved_room)

    @property
    def reserved_room(self) -> int:
        """Bytes on top of `room` for cancels and for what ends or extends an ownership. Set by the node."""
        return max(0, self._reserved_room - max(0, self._untaken - self._room))

    @reserved_room.setter
    def reserved_room(self, value: int) -> None:
        self.allow(self._room, value)

    def allow(self, room: int, reserved_room: int) -> None:
        """Sets `room` and `reserved_room`; below zero counts as none."""
        room, reserved_room = max(0, room), max(0, reserved_room)
        if room > self._room:
            self._grants_short = self._ends_short = False
        elif reserved_room > self._reserved_room:
            self._ends_short = False
        self._room, self._reserved_room = room, reserved_room

    @property
    def has_pending(self) -> bool:
        """Whether `take_pending` would return anything."""
        return bool(self.pending or self._cancels)

    @property
    def pending_bytes(self) -> int:
        """What `take_pending` would return takes at most, encoded."""
        return self._untaken

    def take_pending(self, now_ns: int) -> list[LockCommand]:
        """The commands of this turn, each once, to be proposed as one entry right after this call.

        `now_ns` is a reading made before that: the second of the two that `waited` lies between (spec 3,
        `G`). They come back through `applied` in the same order.
        """
        if self._cancels:
            self.pending.append(Cancel(tuple(self._cancel_owners)))
            self._cancels_in_flight.append(self._cancels)
            self._cancels = []
            self._cancel_owners = {}
        pending = self.pending
        if pending:
            self._batch.taken_ns = now_ns
            self._batch = Batch()
            self.pending = []
            self._room, self._reserved_room = self.room, self.reserved_room
            self._untaken = 0
        return pending

    def _take_room(self, size: int, *, reserve: bool) -> bool:
        size += self._untaken
        if size <= self._room or (reserve and size <= self._room + self._reserved_room):
            self._untaken = size
            return True
        self._grants_short = self._room_queue = True
        if reserve:
            self._ends_short = True
        return False

    def _has_room(self) -> bool:
        """Whether there is any room at all."""
        if self._untaken < self._room + self._reserved_room:
            return True
        self._grants_short = self._ends_short = True
        return False

    def _is_short(self, *, reserve: bool) -> bool:
        return self._ends_short if reserve else self._grants_short

    def _propose_cancel(self, ask: Ask) -> None:
        """Collects a cancel for this turn's entry, or keeps it until there is room."""
        self.cancelling[ask.number] = self.cancelling.get(ask.number, 0) + 1
        if self._cancels_kept or not self._collect(ask):
            self._cancels_kept.append(ask)

    def _propose_kept_cancels(self) -> None:
        kept = self._cancels_kept
        while kept and self._collect(kept[0]):
            kept.popleft()

    def _collect(self, ask: Ask) -> bool:
        owners = self._cancel_owners
        if ask.number not in owners:
            if len(owners) >= CANCELS_PER_TURN:
                return False
            size = OWNER_BYTES_MAX if owners else OWNER_BYTES_MAX + _CANCEL_BYTES
            if not self._take_room(size, reserve=True):
                return False
            owners[ask.number] = None
        elif len(self._cancels) >= 2 * CANCELS_PER_TURN:
            return False
        self._cancels.append(ask)
        return True

    def _cancel_done(self, asks: list[Ask]) -> None:
        """A cancel was applied and its owners wait for nothing any more: they count as cancelling no longer."""
        cancelling = self.cancelling
        for ask in asks:
            left = cancelling[ask.number] - 1
            if left:
                cancelling[ask.number] = left
            else:
                del cancelling[ask.number]
