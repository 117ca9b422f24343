"""Whether what a leader believes of the others is true: only somebody who sees all logs can tell.

A leader counts acknowledgements. Here the logs themselves are counted: what it commits has to lie with a majority of
the voters (of both halves), and what it takes for acknowledged with the member that acknowledged it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tests.sim.answers import Answers
from tests.sim.world import MS, Violation
from ticketing.raft.core import Raft
from ticketing.raft.election import Role
from ticketing.raft.types import Configuration, Member

if TYPE_CHECKING:
    from tests.sim.process import Process

CAUGHT_UP_NS = 1200 * MS
"""More than an election timeout: how long ago a new voter has to have been up to date."""
TURN_MAX_NS = 100 * MS
"""In a longer turn a gap of the own loop may have moved what is compared here."""


class Majorities:
    """`processes` are all that ever were members, the dead as they were when they ended."""

    def __init__(self, processes: Mapping[Member, Process], answers: Answers) -> None:
        self._processes = processes
        self._answers = answers
        self._promoted: dict[Raft, int] = {}
        """The index of the newest configuration that was looked at."""
        self._committed: dict[Raft, int] = {}
        self._stood: dict[Raft, deque[tuple[int, int]]] = {}
        """By leader: its commit index over the last `CAUGHT_UP_NS`, with the true time of each."""

    def not_leading(self, raft: Raft) -> None:
        """To be called after a turn of a member that does not lead."""
        if self._committed.pop(raft, None) is not None:
            self._stood.pop(raft, None)

    def leading(self, process: Process, raft: Raft) -> None:
        """To be called after every turn of a leader in which term, log or commit index changed."""
        before = self._committed.get(raft, raft.commit_index)
        self._committed[raft] = raft.commit_index
        if raft.commit_index > before:
            self._check_commit(process, raft)
        self._check_promoted(process, raft)

    def _check_commit(self, process: Process, raft: Raft) -> None:
        index = raft.commit_index
        configurations = raft._replica.configurations
        # The newest one decides, committed or not; in the turn that appended it the one before it may have.
        deciding = [configurations.at(index), configurations.newest]
        if not any(self._have(raft, configuration, index) for configuration in deciding):
            raise Violation(
                "a majority has what is committed", f"{process.name} commits {index}: {deciding[0]}"
            )

    def _have(self, raft: Raft, configuration: Configuration, index: int) -> bool:
        return all(
            self._count(raft, voters, index) * 2 > len(voters)
            for voters in (configuration.voters, configuration.outgoing)
            if voters
        )

    def _count(self, raft: Raft, voters: Sequence[Member], index: int) -> int:
        term = raft._replica.log.term_at(index)
        return sum(self._has(voter, index, term) for voter in voters)

    def _has(self, member: Member, index: int, term: int) -> bool:
        process = self._processes.get(member)
        raft = None if process is None else process.node.raft
        if raft is None or raft.me != member:
            return False
        log = raft._replica.log
        return index < log.base_index or log.contains(index, term)

    def check_answers(self, process: Process, raft: Raft) -> None:
        """To be called after every turn of a leader: what counts as answered was said, and is still true."""
        lead = raft._election.lead
        assert lead is not None
        replica = raft._replica
        mine, term = replica.log, replica.term
        for member, progress in lead.replication.members.items():
            if progress is lead.replication.own:
                continue
            if progress.acked_round > self._answers.answered_round(member, term):
                raise Violation(
                    "what was answered was said",
                    f"{process.name} counts round {progress.acked_round} of {member}",
                )
            other = self._processes.get(member)
            if other is None or not progress.match:
                continue
            follower = other.node.raft
            if follower is None:
                continue
            theirs = follower._replica
            if theirs.me != member or theirs.term > term:
                continue
            log = theirs.log
            index = progress.match
            if log.last_index < index:
                raise Violation(
                    "what was acknowledged is stored",
                    f"{process.name} takes {index} for acknowledged by {other.name}: {log.last_index}",
                )
            if index > max(log.base_index, mine.base_index) and log.term_at(index) != mine.term_at(index):
                raise Violation(
                    "what was acknowledged is stored", f"{process.name} and {other.name} differ at {index}"
                )

    def _check_promoted(self, process: Process, raft: Raft) -> None:
        """Whoever becomes a voter has what was committed a while ago (spec 9, Replacement)."""
        now = process.world.now
        stood = self._stood.setdefault(raft, deque())
        while len(stood) > 1 and stood[1][0] <= now - CAUGHT_UP_NS:
            stood.popleft()
        configuration = raft.configuration
        # When it is proposed alone: until it is committed time goes on, and the voter may stop.
        index = raft.configuration_index
        fresh = configuration.joint and index > raft.commit_index and self._promoted.get(raft) != index
        self._promoted[raft] = index
        if fresh and stood and stood[0][0] <= now - CAUGHT_UP_NS:
            for voter in configuration.voters:
                other = self._processes.get(voter)
                if voter in configuration.outgoing or other is None or other.node.raft is None:
                    continue
                if other.node.raft.last_index < stood[0][1]:
                    raise Violation(
                        "no lagging voter",
                        f"{other.name} has {other.node.raft.last_index} of {stood[0][1]} that were committed",
                    )
        if not stood or stood[-1][1] != raft.commit_index:
            stood.append((now, raft.commit_index))


def check_pre_vote(process: Process, raft: Raft) -> None:
    """Whether a pre-vote that this member is about to give encourages somebody against a leader that is heard."""
    if raft.leader is None or raft.role is Role.LEADER:
        return
    now_ns = process.clock.elapsed_ns()
    heard_ns = raft._election._heard_ns
    began_ns = process.turn_began_ns
    lease_ns = raft._replica.settings.leader_lease_ns
    if heard_ns < began_ns and now_ns - began_ns < TURN_MAX_NS and now_ns - heard_ns < lease_ns:
        raise Violation(
            "no pre-vote against a living leader",
            f"{process.name} heard {raft.leader} {(now_ns - heard_ns) // MS} ms ago",
        )
