"""One node: Raft, the lock state, client sessions and peer links joined, without any I/O of its own.

Calls between two flushes are one turn (see `ticketing.node.shell`). A turn begins with the look for a gap in the own
loop, and ends with one pass through Raft: what was gathered becomes one log entry and one message a follower, what
is committed is applied, and what that answers is written (spec 6, 8; the order is the invariant: nothing is answered
before its entry is applied, nothing is applied before it is committed).
"""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec

from ticketing.locks.codec import UnknownEntry
from ticketing.locks.desk import Desk
from ticketing.locks.restore import BadSnapshot
from ticketing.locks.session import DeskSession
from ticketing.locks.table import LockTable
from ticketing.node import clock_messages
from ticketing.node.checksums import Checksums
from ticketing.node.clients import Clients
from ticketing.node.clock_health import ClockHealth, read_together
from ticketing.node.events import EventLog
from ticketing.node.first_state import FirstState
from ticketing.node.handshake import LinkFacts, LinkFailure, LinkPeer, Refusal
from ticketing.node.lead import RETRY_NS, Lead
from ticketing.node.link import PeerKind, encode_frame
from ticketing.node.lock_figures import LockFigures
from ticketing.node.membership import Membership
from ticketing.node.operations import Operations
from ticketing.node.peers import Peers
from ticketing.node.reports import Reports
from ticketing.node.session import ClientSession
from ticketing.node.settings import NodeSettings, Place, S
from ticketing.node.shell import Link, Shell
from ticketing.node.shown import Mark, ShownRecord, Shows
from ticketing.node.snapshot_traffic import SnapshotTraffic
from ticketing.node.state import ReplicatedState, formed_state
from ticketing.node.status import status
from ticketing.node.watch import Watch
from ticketing.raft import messages as raft_messages
from ticketing.raft.core import Output, Raft
from ticketing.raft.election import Role
from ticketing.raft.plausible import ImplausibleError
from ticketing.raft.replica import UnsupportedEntryError
from ticketing.raft.types import BLANK, MS, Base, Entry, EntryKind, Member

GAP_NS = 150 * MS
"""A turn that begins this much later than the former one ended shows that the own loop stood still."""
TICK_NS = 50 * MS
LEAD_MOVES_NS = 2 * S
"""How soon a leader whose own clock is outside tries again to give its lead away."""
PASSES_MAX = 8
"""Rounds of propose, commit and apply in one flush; what is left then waits for the next turn."""
DISMANTLE_SLICE = 2_000
DOMAIN_TAG_BYTES = 8
STEP_DOWN_SLICE = 2_000
"""Keys and waiters dealt with in the turn in which their leader's lead is over; the others follow in slices."""


