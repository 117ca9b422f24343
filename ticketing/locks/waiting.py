"""The waiting acquires of one leader: a queue a key, a list a session, a list a wait, an index by owner.

A waiter stands in all four at once and leaves all of them in constant time, wherever it stands. The lists are
intrusive; what left them is freed by its reference count (its links are cut, so no cycle keeps it).

Waits are whole seconds up to 255 and requests come in the order of their reading, so one list for each wait
is in the order of deadlines by itself: no heap, and nothing that a dead waiter leaves behind.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from itertools import islice

from ticketing.locks.keystate import KeyState
from ticketing.locks.session import DeskSession
from ticketing.protocol.fields import WAIT_MAX

SECOND_NS = 1_000_000_000
NEVER_NS = 1 << 62
"""After every deadline. The deadline of an acquire with wait 0, which nobody times out."""

RIVALS_LOOKED_AT = 64
"""How many requests of one owner are looked through for one that takes a grant over. An owner is drawn for
one request; more than two of them at once is a client's fault, and must cost the leader nothing.
"""


class Waiter:
    """One acquire from its arrival to its answer.

    Uncontended ones are in flight at once and never enter a list. Nothing but `Waiters` changes the links.
    """

    __slots__ = (
        "ahead",
        "behind",
        "due_ahead",
        "due_behind",
        "due_ns",
        "lease",
        "op",
        "owner",
        "read_ns",
        "seat_ahead",
        "seat_behind",
        "session",
        "state",
        "wait",
    )

    state: KeyState | None
    """The key that it waits for; None once it does not wait any more."""
    ahead: Waiter | None
    behind: Waiter | None
    due_ahead: Waiter | None
    due_behind: Waiter | None
    seat_ahead: Waiter | None
    seat_behind: Waiter | None

    def __init__(
        self, session: DeskSession, op: int, wait: int, lease: int, owner: int, read_ns: int
    ) -> None:
        self.session = session
        self.op = op
        """`frames.ACQUIRE` or `frames.Q`: how it wants to be answered."""
        self.wait = wait
        """Seconds. 0: it asks once, stands in no key's queue and is never timed out."""
        self.lease = lease
        self.owner = owner
        self.read_ns = read_ns
        """The elapsed clock after the request's bytes were read."""
        self.due_ns = read_ns + wait * SECOND_NS if wait else NEVER_NS
        self.state = None


class Seat:
    """The waiters of one session."""

    __slots__ = ("count", "first", "last")

    def __init__(self) -> None:
        self.count = 0
        self.first: Waiter | None = None
        self.last: Waiter | None = None


