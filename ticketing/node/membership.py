"""How this process comes to be a member and how it leaves: forming, rejoining, replacement and leave, joined to the
node.

The decisions are in `forming`, `rejoin`, `replacement` and `leave`; this module hands them what they need to know and
carries out what they decide.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from ticketing.node.clock_health import read_together
from ticketing.node.first_state import FirstState, standalone_first_state
from ticketing.node.forming import Forming
from ticketing.node.forming_messages import decode_forming, encode_forming
from ticketing.node.handshake import LinkFailure, LinkPeer
from ticketing.node.link import PeerKind
from ticketing.node.state import ReplicatedState
from ticketing.raft.election import Role
from ticketing.raft.types import MS, Member

if TYPE_CHECKING:
    from ticketing.node.node import Node

RECORD = "record.json"
FLOOR = "floor.json"
PERMIT = "permit.json"
"""Files of `state/`; see `ticketing.server.files`."""


class Membership:
    """Everything of one node that has to do with belonging to a domain."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.stopping = False
        self.forming: Forming | None = None
        """None only where standalone."""

    # --- the beginning

    def start(self, now_ns: int) -> None:
        """A standalone node forms its own domain; others look for theirs."""
        node = self._node
        if node.settings.standalone:
            first = standalone_first_state(
                node.settings, node.incarnation, node.shell.random_bytes, node.shell.wall_ns() // MS
            )
            self._store(first, lambda: node.become_founder(first, node.turn()))
        else:
            self.forming = Forming(node.settings, node.incarnation, self, now_ns)

    def _store(self, first: FirstState, done: Callable[[], None]) -> None:
        """Records a first state durably: this folder took part in its domain (spec 9, Forming)."""
        node = self._node
        record = {
            "domain": first.domain_id,
            "first_token": str(first.first_token),
            "place": node.settings.place,
            "node_id": first.member(node.settings.place).node_id,
            "incarnation": str(node.incarnation),
            "formed_ms": first.formed_wall_ms,
            "permit": first.permit,
            "members": [
                {"place": member.place, "node_id": member.node_id, "peer": member.peer}
                for member in first.members
            ],
        }
        floor = {"first_token": str(max(node.settings.earlier_first_token, first.first_token))}
        # The floor first: a record without its floor would be believed, a floor without its record does no harm.
        node.shell.store(
            FLOOR,
            msgspec.json.encode(floor),
            lambda: node.shell.store(RECORD, msgspec.json.encode(record), done),
        )

    # --- forming (FormingHost)

    @property
    def permit(self) -> str:
        """The permit as peers are to see it."""
        return self.forming.permit if self.forming is not None else ""

    def random_bytes(self, count: int) -> bytes:
        """From the system's random source."""
        return self._node.shell.random_bytes(count)

    def clock_within(self, place: str) -> bool | None:
        """Whether that place's wall clock is within Δ of ours; None: not known."""
        node = self._node
        for peer in node.peers.reachable():
            if peer.place == place:
                now_ns, wall_ns = read_together(node.shell.elapsed_ns, node.shell.wall_ns)
                return node.clock.within_delta(peer.facts.incarnation, now_ns, wall_ns)
        return None

    def leader_alive(self) -> bool:
        """Whether this process leads its domain or knows a living leader of it."""
        return self._node.raft is not None and self._node.raft.leader is not None

    def domain(self) -> str:
        """Id of the domain that this process is a member of, or empty."""
        state = self._node.state
        return state.domain.domain_id if state is not None else ""

    def _carry_out_forming(self) -> None:
        forming, node = self.forming, self._node
        if forming is None:
            return
        output = forming.take_output()
        if output.drop:
            node.leave_domain()
        if output.store is not None:
            self._store(output.store, self._stored)
        for incarnation, message in output.messages:
            node.peers.send(incarnation, PeerKind.FORMING, encode_forming(message))
        if output.formed is not None:
            node.become_founder(output.formed, node.shell.elapsed_ns())
        for note in output.notes:
            node.shell.log("info", "forming", note=note)

    def _stored(self) -> None:
        assert self.forming is not None
        self.forming.stored(self._node.turn())
        self._carry_out_forming()

    def tick(self, now_ns: int) -> None:
        """Called every 50 ms."""
        if self.forming is not None and now_ns >= self.forming.next_deadline_ns:
            self.forming.tick(now_ns, self._node.shell.wall_ns() // MS)
            self._carry_out_forming()
        if self.stopping:
            self._go_on_stopping(now_ns)

    # --- what the node tells

    def took_up(self, state: ReplicatedState) -> None:
        """This process has (another) replicated state."""

    def configuration_applied(self, now_ns: int) -> None:
        """A configuration entry was applied."""

    def lead_began(self, now_ns: int) -> None:
        """This process leads."""

    def lead_ended(self, now_ns: int) -> None:
        """This process does not lead any more."""

    def peer_up(self, peer: LinkPeer, now_ns: int) -> None:
        """An own link to this process is up."""

    def peer_down(self, peer: LinkPeer, now_ns: int) -> None:
        """The own link to this process is over."""

    def peer_joined(self, peer: LinkPeer, now_ns: int) -> None:
        """Links with this process are up both ways."""
        if self.forming is not None:
            self.forming.peer_up(peer, now_ns)
            self._carry_out_forming()

    def peer_parted(self, peer: LinkPeer, now_ns: int) -> None:
        """Links with this process are not up both ways any more."""
        if self.forming is not None:
            self.forming.peer_down(peer, now_ns)
            self._carry_out_forming()

    def turned_away(self, place: str, failure: LinkFailure) -> None:
        """A link was refused in its handshake."""

    def raft_heard(self, peer: LinkPeer, now_ns: int) -> None:
        """A Raft message came although this process is no member (yet): its sender knows that the domain exists."""
        forming = self.forming
        if forming is None or forming.recorded is None:
            return
        recorded = forming.recorded
        founders = {member.incarnation for member in recorded.members}
        if peer.facts.incarnation in founders and peer.domain in ("", recorded.domain_id):
            forming.domain_heard(recorded.domain_id, now_ns)
            self._carry_out_forming()

    def stranger(self, peer: LinkPeer) -> None:
        """A Raft message came from a process that is no member (any more)."""

    def receive(self, peer: LinkPeer, kind: int, payload: bytes, now_ns: int) -> None:
        """A message about forming, membership or leave."""
        if kind == PeerKind.FORMING and self.forming is not None:
            wall_ms = self._node.shell.wall_ns() // MS
            self.forming.receive(peer, decode_forming(payload), now_ns, wall_ms)
            self._carry_out_forming()

    def targets(self) -> dict[str, str]:
        """Further peer addresses to be dialled: address to place."""
        return {}

    # --- the lead

    def transfer(self, place: str | None, now_ns: int) -> str | None:
        """Gives the lead to a place, or to the voter that is furthest; otherwise why not."""
        node = self._node
        raft, state, lead = node.raft, node.state, node.lead
        if raft is None or state is None or raft.role is not Role.LEADER or lead is None:
            return "not_leader"
        target: Member | None = None
        for member in raft.configuration.voters:
            record = state.members.find(member)
            if member == raft.me or (place is not None and (record is None or record.place != place)):
                continue
            progress = raft.progress(member)
            if not node.peers.is_up(member.incarnation) or progress is None:
                continue
            best = raft.progress(target) if target is not None else None
            if best is None or progress.match > best.match:
                target = member
        if target is None:
            return "no_such_voter" if place is not None else "no_other_voter"
        # What the desk has gathered in this turn goes into the log first: no proposal is taken afterwards.
        lead.propose(now_ns)
        return raft.transfer(target, now_ns)

    def status(self) -> dict[str, Any]:
        """How it stands with this process's membership, for people: a line, and what is missing."""
        forming = self.forming
        if forming is None:
            return {"state": "standalone", "waiting_for": []}
        return {"state": forming.state_text, "waiting_for": forming.waiting_for}

    # --- the end

    def begin_stop(self, now_ns: int, *, force: bool) -> None:
        """Leaves in good order: the lead is given away first. `force`, or a second call, stops at once."""
        node = self._node
        if force or self.stopping:
            self._stop("stopped at once")
            return
        self.stopping = True
        self._stop_ns = now_ns
        node.clients.stopping = True
        node.shell.log("info", "stopping")
        self._go_on_stopping(now_ns)

    def _go_on_stopping(self, now_ns: int) -> None:
        raft = self._node.raft
        if raft is None or self._node.settings.standalone or raft.role is not Role.LEADER:
            self._stop("stopped")
        elif raft.transferring is None:
            self.transfer(None, now_ns)

    def _stop(self, why: str) -> None:
        self._node.clients.close_all("shutting_down")
        self._node.shell.stop(0, why)

    def operator_form(self, now_ns: int, *, first: bool, first_token: int) -> str | None:
        """Forms a domain at the operator's word; otherwise why not."""
        if self.forming is None:
            return "a standalone node forms its domain when it starts"
        refusal = self.forming.operator_form(first=first, first_token=first_token, now_ns=now_ns)
        self._carry_out_forming()
        return refusal