class Node:
    """The public face of the node, called by a shell; see `ticketing.server.node_api`."""

    def __init__(self, settings: NodeSettings, shell: Shell) -> None:
        self.settings = settings
        self.shell = shell
        self.rng = Random(int.from_bytes(shell.random_bytes(16)))  # noqa: S311 - timeouts, nothing secret
        self.incarnation = int.from_bytes(shell.random_bytes(8)) >> 1 | 1
        self.place: Place = next(place for place in settings.places if place.name == settings.place)
        self.clients = Clients(settings, shell, self.place.client)
        self.peers = Peers(self, shell, settings.peer_secrets, self.rng)
        self.clock = ClockHealth(settings.delta_ns)
        self.shown = ShownRecord()
        self.raft: Raft | None = None
        self.state: ReplicatedState | None = None
        self.lead: Lead | None = None
        self.membership = Membership(self)
        self.figures = LockFigures()
        self.events = EventLog(shell.wall_ns)
        self.reports = Reports(self)
        self.operations = Operations(self)
        self.foreign_messages = 0
        """Raft messages of other domains, dropped."""
        self.gaps = 0
        """How often the own loop stood still."""
        self._in_turn = False
        self._busy_turn = False
        """Its flush has something to do; see `_begin_work`."""
        self._seen_ns = shell.elapsed_ns()
        self.watch = Watch(self._seen_ns)
        self._housekeeping_ns = self._seen_ns
        self._domain_tag = b""
        """What every Raft message begins with. A process life can belong to several domains one after another, with
        the same NodeId and over the same links, and a late message of one must not count in the next (spec 9,
        Identity).
        """
        self.snapshots = SnapshotTraffic(self)
        self.checksums = Checksums()
        self._replaced: list[LockTable] = []
        self._closing: list[tuple[Desk, list[DeskSession]]] = []
        """Desks of leads that are over whose waiters are still being told so, in slices, and the sessions that
        have to go after that, beside those that the desk itself names then.
        """
        self._lead_moves_ns = self._seen_ns
        self._work_left = False
        self._committed_left = False
        self._synced_term = -1
        """Of the entry applied last when `_sync_lead` was through; below zero: it has to look in any case."""
        self._known_members: dict[int, Member] = {}
        """By incarnation: whose Raft messages count, as the state tells; forgotten when its members change."""

    @property
    def member(self) -> Member:
        """This process life; NodeId 0 without membership."""
        return self.raft.me if self.raft is not None else Member(0, self.incarnation)

    # --- turns

    def start(self) -> None:
        """Begins: a standalone node forms its domain, others dial their peers."""
        self._seen_ns = self.shell.elapsed_ns()
        self.turn()
        self.membership.start(self._seen_ns)
        self.set_targets()

    def turn(self) -> int:
        """Every call from outside begins with this. A fresh reading of the elapsed clock."""
        now_ns = self._look_up()
        if not self._busy_turn:
            self._begin_work()
        return now_ns

    def _look_up(self) -> int:
        """The part of a turn's beginning that is never left out: the look for a gap in the own loop."""
        now_ns = self.shell.elapsed_ns()
        if not self._in_turn:
            self._in_turn = True
            self.shell.request_flush()
            gap_ns = now_ns - self._seen_ns
            if gap_ns > GAP_NS:
                self._begin_work()
                self._after_gap(gap_ns, now_ns)
            self._seen_ns = now_ns
        return now_ns

    def _begin_work(self) -> None:
        """Something is to be decided, sent or answered in this turn. Not so where all that has come is word of what is
        known already.
        """
        self._busy_turn = True
        self._work_left = self._committed_left = False
        lead = self.lead
        if lead is not None and lead.serving:
            lead.begin_turn(*read_together(self.shell.elapsed_ns, self.shell.wall_ns))

    def _after_gap(self, gap_ns: int, now_ns: int) -> None:
        """The own loop stood still. A leader may have been deposed meanwhile: nothing is answered before a
        majority has confirmed it (spec 9).
        """
        self.gaps += 1
        self.shell.log("warning", "the loop stood still", ms=gap_ns // MS)
        if self.raft is not None:
            self.raft.after_gap(gap_ns, now_ns)
            self._sync_lead(now_ns)

    def flush(self) -> None:
        """Ends a turn."""
        now_ns = self.shell.elapsed_ns()
        gap_ns = now_ns - self._seen_ns
        if gap_ns > GAP_NS:
            # Between the reading and here. What was decided stands under this turn's gate and may be proposed.
            if self.lead is not None and self.lead.serving:
                self.lead.propose(now_ns)
            if not self._busy_turn:
                self._begin_work()
            self._after_gap(gap_ns, now_ns)
        if self._busy_turn:
            self._work(now_ns)
        self._in_turn = self._busy_turn = False
        self._seen_ns = now_ns

    def _work(self, now_ns: int) -> None:
        if self._closing:
            self._go_on_closing(now_ns)
        if self.clients.drain():
            self._work_left = True
        if self.raft is not None:
            self._pass(self.raft, now_ns)
        if self.clients.run_announcement():
            self._work_left = True
        if self.clients.run_probes(now_ns):
            self._work_left = True
        if not self.clients.mute:
            self.clients.write_out(now_ns)

    def _pass(self, raft: Raft, now_ns: int) -> None:
        lead = self.lead
        if lead is not None and lead.serving:
            lead.run_due(now_ns)
        applying = 0
        for _ in range(PASSES_MAX):
            if lead is not None and lead.serving:
                lead.propose(now_ns)
            output = raft.take_output(now_ns)
            began = self.lead is not None and self.lead.serving
            self._carry_out(output, now_ns)
            lead = self.lead
            applying += bool(output.committed)
            if applying > 1:
                # A grant of the first pass may have ended in a later one (spec 4).
                self._overtaken()
            serving = lead is not None and lead.serving
            if raft.applied_index < raft.commit_index:
                # Much was committed at a stroke: its next slice is for the next turn, and that comes at once.
                self._committed_left = True
                break
            if not (
                (serving and lead is not None and lead.wants_to_propose)
                or output.barriers
                or (serving and not began)
                or any(entry.kind != EntryKind.COMMANDS for entry in output.committed)
            ):
                break
        else:
            self._work_left = True
        if (self._work_left or self._committed_left) and lead is not None and lead.serving:
            # Nothing that was decided under this turn's gate is left for a later one.
            lead.propose(now_ns)
        if lead is not None and lead.end_turn():
            self._work_left = True

    def _overtaken(self) -> None:
        assert self.state is not None
        self.clients.overtaken_by = self.state.table.held

    def _carry_out(self, output: Output, now_ns: int) -> None:
        """The duties of one output of Raft, in order: send, apply, answer."""
        raft = self.raft
        assert raft is not None
        encoded: raft_messages.Message | None = None
        frame = b""
        for member, message in output.messages:
            if message is not encoded:
                encoded = message
                frame = encode_frame(PeerKind.RAFT, self._domain_tag, raft_messages.encode(message))
            self.peers.send_frame(member.incarnation, frame)
        if output.committed:
            self._apply(output.committed, now_ns)
        if not self._in_step(raft, output):
            self._sync_lead(now_ns)
        lead = self.lead
        if lead is not None:
            for barrier in output.barriers:
                lead.desk.barrier_passed(barrier, now_ns)
            for probed in lead.desk.probes:
                self.clients.probe(probed)  # type: ignore[arg-type]
            lead.desk.probes.clear()
        for member in output.snapshots_wanted:
            self.snapshots.wanted(member, now_ns)
        for member in output.given_up:
            if self.membership.governing is not None:
                self.membership.governing.given_up(member)
            self.shell.log("warning", "member given up: its snapshot took too long", member=str(member))
            self.snapshots.drop(member)
        for member in output.rolled_back:
            self.shell.log("error", "member shows a shorter log than it acknowledged", member=str(member))

    def _in_step(self, raft: Raft, output: Output) -> bool:
        """Whether `_sync_lead` would find nothing new. What time alone changes it sees at the next housekeeping."""
        lead, state = self.lead, self.state
        assert state is not None
        if (
            output.role_changed
            or self.clients.mute
            or self._closing
            or state.applied_term != self._synced_term
        ):
            return False
        return lead is None or (lead.serving and raft.confirmed)

    def _members_changed(self) -> None:
        self._known_members.clear()
        self._synced_term = -1

    def _apply(self, entries: list[Entry], now_ns: int) -> None:
        state, lead = self.state, self.lead
        assert state is not None
        for entry in entries:
            mine = entry.decoded is not None and lead is not None and entry.term == lead.term
            try:
                applied = state.apply(entry)
            except (UnknownEntry, msgspec.DecodeError) as error:
                # Skipping it would part this node from the others (spec 6).
                self.shell.stop(1, f"log entry {entry.index} cannot be applied: {error}")
                raise
            if applied is not None:
                if state.table.revocations:
                    self.operations.revoked(state.table)
                if lead is not None:
                    lead.applied(*applied, now_ns, mine=mine)
            elif entry.kind == EntryKind.CONFIGURATION:
                self._members_changed()
                self.membership.configuration_applied(state.take_ended(), now_ns)
                self.set_targets()
            if entry.index >= self.checksums.next_index:
                self.checksums.applied(state)

    def next_deadline_ns(self) -> int:
        """When `tick` is due at the latest."""
        deadline_ns = self._housekeeping_ns
        raft = self.raft
        if raft is not None:
            deadline_ns = min(deadline_ns, raft.next_deadline_ns)
        lead = self.lead
        if lead is not None:
            # What is due and could not be done for want of room does not become possible by haste.
            deadline_ns = min(deadline_ns, max(lead.due_ns, self._seen_ns + MS))
        if self._committed_left:
            return self._seen_ns
        busy = self.snapshots.busy or self.checksums.busy
        if self._work_left or busy or self._replaced or self._closing:
            deadline_ns = min(deadline_ns, self._seen_ns + RETRY_NS)
        return deadline_ns

    def tick(self) -> None:
        """Time has passed."""
        now_ns = self.turn()
        raft = self.raft
        if raft is not None:
            raft.tick(now_ns)
            self._drop_ended_lead(raft, now_ns)
        self.snapshots.step(now_ns)
        if self.checksums.asked and self.state is not None:
            self.checksums.step(self.state, now_ns, self.shell.elapsed_ns)
        if self._replaced and self._replaced[-1].dismantle(DISMANTLE_SLICE):
            self._replaced.pop()
        if now_ns >= self._housekeeping_ns:
            self._housekeeping_ns = now_ns + TICK_NS
            self._housekeeping(now_ns)
            if self.lead is not None:
                self.lead.due_ns = 0

    def _housekeeping(self, now_ns: int) -> None:
        if not self.settings.standalone:
            self.peers.tick(now_ns)
            self._probe_clocks(now_ns)
        self.clients.tick(now_ns)
        self.membership.tick(now_ns)
        if self.raft is not None:
            self._sync_lead(now_ns)
            self._move_lead_from_odd_clock(self.raft, now_ns)
        self.watch.look(self, now_ns)

    # --- the lead

    def _sync_lead(self, now_ns: int) -> None:
        """Follows Raft's role: takes the lead's desk up, opens or closes it, or drops it."""
        raft, state, lead = self.raft, self.state, self.lead
        assert raft is not None
        assert state is not None
        leading = raft.role is Role.LEADER
        if lead is not None and (not leading or lead.term != raft.term):
            self._stand_down(lead, now_ns)
            lead = None
        if leading and lead is None:
            self.lead = lead = Lead(raft, state, self.clock, self.settings, now_ns)
            self.clients.desk_of_lead = lead.desk
            self.figures.lend(lead.desk)
            lead.desk.dirty = self.clients.dirty  # type: ignore[assignment]
            self.clients.announce(None)
            self.clients.hold()
            self.membership.lead_began(now_ns)
            self.shell.log("info", "leading", term=raft.term)
        quarantine = state.in_quarantine(now_ns)
        if lead is not None:
            serving = raft.confirmed and state.applied_term == raft.term and not quarantine
            serving = serving and not self._closing
            if serving != lead.serving:
                if serving:
                    lead.serving = True
                    lead.desk.open()
                    now_ns, wall_ns = read_together(self.shell.elapsed_ns, self.shell.wall_ns)
                    lead.begin_turn(now_ns, wall_ns)
                    self.clients.serve(lead.desk)
                    if self.clients.drain():
                        self._work_left = True
                    self.shell.log("info", "serving", term=raft.term, keys=len(state.table.held))
                else:
                    lead.pause()
                    self.clients.hold()
            elif not serving and quarantine:
                self.clients.stand_down()
        mute = lead is not None and not raft.confirmed
        if mute or self.clients.mute:
            # Answers that wait are looked at again before they leave: others may have led meanwhile.
            self._overtaken()
        self.clients.mute = mute
        leader = raft.leader
        address = self._client_address(leader) if leader is not None else None
        self.clients.moved_to = address if leader != raft.me else None
        known = lead.serving if lead is not None else state.applied_term == raft.term and not quarantine
        self.clients.announce(address if known and not self._closing else None)
        self._synced_term = state.applied_term

    def _drop_ended_lead(self, raft: Raft, now_ns: int) -> None:
        """A lead that has just ended decides nothing more, not even for what else came in this turn."""
        lead = self.lead
        if lead is not None and (raft.role is not Role.LEADER or raft.term != lead.term):
            self._sync_lead(now_ns)

    def _stand_down(self, lead: Lead, now_ns: int) -> None:
        self.lead = None
        raft = self.raft
        assert raft is not None
        unconfirmed = self.clients.take_grants() if self.clients.mute else []
        self.clients.mute = False
        self.clients.moved_to = self._client_address(raft.leader) if raft.leader is not None else None
        self.clients.announce(None)
        lead.desk.step_down(now_ns, STEP_DOWN_SLICE)
        self.clients.desk_of_lead = None
        self.clients.stand_down()
        self._closing.append((lead.desk, [*unconfirmed]))
        self._close_done()
        self.snapshots.stop_sending()
        self.membership.lead_ended()
        self.shell.log("info", "not leading any more", term=raft.term)

    def _go_on_closing(self, now_ns: int) -> None:
        """Another slice of waiters of a lead that is over: each was never proposed and is told so."""
        self._closing[0][0].run_due(now_ns)
        self._close_done()
        if not self._closing and self.raft is not None:
            self._sync_lead(now_ns)

    def _close_done(self) -> None:
        """Sessions with requests that cannot be answered go last: their other requests have an answer."""
        while self._closing and not self._closing[0][0].more:
            desk, unconfirmed = self._closing.pop(0)
            for session in (*desk.stranded, *unconfirmed):
                self.clients.move(session)  # type: ignore[arg-type]

    def _move_lead_from_odd_clock(self, raft: Raft, now_ns: int) -> None:
        """A leader whose own wall clock is the one outside gives its lead to a voter inside (spec 8)."""
        lead = self.lead
        if lead is None or not lead.serving or lead.desk.gate_open or now_ns < self._lead_moves_ns:
            return
        now_ns, wall_ns = read_together(self.shell.elapsed_ns, self.shell.wall_ns)
        configuration = raft.configuration
        fit = self.clock.odd_one_out(now_ns, wall_ns, raft.me, configuration.voters, configuration.outgoing)
        for target in fit:
            if self.peers.is_up(target.incarnation) and not self.membership.departure.leaves(target, now_ns):
                self._lead_moves_ns = now_ns + LEAD_MOVES_NS
                refused = self.transfer_to(target, now_ns)
                self.shell.log("audit", "own clock outside: giving the lead away", refused=refused)
                return

    def _client_address(self, member: Member) -> str | None:
        assert self.state is not None
        record = self.state.members.find(member)
        return record.client if record is not None else None

    def transfer_to(self, target: Member, now_ns: int) -> str | None:
        """Gives the lead to a voter; why that was not begun, or None."""
        raft, lead = self.raft, self.lead
        if raft is None or lead is None:
            return "not_leader"
        if lead.serving:
            # What the desk has gathered in this turn goes into the log first: nothing is taken afterwards.
            lead.propose(now_ns)
        refused = raft.transfer(target, now_ns)
        if lead.serving:
            lead.begin_turn(now_ns, self.shell.wall_ns())
        return refused

    # --- becoming a member

    def become_founder(self, first: FirstState, now_ns: int) -> None:
        """This process is a voter of a domain that has just formed."""
        record = next(record for record in first.members if record.incarnation == self.incarnation)
        state, base = formed_state(first, now_ns)
        self._begin(Member(record.node_id, self.incarnation), state, base, now_ns)
        assert self.raft is not None
        if record == first.members[0]:
            # Nobody leads yet: one of them need not wait for its timeout.
            self.raft.campaign(now_ns)

    def become_learner(self, node_id: int, state: ReplicatedState, now_ns: int) -> None:
        """This process was taken into a domain; `state` is empty and is replaced by the leader's snapshot."""
        self._begin(Member(node_id, self.incarnation), state, BLANK, now_ns)
        # What links said of this process is out of date.
        self.peers.redial(now_ns)

    def _begin(self, me: Member, state: ReplicatedState, base: Base, now_ns: int) -> None:
        self.raft = Raft(me, base, self.settings.raft, self.rng, now_ns)
        self.state = state
        self._domain_tag = bytes.fromhex(state.domain.domain_id)
        # What was shown in another domain says nothing: terms begin anew with each.
        self.shown = ShownRecord()
        self.clock.delta_ns = state.domain.delta_ns
        self._take_up(state)
        self.set_targets()
        for peer in self.peers.reachable():
            self.raft.link_up(self.member_of(peer) or peer.member, now_ns)

    def _take_up(self, state: ReplicatedState) -> None:
        self._members_changed()
        self.clients.domain_is(state.domain.shown)

    def leave_domain(self) -> None:
        """Drops membership and all state (the operator forms a new domain, spec 9)."""
        if self.lead is not None:
            self._stand_down(self.lead, self._seen_ns)
        self.checksums.drop()
        if self.state is not None:
            self._replaced.append(self.state.table)
        self.raft = None
        self.state = None
        self.clients.moved_to = None
        self.clients.announce(None)
        self.clients.domain_is(None)
        self.snapshots.stop_receiving()

    # --- peer links: who may be there (LinkHost)

    def facts(self) -> LinkFacts:
        """What this process says about itself to a peer."""
        settings = self.settings
        return LinkFacts(
            settings.place,
            self.member.node_id,
            self.incarnation,
            self.state.domain.domain_id if self.state is not None else "",
            settings.cluster,
            self.membership.permit,
            settings.version,
        )

    def shows(self) -> Shows:
        """The Raft state of this process."""
        return Shows(*self.raft.shows()) if self.raft is not None else Shows()

    def mark(self) -> Mark:
        """An own nonce is about to be sent."""
        return self.shown.mark()

    def judge(self, peer: LinkPeer, mark: Mark) -> str | None:
        """Why this proved process gets no link (spec 9, Identity)."""
        state = self.state
        if state is None or not peer.domain:
            return None
        if peer.domain != state.domain.domain_id:
            return Refusal.OTHER_DOMAIN
        member = peer.member
        record = state.members.by_node_id(member.node_id)
        if record is not None and record.incarnation != member.incarnation:
            return Refusal.OTHER_INCARNATION
        if state.members.removed(member.node_id):
            return Refusal.REMOVED
        if self.shown.rolled_back(member, peer.shows, mark):
            return Refusal.ROLLED_BACK
        self.shown.seen(member, peer.shows.term, peer.shows.vote)
        return None

    def incarnation_of(self, node_id: int) -> int | None:
        """The process life behind a NodeId, as our state knows it."""
        record = self.state.members.by_node_id(node_id) if self.state is not None else None
        return record.incarnation if record is not None else None

    def member_of(self, peer: LinkPeer) -> Member | None:
        """The peer as a member of our domain: as our state knows its process life, else as it names itself."""
        state = self.state
        if state is None:
            return None
        record = state.members.by_incarnation(peer.facts.incarnation)
        if record is not None:
            return Member(record.node_id, record.incarnation)
        return peer.member if peer.domain == state.domain.domain_id and peer.facts.node_id else None

    # --- peer links: what happens on them (PeerHost)

    def peer_up(self, peer: LinkPeer) -> None:
        """An own link to this process is up."""
        now_ns = self.shell.elapsed_ns()
        self.clock.watch(peer.facts.incarnation, now_ns)
        self._probe_clocks(now_ns)
        member = self.member_of(peer)
        if self.raft is not None and member is not None:
            self.raft.link_up(member, now_ns)
        self.membership.peer_up(peer, now_ns)

    def peer_down(self, peer: LinkPeer) -> None:
        """The own link to this process is over."""
        now_ns = self.shell.elapsed_ns()
        member = self.member_of(peer)
        if self.raft is not None and member is not None:
            self.raft.link_down(member, now_ns)
        self.membership.peer_down(peer, now_ns)

    def peer_joined(self, peer: LinkPeer) -> None:
        """Links with this process are up both ways."""
        now_ns = self.shell.elapsed_ns()
        # A probe that left before had nothing to be answered on: another goes now, not a second later.
        self.clock.watch(peer.facts.incarnation, now_ns)
        self._probe_clocks(now_ns)
        self.membership.peer_joined(peer, now_ns)

    def peer_parted(self, peer: LinkPeer) -> None:
        """Links with this process are not up both ways any more."""
        self.membership.peer_parted(peer, self.shell.elapsed_ns())

    def peer_gone(self, incarnation: int) -> None:
        """This process life has ended. A follower need not wait for a timeout of that leader (spec 9)."""
        raft = self.raft
        now_ns = self.shell.elapsed_ns()
        self.clock.forget(incarnation)
        if raft is not None and raft.leader is not None and raft.leader.incarnation == incarnation:
            self.shell.log("info", "the leader's process is gone", member=str(raft.leader))
            raft.leader_gone(now_ns)

    def turned_away(self, place: str, failure: LinkFailure) -> None:
        """A link was refused in its handshake."""
        self.membership.turned_away(place, failure)

    def peer_message(self, peer: LinkPeer, link: Link, kind: int, payload: bytes, now_ns: int) -> None:
        """A frame of a proved peer. `now_ns` was read after its bytes."""
        if kind != PeerKind.RAFT and not self._busy_turn:
            self._begin_work()
        try:
            if kind == PeerKind.RAFT:
                self._raft_message(peer, payload, now_ns)
            elif kind == PeerKind.CLOCK:
                self._clock_message(peer, payload)
            elif kind == PeerKind.SNAPSHOT:
                self.snapshots.message(peer, link, payload)
            else:
                self.membership.receive(peer, link, kind, payload, self.shell.elapsed_ns())
        except (msgspec.DecodeError, RecursionError, BadSnapshot) as error:
            self.shell.log(
                "warning", "a peer's message cannot be read", place=peer.place, kind=kind, reason=str(error)
            )
            self.peers.close(link, self.shell.elapsed_ns())
        except ImplausibleError as error:
            self.shell.log(
                "error", "a peer says what cannot be true", place=peer.place, kind=kind, reason=str(error)
            )
            self.peers.close(link, self.shell.elapsed_ns())
        except UnsupportedEntryError as error:
            self.shell.stop(1, f"the leader writes what this program cannot read: {error}")

    def _raft_message(self, peer: LinkPeer, payload: bytes, now_ns: int) -> None:
        tag = payload[:DOMAIN_TAG_BYTES]
        if self.raft is None:
            self.membership.raft_heard(peer, tag.hex(), now_ns)
            if self.raft is None:
                return
        if tag != self._domain_tag:
            self.foreign_messages += 1
            return
        member = self._known_members.get(peer.facts.incarnation)
        if member is None:
            member = self.member_of(peer)
            if member is None or (self.state is not None and self.state.members.removed(member.node_id)):
                self.membership.stranger(peer, now_ns)
                return
            self._known_members[peer.facts.incarnation] = member
        message = raft_messages.decode(memoryview(payload)[DOMAIN_TAG_BYTES:])
        try:
            # The reading made after the bytes were read is the stamp of every entry in it (spec 7).
            self.raft.step(member, message, now_ns)
            # Not before: a term that cannot be would be held against the member for ever.
            self._note_shown(member, message)
        finally:
            # Also where the message could be read in part only: it may have ended the lead before.
            self._drop_ended_lead(self.raft, now_ns)
            if not self._busy_turn and self.raft.has_output:
                self._begin_work()

    def _note_shown(self, member: Member, message: raft_messages.Message) -> None:
        vote: Member | None = None
        kind = type(message)
        if kind is raft_messages.AppendEntries or kind is raft_messages.VoteRequest:
            vote = member
        elif isinstance(message, raft_messages.VoteAnswer) and message.granted:
            vote = self.member
        self.shown.seen(member, message.term, vote)

    def _clock_message(self, peer: LinkPeer, payload: bytes) -> None:
        now_ns, wall_ns = read_together(self.shell.elapsed_ns, self.shell.wall_ns)
        message = clock_messages.decode(payload)
        incarnation = peer.facts.incarnation
        if isinstance(message, clock_messages.ClockProbe):
            reply = self.clock.answer(incarnation, message, now_ns, wall_ns, now_ns, wall_ns)
            self.peers.send(incarnation, PeerKind.CLOCK, clock_messages.encode(reply))
        else:
            self.clock.reply(incarnation, message, now_ns, wall_ns)

    def _probe_clocks(self, now_ns: int) -> None:
        for incarnation in self.clock.due(now_ns):
            if not self.peers.is_up(incarnation):
                continue
            now_ns, wall_ns = read_together(self.shell.elapsed_ns, self.shell.wall_ns)
            probe = self.clock.probe(incarnation, now_ns, wall_ns, self.inside(now_ns, wall_ns))
            self.peers.send(incarnation, PeerKind.CLOCK, clock_messages.encode(probe))

    def inside(self, now_ns: int, wall_ns: int) -> bool | None:
        """Whether this node finds its wall clock within Δ/2 of a majority; None without membership."""
        raft = self.raft
        if raft is None:
            return None
        configuration = raft.configuration
        return self.clock.gate(now_ns, wall_ns, raft.me, configuration.voters, configuration.outgoing)

    def set_targets(self) -> None:
        """Dials every address where a peer may be: the configured ones, and those of all members."""
        if self.settings.standalone:
            return
        targets = {
            place.peer: place.name for place in self.settings.places if place.name != self.settings.place
        }
        if self.state is not None:
            for record in self.state.members.records:
                if record.incarnation != self.incarnation:
                    targets[record.peer] = record.place
        targets.update(self.membership.targets())
        targets.pop(self.place.peer, None)
        self.peers.set_targets(targets.items(), self.shell.elapsed_ns())

    def addresses_of(self, place: str) -> list[str]:
        """Where a place is, as configured here, as its members' records say, and as a member told who asks."""
        found = [known.peer for known in self.settings.places if known.name == place]
        if self.state is not None:
            found += [record.peer for record in self.state.members.records if record.place == place]
        found += self.membership.addresses_of(place)
        return list(dict.fromkeys(found))

    # --- snapshots

    def snapshot_link_up(self, peer: LinkPeer, link: Link) -> None:
        """A link dialled for a snapshot is up."""
        self.snapshots.link_up(peer, link)

    def snapshot_link_down(self, link: Link) -> None:
        """The link of a snapshot, out or in, is over."""
        self.snapshots.link_down(link)

    def link_writable(self, link: Link) -> None:
        """A full write buffer has drained."""
        self.snapshots.writable(link, self.turn())

    def retire(self, table: LockTable) -> None:
        """Takes a table apart, in slices, that stands for nothing any more."""
        self._replaced.append(table)

    def take_state(self, state: ReplicatedState) -> None:
        """A snapshot's state takes the place of our own; Raft knows of it already."""
        assert self.state is not None
        self.checksums.drop()
        self.retire(self.state.table)
        self.state = state
        self._take_up(state)
        self.set_targets()

    # --- what the shell calls

    def session_opened(self, source: str, remote: str) -> ClientSession:
        """A client connection stands, TLS included."""
        self.turn()
        return self.clients.opened(source, remote)

    def session_data(self, session: ClientSession, data: bytes) -> None:
        """Bytes of a client."""
        if not self._busy_turn:
            self.turn()
        self.clients.data(session, data)

    def session_overdue(self, session: ClientSession) -> None:
        """The deadline for authenticating is over."""
        self.turn()
        self.clients.overdue(session)

    def session_slow(self, session: ClientSession) -> None:
        """The session's write buffer was full for too long."""
        self.turn()
        self.clients.slow(session)

    def session_ended(self, session: ClientSession, *, by_timeout: bool) -> None:
        """The connection is over."""
        if not self._busy_turn:
            self.turn()
        self.clients.ended(session, by_timeout=by_timeout)

    def link_up(self, link: Link) -> None:
        """A link stands, TLS included."""
        self.peers.link_up(link, self.turn())

    def link_data(self, link: Link, data: bytes) -> None:
        """Bytes of a peer."""
        now_ns = self._look_up()
        state = link.logic
        if not self._busy_turn and (state is None or state.peer is None):
            self._begin_work()
        self.peers.link_data(link, data, now_ns)

    def link_down(self, link: Link, *, refused: bool) -> None:
        """A link is over, or never came about."""
        self.peers.link_down(link, refused=refused, now_ns=self.turn())

    def begin_stop(self, *, force: bool = False) -> None:
        """Leaves in good order, or at once."""
        self.membership.departure.begin_stop(self.turn(), force=force)

    def form(self, *, first: bool, first_token: int) -> str | None:
        """Forms a domain at the operator's word; otherwise why not."""
        return self.membership.operator_form(self.turn(), first=first, first_token=first_token)

    def transfer(self, place: str | None) -> str | None:
        """Gives the lead to a place, or to whoever is fit; otherwise why not."""
        return self.membership.transfer(place, self.turn())

    def clock_source(self, *, synchronised: bool, detail: str) -> None:
        """What a further source says of this machine's wall clock (spec 8)."""
        self.turn()
        self.clock.source_says(synchronised, detail)

    def status(self) -> dict[str, Any]:
        """What this node says of itself; see `ticketing.node.status`."""
        return status(self)

    def reload(self, settings: NodeSettings) -> None:
        """New tokens and secrets; running sessions and links go on."""
        self.settings = settings
        self.clients.tokens = settings.client_tokens
        self.peers.secrets = settings.peer_secrets
