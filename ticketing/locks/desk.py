"""The desk of the serving leader: requests in, commands and answers out (spec 4 to 7).

One desk lives as long as one lead. It reads the lock table, decides, appends frames to sessions and commands
to `pending`; it sends nothing and reads no clock. Its layers: `proposing` (what leaves in this turn), `turns`
(what is in flight and what follows), `requests` (what is asked), and here the ends of sessions, barriers, time
and the end of the lead.

All state is for keys that somebody waits for or that have something in flight. A key that is held, or free,
with neither costs the desk nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice

from ticketing.locks.figures import KeyView, QueuePage, QueueView
from ticketing.locks.held import Held
from ticketing.locks.keystate import (
    RESEND,
    REVOKE,
    Ask,
    KeyState,
)
from ticketing.locks.limits import DeskLimits
from ticketing.locks.requests import Requests
from ticketing.locks.session import DeskSession
from ticketing.locks.table import LockTable
from ticketing.locks.turns import CANCELLED_PER_SLICE, DEAD_SKIPPED_MAX
from ticketing.locks.undelivered import unhanded_grants
from ticketing.locks.views import key_view, longest_queue, longest_queues, queue_page
from ticketing.locks.waiting import NEVER_NS, Waiter
from ticketing.protocol import frames

__all__ = ["LOST", "Desk", "DeskLimits"]

LOST = -2
"""The outcome of a revocation that the lead did not live to see. It may be repeated under its id."""

# Each costs some 1 to 3 µs; all of them in one slice stay within 5 ms (spec 6) on a slow machine too.
TIMEOUTS_PER_SLICE = 500
DROPPED_PER_SLICE = 500
EXPIRIES_PER_SLICE = 256
KEYS_PER_SLICE = 256
EXPIRIES_IN_FLIGHT_MAX = 2_000
EXPIRY_LOOK_NS = 5_000_000
"""How long overdue keys that are all in flight are left alone."""


class Desk(Requests):
    """See the module. Everything the node may touch has no underscore; all times are elapsed nanoseconds."""

    def __init__(
        self,
        table: LockTable,
        limits: DeskLimits | None = None,
        *,
        legacy_resend: bool = False,
        term: int = 0,
    ) -> None:
        super().__init__(table, limits or DeskLimits(), legacy_resend=legacy_resend)
        self.term = term
        self.rate_ok = True
        """False while this node's clock rate is proved wrong against a majority: no lease expires (spec 7)."""
        self._first_token = 0
        self._now_ns = 0
        self._leaving: deque[DeskSession] = deque()
        self._drops_left = DROPPED_PER_SLICE  # many sessions may end in one turn
        self._more_overdue = False
        self._expiry_kept = False  # for want of room
        self._onces_left = 0  # to be looked at since the gate has closed
        self._states_left: Iterator[KeyState] | None = None  # to be looked at since the lead is over
        self._stranded: dict[DeskSession, None] = {}

    # --- the lead begins

    def open(self) -> None:
        """From now on requests may come: the first entry of this term is applied. May be called again."""
        if not self._open:
            self._open = True
            self._first_token = self._table.next_token

    @property
    def gate_open(self) -> bool:
        """The clock gate (spec 8). Opening it makes `more` true where somebody waits: the pump goes on in
        slices of `run_due`. So does closing it where acquires with wait 0 were kept: they are refused.
        """
        return self._gate_open

    @gate_open.setter
    def gate_open(self, value: bool) -> None:
        if value != self._gate_open:
            self._gate_open = value
            self._onces_left = 0 if value else len(self._waiters.onces)

    # --- a session ends

    def session_ended(
        self,
        session: DeskSession,
        now_ns: int,
        *,
        by_timeout: bool = False,
    ) -> None:
        """A session is over: its waiters are dead at once (they leave in slices), what it holds stays held.

        What still stands in `session.out` was not handed to the transport: call this before clearing it.
        """
        session.ended = True
        if not self._open or self._closing:
            return
        self.counters["sessions_timed_out" if by_timeout else "sessions_closed"] += 1
        unhanded = [
            (token, key)
            for token, _owner, key in unhanded_grants(session.out)
            if token >= self._first_token and self._holds_token(token, key)
        ]
        for token, key in unhanded:
            self._doom(token, key)
        resends = self._resends
        if resends is not None and resends.unhanded:
            for token, key in list(resends.unhanded.items()):
                if not self._resend_waits(token, key):
                    del resends.unhanded[token]
                    self._doom(token, key)
                    unhanded.append((token, key))
        for state in self._watching.pop(session, ()):
            state.watched = None
            self._look_again(state, now_ns)
        for _token, key in unhanded:
            at_key = self._states.get(key)
            if at_key is not None:
                self._settle(at_key, now_ns)
        self._leaving.append(session)
        self._drop_leaving()

    def _holds_token(self, token: int, key: bytes) -> bool:
        held = self._held.get(key)
        return held is not None and held.token == token

    def _doom(self, token: int, key: bytes) -> None:
        """Has a grant released whose answer reached nobody."""
        if self._resends is not None and self._resends.may_have_been_read(token):
            return
        state = self._states.get(key) or self._open_state(key, free=False)
        state.doomed = token

    def _look_again(self, state: KeyState, now_ns: int) -> None:
        """A session ended that held, or had in flight, what another request of the same owner waits for."""
        older = state.next
        if older is not None and older.session.ended:
            waiter = self._waiters.rival(state, older.owner, now_ns, older.lease)
            if waiter is not None and waiter.owner not in self.cancelling:
                self._take_over(state, waiter)
        elif not state.flight:
            self._settle(state, now_ns)

    def _drop_leaving(self) -> None:
        leaving = self._leaving
        while leaving and self._drops_left:
            waiters = self._waiters.some_of_session(leaving[0], self._drops_left)
            self._drops_left -= len(waiters)
            for waiter in waiters:
                self.counters["dropped"] += 1
                self._close_if_idle(self._waiters.remove(waiter))
            if self._drops_left:
                leaving.popleft()

    # --- barriers

    @property
    def barrier_wanted(self) -> bool:
        """Some answers need proof that this node led after their request had come (spec 5, *barrier*)."""
        return bool(self._barrier_next)

    def barrier_begun(self, barrier_id: int) -> None:
        """A barrier begins now: it serves every request that waits for one.

        The same one may be begun again before it was sent: Raft shares it among all who ask in one turn.
        """
        if self._barrier_next:
            if self._barriers and self._barriers[-1][0] == barrier_id:
                self._barriers[-1][1].extend(self._barrier_next)
            else:
                self._barriers.append((barrier_id, deque(self._barrier_next)))
            self._barrier_next = []

    def barrier_passed(self, barrier_id: int, now_ns: int) -> None:
        """The barrier has passed, and so has each begun before it.

        Everything that was committed when it began has to be applied already: answers are read from the table.
        """
        if all(begun != barrier_id for begun, _asks in self._barriers):
            return
        passed = -1
        while passed != barrier_id:
            passed, asks = self._barriers[0]
            while asks:
                # Those behind it still wait: a grant that one of them asks for again is not undeliverable.
                self._after_barrier(asks.popleft(), now_ns)
            self._barriers.popleft()

    def _after_barrier(self, ask: Ask, now_ns: int) -> None:
        held = self._held.get(ask.key)
        if ask.kind == RESEND:
            self._answer_resend(ask, held, now_ns)
        elif held is not None and held.token == ask.number:
            state = self._states.get(ask.key) or self._open_state(ask.key, free=False)
            self._put_aside(state, ask)
            self._settle(state, now_ns)
        else:
            self.counters["not_held"] += 1
            self._send(ask.session, frames.encode_not_held(ask.number, ask.key))

    def _answer_resend(self, ask: Ask, held: Held | None, now_ns: int) -> None:
        resends = self._resends
        assert resends is not None
        resends.brought_back(ask)
        waiter, session = ask.waiter, ask.session
        if session.ended:
            return
        state = self._states.get(ask.key)
        if (
            held is None
            or held.token != ask.number
            or (state is not None and state.flight)
            or self._in_ring(waiter.owner)
            or waiter.owner in self.cancelling
        ):
            # Not the grant's holder any more, or not for long: an acquire like any other.
            token = ask.number
            unhanded = resends.unhanded.pop(token, None) is not None
            if waiter.due_ns <= now_ns:
                self.counters["timeout"] += 1
                self._send(session, frames.encode_timeout(waiter.owner, ask.key))
            else:
                self._admit(waiter, ask.key, now_ns)
            if unhanded and self._resend_waits(token, ask.key):
                resends.unhanded[token] = ask.key
            elif unhanded:
                self._doom(token, ask.key)
                self._settle(self._states[ask.key], now_ns)
            return
        self.counters["resent"] += 1
        resends.answered(held.token, session)
        if waiter.op == frames.ACQUIRE:
            self._send(session, frames.encode_granted(held.token, held.owner, held.key))
        else:
            self._send(session, frames.encode_granted_waited(held.token, held.owner, 0, held.key))

    # --- room and time

    @property
    def starved(self) -> bool:
        """Something is kept for want of room: `make_room` is to be called once there is some."""
        ends = self._cancels_kept or self._ends_kept or self._expiry_kept
        return bool(ends or (self._grants_kept and self._gate_open))

    def make_room(self, now_ns: int) -> None:
        """Room has come back: one slice of what was kept for it, releases, cancels and expiries first."""
        self._grants_short = self._ends_short = False
        self._next_look_ns = 0
        self._skips_left = DEAD_SKIPPED_MAX
        self._work_off(now_ns)

    def _work_off(self, now_ns: int) -> None:
        left = self._settle_kept(self._ends_kept, KEYS_PER_SLICE, now_ns, reserve=True)
        if not self._is_short(reserve=True):
            self._propose_kept_cancels()
        self._expire(now_ns)
        if self._gate_open:
            self._settle_kept(self._grants_kept, left, now_ns, reserve=False)
            if not self._grants_kept:
                self._room_queue = False
        elif self._onces_left:
            self._refuse_onces(left, now_ns)

    def _refuse_onces(self, limit: int, now_ns: int) -> None:
        """The gate has closed: what an acquire with wait 0 was kept for does not come."""
        onces = self._waiters.onces
        for _ in range(min(limit, self._onces_left, len(onces))):
            state = next(iter(onces))
            del onces[state]
            onces[state] = None
            self._settle(state, now_ns)
        self._onces_left = min(max(0, self._onces_left - limit), len(onces))

    def _settle_kept(self, kept: dict[KeyState, None], limit: int, now_ns: int, *, reserve: bool) -> int:
        for _ in range(min(limit, len(kept))):
            if not kept or self._is_short(reserve=reserve):
                break
            state = next(iter(kept))
            self._unmark(state)
            self._settle(state, now_ns)
            limit -= 1
        return limit

    @property
    def next_deadline_ns(self) -> int | None:
        """When `run_due` has to be called at the latest; None where nothing is due ever."""
        due_ns = self._waiters.next_due_ns
        lease_ns = self._table.next_due_ns() if self._open and self.rate_ok else None
        if lease_ns is not None:
            due_ns = min(due_ns, max(lease_ns, self._next_look_ns))
        return due_ns if due_ns < NEVER_NS else None

    @property
    def more(self) -> bool:
        """A slice left work that can go on: `run_due` is to be called in the next turn."""
        if self._closing:
            return self._states_left is not None or self._waiters.count > 0
        return bool(
            self._leaving
            or self._cancelled
            or self._more_overdue
            or self._onces_left
            or self._waiters.next_due_ns <= self._now_ns
            or (not self._ends_short and (self._ends_kept or self._cancels_kept or self._expiry_kept))
            or (not self._grants_short and self._grants_kept and self._gate_open)
        )

    def run_due(self, now_ns: int) -> None:
        """One slice of what time brings (waits and leases that are over) and of what earlier slices left.

        To be called at `next_deadline_ns`, and in the turn after one that left `more`.
        """
        self._now_ns = now_ns
        if self._closing:
            self._close(TIMEOUTS_PER_SLICE)
            return
        if not self._open:
            return
        self._drops_left = DROPPED_PER_SLICE
        self._skips_left = DEAD_SKIPPED_MAX
        self._cancelled_left = CANCELLED_PER_SLICE
        self._drop_leaving()
        if self._cancelled:
            touched: dict[KeyState, None] = {}
            self._remove_cancelled(touched)
            self._settle_touched(touched, now_ns)
        for waiter in self._waiters.overdue(now_ns, TIMEOUTS_PER_SLICE):
            state = waiter.state
            assert state is not None
            self._time_out(waiter, "timeout")
            self._close_if_idle(state)
        self._work_off(now_ns)

    def _expire(self, now_ns: int) -> None:
        """Proposes to end what is over by this node's elapsed clock."""
        self._more_overdue = False
        if not self.rate_ok or self._ends_short or (now_ns < self._next_look_ns and not self._expiry_kept):
            return
        self._expiry_kept = False
        expiring = self._expiring
        limit = min(EXPIRIES_PER_SLICE, EXPIRIES_IN_FLIGHT_MAX - len(expiring))
        overdue = self._table.overdue(now_ns, limit, expiring) if limit > 0 else []
        for held in overdue:
            key = held.key
            state = self._states.get(key) or self._open_state(key, free=False)
            if state.flight or self._end(state, held, None, now_ns, held.renewal):
                expiring[key] = None
                continue
            self._close_if_idle(state)
            if self._is_short(reserve=True):
                self._expiry_kept = True
                break
        self._more_overdue = len(overdue) == EXPIRIES_PER_SLICE and not self._is_short(reserve=True)
        due_ns = self._table.next_due_ns()
        if not self._more_overdue and due_ns is not None and due_ns <= now_ns:
            self._next_look_ns = now_ns + EXPIRY_LOOK_NS

    # --- the lead ends

    def step_down(self, now_ns: int, limit: int | None = None) -> None:
        """The lead is lost or given away: what was never proposed is answered `V` (`B` to an `A`).

        With a `limit` at most so many waiters, or keys, are dealt with now: `more` and `run_due` go on with the
        others. Commands not taken yet are dropped: they were never proposed. `stranded` then tells who has to go.
        """
        self._now_ns = now_ns
        self._closing = True
        self.pending = []
        applied = (asks for asks, _waited in self._cancelled)
        cancels = (self._cancels, self._cancels_kept, *self._cancels_in_flight, *applied)
        barriers = (self._barrier_next, *(asks for _id, asks in self._barriers))
        for group in (*cancels, *barriers):
            for ask in group:
                self._stranded[ask.session] = None
        # Nothing is opened or closed any more, so this goes on from one slice to the next.
        self._states_left = iter(self._states.values())
        self._close(len(self._states) + self._waiters.count + 1 if limit is None else limit)

    @property
    def stranded(self) -> list[DeskSession]:
        """The sessions, each once, that have a request which cannot be answered here any more; the node sends them
        `M` or `E`. Known when a desk that steps down has no `more`.
        """
        assert self._closing and not self.more  # noqa: PT018
        return [session for session in self._stranded if not session.ended]

    def _close(self, limit: int) -> None:
        """One slice of the end: what is in flight or put aside, key by key, then those that wait."""
        if self._states_left is not None:
            for state in islice(self._states_left, limit):
                limit -= 1
                self._strand(state)
            if limit:
                self._states_left = None
        self._answer_waiters(limit)

    def _strand(self, state: KeyState) -> None:
        waiter = state.next
        if waiter is not None:
            if state.batch is self._batch:
                self._answer_not_leading(waiter, state.key)
            else:
                self._stranded[waiter.session] = None
        asks = list(state.asides or ())
        if state.ask is not None:
            asks.append(state.ask)
        for ask in asks:
            if ask.kind == REVOKE:
                ask.done(LOST)
            else:
                self._stranded[ask.session] = None

    def _answer_waiters(self, limit: int) -> None:
        for waiter in self._waiters.some(limit):
            state = self._waiters.remove(waiter)
            self._answer_not_leading(waiter, state.key)

    def _answer_not_leading(self, waiter: Waiter, key: bytes) -> None:
        self.counters["not_leading"] += 1
        encode = frames.encode_busy if waiter.op == frames.ACQUIRE else frames.encode_not_leading
        self._send(waiter.session, encode(waiter.owner, key))

    # --- figures

    @property
    def waiting(self) -> int:
        """Acquires that wait."""
        return self._waiters.count

    @property
    def keys_waited_for(self) -> int:
        """Keys with a queue."""
        return sum(len(keys) for keys in self._waiters.by_length)

    @property
    def keys_in_flight_or_waited_for(self) -> int:
        """Keys that the desk has any state for."""
        return len(self._states)

    def longest_wait_ns(self, now_ns: int) -> int:
        """How long the oldest waiting request has waited; 0 where nobody waits."""
        oldest_ns = self._waiters.oldest_read_ns
        return 0 if oldest_ns is None else max(0, now_ns - oldest_ns)

    def view(self, key: bytes, limit: int) -> KeyView | None:
        """The key with the first `limit` of its queue; None where it is free and nobody waits."""
        return key_view(self._held.get(key), self._states.get(key), limit)

    def waiting_for(self, key: bytes) -> int:
        """How many wait for a key."""
        state = self._states.get(key)
        return 0 if state is None else state.waiting

    def queue_page(self, key: bytes, after: tuple[int, int] | None, limit: int) -> QueuePage:
        """At most `limit` of those that wait for a key, from the front, or behind the one that `after` names by
        (time of reading, owner).
        """
        return queue_page(self._waiters, self._states.get(key), after, limit)

    @property
    def longest_queue(self) -> int:
        """The most that wait for one key; exact among long queues as `longest_queues` is."""
        return longest_queue(self._waiters)

    def longest_queues(self, limit: int) -> list[QueueView]:
        """Keys by how many wait, longest first; exact among long queues, see `views.longest_queues`."""
        return longest_queues(self._waiters, limit)
