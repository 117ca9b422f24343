"""The node follows Raft's role: it takes a lead up, opens and pauses its desk, and lets go of it (spec 4, 9)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ticketing.locks.desk import Desk
from ticketing.locks.session import DeskSession
from ticketing.node.clock_health import read_together
from ticketing.node.lead import Lead
from ticketing.node.settings import S
from ticketing.raft.core import Raft
from ticketing.raft.election import Role
from ticketing.raft.types import Member

if TYPE_CHECKING:
    from ticketing.node.node import Node

_LEADER = Role.LEADER

LEAD_MOVES_NS = 2 * S
"""How soon a leader whose own clock is outside tries again to give its lead away."""
STEP_DOWN_SLICE = 2_000
"""Keys and waiters dealt with in the turn in which their leader's lead is over; the others follow in slices."""


class Leading:
    """Sets `Node.lead`, and what the sessions are told of who leads."""

    def __init__(self, node: Node, now_ns: int) -> None:
        self._node = node
        self.closing: list[tuple[Desk, list[DeskSession]]] = []
        """Desks of leads that are over whose waiters are still being told so, in slices, and the sessions that
        have to go after that, beside those that the desk itself names then.
        """
        self._moves_ns = now_ns
        self._synced_term = -1
        """Of the entry applied last when `follow` was through; below zero: it has to look in any case."""

    def in_step(self, raft: Raft, *, role_changed: bool) -> bool:
        """Whether `follow` would find nothing new. What time alone changes it sees at the next housekeeping."""
        node = self._node
        lead, state = node.lead, node.state
        assert state is not None
        if role_changed or node.clients.mute or self.closing or state.applied_term != self._synced_term:
            return False
        return lead is None or (lead.serving and raft.confirmed)

    def members_changed(self) -> None:
        """What the state says of its members is not what it said: `follow` has to look."""
        self._synced_term = -1

    def follow(self, now_ns: int) -> None:
        """Follows Raft's role: takes the lead's desk up, opens or closes it, or drops it."""
        node = self._node
        clients = node.clients
        raft, state, lead = node.raft, node.state, node.lead
        assert raft is not None
        assert state is not None
        leading = raft.role is _LEADER
        if lead is not None and (not leading or lead.term != raft.term):
            self.stand_down(lead, now_ns)
            lead = None
        if leading and lead is None:
            node.lead = lead = Lead(raft, state, node.clock, node.settings, now_ns)
            clients.desk_of_lead = lead.desk
            node.figures.lend(lead.desk)
            lead.desk.dirty = clients.dirty  # type: ignore[assignment]
            clients.announce(None)
            clients.hold()
            node.membership.lead_began(now_ns)
            node.shell.log("info", "leading", term=raft.term)
        quarantine = state.in_quarantine(now_ns)
        if lead is not None:
            serving = raft.confirmed and state.applied_term == raft.term and not quarantine
            serving = serving and not self.closing
            if serving != lead.serving:
                if serving:
                    lead.serving = True
                    lead.desk.open()
                    now_ns, wall_ns = read_together(node.shell.elapsed_ns, node.shell.wall_ns)
                    lead.begin_turn(now_ns, wall_ns)
                    clients.serve(lead.desk)
                    if clients.drain():
                        node.loop_turn.work_left = True
                    node.shell.log("info", "serving", term=raft.term, keys=len(state.table.held))
                else:
                    lead.pause()
                    clients.hold()
            elif not serving and quarantine:
                clients.stand_down()
        mute = lead is not None and not raft.confirmed
        if mute or clients.mute:
            # Answers that wait are looked at again before they leave: others may have led meanwhile.
            node.answers_overtaken()
        clients.mute = mute
        leader = raft.leader
        address = self._client_address(leader) if leader is not None else None
        clients.moved_to = address if leader != raft.me else None
        known = lead.serving if lead is not None else state.applied_term == raft.term and not quarantine
        clients.announce(address if known and not self.closing else None)
        self._synced_term = state.applied_term

    def drop_ended(self, raft: Raft, now_ns: int) -> None:
        """A lead that has just ended decides nothing more, not even for what else came in this turn."""
        lead = self._node.lead
        if lead is not None and (raft.role is not _LEADER or raft.term != lead.term):
            self.follow(now_ns)

    def stand_down(self, lead: Lead, now_ns: int) -> None:
        """The lead is over: what was never proposed is told so, in slices."""
        node = self._node
        clients = node.clients
        node.lead = None
        raft = node.raft
        assert raft is not None
        unconfirmed = clients.take_grants() if clients.mute else []
        clients.mute = False
        clients.moved_to = self._client_address(raft.leader) if raft.leader is not None else None
        clients.announce(None)
        lead.desk.step_down(now_ns, STEP_DOWN_SLICE)
        clients.desk_of_lead = None
        clients.stand_down()
        self.closing.append((lead.desk, [*unconfirmed]))
        self._close_done()
        node.snapshots.stop_sending()
        node.membership.lead_ended()
        node.shell.log("info", "not leading any more", term=raft.term)

    def go_on_closing(self, now_ns: int) -> None:
        """Another slice of waiters of a lead that is over: each was never proposed and is told so."""
        self.closing[0][0].run_due(now_ns)
        self._close_done()
        if not self.closing and self._node.raft is not None:
            self.follow(now_ns)

    def _close_done(self) -> None:
        """Sessions with requests that cannot be answered go last: their other requests have an answer."""
        while self.closing and not self.closing[0][0].more:
            desk, unconfirmed = self.closing.pop(0)
            for session in (*desk.stranded, *unconfirmed):
                self._node.clients.move(session)  # type: ignore[arg-type]

    def move_from_odd_clock(self, raft: Raft, now_ns: int) -> None:
        """A leader whose own wall clock is the one outside gives its lead to a voter inside (spec 8)."""
        node = self._node
        lead = node.lead
        if lead is None or not lead.serving or lead.desk.gate_open or now_ns < self._moves_ns:
            return
        now_ns, wall_ns = read_together(node.shell.elapsed_ns, node.shell.wall_ns)
        configuration = raft.configuration
        fit = node.clock.odd_one_out(now_ns, wall_ns, raft.me, configuration.voters, configuration.outgoing)
        for target in fit:
            if node.peers.is_up(target.incarnation) and not node.membership.departure.leaves(target, now_ns):
                self._moves_ns = now_ns + LEAD_MOVES_NS
                refused = self.transfer_to(target, now_ns)
                node.shell.log("audit", "own clock outside: giving the lead away", refused=refused)
                return

    def _client_address(self, member: Member) -> str | None:
        state = self._node.state
        assert state is not None
        record = state.members.find(member)
        return record.client if record is not None else None

    def transfer_to(self, target: Member, now_ns: int) -> str | None:
        """Gives the lead to a voter; why that was not begun, or None."""
        node = self._node
        raft, lead = node.raft, node.lead
        if raft is None or lead is None:
            return "not_leader"
        if lead.serving:
            # What the desk has gathered in this turn goes into the log first: nothing is taken afterwards.
            lead.propose(now_ns)
        refused = raft.transfer(target, now_ns)
        if lead.serving:
            # Where it was refused the turn goes on, perhaps long after `now_ns`: both clocks are read anew.
            lead.begin_turn(*read_together(node.shell.elapsed_ns, node.shell.wall_ns))
        return refused
