"""What members have really said to their leaders, and what these, and they themselves, may make of it.

All of it is judged at the first step of a mistake: a round that counts as answered, a barrier that passes, an entry
that a follower commits. What comes of such a mistake shows seldom and late.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.sim.world import Violation
from ticketing.raft.core import Output, Raft
from ticketing.raft.lead import Lead
from ticketing.raft.messages import AppendRefusal, AppendReply, VoteAnswer, VoteRequest
from ticketing.raft.types import Member


class Spoken:
    """What one member has answered, by term."""

    __slots__ = ("matches", "rounds")

    def __init__(self) -> None:
        self.rounds: dict[int, int] = {}
        """The newest round that it has answered."""
        self.matches: dict[int, int] = {}
        """Up to where its log equals its leader's."""


class Asked:
    """The barriers of one lead."""

    __slots__ = ("before", "begun", "lead", "round")

    def __init__(self, lead: Lead, begun: int) -> None:
        self.lead = lead
        self.begun = begun
        """How many barriers the member had begun in its life when its last turn ended."""
        self.round = 0
        """The newest round at that time."""
        self.before: dict[int, int] = {}
        """By barrier: the newest round when the turn began in which it was asked for."""


class Answers:
    """Of all members of all domains."""

    def __init__(self) -> None:
        self._spoken: dict[Member, Spoken] = {}
        self._asked: dict[Raft, Asked] = {}
        self._voted: dict[tuple[Raft, int], Member] = {}
        """By member and term: for whom it has voted, as it said itself, or showed by campaigning."""

    def answered_round(self, member: Member, term: int) -> int:
        """The newest round of this term's leader that the member has answered."""
        spoken = self._spoken.get(member)
        return 0 if spoken is None else spoken.rounds.get(term, 0)

    def carrying_out(self, name: str, raft: Raft, output: Output) -> None:
        """Notes what the member is about to say, and judges the barriers that it takes for passed."""
        for member, message in output.messages:
            if isinstance(message, VoteAnswer):
                if message.granted:
                    self._vote(name, raft, message.term, member)
            elif isinstance(message, VoteRequest):
                self._vote(name, raft, message.term, raft.me)
            elif isinstance(message, AppendReply | AppendRefusal):
                spoken = self._spoken.get(raft.me)
                if spoken is None:
                    spoken = self._spoken[raft.me] = Spoken()
                term = message.term
                spoken.rounds[term] = max(spoken.rounds.get(term, 0), message.round)
                if isinstance(message, AppendReply):
                    spoken.matches[term] = max(spoken.matches.get(term, 0), message.match)
        if output.barriers:
            self._check_barriers(name, raft, output.barriers)

    def _vote(self, name: str, voter: Raft, term: int, candidate: Member) -> None:
        """One vote a term and process life, also within one turn (thesis 3.4)."""
        former = self._voted.setdefault((voter, term), candidate)
        if former != candidate:
            raise Violation("one vote a term", f"{name} votes for {former} and {candidate} in {term}")

    def _check_barriers(self, name: str, raft: Raft, passed: Sequence[int]) -> None:
        """A majority has answered a round that began after the question (thesis 6.4)."""
        lead = raft._election.lead
        asked = self._asked.get(raft)
        assert lead is not None
        for barrier in passed:
            # One that was asked for in this very turn: nobody has answered any of its rounds yet.
            before = lead.replication.round
            if asked is not None and asked.lead is lead:
                before = asked.before.pop(barrier, before)
            configurations = (raft.configuration, raft.committed_configuration)
            if not any(
                self._majority_after(raft, configuration.voters, before)
                and self._majority_after(raft, configuration.outgoing, before)
                for configuration in configurations
            ):
                raise Violation(
                    "no barrier without a majority", f"{name}: barrier {barrier}, begun after round {before}"
                )

    def _majority_after(self, raft: Raft, voters: Sequence[Member], round_: int) -> bool:
        me, term = raft.me, raft.term
        count = sum(voter == me or self.answered_round(voter, term) > round_ for voter in voters)
        return not voters or count * 2 > len(voters)

    def after_leaders_turn(self, raft: Raft, lead: Lead) -> None:
        """Remembers the rounds before which barriers were asked for."""
        asked, begun = self._asked.get(raft), raft._barriers_begun
        if asked is None or asked.lead is not lead:
            asked = self._asked[raft] = Asked(lead, begun)
        elif asked.begun != begun:
            for barrier in range(asked.begun + 1, begun + 1):
                asked.before[barrier] = asked.round
            asked.begun = begun
        asked.round = lead.replication.round

    def check_commit(self, name: str, raft: Raft) -> None:
        """A follower commits what its leader has vouched for, no more (thesis 3.5, receiver rule 5).

        To be called where the commit index rose in a turn that began and ended in the same term.
        """
        spoken = self._spoken.get(raft.me)
        vouched = 0 if spoken is None else spoken.matches.get(raft.term, 0)
        if raft.commit_index > max(vouched, raft.log_base_index):
            raise Violation(
                "no commit of what was not compared",
                f"{name} commits {raft.commit_index}, its log is the leader's up to {vouched}",
            )
