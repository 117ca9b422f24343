"""What a serving leader owes: nobody is forgotten, a lease ends, and its bounds hold.

A mistake here breaks no promise at once: somebody waits until something else happens to the key, or for ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.sim.world import MS, S, Violation
from ticketing.locks.keystate import GRANT, Ask, KeyState
from ticketing.locks.session import DeskSession
from ticketing.locks.waiting import Waiter
from ticketing.node.lead import Lead
from ticketing.raft.core import Raft

if TYPE_CHECKING:
    from tests.sim.process import Process

LATE_NS = 1 * S
"""How long after its time the end of an ownership is proposed at most, where nothing stands against it."""
STOOD_STILL_NS = 200 * MS
"""Without a turn for so long the loop stood still: what came due meanwhile may take another turn."""
LOOK_EVERY_NS = 100 * MS
ROOM_BYTES = 512
"""More than any one command takes."""
AMPLE_BYTES = 64 * 1024
"""With so much room nobody takes it away from somebody else."""
TURNS = 2
"""What is owed at the end of so many turns in a row is forgotten: the first of them may have brought the reason why it
is owed, and has left it to the next one. No key of a run is far enough back in the pump for more.
"""
TURNS_CROWDED = 20
"""The same where others may have taken the room."""
DROPPED_MAX = 500
"""Waiters of ended sessions that leave in one turn."""

Debt = Waiter | Ask | int | DeskSession


class _Unreceived:
    """A grant that was on its way when the session ended that had asked for it."""

    __slots__ = ("since_ns", "token", "waiter")

    def __init__(self, waiter: Waiter) -> None:
        self.waiter = waiter
        self.token = 0
        """0 until it is applied."""
        self.since_ns = 0


class Owed:
    """What one lead owed when its last turn ended in which anything was decided."""

    __slots__ = (
        "_able_ns",
        "_debts",
        "_lead",
        "_looked_ns",
        "_rate_ns",
        "_seen_ns",
        "_taken_over",
        "_unreceived",
    )

    def __init__(self) -> None:
        self._lead: Lead | None = None
        self._debts: dict[KeyState | DeskSession, tuple[Debt, int]] = {}
        """What comes next for a key, or a session that is over, and at the ends of how many turns in a row."""
        self._unreceived: dict[bytes, _Unreceived] = {}
        self._able_ns: int | None = None
        """Since when it could propose the end of an ownership, and below that of a lease that is over."""
        self._rate_ns: int | None = None
        self._seen_ns = 0
        self._looked_ns = 0
        self._taken_over = 0

    def before_applying(self, lead: Lead) -> None:
        """To be called before the lead's entries are applied."""
        if lead is self._lead:
            for state in lead.desk._states.values():
                waiter = state.next
                if waiter is not None and waiter.session.ended:
                    self._unreceived[state.key] = _Unreceived(waiter)

    def after_turn(self, process: Process, raft: Raft, lead: Lead) -> None:
        """To be called after every turn of a process with a lead that had any work."""
        if lead is not self._lead:
            self._lead = lead
            self._taken_over = lead.desk.counters["taken_over"]
            self._debts.clear()
            self._unreceived.clear()
            self._able_ns = self._rate_ns = None
        self._check_bounds(process, lead)
        desk = lead.desk
        may_end = desk.room + desk.reserved_room >= ROOM_BYTES
        if not lead.serving or lead._entries or raft.transferring is not None or not may_end:
            self._debts.clear()
            self._able_ns = self._rate_ns = None
            return
        now_ns = process.clock.elapsed_ns()
        if now_ns - self._seen_ns > STOOD_STILL_NS:
            self._able_ns = self._rate_ns = None
        self._seen_ns = now_ns
        if self._able_ns is None:
            self._able_ns = now_ns
        if not desk.rate_ok:
            self._rate_ns = None
        elif self._rate_ns is None:
            self._rate_ns = now_ns
        if desk._states or self._debts or desk.waiting:
            self._check_debts(process, lead, now_ns)
        if not process.node.settings.legacy_resend and not process.node.settings.standalone:
            self._check_unreceived(process, lead, now_ns)
        if now_ns - self._looked_ns >= LOOK_EVERY_NS:
            self._looked_ns = now_ns
            if self._rate_ns is not None and now_ns - self._rate_ns > LATE_NS:
                self._check_leases(process, lead, now_ns)

    # --- bounds

    def _check_bounds(self, process: Process, lead: Lead) -> None:
        """Those of spec 4, counted anew."""
        desk, limits, clients = lead.desk, process.node.settings.limits, process.node.clients
        most = max(desk.waiting, len(desk._states) + len(desk._held), len(clients._ready), len(clients._held))
        if most <= min(
            limits.waiters_per_session, limits.waiters_per_key, limits.keys, limits.sessions, limits.held_back
        ):
            return
        waiting, free, longest = 0, 0, 0
        held = desk._held
        for key, state in desk._states.items():
            waiting += state.waiting + (state.once is not None)
            # One that was only asked about, to release, extend or revoke it, is none that anybody wants to have.
            wanted = state.waiting or state.once is not None or state.next is not None
            free += bool(wanted) and key not in held
            if state.waiting > longest:
                longest = state.waiting
        busiest = max((seat.count for seat in desk._waiters._seats.values()), default=0)
        for what, count, limit in (
            ("wait", waiting, limits.waiters),
            ("wait for one key", longest, limits.waiters_per_key),
            ("wait in one session", busiest, limits.waiters_per_session),
            ("keys", len(held) + free, limits.keys),
            ("sessions", len(clients._ready), limits.sessions),
            ("held back", len(clients._held), limits.held_back),
        ):
            if count > limit:
                raise Violation("bounded queues", f"{process.name}: {count} {what}, {limit} may")
        if waiting != desk.waiting:
            raise Violation("bounded queues", f"{process.name}: {waiting} wait, {desk.waiting} are counted")

    # --- nobody is forgotten

    def _check_debts(self, process: Process, lead: Lead, now_ns: int) -> None:
        desk = lead.desk
        former = self._debts
        debts: dict[KeyState | DeskSession, tuple[Debt, int]] = {}
        limit = TURNS if desk.room >= AMPLE_BYTES else TURNS_CROWDED
        for state in desk._states.values():
            debt = None if state.flight else self._debt(lead, state, now_ns)
            if debt is not None:
                before, turns = former.get(state, (None, 0))
                turns = turns + 1 if before is debt or before == debt else 1
                if turns >= limit:
                    raise Violation(
                        "nobody is forgotten",
                        f"{process.name}: {state.key!r}, {_shown(debt)}, {turns} turns in a row",
                    )
                debts[state] = debt, turns
        for session, seat in desk._waiters._seats.items():
            if session.ended and seat.count < DROPPED_MAX:
                _, turns = former.get(session, (None, 0))
                if turns + 1 >= TURNS:
                    raise Violation(
                        "nobody is forgotten", f"{process.name}: {seat.count} wait in a session that is over"
                    )
                debts[session] = session, turns + 1
        self._debts = debts

    def _debt(self, lead: Lead, state: KeyState, now_ns: int) -> Debt | None:
        """What has to be decided next for a key with nothing in flight, where there is nothing to wait for."""
        if state.doomed:
            return state.doomed
        if state.asides:
            return state.asides[0]
        desk = lead.desk
        if state.key in desk._held or not desk.gate_open or desk.room < ROOM_BYTES:
            return None
        waiter = state.once or state.first
        while waiter is not None:
            if (
                not waiter.session.ended
                and waiter.due_ns > now_ns
                and waiter.owner not in desk.cancelling
                and not desk._in_ring(waiter.owner)
            ):
                return waiter
            waiter = state.first if waiter is state.once else waiter.behind
        return None

    # --- what ends

    def _check_leases(self, process: Process, lead: Lead, now_ns: int) -> None:
        states = lead.desk._states
        for held in lead.desk._held.values():
            if now_ns - held.due_ns > LATE_NS:
                state = states.get(held.key)
                if state is None or not state.flight:
                    late_ms = (now_ns - held.due_ns) // MS
                    raise Violation("a lease ends", f"{process.name}: {held} is over for {late_ms} ms")

    def _check_unreceived(self, process: Process, lead: Lead, now_ns: int) -> None:
        """A grant whose session ended before its answer was written is released (spec 4), and no request of its owner
        was there to take it over.
        """
        desk = lead.desk
        unreceived = self._unreceived
        taken_over = desk.counters["taken_over"]
        if taken_over != self._taken_over:
            self._taken_over = taken_over
            unreceived.clear()
        for key, grant in list(unreceived.items()):
            at_key, held = desk._states.get(key), desk._held.get(key)
            if at_key is not None and at_key.flight == GRANT and at_key.next is grant.waiter:
                continue
            if held is None or held.owner != grant.waiter.owner or grant.token not in (0, held.token):
                del unreceived[key]
                continue
            if (at_key is not None and at_key.flight) or not grant.token:
                grant.token, grant.since_ns = held.token, now_ns
            assert self._able_ns is not None
            if now_ns - max(grant.since_ns, self._able_ns) > LATE_NS:
                raise Violation("what nobody received is released", f"{process.name}: {held}")


def _shown(debt: Debt) -> str:
    if isinstance(debt, Waiter):
        return f"{debt.owner:x} waits"
    if isinstance(debt, Ask):
        return f"a request of kind {debt.kind} put aside"
    return f"{debt} is to be released"
