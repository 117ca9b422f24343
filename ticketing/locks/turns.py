"""What is in flight on the serving leader, and what follows when it is applied (spec 5 and 6)."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence

from ticketing.locks.codec import size_of
from ticketing.locks.commands import ANY_RENEWAL, Cancel, Extend, LockCommand, Revoke, Turn
from ticketing.locks.durations import Durations
from ticketing.locks.figures import new_counters
from ticketing.locks.held import Held
from ticketing.locks.keystate import (
    CANCEL,
    END_KEPT,
    ENDING,
    EXTEND,
    EXTENDING,
    GRANT,
    GRANT_KEPT,
    NONE,
    RELEASE,
    REVOKE,
    UNMARKED,
    Ask,
    KeyState,
)
from ticketing.locks.proposing import CANCELS_PER_TURN, Proposals
from ticketing.locks.resend import Resends
from ticketing.locks.session import DeskSession
from ticketing.locks.table import NO_EFFECT, LockTable
from ticketing.locks.waiting import Waiter, Waiters
from ticketing.protocol import frames

DEAD_SKIPPED_MAX = 1_000
"""Waiters that are no head (session over, wait over, cancelled) passed over from one slice to the next, in
the queues of all keys together.

A search cut short goes on in a later slice. Until then the release waits: it must go straight to the head.
"""

CANCELLED_PER_SLICE = CANCELS_PER_TURN
"""Waiters of cancelled owners that leave from one slice to the next."""

WAITED_MS_MAX = 0xFFFF_FFFF
_MS = 1_000_000


class Turns(Proposals):
    """Keys in flight or waited for, and the one place that decides what a key does next: `_settle`."""

    def __init__(self, table: LockTable, *, legacy_resend: bool) -> None:
        super().__init__()
        self.counters = new_counters()
        """By reason. The node puts its own in their place, which count on from one lead to the next; so for `waits`
        and `holds`.
        """
        self.waits = Durations()
        """From the reading of a request to the proposal of its grant."""
        self.holds = Durations()
        """From a grant to the proposal of its end, whatever ends it."""
        self.dirty: list[DeskSession] = []
        """Sessions whose `out` got its first frame; the node writes and clears both."""
        self.probes: list[DeskSession] = []
        """Sessions to be sent a keep-alive: another one has used an owner of theirs. The node clears it."""
        self._table = table
        self._held = table.held
        self._gate_open = False
        self._waiters = Waiters()
        self._states: dict[bytes, KeyState] = {}
        self._free_states = 0  # those with `free`
        self._resends = Resends() if legacy_resend else None
        self._barrier_next: list[Ask] = []
        self._barriers: deque[tuple[int, deque[Ask]]] = deque()
        self._ends_kept: OrderedDict[KeyState, None] = OrderedDict()
        self._grants_kept: OrderedDict[KeyState, None] = OrderedDict()
        self._watching: dict[DeskSession, dict[KeyState, None]] = {}
        self._expiring: dict[bytes, None] = {}
        self._next_look_ns = 0  # for leases that are over
        self._cut = False
        self._skips_left = DEAD_SKIPPED_MAX
        # Cancels that were applied, with the (owner, key) of those that waited. Their owners are `cancelling`.
        self._cancelled: deque[tuple[list[Ask], dict[tuple[int, bytes], None]]] = deque()
        self._cancelled_left = CANCELLED_PER_SLICE
        self._closing = False

    # --- answers

    def _send(self, session: DeskSession, frame: bytes) -> None:
        if not session.ended:
            session.out.append(frame)
            if not session.queued:
                session.queued = True
                self.dirty.append(session)

    def _time_out(self, waiter: Waiter, reason: str) -> None:
        """Takes a waiter out and answers it `T`."""
        state = self._waiters.remove(waiter)
        self.counters[reason] += 1
        self._send(waiter.session, frames.encode_timeout(waiter.owner, state.key))

    # --- states of keys

    def _open_state(self, key: bytes, *, free: bool) -> KeyState:
        state = self._states[key] = KeyState(key, free)
        if free:
            self._free_states += 1
        return state

    def _close_state(self, state: KeyState) -> None:
        del self._states[state.key]
        if state.free:
            self._free_states -= 1
        if state.mark:
            self._unmark(state)
        if state.watched is not None:
            self._unwatch(state)

    def _close_if_idle(self, state: KeyState) -> None:
        if state.idle:
            self._close_state(state)

    def _keep(self, state: KeyState, mark: int) -> None:
        """Marks a key whose proposal is kept: it is looked at again when there is room, or the gate opens."""
        if state.mark != mark:
            self._unmark(state)
            state.mark = mark
            (self._ends_kept if mark == END_KEPT else self._grants_kept)[state] = None

    def _unmark(self, state: KeyState) -> None:
        if state.mark == END_KEPT:
            del self._ends_kept[state]
        elif state.mark == GRANT_KEPT:
            del self._grants_kept[state]
        state.mark = UNMARKED

    def _watch(self, state: KeyState, session: DeskSession) -> None:
        """Has the waiters of this key looked at again when `session` ends."""
        if state.watched is not session:
            if state.watched is not None:
                self._unwatch(state)
            state.watched = session
            self._watching.setdefault(session, {})[state] = None

    def _unwatch(self, state: KeyState) -> None:
        session = state.watched
        assert session is not None
        state.watched = None
        watched = self._watching.get(session)
        if watched is not None:
            del watched[state]
            if not watched:
                del self._watching[session]

    # --- emitting

    def _head(self, state: KeyState, now_ns: int) -> Waiter | None:
        """The first live waiter whose wait is not over and whose owner is not cancelled (spec, Words).

        Who is passed over and needs no more of the queue leaves it. `_cut` says that the search was given up
        early.
        """
        cancelling = self.cancelling
        waiter = state.first
        while waiter is not None:
            ended = waiter.session.ended
            if not ended and waiter.due_ns > now_ns and waiter.owner not in cancelling:
                return waiter
            if not self._skips_left:
                self._cut = True
                return None
            self._skips_left -= 1
            behind = waiter.behind
            if ended:
                self._waiters.remove(waiter)
            elif waiter.due_ns <= now_ns:
                self._time_out(waiter, "timeout")
            waiter = behind
        return None

    def _turn_for(self, state: KeyState, expect: int, renewal: int, waiter: Waiter | None) -> Turn:
        if waiter is None:
            return Turn(state.key, expect, renewal=renewal)
        return Turn(state.key, expect, waiter.owner, waiter.lease, self.wall_ms, waiter.session.name, renewal)

    def _fly(self, state: KeyState, command: LockCommand, waiter: Waiter | None, ask: Ask | None) -> None:
        """Puts a turn on its way; its room has been taken."""
        self.pending.append(command)
        state.batch = self._batch
        state.ask = ask
        if waiter is None:
            state.flight = ENDING
        else:
            if waiter.state is not None:
                self._waiters.remove(waiter)
            state.flight = GRANT
            state.next = waiter
            if waiter.owner in self._waiters.by_owner:
                self._watch(state, waiter.session)
        if state.mark:
            self._unmark(state)

    def _end(
        self, state: KeyState, held: Held, ask: Ask | None, now_ns: int, renewal: int = ANY_RENEWAL
    ) -> bool:
        """Proposes {token → head or none}. False where it has to be kept."""
        waiter = None
        if self._gate_open and state.first is not None:
            waiter = self._head(state, now_ns)
            if waiter is None and self._cut:
                self._cut = False
                return False
        turn = self._turn_for(state, held.token, renewal, waiter)
        if not self._take_room(size_of(turn), reserve=True):
            return False
        self._note_hold(held, now_ns)
        self._fly(state, turn, waiter, ask)
        return True

    def _note_hold(self, held: Held, now_ns: int) -> None:
        """Elapsed time where the stamp is the grant's; after an extension what the wall clock says, for people."""
        if held.renewal:
            self.holds.add((self.wall_ms - held.granted_wall_ms) * _MS)
        else:
            self.holds.add(now_ns - held.stamp_ns)

    def _extend(self, state: KeyState, held: Held, ask: Ask) -> bool:
        extend = Extend(state.key, held.token, max(held.lease, ask.lease))
        if not self._take_room(size_of(extend), reserve=True):
            return False
        self.pending.append(extend)
        state.batch = self._batch
        state.ask = ask
        state.flight = EXTENDING
        if state.mark:
            self._unmark(state)
        return True

    def _revoke(self, state: KeyState, held: Held | None, ask: Ask, now_ns: int) -> bool:
        turn = ask.command.turn
        waiter = None
        if self._gate_open and state.first is not None and held is not None and held.token == turn.expect:
            waiter = self._head(state, now_ns)
            if waiter is None and self._cut:
                self._cut = False
                return False
        turn = self._turn_for(state, turn.expect, turn.renewal, waiter)
        command = Revoke(ask.command.command_id, turn, ask.command.who, ask.command.why)
        if not self._take_room(size_of(command), reserve=True):
            return False
        if held is not None and held.token == turn.expect:
            self._note_hold(held, now_ns)
        self._fly(state, command, waiter, ask)
        return True

    # --- what a key does next

    def _settle(self, state: KeyState, now_ns: int) -> None:
        """Decides what a key with nothing in flight does: first what nobody received is released, then the
        requests put aside in their order, then the acquire with wait 0, then the pump (spec 5, note 1).

        It is called after everything that can change the decision; once too often does no harm.
        """
        if state.flight:
            return
        while not state.flight:
            held = self._held.get(state.key)
            if state.doomed:
                if held is None or held.token != state.doomed or self._is_asked_again(state, held, now_ns):
                    state.doomed = 0
                elif self._end(state, held, None, now_ns):
                    state.doomed = 0
                    self.counters["undeliverable"] += 1
                else:
                    self._keep(state, END_KEPT)
                    break
            elif state.asides:
                if not self._answer_aside(state, state.asides[0], held, now_ns):
                    self._keep(state, END_KEPT)
                    break
                state.asides.popleft()
            else:
                if self._resends is not None and held is not None and state.first is not None:
                    self._find_resends(state, held, now_ns)
                if held is None:
                    self._pump(state, now_ns)
                break
        held = self._held.get(state.key)
        if state.once is not None:
            self._dismiss_once(state, state.once, held)
        if state.free != (held is None):
            state.free = held is None
            self._free_states += 1 if held is None else -1
        self._close_if_idle(state)

    def _pump(self, state: KeyState, now_ns: int) -> None:
        """Proposes the grant of a free key to its head, if there is one and it may be."""
        waiter = state.once
        if waiter is not None and waiter.session.ended:
            self._waiters.remove(waiter)
            waiter = None
        if waiter is not None and waiter.owner in self.cancelling:
            waiter = None
        if waiter is None:
            if state.first is None:
                return
            if self._gate_open:
                waiter = self._head(state, now_ns)
                if waiter is None and not self._cut:
                    return
                self._cut = False
        if self._gate_open and waiter is not None:
            turn = self._turn_for(state, 0, ANY_RENEWAL, waiter)
            if self._take_room(size_of(turn), reserve=False):
                self._fly(state, turn, waiter, None)
                return
        self._keep(state, GRANT_KEPT)

    def _dismiss_once(self, state: KeyState, waiter: Waiter, held: Held | None) -> None:
        """The acquire with wait 0 was not served now: its only try, unless Raft had no room for it."""
        if state.flight or held is not None:
            self._time_out(waiter, "not_free")
        elif not self._gate_open:
            self._waiters.remove(waiter)
            self._refuse(waiter.session, waiter.owner, state.key, "busy_clock")

    def _refuse(self, session: DeskSession, owner: int, key: bytes, reason: str) -> None:
        self.counters[reason] += 1
        self._send(session, frames.encode_busy(owner, key))

    def _answer_aside(self, state: KeyState, ask: Ask, held: Held | None, now_ns: int) -> bool:
        """Answers a request put aside, or puts it on its way. False where its proposal has to be kept."""
        kind = ask.kind
        if kind == RELEASE:
            if held is not None and held.token == ask.number:
                return self._end(state, held, ask, now_ns)
            self._barrier_next.append(ask)
        elif kind == EXTEND:
            if ask.session.ended:
                # Whoever asked is gone: a longer lease would only keep the key from others.
                return self._has_room()
            if held is not None and held.token == ask.number:
                return self._extend(state, held, ask)
            self._barrier_next.append(ask)
        elif kind == CANCEL:
            if held is not None and held.owner == ask.number:
                return self._end(state, held, ask, now_ns)
            self._answer_cancel(ask, released=ask.found)
        else:
            assert kind == REVOKE, kind
            return self._revoke(state, held, ask, now_ns)
        return True

    def _answer_cancel(self, ask: Ask, *, released: bool) -> None:
        if released:
            self.counters["cancelled"] += 1
            self._send(ask.session, frames.encode_released(ask.number, ask.key))
        else:
            self.counters["not_held"] += 1
            self._send(ask.session, frames.encode_not_held(ask.number, ask.key))

    def _put_aside(self, state: KeyState, ask: Ask) -> None:
        if state.asides is None:
            state.asides = deque()
        state.asides.append(ask)

    def _find_resends(self, state: KeyState, held: Held, now_ns: int) -> None:
        """Where resending is allowed: has the holder's owner asked again while its first session is gone?"""
        resends = self._resends
        assert resends is not None
        lost = resends.is_lost(held.token)
        while True:
            waiter = self._waiters.rival(state, held.owner, now_ns)
            if waiter is None:
                return
            if not lost:
                session = resends.session_of(held.token)
                assert session is not None
                self._watch(state, session)
                return
            self._waiters.remove(waiter)
            self._barrier_next.append(resends.ask(waiter, held))

    def _is_asked_again(self, state: KeyState, held: Held, now_ns: int) -> bool:
        """Whether a grant that nobody received is about to be answered to a newer request after all."""
        resends = self._resends
        if resends is None or self._waiters.rival(state, held.owner, now_ns) is None:
            return False
        resends.unhanded[held.token] = held.key
        self._find_resends(state, held, now_ns)
        return True

    def _resend_waits(self, number: int, key: bytes) -> bool:
        """Whether a living session's RESEND of this token, or by this owner, waits for a barrier."""
        assert self._resends is not None
        return any(
            not ask.session.ended and number in (ask.number, ask.waiter.owner)
            for ask in self._resends.asked.get(key, ())
        )

    # --- applied

    def applied(
        self, commands: Sequence[LockCommand], outcomes: Sequence[int], now_ns: int, *, mine: bool
    ) -> None:
        """Answers what the application of one entry decided, and proposes what follows from it.

        To be called after the table has applied the entry, in log order. `mine` is False for entries of
        earlier terms: whatever they did may have been answered by others and concerns nobody here (spec 4).
        """
        if self._closing:
            return
        if not mine:
            assert not self._states, "an entry of an earlier term after the first one of this term"
            return
        states = self._states
        touched: dict[KeyState, None] = {}
        for command, outcome in zip(commands, outcomes, strict=True):
            if type(command) is Turn:
                turn = command
            elif isinstance(command, Extend):
                self._extend_applied(states[command.key], outcome, touched)
                continue
            elif isinstance(command, Cancel):
                self._cancelled.append((self._cancels_in_flight.popleft(), {}))
                self._remove_cancelled(touched)
                continue
            else:
                assert isinstance(command, Revoke), command
                turn = command.turn
            state = states[turn.key]
            self._turn_applied(state, turn, outcome)
            if state.first is None and state.once is None and not state.asides and not state.doomed:
                self._close_state(state)
            else:
                touched[state] = None
        self._settle_touched(touched, now_ns)

    def _settle_touched(self, touched: dict[KeyState, None], now_ns: int) -> None:
        states = self._states
        for state in touched:
            if states.get(state.key) is state:
                self._settle(state, now_ns)

    def _land(self, state: KeyState) -> None:
        """Nothing is in flight for the key any more."""
        assert state.batch.taken_ns >= 0, "applied before it was proposed"
        state.flight = NONE
        state.ask = None
        state.next = None
        if state.watched is not None:
            self._unwatch(state)
        if self._expiring and state.key in self._expiring:
            del self._expiring[state.key]
            self._next_look_ns = 0

    def _turn_applied(self, state: KeyState, turn: Turn, outcome: int) -> None:
        waiter, ask = state.next, state.ask
        assert state.flight == (ENDING if waiter is None else GRANT), state.key
        self._land(state)
        if outcome != NO_EFFECT:
            if turn.renewal != ANY_RENEWAL:
                self.counters["expired"] += 1
            if self._resends is not None and turn.expect:
                self._resends.ended(turn.expect)
        if waiter is not None:
            if outcome == NO_EFFECT and waiter.owner in self._table.ring:
                self.counters["cancelled_waiting"] += 1
                self._send(waiter.session, frames.encode_timeout(waiter.owner, state.key))
            elif outcome == NO_EFFECT:
                self._waiters.put_back(state, waiter)
            else:
                self._answer_grant(state, turn, waiter, outcome)
        if ask is not None:
            self._answer_ended(ask, outcome)

    def _answer_grant(self, state: KeyState, turn: Turn, waiter: Waiter, token: int) -> None:
        key = state.key
        session = waiter.session
        held = self._held.get(key)
        if held is None or held.token != token:
            self.counters["void"] += 1
            self._send(session, frames.encode_timeout(waiter.owner, key))
            return
        if self._resends is not None:
            self._resends.granted(token, session)
        self.counters["handed_over" if turn.expect else "granted"] += 1
        waited_ns = state.batch.taken_ns - waiter.read_ns
        self.waits.add(waited_ns)
        if session.ended:
            state.doomed = token
        elif waiter.op == frames.ACQUIRE:
            self._send(session, frames.encode_granted(token, waiter.owner, key))
        else:
            waited_ms = min(max(waited_ns // _MS, 0), WAITED_MS_MAX)
            self._send(session, frames.encode_granted_waited(token, waiter.owner, waited_ms, key))

    def _answer_ended(self, ask: Ask, outcome: int) -> None:
        """Answers the request whose turn ended an ownership (or tried to)."""
        kind = ask.kind
        if kind == RELEASE:
            if outcome != NO_EFFECT:
                self.counters["released"] += 1
                self._send(ask.session, frames.encode_released(ask.number, ask.key))
            else:
                self.counters["not_held"] += 1
                self._send(ask.session, frames.encode_not_held(ask.number, ask.key))
        elif kind == CANCEL:
            self._answer_cancel(ask, released=outcome != NO_EFFECT or ask.found)
        else:
            assert kind == REVOKE, kind
            if outcome != NO_EFFECT:
                self.counters["revoked"] += 1
            ask.done(outcome)

    def _extend_applied(self, state: KeyState, outcome: int, touched: dict[KeyState, None]) -> None:
        ask = state.ask
        assert state.flight == EXTENDING and ask is not None, state.key  # noqa: PT018
        self._land(state)
        touched[state] = None
        if outcome != NO_EFFECT:
            self.counters["extended"] += 1
            self._send(ask.session, frames.encode_extended(ask.number, ask.key))
        else:
            self.counters["not_held"] += 1
            self._send(ask.session, frames.encode_not_held(ask.number, ask.key))

    def _remove_cancelled(self, touched: dict[KeyState, None]) -> None:
        """Goes on with the cancels that were applied: their owners' waiters leave with `T`, then their grants are
        released. Where one owner stands for more than a slice takes, the rest follows in later ones.
        """
        while self._cancelled:
            asks, waited = self._cancelled[0]
            for ask in asks:
                for waiter in self._waiters.of_owner(ask.number, self._cancelled_left):
                    state = waiter.state
                    assert state is not None
                    waited[ask.number, state.key] = None
                    touched[state] = None
                    self._cancelled_left -= 1
                    self._time_out(waiter, "cancelled_waiting")
                if ask.number in self._waiters.by_owner:
                    return
            self._cancelled.popleft()
            self._cancel_done(asks)
            for ask in asks:
                self._follow_cancel(ask, touched, found=(ask.number, ask.key) in waited)

    def _follow_cancel(self, ask: Ask, touched: dict[KeyState, None], *, found: bool) -> None:
        """Nobody of the owner waits any more: what is in flight for the key comes first, then what it holds."""
        key = ask.key
        ask.found = found
        state = self._states.get(key)
        if state is None:
            held = self._held.get(key)
            if held is None or held.owner != ask.number:
                self._answer_cancel(ask, released=found)
                return
            state = self._open_state(key, free=False)
        self._put_aside(state, ask)
        touched[state] = None
