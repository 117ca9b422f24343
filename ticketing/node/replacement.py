"""Filling a place with another process (spec 9, Replacement without a pause, Rejoin): the leader's side.

One at a time: a process that asks for its place becomes a learner under a NodeId never used before; once it
has caught up, one joint change swaps it for the voter of its place; the replacement is over when the new
voter has applied the final configuration. No step needs one voter more than the step before: a learner
counts nowhere, and only a learner that has proved itself enters a majority.

What has been decided is in the replicated configuration and its records, what must be asked for is asked
again every second, and all else is seen live. So nothing here outlives a lead: the next leader begins with
an empty `Replacement` and goes on where the former stood.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from ticketing.node.commit_history import CommitHistory
from ticketing.node.liveness import SILENT_NS, ClusterFacts
from ticketing.node.members import MemberRecord, MembersChange
from ticketing.node.membership_messages import (
    LONG_TEXT_MAX,
    TEXT_MAX,
    JoinAnswer,
    JoinAsk,
    JoinTaken,
    Verdict,
)
from ticketing.node.settings import S
from ticketing.raft.membership import swapping, with_learner, without_learner
from ticketing.raft.types import Configuration, ConfigurationChange, Member

LEARNER_SILENT_NS = 10 * S
ASK_FRESH_NS = 3 * S
"""An ask not repeated for this long is over; asking processes repeat theirs every second."""
TRANSFER_AGAIN_NS = 2 * S


class ProposeChange(NamedTuple):
    """Propose this to Raft. Where it is refused nothing has happened: the same comes again with a later
    step.
    """

    change: ConfigurationChange
    what: str
    """`add`, `swap`, `give_up`, `undo`."""
    place: str
    node_id: int
    audit: str
    """One line for the audit log, once it is proposed."""


class Tell(NamedTuple):
    """Send this to the process of that incarnation."""

    incarnation: int
    message: JoinTaken


class Transfer(NamedTuple):
    """Give the lead away: the leader's own place is to be filled anew."""

    target: Member
    audit: str


class Done(NamedTuple):
    """The final configuration is committed and the new voter has applied it: success."""

    place: str
    node_id: int
    witnessed: bool
    """This leader saw the replacement under way; else it only found it complete."""
    audit: str


Action = ProposeChange | Tell | Transfer | Done


class ReplacementView(msgspec.Struct, frozen=True, kw_only=True):
    """One replacement, under way or waiting, for status and progress displays."""

    place: str
    incarnation: int
    node_id: int
    """0 while it waits."""
    stage: str
    """`waiting`, `joining` (its learner is being committed), `catching_up`, `swapping`, `completing`."""
    text: str
    operator: bool


class _Asking:
    """One process that asks for its place."""

    __slots__ = ("ask", "since_ns", "until_ns")

    def __init__(self, ask: JoinAsk, now_ns: int) -> None:
        self.ask = ask
        self.since_ns = now_ns
        self.until_ns = now_ns + ASK_FRESH_NS


