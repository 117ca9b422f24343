"""One node: Raft, the lock state, client sessions and peer links joined, without any I/O of its own.

What this process is and has stands here. What happens between two flushes is `ticketing.node.loop_turn`, who leads is
followed by `ticketing.node.leading`, what peers say comes by `ticketing.node.peer_traffic`.
"""

from __future__ import annotations

from random import Random
from typing import Any

from ticketing.locks.table import LockTable
from ticketing.node.checksums import Checksums
from ticketing.node.clients import Clients
from ticketing.node.clock_health import ClockHealth
from ticketing.node.events import EventLog
from ticketing.node.first_state import FirstState
from ticketing.node.lead import Lead
from ticketing.node.leading import Leading
from ticketing.node.lock_figures import LockFigures
from ticketing.node.loop_turn import LoopTurn
from ticketing.node.membership import Membership
from ticketing.node.operations import Operations
from ticketing.node.peer_traffic import PeerTraffic
from ticketing.node.peers import Peers
from ticketing.node.reports import Reports
from ticketing.node.session import ClientSession
from ticketing.node.settings import NodeSettings, Place
from ticketing.node.shell import Link, Shell
from ticketing.node.shown import ShownRecord
from ticketing.node.snapshot_traffic import SnapshotTraffic
from ticketing.node.state import ReplicatedState, formed_state
from ticketing.node.status import status
from ticketing.node.watch import Watch
from ticketing.raft.core import Raft
from ticketing.raft.types import BLANK, MS, Base, Member

TICK_NS = 50 * MS
DISMANTLE_SLICE = 2_000


class Node:
    """The public face of the node, called by a shell; see `ticketing.server.node_api`."""

    def __init__(self, settings: NodeSettings, shell: Shell) -> None:
        self.settings = settings
        self.shell = shell
        self.rng = Random(int.from_bytes(shell.random_bytes(16)))  # noqa: S311 - timeouts, nothing secret
        self.incarnation = int.from_bytes(shell.random_bytes(8)) >> 1 | 1
        self.place: Place = next(place for place in settings.places if place.name == settings.place)
        self.clients = Clients(settings, shell, self.place.client)
        self.traffic = PeerTraffic(self)
        self.peers = Peers(self.traffic, shell, settings.peer_secrets, self.rng)
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
        began_ns = shell.elapsed_ns()
        self.loop_turn = LoopTurn(self, began_ns)
        self.leading = Leading(self, began_ns)
        self.watch = Watch(began_ns)
        self._housekeeping_ns = began_ns
        self.domain_tag = b""
        """What every Raft message begins with. A process life can belong to several domains one after another, with
        the same NodeId and over the same links, and a late message of one must not count in the next (spec 9,
        Identity).
        """
        self.snapshots = SnapshotTraffic(self)
        self.checksums = Checksums()
        self._replaced: list[LockTable] = []

    @property
    def member(self) -> Member:
        """This process life; NodeId 0 without membership."""
        return self.raft.me if self.raft is not None else Member(0, self.incarnation)

    @property
    def slices_left(self) -> bool:
        """Whether a tick has a slice of something to go on with."""
        return bool(self.snapshots.busy or self.checksums.busy or self._replaced or self.leading.closing)

    def members_changed(self) -> None:
        """What the state says of its members is not what it said."""
        self.traffic.members_changed()
        self.leading.members_changed()

    def answers_overtaken(self) -> None:
        """What waits to be written may be older than the state is by now (spec 4)."""
        assert self.state is not None
        self.clients.overtaken_by = self.state.table.held

    # --- turns and time

    def start(self) -> None:
        """Begins: a standalone node forms its domain, others dial their peers."""
        self.loop_turn.seen_ns = self.shell.elapsed_ns()
        self.turn()
        self.membership.start(self.loop_turn.seen_ns)
        self.traffic.set_targets()

    def turn(self) -> int:
        """Begins a turn, where none has begun. A fresh reading of the elapsed clock."""
        return self.loop_turn.begin()

    def flush(self) -> None:
        """Ends a turn."""
        self.loop_turn.flush()

    def next_deadline_ns(self) -> int:
        """When `tick` is due at the latest."""
        return self.loop_turn.next_deadline_ns(self._housekeeping_ns)

    def tick(self) -> None:
        """Time has passed."""
        now_ns = self.turn()
        raft = self.raft
        if raft is not None:
            raft.tick(now_ns)
            self.leading.drop_ended(raft, now_ns)
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
            self.traffic.probe_clocks(now_ns)
        self.clients.tick(now_ns)
        self.membership.tick(now_ns)
        if self.raft is not None:
            self.leading.follow(now_ns)
            self.leading.move_from_odd_clock(self.raft, now_ns)
        self.watch.look(self, now_ns)

    # --- becoming a member, and ceasing to be one

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
        self.domain_tag = bytes.fromhex(state.domain.domain_id)
        # What was shown in another domain says nothing: terms begin anew with each.
        self.shown = ShownRecord()
        self.clock.delta_ns = state.domain.delta_ns
        self._take_up(state)
        self.traffic.set_targets()
        for peer in self.peers.reachable():
            self.raft.link_up(self.traffic.member_of(peer) or peer.member, now_ns)

    def _take_up(self, state: ReplicatedState) -> None:
        self.members_changed()
        self.clients.domain_is(state.domain.shown)

    def leave_domain(self) -> None:
        """Drops membership and all state (the operator forms a new domain, spec 9)."""
        if self.lead is not None:
            self.leading.stand_down(self.lead, self.loop_turn.seen_ns)
        self.checksums.drop()
        if self.state is not None:
            self._replaced.append(self.state.table)
        self.raft = None
        self.state = None
        self.clients.moved_to = None
        self.clients.announce(None)
        self.clients.domain_is(None)
        self.snapshots.stop_receiving()

    # --- the state is replaced

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
        self.traffic.set_targets()

    # --- what the shell calls

    def session_opened(self, source: str, remote: str) -> ClientSession:
        """A client connection stands, TLS included."""
        self.turn()
        return self.clients.opened(source, remote)

    def session_data(self, session: ClientSession, data: bytes) -> None:
        """Bytes of a client."""
        turn = self.loop_turn
        self.clients.data(session, data, self.shell.elapsed_ns() if turn.busy else turn.begin())

    def session_rest(self, session: ClientSession, data: bytes) -> None:
        """Bytes of a client that were read before its connection was over."""
        turn = self.loop_turn
        self.clients.rest(session, data, self.shell.elapsed_ns() if turn.busy else turn.begin())

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
        if not self.loop_turn.busy:
            self.turn()
        self.clients.ended(session, by_timeout=by_timeout)

    def link_up(self, link: Link) -> None:
        """A link stands, TLS included."""
        self.peers.link_up(link, self.turn())

    def link_data(self, link: Link, data: bytes) -> None:
        """Bytes of a peer."""
        now_ns = self.loop_turn.look_up()
        state = link.logic
        if not self.loop_turn.busy and (state is None or state.peer is None):
            self.loop_turn.begin_work(now_ns)
        self.peers.link_data(link, data, now_ns)

    def link_down(self, link: Link, *, refused: bool) -> None:
        """A link is over, or never came about."""
        self.peers.link_down(link, refused=refused, now_ns=self.turn())

    def link_writable(self, link: Link) -> None:
        """A full write buffer has drained."""
        self.snapshots.writable(link, self.turn())

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
