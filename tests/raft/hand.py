"""One member played by hand: a test says what it hears and looks at what it answers."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

from ticketing.raft.core import Output, Raft
from ticketing.raft.election import Role
from ticketing.raft.invariants import Witness
from ticketing.raft.messages import (
    AppendEntries,
    AppendRefusal,
    AppendReply,
    Message,
    PreVoteAnswer,
    PreVoteRequest,
    VoteAnswer,
    VoteRequest,
    WireEntry,
    decode,
    encode,
    encode_change,
)
from ticketing.raft.types import (
    MS,
    Base,
    Configuration,
    ConfigurationChange,
    Entry,
    EntryKind,
    Member,
    RaftSettings,
    first_base,
)

A, B, C, D, E = (Member(number, 1000 + number) for number in range(1, 6))
THREE = Configuration((A, B, C))
FIVE = Configuration((A, B, C, D, E))

M = TypeVar("M")


def commands(*terms: int, age_us: int = 0) -> list[WireEntry]:
    """One entry for each term; its data says which."""
    return [WireEntry(term, EntryKind.COMMANDS, b"term %d" % term, age_us) for term in terms]


def change(term: int, configuration: Configuration) -> WireEntry:
    data = encode_change(ConfigurationChange(configuration))
    return WireEntry(term, EntryKind.CONFIGURATION, data, 0)


def output_of(raft: Raft, now_ns: int) -> Output:
    """Takes the output. Where `has_output` said that there is none, nothing may be in it."""
    expected = raft.has_output
    output = raft.take_output(now_ns)
    parts = [name for name in dir(output) if not name.startswith("_")]
    assert expected or not any(getattr(output, part) for part in parts), "output out of nothing"
    return output


class Hand:
    """The member `me`. Every call ends a turn; what that put out is in `output`, and `committed` grows."""

    def __init__(
        self,
        me: Member = A,
        base: Base | Configuration = THREE,
        settings: RaftSettings | None = None,
        seed: int = 0,
        term: int | None = None,
    ) -> None:
        self.now = 10_000 * MS
        base = first_base(base) if isinstance(base, Configuration) else base
        self.raft = Raft(me, base, settings or RaftSettings(), random.Random(seed), self.now, term=term)
        self.witness = Witness(self.raft)
        self.output = Output()
        self.committed: list[Entry] = []
        self.round = 0

    def plays(self, role: Role) -> bool:
        return self.raft.role is role

    # --- turns

    def turn(self) -> list[tuple[Member, Message]]:
        """Ends the turn; what is to be sent, having gone through the wire's bytes."""
        self.witness.observe()
        self.output = output_of(self.raft, self.now)
        self.witness.observe()
        self.committed += self.output.committed
        return [(member, decode(encode(message))) for member, message in self.output.messages]

    def hear(self, sender: Member, *messages: Message) -> list[tuple[Member, Message]]:
        for message in messages:
            self.raft.step(sender, message, self.now)
        return self.turn()

    def answer(self, sender: Member, message: Message) -> Message:
        """Hears one message and answers its sender with exactly one."""
        (answer,) = self.hear(sender, message)
        assert answer[0] == sender
        return answer[1]

    def wait(self, for_ns: int) -> list[tuple[Member, Message]]:
        """Time passes, in steps as the member asks for."""
        end = self.now + for_ns
        messages = []
        while self.raft.next_deadline_ns <= end:
            self.now = max(self.now, self.raft.next_deadline_ns)
            self.raft.tick(self.now)
            messages += self.turn()
        self.now = end
        return messages

    def time_out(self) -> list[tuple[Member, Message]]:
        """Waits for the election timer."""
        self.now = self.raft.next_deadline_ns
        self.raft.tick(self.now)
        return self.turn()

    # --- the member as a follower

    def append(
        self,
        leader: Member,
        term: int,
        previous: tuple[int, int],
        entries: Sequence[WireEntry] = (),
        commit: int = 0,
    ) -> AppendReply | AppendRefusal:
        """The leader of `term` sends entries that follow (index, term)."""
        self.round += 1
        answer = self.answer(leader, AppendEntries(term, self.round, *previous, commit, list(entries)))
        assert isinstance(answer, AppendReply | AppendRefusal)
        return answer

    def pre_vote(self, candidate: Member, term: int, last: tuple[int, int]) -> bool:
        """Whether a pre-candidate of the real `term`, whose log ends with (index, term), is encouraged."""
        answer = self.answer(candidate, PreVoteRequest(term, *last))
        assert isinstance(answer, PreVoteAnswer)
        return answer.granted

    def vote(self, candidate: Member, term: int, last: tuple[int, int], *, transfer: bool = False) -> bool:
        """Whether a candidate of `term`, whose log ends with (index, term), gets the vote."""
        answer = self.answer(candidate, VoteRequest(term, *last, transfer))
        assert isinstance(answer, VoteAnswer)
        return answer.granted

    def log(self) -> list[tuple[int, int]]:
        """(index, term) of everything after the base."""
        log = self.raft._replica.log
        return [(entry.index, entry.term) for entry in log.entries(log.base_index + 1, log.last_index)]

    # --- the member as a candidate and leader

    def others(self) -> list[Member]:
        configuration = self.raft.configuration
        return [m for m in configuration.members() if m != self.raft.me and configuration.is_voter(m)]

    def campaign(self) -> list[tuple[Member, Message]]:
        """Becomes a candidate by the votes that it asks for first; what it asks then."""
        self.time_out()
        assert self.plays(Role.PRE_CANDIDATE), self.raft.role
        term = self.raft.term
        messages: list[tuple[Member, Message]] = []
        for member in self.others():
            if self.plays(Role.PRE_CANDIDATE):
                messages = self.hear(member, PreVoteAnswer(term, term + 1, granted=True))
        assert self.plays(Role.CANDIDATE), self.raft.role
        return messages

    def lead(self) -> list[tuple[Member, Message]]:
        """Becomes leader by everybody's votes; the first appends."""
        self.campaign()
        messages: list[tuple[Member, Message]] = []
        for member in self.others():
            if self.plays(Role.CANDIDATE):
                messages = self.hear(member, VoteAnswer(self.raft.term, granted=True))
        assert self.plays(Role.LEADER), self.raft.role
        return messages

    def acknowledge(self, *members: Member, match: int | None = None) -> list[tuple[Member, Message]]:
        """Members answer the newest round: their logs agree up to `match` (all of it)."""
        match = self.raft.last_index if match is None else match
        lead = self.raft._election.lead
        assert lead is not None
        for member in members:
            self.raft.step(
                member, AppendReply(self.raft.term, lead.replication.round, match, match), self.now
            )
        return self.turn()

    def propose(self, *datas: bytes) -> list[tuple[Member, Message]]:
        """Proposes in one turn."""
        for data in datas:
            assert self.raft.propose(data, self.now), self.raft.refusal(len(data))
        return self.turn()


def leader(
    configuration: Configuration = THREE, settings: RaftSettings | None = None, me: Member = A
) -> Hand:
    """A leader whose first entry is committed and whom everybody has answered."""
    hand = Hand(me, configuration, settings)
    hand.lead()
    hand.acknowledge(*(m for m in configuration.members() if m != me))
    assert hand.raft.own_term_committed
    return hand


def only(kind: type[M], messages: Sequence[tuple[Member, Message]]) -> list[tuple[Member, M]]:
    """The messages of one kind."""
    return [(member, message) for member, message in messages if isinstance(message, kind)]