class Replacement:
    """Made when a lead begins, dropped when it ends. `step` is to be called at every tick (about 50 ms)."""

    def __init__(
        self,
        domain_id: str,
        first_token: int,
        delta_ns: int,
        places: tuple[str, ...],
        election_timeout_ns: int,
    ) -> None:
        self._domain_id = domain_id
        self._first_token = first_token
        self._delta_ns = delta_ns
        self._places = places
        self._asking: dict[str, _Asking] = {}
        """By place, in the order of their first ask; at most one a place."""
        self._history = CommitHistory(election_timeout_ns)
        self._told: set[int] = set()
        """NodeIds of learners that were told so by this leader."""
        self._applied: dict[int, int] = {}
        """By NodeId: the newest configuration entry that this voter said it has applied."""
        self._completed = 0
        """NodeId of the newest swapped voter, once it is known to be complete."""
        self._transferred_ns: int | None = None

    # --- what comes in

    def ask(self, ask: JoinAsk, facts: ClusterFacts, now_ns: int) -> JoinAnswer | JoinTaken:
        """A process asks for its place; called again every second, and answered every time."""
        members = facts.members
        record = members.by_incarnation(ask.incarnation)
        if record is not None:
            return self._taken(record)
        if ask.place not in self._places:
            return _answer(ask, Verdict.DENIED, f"{ask.place} is no place of this cluster")
        if ask.operator and ask.command_id in members.undone:
            return _answer(ask, Verdict.UNDONE, f"the replacement of {ask.place} was undone by an operator")
        for other in members.records:
            if other.place != ask.place and not {other.client, other.peer}.isdisjoint((ask.client, ask.peer)):
                return _answer(ask, Verdict.DENIED, f"its addresses are those of {other.place}")
        asking = self._asking.get(ask.place)
        if asking is not None and asking.ask.incarnation != ask.incarnation:
            if now_ns < asking.until_ns and not self._outranks(ask, asking.ask, facts):
                return _answer(
                    ask, Verdict.WAITING, f"another process asks for {ask.place}: only one of them may run"
                )
            del self._asking[ask.place]
            asking = None
        if asking is None:
            asking = self._asking[ask.place] = _Asking(ask, now_ns)
        asking.until_ns = now_ns + ASK_FRESH_NS
        return _answer(ask, Verdict.WAITING, self._waits_for(asking, facts, now_ns))

    def applied(self, node_id: int, applied_index: int) -> None:
        """A voter says that it has applied its configuration, and the log up to this index."""
        self._applied[node_id] = max(applied_index, self._applied.get(node_id, 0))
        while len(self._applied) > 16:
            del self._applied[next(iter(self._applied))]

    def undo(self, place: str, who: str, why: str, facts: ClusterFacts) -> ProposeChange | str:
        """An operator takes a replacement back; possible up to the swap. The proposal, or why not."""
        who, why = who[:TEXT_MAX], why[:TEXT_MAX]
        if not facts.ready or not facts.committed or facts.configuration.joint:
            return (
                "a change of members is being committed: it can no longer be undone, or ask again in a moment"
            )
        configuration = facts.configuration
        for learner in configuration.learners:
            record = facts.members.find(learner)
            if record is not None and record.place == place:
                change = MembersChange(
                    "undo", place, record.node_id, command_id=record.command_id, who=who, why=why
                )
                without = without_learner(configuration, learner)
                return _propose(without, change, f"{place}: replacement by {learner} undone by {who}: {why}")
        asking = self._asking.get(place)
        if asking is None:
            return f"nothing is under way for {place}"
        if not asking.ask.operator:
            return f"a process asks for {place} by itself: stop that process"
        del self._asking[place]
        change = MembersChange("undo", place, 0, command_id=asking.ask.command_id, who=who, why=why)
        return _propose(configuration, change, f"{place}: waiting replacement undone by {who}: {why}")

    def undo_command(
        self, place: str, command_id: str, who: str, why: str, facts: ClusterFacts
    ) -> ProposeChange | str:
        """An operator takes a command back whose process has not asked yet, so that it is never taken."""
        who, why = who[:TEXT_MAX], why[:TEXT_MAX]
        if not facts.ready or not facts.committed or facts.configuration.joint:
            return "a change of members is being committed: ask again in a moment"
        if command_id in facts.members.used:
            return f"{place} was replaced by this command already: it can no longer be undone"
        if command_id in facts.members.undone:
            return f"this command for {place} was undone already"
        change = MembersChange("undo", place, 0, command_id=command_id, who=who, why=why)
        return _propose(facts.configuration, change, f"{place}: command {command_id} undone by {who}: {why}")

    def refuses(self, place: str, facts: ClusterFacts, now_ns: int) -> str | None:
        """Why an operator may not begin to replace this place now; None if it may."""
        busy = self.busy(facts, now_ns)
        if busy is not None:
            return f"one change at a time: {busy}"
        asking = self._asking.get(place)
        if asking is not None and self._by_operator(asking.ask, facts):
            return f"another process asks for {place} at an operator's word: undo that first"
        old = facts.members.voter_of(place, facts.configuration)
        if old is None:
            return f"{place} has no voter whose place could be taken"
        return self._another_is_missing(old.member, facts, now_ns)

    # --- decisions

    def step(self, facts: ClusterFacts, now_ns: int) -> Action | None:
        """The next thing to do, if there is one now. It is said again until it shows in the facts."""
        self._history.note(now_ns, facts.commit_index)
        for place in [place for place, asking in self._asking.items() if asking.until_ns < now_ns]:
            del self._asking[place]
        # An open change, joint or not, is finished by Raft itself whoever leads.
        if not facts.ready or not facts.committed or facts.configuration.joint:
            return None
        if facts.me not in facts.configuration.voters:
            # A learner leads where no voter's log was as far (spec 9, Identity); it cannot judge itself.
            return self._give_lead_away(f"{facts.place_of(facts.me)}: a learner leads", facts, now_ns)
        if facts.configuration.learners:
            return self._step_learner(facts.configuration.learners[0], facts, now_ns)
        unfinished = self._unfinished(facts, now_ns)
        if unfinished is not None:
            return self._complete(unfinished, facts)
        return self._begin(facts, now_ns)

    def _step_learner(self, learner: Member, facts: ClusterFacts, now_ns: int) -> Action | None:
        record = facts.members.find(learner)
        assert record is not None, f"learner {learner} is committed without a record"
        if learner.node_id not in self._told:
            self._told = {learner.node_id}
            self._asking.pop(record.place, None)
            return Tell(record.incarnation, self._taken(record))
        place = record.place
        reason = self._reason_to_give_up(record, facts, now_ns)
        if reason is not None:
            change = MembersChange("give_up", place, learner.node_id, why=reason)
            without = without_learner(facts.configuration, learner)
            return _propose(without, change, f"{place}: learner {learner} given up: {reason}")
        if self._keeps_from_swap(record, facts, now_ns) is not None:
            return None
        old = facts.members.voter_of(place, facts.configuration)
        assert old is not None, place
        if old.member == facts.me:
            return self._give_lead_away(f"{place}: its voter leads", facts, now_ns)
        change = MembersChange("swap", place, learner.node_id, command_id=record.command_id)
        joint = swapping(facts.configuration, old.member, learner)
        return _propose(
            joint, change, f"{place}: {learner} has caught up and takes the place of {old.member}"
        )

    def _begin(self, facts: ClusterFacts, now_ns: int) -> Action | None:
        for asking in self._asking.values():
            if self._keeps_from_beginning(asking.ask, facts, now_ns) is not None:
                continue
            ask = asking.ask
            old = facts.members.voter_of(ask.place, facts.configuration)
            assert old is not None, ask.place
            if old.member == facts.me:
                return self._give_lead_away(f"{ask.place}: its voter leads", facts, now_ns)
            record = ask.record(facts.members.next_node_id(facts.configuration))
            change = MembersChange(
                "add", ask.place, record.node_id, (record,), ask.command_id, ask.who, ask.why
            )
            cause = f"operator's command {ask.command_id}" if ask.operator else "it came by itself"
            return _propose(
                with_learner(facts.configuration, record.member),
                change,
                f"{ask.place}: {record.member} at {ask.peer} is added as a learner to take the place of "
                f"{old.member} ({cause}; {ask.who or 'nobody named'}: {ask.why or 'no reason given'})",
            )
        return None

    def _complete(self, record: MemberRecord, facts: ClusterFacts) -> Done | None:
        member = record.member
        if member != facts.me and self._applied.get(record.node_id, -1) < facts.configuration_index:
            return None
        self._completed = record.node_id
        witnessed = record.node_id in self._told
        return Done(
            record.place, record.node_id, witnessed, f"{record.place}: replaced, {member} is its voter now"
        )

    def _give_lead_away(self, why: str, facts: ClusterFacts, now_ns: int) -> Transfer | None:
        if self._transferred_ns is not None and now_ns - self._transferred_ns < TRANSFER_AGAIN_NS:
            return None
        best: Member | None = None
        for voter in facts.configuration.voters:
            if voter == facts.me or not facts.living(voter, now_ns):
                continue
            if best is None or facts.peers[voter].match > facts.peers[best].match:
                best = voter
        if best is None:
            return None
        self._transferred_ns = now_ns
        return Transfer(best, f"{why}; the lead goes to {facts.place_of(best)} first")

    # --- reasons

    def _outranks(self, ask: JoinAsk, other: JoinAsk, facts: ClusterFacts) -> bool:
        return self._by_operator(ask, facts) and not self._by_operator(other, facts)

    @staticmethod
    def _by_operator(ask: JoinAsk, facts: ClusterFacts) -> bool:
        return ask.operator and ask.command_id not in facts.members.used

    def _unfinished(self, facts: ClusterFacts, now_ns: int) -> MemberRecord | None:
        """The newest swapped voter, while it has not said that it applied its configuration, and lives."""
        newest = facts.members.newest_swap
        if newest in (0, self._completed):
            return None
        record = facts.members.by_node_id(newest)
        if record is None or record.member not in facts.configuration.voters:
            return None
        return record if facts.living(record.member, now_ns) else None

    def _reason_to_give_up(self, record: MemberRecord, facts: ClusterFacts, now_ns: int) -> str | None:
        learner, place = record.member, record.place
        seen = facts.peers.get(learner)
        if seen is None:
            return None
        silent_ns = now_ns - seen.heard_ns
        if seen.given_up:
            return "it could not catch up within the bound of the log kept for it"
        if silent_ns >= LEARNER_SILENT_NS:
            return f"it was not heard from for {LEARNER_SILENT_NS // S} s"
        if place in self._asking and facts.gone(learner, now_ns):
            return "its process is gone and another one asks for the place"
        old = facts.members.voter_of(place, facts.configuration)
        if old is None:
            return f"{place} has no voter whose place it could take"
        if facts.living(old.member, now_ns):
            if not record.command_id:
                return f"the voter of its place, {old.member}, is heard from again"
            for other in facts.not_living(now_ns):
                other_place = facts.place_of(other)
                if other_place in self._asking and facts.gone(other, now_ns):
                    return f"{other_place} is not heard from and must be filled first"
        return None

    def _keeps_from_swap(self, record: MemberRecord, facts: ClusterFacts, now_ns: int) -> str | None:
        """Why a learner is not swapped in yet, None if it can be now."""
        seen = facts.peers.get(record.member)
        stood = self._history.stood(now_ns)
        if seen is None or stood is None:
            return "it is looked at for one election timeout first"
        at_ns, index = stood
        if seen.match < index or seen.answered_ns <= at_ns or not seen.linked:
            return seen.progress or f"it is catching up: {seen.match} of {index}"
        old = facts.members.voter_of(record.place, facts.configuration)
        if old is None:
            return f"{record.place} has no voter"
        if not record.command_id and not facts.gone(old.member, now_ns):
            return f"a link to {old.member} is up: {facts.seen(old.member, now_ns)}"
        return self._another_is_missing(old.member, facts, now_ns)

    @staticmethod
    def _another_is_missing(old: Member, facts: ClusterFacts, now_ns: int) -> str | None:
        """While a voter is not heard from, only such a voter may be swapped."""
        missing = [voter for voter in facts.not_living(now_ns) if voter != old]
        if not missing or facts.silent(old, now_ns):
            return None
        names = ", ".join(facts.place_of(member) for member in missing)
        return f"{names} is not heard from: only that place may be filled now"

    def _keeps_from_beginning(self, ask: JoinAsk, facts: ClusterFacts, now_ns: int) -> str | None:
        old = facts.members.voter_of(ask.place, facts.configuration)
        if old is None:
            return f"{ask.place} has no voter whose place could be taken"
        if self._by_operator(ask, facts):
            return self._another_is_missing(old.member, facts, now_ns)
        if facts.gone(old.member, now_ns):
            return None
        return (
            f"its present voter {old.member} is not gone: {facts.seen(old.member, now_ns)} "
            f"(its place is taken when no link is up and it was silent for {SILENT_NS // S} s)"
        )

    def _waits_for(self, asking: _Asking, facts: ClusterFacts, now_ns: int) -> str:
        ask = asking.ask
        busy = self.busy(facts, now_ns)
        own = next((m for m in facts.configuration.learners if m.incarnation == ask.incarnation), None)
        if own is not None:
            return f"it is being added as {own}"
        keeps = self._keeps_from_beginning(ask, facts, now_ns)
        if keeps is not None:
            return keeps
        if busy is not None:
            return f"one change at a time: {busy}"
        for place, other in self._asking.items():
            if other is asking:
                break
            if self._keeps_from_beginning(other.ask, facts, now_ns) is None:
                return f"{place} is filled first"
        return "it is next"

    def busy(self, facts: ClusterFacts, now_ns: int) -> str | None:
        """What is under way: until it is over nobody is given leave to stop. None where nothing is."""
        if not facts.ready:
            return "the leader has just begun"
        configuration = facts.configuration
        if configuration.joint:
            return "a voter is being swapped"
        if not facts.committed:
            return "a change of members is being committed"
        if configuration.learners:
            return f"{facts.place_of(configuration.learners[0])} is being filled"
        unfinished = self._unfinished(facts, now_ns)
        if unfinished is None:
            return None
        if unfinished.member == facts.me:
            return None
        if self._applied.get(unfinished.node_id, -1) >= facts.configuration_index:
            return None
        return f"the new voter of {unfinished.place} has not applied its configuration yet"

    # --- reports

    def views(self, facts: ClusterFacts, now_ns: int) -> list[ReplacementView]:
        """The replacement under way, if any, then those that wait, in order."""
        views = []
        under_way = self._view_under_way(facts, now_ns)
        if under_way is not None:
            views.append(under_way)
        for asking in self._asking.values():
            ask = asking.ask
            if under_way is not None and ask.incarnation == under_way.incarnation:
                continue
            text = self._waits_for(asking, facts, now_ns)
            views.append(
                ReplacementView(
                    place=ask.place,
                    incarnation=ask.incarnation,
                    node_id=0,
                    stage="waiting",
                    text=text,
                    operator=self._by_operator(ask, facts),
                )
            )
        return views

    def _view_under_way(self, facts: ClusterFacts, now_ns: int) -> ReplacementView | None:
        configuration = facts.configuration
        if configuration.joint:
            incoming = [member for member in configuration.voters if member not in configuration.outgoing]
            record = facts.members.find(incoming[0]) if incoming else None
            return _view(record, "swapping", "both majorities decide until it is committed")
        if configuration.learners:
            learner = configuration.learners[0]
            record = facts.members.find(learner)
            if record is None:
                asking = (a.ask for a in self._asking.values() if a.ask.incarnation == learner.incarnation)
                ask = next(asking, None)
                return None if ask is None else _view(ask.record(learner.node_id), "joining", "being added")
            return _view(record, "catching_up", self._keeps_from_swap(record, facts, now_ns) or "caught up")
        return _view(self._unfinished(facts, now_ns), "completing", "the new voter applies its configuration")

    def _taken(self, record: MemberRecord) -> JoinTaken:
        return JoinTaken(
            record.incarnation,
            record.place,
            record.node_id,
            self._domain_id,
            self._first_token,
            self._delta_ns,
        )


def not_leading(ask: JoinAsk, leader: MemberRecord | None) -> JoinAnswer:
    """The answer of a member that does not lead, or of a process without membership (`leader` None)."""
    if leader is None:
        return JoinAnswer(ask.incarnation, Verdict.NOT_LEADING, "no leader is known here")
    text = f"{leader.place} leads, at {leader.peer}"
    return JoinAnswer(ask.incarnation, Verdict.NOT_LEADING, text, leader.place, leader.peer)


def _answer(ask: JoinAsk, verdict: Verdict, text: str) -> JoinAnswer:
    return JoinAnswer(ask.incarnation, verdict, text[:LONG_TEXT_MAX], "")


def _view(record: MemberRecord | None, stage: str, text: str) -> ReplacementView | None:
    if record is None:
        return None
    return ReplacementView(
        place=record.place,
        incarnation=record.incarnation,
        node_id=record.node_id,
        stage=stage,
        text=text,
        operator=bool(record.command_id),
    )


def _propose(configuration: Configuration, change: MembersChange, audit: str) -> ProposeChange:
    return ProposeChange(
        ConfigurationChange(configuration, change.encode()), change.what, change.place, change.node_id, audit
    )
