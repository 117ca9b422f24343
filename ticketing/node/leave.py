"""Stopping without ending the domain (spec 9, Stopping): the leader gives leave, a process that stops asks
for it.

State is in memory, so a voter that stops is a voter lost until its place is filled again. The leader
therefore counts it as lost from the moment of its leave, and lets nobody go whose going would leave less
than a majority living.

A leave holds in the term in which it was given, and only while its receiver still follows that term: a
later leader knows nothing of it, but sees whoever left by then as silent, and a new leader gives none in
its first second.
"""

from __future__ import annotations

from typing import NamedTuple

from ticketing.node.liveness import ClusterFacts
from ticketing.node.membership_messages import LONG_TEXT_MAX, LeaveAnswer, LeaveAsk
from ticketing.node.settings import S
from ticketing.raft.types import MS, Member

FIRST_SECOND_NS = 1 * S
ASK_EVERY_NS = 500 * MS
GIVE_LEAD_EVERY_NS = 1 * S


class Leaves:
    """The leader's side; made when a lead begins, dropped when it ends."""

    def __init__(self) -> None:
        self._given: dict[Member, None] = {}

    def given(self, voters: tuple[Member, ...]) -> tuple[Member, ...]:
        """Those that were given leave and whose places are not filled again; `voters` are those in force,
        of both halves where joint.

        They go into `ClusterFacts.leaving`, so that nobody counts them as living any more.
        """
        for member in [member for member in self._given if member not in voters]:
            del self._given[member]
        return tuple(self._given)

    def ask(
        self, ask: LeaveAsk, facts: ClusterFacts, busy: str | None, term: int, now_ns: int
    ) -> LeaveAnswer:
        """A process asks; `busy` is what `Replacement.busy` says, `term` the leader's. Asking again is
        harmless.
        """
        member = Member(ask.node_id, ask.incarnation)
        refusal = self.refusal(member, facts, busy, now_ns)
        if ask.term != term:
            refusal = "it asked in another term"
        if refusal is None and facts.configuration.is_voter(member):
            self._given[member] = None
        return LeaveAnswer(ask.node_id, ask.incarnation, term, (refusal or "")[:LONG_TEXT_MAX])

    def refusal(self, member: Member, facts: ClusterFacts, busy: str | None, now_ns: int) -> str | None:
        """Why this member may not stop now, None if it may. Gives nothing (also the answer to "can it
        stop?").
        """
        configuration = facts.configuration
        if member in self._given or not configuration.is_voter(member):
            return None
        if member == facts.me:
            return "it leads: the lead is given away first"
        return self._keeps(member, facts, busy, now_ns)

    def could_stop(self, member: Member, facts: ClusterFacts, busy: str | None, now_ns: int) -> str | None:
        """As `refusal`, for whoever merely asks: that it leads keeps nobody, the lead is given away first."""
        if member in self._given or not facts.configuration.is_voter(member):
            return None
        return self._keeps(member, facts, busy, now_ns)

    def _keeps(self, member: Member, facts: ClusterFacts, busy: str | None, now_ns: int) -> str | None:
        configuration = facts.configuration
        if not facts.ready or now_ns - facts.since_ns < FIRST_SECOND_NS:
            return "the leader has just begun and gives no leave in its first second"
        if busy is not None:
            return f"one change at a time: {busy}"
        return self._too_few(member, configuration.voters, facts, now_ns) or self._too_few(
            member, configuration.outgoing, facts, now_ns
        )

    @staticmethod
    def _too_few(member: Member, voters: tuple[Member, ...], facts: ClusterFacts, now_ns: int) -> str | None:
        if not voters:
            return None
        left = [voter for voter in voters if voter != member and facts.living(voter, now_ns)]
        needed = len(voters) // 2 + 1
        if len(left) >= needed:
            return None
        lost = [facts.place_of(voter) for voter in voters if voter != member and voter not in left]
        return (
            f"{len(left)} of {len(voters)} voters would be left living and {needed} are needed"
            f" (not living, or leaving: {', '.join(lost) or 'none'})"
        )


class GiveLeadAway(NamedTuple):
    """Transfer the lead to whoever is fit."""


class AskLeave(NamedTuple):
    """Send this to the leader."""

    leader: Member
    message: LeaveAsk


class StayOn(NamedTuple):
    """No leave was given: the process goes on as if nothing had been asked."""

    reason: str


class StopNow(NamedTuple):
    """Stop the process."""

    reason: str
    warning: bool
    """Without leave: this may have ended the domain."""


class Leaving:
    """A stopping process's side, from the first signal on. The node goes on voting and replicating
    meanwhile.
    """

    def __init__(self, now_ns: int, stop_wait_ns: int, *, stays: bool = False) -> None:
        """`stays`: where no leave is given in time, the process stays, instead of stopping without."""
        self._until_ns = now_ns + stop_wait_ns
        self.stays = stays
        self._asked: Member | None = None
        self._ask_ns = now_ns
        self._give_ns = now_ns
        self._leave = ""
        self.waiting_for = "the leader's leave"
        """Why it has not stopped yet, for status and log."""

    def step(
        self, now_ns: int, *, me: Member, voter: bool, leading: bool, leader: Member | None, term: int
    ) -> GiveLeadAway | AskLeave | StopNow | StayOn | None:
        """What to do now; to be called at every tick. `voter`: in the newest configuration, either half."""
        if not voter:
            return StopNow("it is no voter: nobody's leave is needed", warning=False)
        if self._leave:
            return StopNow(self._leave, warning=False)
        if now_ns >= self._until_ns:
            if self.stays:
                return StayOn(self.waiting_for)
            return StopNow(
                f"stopped without leave, which may have ended the domain: {self.waiting_for}", warning=True
            )
        if leading:
            self.waiting_for = "no other voter has taken the lead yet"
            if now_ns < self._give_ns:
                return None
            self._give_ns = now_ns + GIVE_LEAD_EVERY_NS
            return GiveLeadAway()
        if leader is None:
            self.waiting_for = "no leader is known that could give leave"
            return None
        if leader == self._asked and now_ns < self._ask_ns:
            return None
        if self.stays and now_ns >= self._until_ns - ASK_EVERY_NS:
            return None  # a leave that comes after all would count this process as lost for nothing
        self._asked = leader
        self._ask_ns = now_ns + ASK_EVERY_NS
        return AskLeave(leader, LeaveAsk(me.node_id, me.incarnation, term))

    def answered(
        self, answer: LeaveAnswer, sender: Member, *, me: Member, leader: Member | None, term: int
    ) -> None:
        """The leader's answer; counts only from whom this process follows now, in the term that it follows."""
        if sender != leader or answer.term != term or (answer.node_id, answer.incarnation) != me:
            return
        if answer.refusal:
            self.waiting_for = answer.refusal
        else:
            self._leave = f"leave was given by {sender}"
