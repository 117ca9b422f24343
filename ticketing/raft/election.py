"""Roles and votes: who leads, who may, how long that is believed (thesis 3.4, 4.2.3, 6.2, 9.6)."""

from __future__ import annotations

from enum import Enum

from ticketing.raft.lead import Lead
from ticketing.raft.messages import (
    PreVoteAnswer,
    PreVoteRequest,
    VoteAnswer,
    VoteRequest,
)
from ticketing.raft.quorum import Vote, outcome
from ticketing.raft.replica import Replica
from ticketing.raft.types import Member


class Role(Enum):
    """What a member does in its term."""

    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre_candidate"
    CANDIDATE = "candidate"
    LEADER = "leader"


_FOLLOWER = Role.FOLLOWER
_LEADER = Role.LEADER


class Election:
    """The role of this member, its election timer, and the rules of voting.

    Invariants: `lead` exists exactly while the role is LEADER, and then `leader` is this member; a candidate
    or pre-candidate has no leader (F060); the timer runs in every other role than LEADER; a vote is given
    once a term.
    """

    __slots__ = (
        "_answers",
        "_further",
        "_heard_ns",
        "_replica",
        "barriers_lost",
        "deadline_ns",
        "lead",
        "leader",
        "role",
    )

    def __init__(self, replica: Replica, now_ns: int) -> None:
        self._replica = replica
        self.role = Role.FOLLOWER
        self.leader: Member | None = None
        self.lead: Lead | None = None
        self.barriers_lost: list[int] = []
        self._heard_ns = 0
        self._answers: dict[Member, bool] = {}
        self._further = False
        """A vote was refused for our log is further, and no leader was heard since: we may be needed."""
        self.deadline_ns = 0
        self._restart_timer(now_ns)
        if replica.configurations.newest.voters == (replica.me,):
            self.deadline_ns = now_ns  # nobody else is there to wait for

    # --- transitions

    def follow(self, term: int, leader: Member, now_ns: int) -> None:
        """A leader of `term` (not below our own) was heard."""
        replica = self._replica
        if term > replica.term:
            self.enter_term(term, now_ns)
        assert self.role is not _LEADER, f"{replica.me} and {leader} both lead term {term}"
        assert self.leader is None or self.leader == leader, (term, self.leader, leader)
        self.role = _FOLLOWER
        self.leader = leader
        self._heard_ns = now_ns
        self._further = False
        self._restart_timer(now_ns)

    def enter_term(self, term: int, now_ns: int) -> None:
        """A real later term was seen: nothing is known of it yet."""
        self._replica.raise_term(term)
        self.stand_down(now_ns)

    def stand_down(self, now_ns: int) -> None:
        """Becomes a follower that knows no leader."""
        if self.lead is not None:
            self.barriers_lost += self.lead.barriers.drop()
            self.lead = None
        self.role = Role.FOLLOWER
        self.leader = None
        self._restart_timer(now_ns)

    def forget_leader(self, now_ns: int) -> None:
        """The leader's process is gone for certain: campaign after a short wait (spec 9)."""
        if self.role is not Role.FOLLOWER or self.leader is None:
            return
        self.leader = None
        self.deadline_ns = now_ns + self._replica.draw(0, self._replica.settings.orphan_campaign_max_ns)

    def on_restored(self, term: int, now_ns: int) -> None:
        """A snapshot of `term` took the place of (part of) the log: a campaign under the old one is off."""
        self._further = False
        if term > self._replica.term:
            self.enter_term(term, now_ns)
        elif self.role in (Role.PRE_CANDIDATE, Role.CANDIDATE):
            self.stand_down(now_ns)

    def tick(self, now_ns: int) -> None:
        """Campaigns when the timer ran out; stands down when the lead is over."""
        if self.lead is not None:
            if not self.lead.tick(now_ns):
                self.stand_down(now_ns)
        elif now_ns >= self.deadline_ns:
            if self._may_campaign():
                self._campaign(Role.PRE_CANDIDATE, transfer=False, now_ns=now_ns)
            else:
                self.stand_down(now_ns)

    def shift(self, shift_ns: int, now_ns: int) -> None:
        """The own loop stood still for this long: nobody else's silence (spec 9)."""
        if self.lead is not None:
            self.lead.shift(shift_ns, now_ns)
            return
        settings = self._replica.settings
        # What was handled since the gap may have moved these on already: they never lie past a fresh wait.
        self.deadline_ns = max(
            self.deadline_ns, min(self.deadline_ns + shift_ns, now_ns + settings.election_timeout_max_ns)
        )
        self._heard_ns = min(self._heard_ns + shift_ns, now_ns)

    # --- campaigning

    def _may_campaign(self) -> bool:
        """A voter of its own newest configuration may; another one with a log only where a voter needs it to.

        The second half: a crash in the middle of a replacement can leave a majority whose logs all lack what
        only a process outside of the configuration still has (spec 9).
        """
        newest = self._replica.configurations.newest
        if newest.is_voter(self._replica.me):
            return True
        return self._further and bool(newest.voters)

    def _campaign(self, role: Role, *, transfer: bool, now_ns: int) -> None:
        replica = self._replica
        configuration = replica.configurations.newest
        self._restart_timer(now_ns)
        self.leader = None
        self.role = role
        # It counts itself only where it is a voter: `outcome` ignores answers of others.
        self._answers = {replica.me: True}
        log = replica.log
        request: PreVoteRequest | VoteRequest
        if role is Role.PRE_CANDIDATE:
            request = PreVoteRequest(replica.term, log.last_index, log.last_term)
        else:
            replica.raise_term(replica.term + 1)
            replica.vote = replica.me
            request = VoteRequest(replica.term, log.last_index, log.last_term, transfer)
        for member in configuration.members():
            if member != replica.me and configuration.is_voter(member):
                replica.send(member, request)
        self._count(now_ns)

    def _count(self, now_ns: int) -> None:
        vote = outcome(self._replica.configurations.newest, self._answers)
        if vote is Vote.LOST:
            self.stand_down(now_ns)
        elif vote is Vote.WON:
            if self.role is Role.PRE_CANDIDATE:
                self._campaign(Role.CANDIDATE, transfer=False, now_ns=now_ns)
            else:
                self.role = Role.LEADER
                self.leader = self._replica.me
                self.lead = Lead(self._replica, now_ns)

    def on_timeout_now(self, term: int, now_ns: int) -> None:
        """The leader gives its lead to us: no pre-vote, no lease check (thesis 3.10)."""
        if term < self._replica.term or self.role is Role.LEADER:
            return
        if term > self._replica.term:
            self.enter_term(term, now_ns)
        if self.role is not Role.CANDIDATE and self._replica.configurations.newest.is_voter(self._replica.me):
            self._campaign(Role.CANDIDATE, transfer=True, now_ns=now_ns)

    def on_pre_vote_answer(self, sender: Member, message: PreVoteAnswer, now_ns: int) -> None:
        """Counts it if it answers the pre-vote that is going on."""
        if message.term > self._replica.term:
            self.enter_term(message.term, now_ns)
        elif self.role is Role.PRE_CANDIDATE and message.prospective == self._replica.term + 1:
            self._answers[sender] = message.granted
            self._count(now_ns)

    def on_vote_answer(self, sender: Member, message: VoteAnswer, now_ns: int) -> None:
        """Counts it if it answers the vote that is going on."""
        if message.term > self._replica.term:
            self.enter_term(message.term, now_ns)
        elif self.role is Role.CANDIDATE and message.term == self._replica.term:
            self._answers[sender] = message.granted
            self._count(now_ns)

    # --- voting; learners and members of no configuration vote when asked (spec 9)

    def on_pre_vote_request(self, sender: Member, message: PreVoteRequest, now_ns: int) -> None:
        """Would vote if the term were real: changes neither term nor vote nor timer (thesis 9.6)."""
        replica = self._replica
        granted = (
            message.term >= replica.term
            and not self._leader_is_alive(now_ns)
            and not self._is_behind(message.last_index, message.last_term)
        )
        replica.send(sender, PreVoteAnswer(replica.term, message.term + 1, granted))

    def on_vote_request(self, sender: Member, message: VoteRequest, now_ns: int) -> None:
        """Votes for the first that asks in a term with a log not behind our own (thesis 3.4, 3.6.1)."""
        replica = self._replica
        if message.term < replica.term:
            replica.send(sender, VoteAnswer(replica.term, granted=False))
            return
        if not message.transfer and self._leader_is_alive(now_ns):
            # A server that hears its leader does not even take note of the term (thesis 4.2.3).
            replica.send(sender, VoteAnswer(replica.term, granted=False))
            return
        if message.term > replica.term:
            self.enter_term(message.term, now_ns)
        granted = (
            replica.vote == sender or (replica.vote is None and self.leader is None)
        ) and not self._is_behind(message.last_index, message.last_term)
        if granted:
            replica.vote = sender
            self._restart_timer(now_ns)
        replica.send(sender, VoteAnswer(replica.term, granted))

    def _leader_is_alive(self, now_ns: int) -> bool:
        if self.lead is not None:
            return True  # until CheckQuorum says otherwise
        return self.leader is not None and now_ns - self._heard_ns < self._replica.settings.leader_lease_ns

    def _is_behind(self, last_index: int, last_term: int) -> bool:
        if not self._replica.is_behind(last_index, last_term):
            return False
        self._further = True
        return True

    def _restart_timer(self, now_ns: int) -> None:
        settings = self._replica.settings
        self.deadline_ns = now_ns + self._replica.draw(
            settings.election_timeout_min_ns, settings.election_timeout_max_ns
        )
