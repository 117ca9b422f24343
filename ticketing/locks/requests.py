"""Requests at the desk: the rows of the table "request by key state" (spec 5)."""

from __future__ import annotations

from collections.abc import Callable

from ticketing.locks.codec import size_of
from ticketing.locks.commands import Revoke, Turn
from ticketing.locks.held import Held
from ticketing.locks.keystate import (
    CANCEL,
    ENDING,
    EXTEND,
    GRANT_KEPT,
    NONE,
    RELEASE,
    REVOKE,
    UNMARKED,
    Ask,
    KeyState,
)
from ticketing.locks.limits import DeskLimits
from ticketing.locks.session import DeskSession
from ticketing.locks.table import LockTable
from ticketing.locks.turns import Turns
from ticketing.locks.waiting import Waiter
from ticketing.protocol import frames
from ticketing.protocol.fields import LEASE_MAX, LEASE_MIN, WAIT_MAX

_NOBODY = DeskSession("")
"""Stands where a request came from no session."""
_NOBODY.ended = True


class Requests(Turns):
    """What clients and operators ask for. Requests come in the order of their reading, each session's in its own."""

    def __init__(self, table: LockTable, limits: DeskLimits, *, legacy_resend: bool) -> None:
        super().__init__(table, legacy_resend=legacy_resend)
        self._limits = limits
        self._in_ring = table.ring.contains
        self._open = False

    # --- acquire

    def acquire(
        self, session: DeskSession, op: int, wait: int, lease: int, owner: int, key: bytes, read_ns: int
    ) -> None:
        """`A` or `Q` (`op`). `read_ns` was read after the bytes of the request.

        Owner 0 is out of range as well: a turn whose next owner is 0 has no next, and no client draws it.
        """
        assert self._open
        if wait > WAIT_MAX or not LEASE_MIN <= lease <= LEASE_MAX or not owner:
            self._refuse(session, owner, key, "busy_range")
        else:
            self._admit(Waiter(session, op, wait, lease, owner, read_ns), key, read_ns)

    def _admit(self, waiter: Waiter, key: bytes, now_ns: int) -> None:
        """The rows of spec 5 for an acquire, from top to bottom."""
        session, owner = waiter.session, waiter.owner
        # A cancel under way counts like one that is applied: the answer is true in either case.
        if self._in_ring(owner) or owner in self.cancelling:
            self.counters["cancelled_owner"] += 1
            self._send(session, frames.encode_timeout(owner, key))
            return
        state = self._states.get(key)
        held = self._held.get(key)
        if held is None and state is not None and self._only_asked_about(state) and self._is_over_keys():
            self._refuse(session, owner, key, "busy_keys")
        elif state is not None or held is not None:
            # A queue behind a holder shares its key object: as many bytes less where a waiter is alone on its key.
            self._admit_contended(waiter, key if held is None else held.key, state, held, now_ns)
        elif len(self._held) + self._free_states >= self._limits.keys:
            self._refuse(session, owner, key, "busy_keys")
        elif self._gate_open:
            # Free, nobody waits: the hot path. Where grants of other keys wait for room it stands behind them.
            turn = Turn(key, 0, owner, waiter.lease, self.wall_ms, session.name)
            behind = self._room_queue and self._grants_kept
            if not behind and self._take_room(size_of(turn), reserve=False):
                self._fly(self._open_state(key, free=True), turn, waiter, None)
            else:
                self._queue(waiter, key, None, free=True, mark=GRANT_KEPT)
        elif waiter.wait:
            self._queue(waiter, key, None, free=True, mark=GRANT_KEPT)
        else:
            self._refuse(session, owner, key, "busy_clock")

    def _only_asked_about(self, state: KeyState) -> bool:
        """Whether nobody has, or waits for, this free key: an operator's revocation of it is under way."""
        return state.first is None and state.once is None and state.next is None

    def _is_over_keys(self) -> bool:
        """Whether there are more keys than may be, for such as are only asked about: those cannot be refused."""
        return len(self._held) + self._free_states > self._limits.keys

    def _admit_contended(
        self, waiter: Waiter, key: bytes, state: KeyState | None, held: Held | None, now_ns: int
    ) -> None:
        owner = waiter.owner
        if state is not None and state.next is not None and state.next.owner == owner:
            older = state.next
            if older.session.ended and older.lease == waiter.lease:
                self._take_over(state, waiter)
                return
            self._probe(older.session, waiter)
        if self._resends is not None and held is not None and held.owner == owner:
            if (state is None or not state.flight) and self._resends.is_lost(held.token):
                if state is not None and state.doomed == held.token:
                    state.doomed = 0
                    self._resends.unhanded[held.token] = held.key
                self._barrier_next.append(self._resends.ask(waiter, held))
                if state is not None:
                    self._settle(state, now_ns)
                return
            holder = self._resends.session_of(held.token)
            if holder is not None:
                self._probe(holder, waiter)
        newest = self._waiters.newest_of_owner(owner)
        if newest is not None and state is not None and newest.state is state:
            self._probe(newest.session, waiter)
        if waiter.wait:
            self._queue(waiter, key, state, free=held is None, mark=UNMARKED)
        else:
            self._try_once(waiter, key, state, held)
        state = self._states.get(key)
        if state is None:
            return
        if state.next is not None and state.next.owner == owner:
            self._watch(state, state.next.session)
        if state.idle:
            self._close_state(state)
        elif not state.flight and not state.mark:
            self._settle(state, now_ns)

    def _try_once(self, waiter: Waiter, key: bytes, state: KeyState | None, held: Held | None) -> None:
        """Wait 0 on a key that is not simply free: it stays only for an ending in flight, or for room."""
        if state is None or state.flight not in (NONE, ENDING) or (not state.flight and held is not None):
            free = False
        else:
            # An ending is in flight, or the key is free and what was to come next is kept.
            once = state.once
            if once is not None and once.session.ended:
                self._waiters.remove(once)
                once = None
            free = once is None and self._head(state, waiter.read_ns) is None and not self._cut
            self._cut = False
        if not free:
            self.counters["not_free"] += 1
            self._send(waiter.session, frames.encode_timeout(waiter.owner, key))
        elif state is not None and not state.flight and not self._gate_open:
            self._refuse(waiter.session, waiter.owner, key, "busy_clock")
        else:
            self._queue(waiter, key, state, free=held is None, mark=UNMARKED)

    def _queue(self, waiter: Waiter, key: bytes, state: KeyState | None, *, free: bool, mark: int) -> None:
        """Lets an acquire wait, within the bounds."""
        limits = self._limits
        waiters = self._waiters
        if (state.waiting if state is not None else 0) >= limits.waiters_per_key:
            reason = "busy_key"
        elif waiters.count >= limits.waiters:
            reason = "busy_waiters"
        elif waiters.of_session(waiter.session) >= limits.waiters_per_session:
            reason = "busy_session"
        else:
            if state is None:
                state = self._open_state(key, free=free)
            waiters.add(state, waiter)
            if mark:
                self._keep(state, mark)
            return
        self._refuse(waiter.session, waiter.owner, key, reason)

    def _take_over(self, state: KeyState, waiter: Waiter) -> None:
        """A grant in flight whose session has ended is answered to `waiter` of the same owner and lease."""
        if waiter.state is not None:
            self._waiters.remove(waiter)
        state.next = waiter
        self.counters["taken_over"] += 1
        if waiter.owner in self._waiters.by_owner:
            self._watch(state, waiter.session)

    def _probe(self, older: DeskSession, waiter: Waiter) -> None:
        """`waiter` has come with an owner that `older` has used: is there anybody behind that one still?"""
        probes = self.probes
        if older is not waiter.session and not older.ended and not (probes and probes[-1] is older):
            probes.append(older)

    # --- release, extend, cancel, revoke

    def release(self, session: DeskSession, token: int, key: bytes, now_ns: int) -> None:
        """`R`: answered `R` once the key has passed on, `N` where another token holds it."""
        assert self._open
        ask = Ask(RELEASE, session, token, key)
        state = self._states.get(key)
        if state is None:
            held = self._held.get(key)
            if held is None or held.token != token:
                self._barrier_next.append(ask)
                return
            state = self._open_state(key, free=False)
            turn = Turn(key, token)
            if self._take_room(size_of(turn), reserve=True):
                self._note_hold(held, now_ns)
                self._fly(state, turn, None, ask)
                return
        self._put_aside(state, ask)
        if not state.flight:
            self._settle(state, now_ns)

    def extend(self, session: DeskSession, token: int, lease: int, key: bytes, now_ns: int) -> None:
        """`X`: counts the lease of `token` anew, never shortening it; `N` where another token holds the key."""
        assert self._open
        assert LEASE_MIN <= lease <= LEASE_MAX, "the decoder lets no other pass"
        held = self._held.get(key)
        state = self._states.get(key)
        ask = Ask(EXTEND, session, token, key, lease)
        if state is None:
            if held is None or held.token != token:
                self._barrier_next.append(ask)
                return
            state = self._open_state(key, free=False)
        self._put_aside(state, ask)
        if not state.flight:
            self._settle(state, now_ns)

    def cancel(self, session: DeskSession, owner: int, key: bytes, now_ns: int) -> None:  # noqa: ARG002
        """`C`: the owner's request leaves the queue, or its grant is released; no late copy of it is granted.

        On the session that carried the request, while it merely waits, its frames are in order and there is
        no other copy: it leaves at once and `R` is all that answers both. Otherwise an entry tells every
        coming leader.
        """
        assert self._open
        waiter = self._waiters.by_owner.get(owner)
        if (
            isinstance(waiter, Waiter)
            and waiter.session is session
            and owner not in self.cancelling
            and waiter.state is not None
            and waiter.state.key == key
            and (waiter.state.next is None or waiter.state.next.owner != owner)
            and not self._holds(owner, key)
            and (self._resends is None or not self._resend_waits(owner, key))
        ):
            state = self._waiters.remove(waiter)
            self.counters["cancelled"] += 1
            self._send(session, frames.encode_released(owner, key))
            self._close_if_idle(state)
            return
        self._propose_cancel(Ask(CANCEL, session, owner, key))

    def _holds(self, owner: int, key: bytes) -> bool:
        held = self._held.get(key)
        return held is not None and held.owner == owner

    def revoke(self, command: Revoke, done: Callable[[int], None], now_ns: int) -> None:
        """An operator ends an ownership; the head of the queue is next, as with a release.

        `done` gets the outcome as the table tells it (the new token, 0, or -1 for no effect), or `LOST`.
        """
        assert self._open
        assert not command.turn.owner, "who is next is the desk's to say"
        key = command.turn.key
        ask = Ask(REVOKE, _NOBODY, command.turn.expect, key)
        ask.command = command
        ask.done = done
        state = self._states.get(key) or self._open_state(key, free=key not in self._held)
        self._put_aside(state, ask)
        self._settle(state, now_ns)