class Waiters:
    """All waiting acquires.

    Invariant: `count` is the sum of the seats' counts, and of the keys' `waiting` plus one for each `once`.
    """

    def __init__(self) -> None:
        self.count = 0
        self.by_owner: dict[int, Waiter | dict[Waiter, None]] = {}
        """Nearly always one request an owner; more stand in a dict, in the order of their arrival."""
        self.by_length: list[dict[KeyState, None]] = [{} for _ in range(24)]
        """The keys by the bit length of how many wait: what a list of the longest queues is read from."""
        self.onces: OrderedDict[KeyState, None] = OrderedDict()
        """The keys with a `once`."""
        self._seats: dict[DeskSession, Seat] = {}
        # One list a wait; that of wait 0 is never looked at.
        self._due_first: list[Waiter | None] = [None] * (WAIT_MAX + 1)
        self._due_last: list[Waiter | None] = [None] * (WAIT_MAX + 1)
        self._next_due_ns = NEVER_NS
        self._next_due_known = True

    # --- entering and leaving

    def add(self, state: KeyState, waiter: Waiter) -> None:
        """Puts `waiter` last in the queue of its key; one with wait 0 into the key's `once`."""
        waiter.state = state
        wait = waiter.wait
        if wait:
            last = state.last
            waiter.ahead = last
            waiter.behind = None
            if last is None:
                state.first = waiter
            else:
                last.behind = waiter
            state.last = waiter
            self._longer(state)
        else:
            assert state.once is None, state
            state.once = waiter
            self.onces[state] = None
        self._add_due(waiter)
        self._enter(waiter)

    def put_back(self, state: KeyState, waiter: Waiter) -> None:
        """Puts a waiter whose turn had no effect back to the place that it had: the first."""
        if not waiter.wait:
            self.add(state, waiter)
            return
        waiter.state = state
        first = state.first
        waiter.ahead = None
        waiter.behind = first
        if first is None:
            state.last = waiter
        else:
            first.ahead = waiter
        state.first = waiter
        self._longer(state)
        self._add_due(waiter)
        self._enter(waiter)

    def remove(self, waiter: Waiter) -> KeyState:
        """Takes `waiter` out of everything and returns the key's state that it stood in."""
        state = waiter.state
        assert state is not None, "it does not wait"
        waiter.state = None
        if waiter.wait:
            ahead, behind = waiter.ahead, waiter.behind
            if ahead is None:
                state.first = behind
            else:
                ahead.behind = behind
            if behind is None:
                state.last = ahead
            else:
                behind.ahead = ahead
            waiter.ahead = waiter.behind = None
            self._shorter(state)
        else:
            state.once = None
            del self.onces[state]
        self._leave_due(waiter)
        self._leave_seat(waiter)
        self._leave_owner(waiter)
        self.count -= 1
        return state

    def _enter(self, waiter: Waiter) -> None:
        self.count += 1
        session = waiter.session
        seat = self._seats.get(session)
        if seat is None:
            seat = self._seats[session] = Seat()
        seat.count += 1
        last = seat.last
        waiter.seat_ahead = last
        waiter.seat_behind = None
        if last is None:
            seat.first = waiter
        else:
            last.seat_behind = waiter
        seat.last = waiter
        owner = waiter.owner
        others = self.by_owner.get(owner)
        if others is None:
            self.by_owner[owner] = waiter
        elif isinstance(others, Waiter):
            self.by_owner[owner] = {others: None, waiter: None}
        else:
            others[waiter] = None

    def _leave_seat(self, waiter: Waiter) -> None:
        session = waiter.session
        seat = self._seats[session]
        ahead, behind = waiter.seat_ahead, waiter.seat_behind
        if ahead is None:
            seat.first = behind
        else:
            ahead.seat_behind = behind
        if behind is None:
            seat.last = ahead
        else:
            behind.seat_ahead = ahead
        waiter.seat_ahead = waiter.seat_behind = None
        seat.count -= 1
        if not seat.count:
            del self._seats[session]

    def _leave_owner(self, waiter: Waiter) -> None:
        owner = waiter.owner
        others = self.by_owner[owner]
        if others is waiter:
            del self.by_owner[owner]
            return
        assert isinstance(others, dict), "two requests of one owner, one entry"
        del others[waiter]
        if len(others) == 1:
            self.by_owner[owner] = next(iter(others))

    def _longer(self, state: KeyState) -> None:
        count = state.waiting = state.waiting + 1
        if not count & (count - 1):
            length = count.bit_length()
            if length > 1:
                del self.by_length[length - 1][state]
            self.by_length[length][state] = None

    def _shorter(self, state: KeyState) -> None:
        count = state.waiting
        state.waiting = count - 1
        if not count & (count - 1):
            length = count.bit_length()
            del self.by_length[length][state]
            if length > 1:
                self.by_length[length - 1][state] = None

    # --- deadlines

    def _add_due(self, waiter: Waiter) -> None:
        wait = waiter.wait
        before = self._due_last[wait]
        while before is not None and before.due_ns > waiter.due_ns:
            # Only for one that comes back to the queue: the others come in the order of their reading.
            before = before.due_ahead
        behind = self._due_first[wait] if before is None else before.due_behind
        waiter.due_ahead = before
        waiter.due_behind = behind
        if before is None:
            self._due_first[wait] = waiter
            if wait and waiter.due_ns < self._next_due_ns:
                self._next_due_ns = waiter.due_ns
        else:
            before.due_behind = waiter
        if behind is None:
            self._due_last[wait] = waiter
        else:
            behind.due_ahead = waiter

    def _leave_due(self, waiter: Waiter) -> None:
        wait = waiter.wait
        ahead, behind = waiter.due_ahead, waiter.due_behind
        if ahead is None:
            self._due_first[wait] = behind
            if waiter.due_ns == self._next_due_ns:
                self._next_due_known = False
        else:
            ahead.due_behind = behind
        if behind is None:
            self._due_last[wait] = ahead
        else:
            behind.due_ahead = ahead
        waiter.due_ahead = waiter.due_behind = None

    @property
    def next_due_ns(self) -> int:
        """The earliest deadline; `NEVER_NS` where nobody has one."""
        if not self._next_due_known:
            firsts = (first for first in self._due_first[1:] if first is not None)
            self._next_due_ns = min((first.due_ns for first in firsts), default=NEVER_NS)
            self._next_due_known = True
        return self._next_due_ns

    def overdue(self, now_ns: int, limit: int) -> list[Waiter]:
        """At most `limit` waiters whose wait is over; they stay in the lists until `remove`."""
        found: list[Waiter] = []
        if now_ns < self.next_due_ns:
            return found
        for first in self._due_first[1:]:
            waiter = first
            while waiter is not None and waiter.due_ns <= now_ns and len(found) < limit:
                found.append(waiter)
                waiter = waiter.due_behind
        return found

    # --- questions

    def of_session(self, session: DeskSession) -> int:
        """How many acquires of this session wait."""
        seat = self._seats.get(session)
        return seat.count if seat is not None else 0

    def some_of_session(self, session: DeskSession, limit: int) -> list[Waiter]:
        """The first `limit` of the session's waiters."""
        found: list[Waiter] = []
        seat = self._seats.get(session)
        waiter = seat.first if seat is not None else None
        while waiter is not None and len(found) < limit:
            found.append(waiter)
            waiter = waiter.seat_behind
        return found

    def some(self, limit: int) -> list[Waiter]:
        """`limit` waiters, session by session: for answering all of them in slices."""
        found: list[Waiter] = []
        for seat in self._seats.values():
            waiter = seat.first
            while waiter is not None and len(found) < limit:
                found.append(waiter)
                waiter = waiter.seat_behind
            if len(found) >= limit:
                break
        return found

    def of_owner(self, owner: int, limit: int) -> list[Waiter]:
        """At most `limit` waiting requests of `owner`, whatever their key, in the order of their arrival."""
        return list(islice(self._owners(owner), limit))

    def rival(self, state: KeyState, owner: int, now_ns: int, lease: int = 0) -> Waiter | None:
        """The first living request of `owner` for this key (with exactly this lease, where one is named)."""
        for waiter in islice(self._owners(owner), RIVALS_LOOKED_AT):
            if (
                waiter.state is state
                and (not lease or waiter.lease == lease)
                and not waiter.session.ended
                and waiter.due_ns > now_ns
            ):
                return waiter
        return None

    def newest_of_owner(self, owner: int) -> Waiter | None:
        """The newest waiting request of `owner`."""
        others = self.by_owner.get(owner)
        return next(reversed(others)) if isinstance(others, dict) else others

    def _owners(self, owner: int) -> Iterator[Waiter]:
        others = self.by_owner.get(owner)
        if isinstance(others, Waiter):
            return iter((others,))
        return iter(others or ())

    @property
    def oldest_read_ns(self) -> int | None:
        """When the request that has waited longest was read; None where nobody waits."""
        firsts = (first for first in self._due_first[1:] if first is not None)
        return min((first.read_ns for first in firsts), default=None)
