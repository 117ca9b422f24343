"""How this process comes to be a member and how it leaves: forming, rejoining, replacement and leave, joined to the node.

The decisions are in `forming`, `rejoin`, `replacement` and `leave`; this module hands them what they need to know and
carries out what they decide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ticketing.node.first_state import FirstState, standalone_first_state
from ticketing.node.handshake import LinkFailure, LinkPeer
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

    # --- the beginning

    def start(self, now_ns: int) -> None:
        """A standalone node forms its own domain; others look for theirs."""
        node = self._node
        if node.settings.standalone:
            first = standalone_first_state(
                node.settings, node.incarnation, node.shell.random_bytes, node.shell.wall_ns() // MS
            )
            self._store(first)

    def _store(self, first: FirstState) -> None:
        node = self._node
        record = msgspec.json.encode(first)
        node.shell.store(RECORD, record, lambda: node.become_founder(first, node.shell.elapsed_ns()))

    def tick(self, now_ns: int) -> None:
        """Called every 50 ms."""
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

    def turned_away(self, place: str, failure: LinkFailure) -> None:
        """A link was refused in its handshake."""

    def raft_heard(self, peer: LinkPeer, now_ns: int) -> None:
        """A Raft message came although this process is no member (yet)."""

    def stranger(self, peer: LinkPeer) -> None:
        """A Raft message came from a process that is no member (any more)."""

    def receive(self, peer: LinkPeer, kind: int, payload: bytes, now_ns: int) -> None:
        """A message about forming, membership or leave."""

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
        return "not_supported"
