"""The leader's care for the membership: replacements and leaves, decided elsewhere and carried out here (spec 9).

Made when a lead begins and dropped with it. What it goes by is gathered anew for each decision, from Raft, the links
and the replicated state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ticketing.node.leave import Leaves
from ticketing.node.link import PeerKind
from ticketing.node.liveness import ClusterFacts, MemberFacts
from ticketing.node.membership_messages import JoinAnswer, JoinAsk, JoinTaken, LeaveAsk, encode
from ticketing.node.replacement import Done, ProposeChange, Replacement, ReplacementView, Tell, Transfer
from ticketing.raft.core import Raft
from ticketing.raft.membership import ChangeRefused
from ticketing.raft.types import ConfigurationChange, Member

if TYPE_CHECKING:
    from ticketing.node.node import Node


class Announced(NamedTuple):
    """An operator's replacement whose process has not asked yet. Known to one lead only, for people."""

    command_id: str
    who: str
    why: str
    since_ms: int


class Governing:
    """One lead's replacements and leaves."""

    def __init__(self, node: Node, raft: Raft, now_ns: int) -> None:
        assert node.state is not None
        domain = node.state.domain
        self._node = node
        self._raft = raft
        self._since_ns = now_ns
        self._given_up: dict[Member, None] = {}
        self.announced: dict[str, Announced] = {}
        """By place."""
        self.leaves = Leaves()
        self.replacement = Replacement(
            domain.domain_id,
            domain.first_token,
            domain.delta_ns,
            tuple(place.name for place in node.settings.places),
            node.settings.raft.election_timeout_max_ns,
        )

    def facts(self) -> ClusterFacts:
        """What is known now."""
        node, raft = self._node, self._raft
        assert node.state is not None
        configuration = raft.configuration
        voters = tuple(dict.fromkeys((*configuration.voters, *configuration.outgoing)))
        leaving = self.leaves.given(voters)
        if node.membership.departure.stopping and raft.me not in leaving:
            leaving = (*leaving, raft.me)
        return ClusterFacts(
            me=raft.me,
            configuration=configuration,
            configuration_index=raft.configuration_index,
            committed=raft.configuration_index <= node.state.applied_index,
            ready=raft.own_term_committed and raft.confirmed,
            since_ns=self._since_ns,
            commit_index=raft.commit_index,
            members=node.state.members,
            peers={member: self._member(member) for member in configuration.members() if member != raft.me},
            leaving=leaving,
        )

    def _member(self, member: Member) -> MemberFacts:
        progress = self._raft.progress(member)
        assert progress is not None, f"the leader does not follow {member}"
        return MemberFacts(
            linked=self._node.peers.linked(member.incarnation),
            heard_ns=progress.heard_ns,
            answered_ns=progress.answered_ns,
            match=progress.match,
            given_up=member in self._given_up,
            progress=self._node.snapshots.progress(member),
        )

    def given_up(self, member: Member) -> None:
        """Raft no longer keeps the log for this member's catching up."""
        self._given_up[member] = None

    def step(self, now_ns: int) -> None:
        """Called every 50 ms: the next step of whatever is under way."""
        action = self.replacement.step(self.facts(), now_ns)
        node = self._node
        match action:
            case None:
                return
            case ProposeChange():
                self.propose(action.change, action.audit, now_ns)
            case Tell():
                node.peers.send(action.incarnation, PeerKind.MEMBERSHIP, encode(action.message))
            case Transfer():
                refusal = node.leading.transfer_to(action.target, now_ns)
                node.shell.log("audit", action.audit, refused=refusal)
            case Done():
                node.shell.log("audit", action.audit)

    def propose(self, change: ConfigurationChange, audit: str, now_ns: int) -> str | None:
        """Proposes a change of members; an audit line once Raft took it, else why it did not."""
        try:
            self._raft.propose_configuration(change, now_ns)
        except ChangeRefused as refusal:
            return str(refusal)
        self._node.shell.log("audit", audit)
        return None

    def asked_to_join(self, ask: JoinAsk, now_ns: int) -> JoinAnswer | JoinTaken:
        """The answer to a process that asks for its place."""
        return self.replacement.ask(ask, self.facts(), now_ns)

    def asked_for_leave(self, ask: LeaveAsk, now_ns: int) -> bytes:
        """The answer to a voter that wants to stop."""
        facts = self.facts()
        busy = self.replacement.busy(facts, now_ns)
        answer = self.leaves.ask(ask, facts, busy, self._raft.term, now_ns)
        if not answer.refusal:
            self._node.shell.log(
                "audit", f"leave to stop given to {facts.place_of(Member(ask.node_id, ask.incarnation))}"
            )
        return encode(answer)

    def views(self, now_ns: int) -> list[ReplacementView]:
        """Replacements under way or waiting, for status."""
        return self.replacement.views(self.facts(), now_ns)
