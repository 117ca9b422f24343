"""What must hold inside one member after every call, and from one call to the next.

The core asserts cheap facts where it acts. This module asserts all of them, for tests and the simulator: it
walks the whole log. What must hold between members is the business of whoever sees them all:

- election safety: one leader a term (thesis 3.4);
- log matching: equal index and term mean equal entries up to there (3.5);
- leader completeness: what was committed in a term is in the log of every leader of a later term (3.6.3);
- state machine safety: no two members hand out different entries at one index (3.6.3).
"""

from __future__ import annotations

from ticketing.raft.core import Raft
from ticketing.raft.election import Role
from ticketing.raft.log import ENTRY_OVERHEAD
from ticketing.raft.messages import decode_change
from ticketing.raft.progress import Flow
from ticketing.raft.replica import Replica
from ticketing.raft.replication import Replication
from ticketing.raft.types import EntryKind


def check(raft: Raft, *, whole: bool = True) -> None:
    """Asserts everything that must hold inside a member between two calls.

    Without `whole` the log is not walked: of its entries the last alone is looked at.
    """
    replica = raft._replica
    _check_bounds(replica)
    if whole:
        _check_log(replica)
        _check_configurations(replica)
    _check_role(raft)
    lead = raft._election.lead
    if lead is not None:
        assert lead.term_start_index <= replica.log.last_index
        _check_replication(replica, lead.replication)


def _check_bounds(replica: Replica) -> None:
    log = replica.log
    assert log.base_index <= replica.applied_index, (log.base_index, replica.applied_index)
    assert replica.applied_index <= replica.commit_index, (replica.applied_index, replica.commit_index)
    assert replica.commit_index <= log.last_index, (replica.commit_index, log.last_index)
    assert log.last_term <= replica.term, (log.last_term, replica.term)


def _check_log(replica: Replica) -> None:
    log = replica.log
    index, term, stamp, size = log.base_index, log.base_term, None, 0
    for entry in log.entries(log.base_index + 1, log.last_index):
        index += 1
        assert entry.index == index, (entry, index)
        assert entry.term >= term, (entry, term)
        assert stamp is None or entry.stamp_ns >= stamp, (entry, entry.stamp_ns, stamp)
        term, stamp = entry.term, entry.stamp_ns
        size += len(entry.data) + ENTRY_OVERHEAD
    assert index == log.last_index
    assert log.bytes_between(log.base_index, log.last_index) == size


def _check_configurations(replica: Replica) -> None:
    log = replica.log
    configurations = replica.configurations
    newest = [
        entry
        for entry in log.entries(log.base_index + 1, log.last_index)
        if entry.kind == EntryKind.CONFIGURATION
    ]
    if newest:
        assert configurations.newest_index == newest[-1].index
        assert configurations.newest == decode_change(newest[-1].data).configuration
    else:
        assert configurations.newest_index <= log.base_index
    assert configurations.at(log.base_index) is not None
    # One open change at most: the second is proposed once the first is committed (thesis 4.3).
    assert sum(entry.index > replica.commit_index for entry in newest) <= 1, (newest, replica.commit_index)


def _check_role(raft: Raft) -> None:
    election = raft._election
    leads = raft.role is Role.LEADER
    assert leads == (election.lead is not None)
    assert leads == (raft.leader == raft.me)
    if raft.role in (Role.PRE_CANDIDATE, Role.CANDIDATE):
        assert raft.leader is None, raft.leader
    if raft.role in (Role.CANDIDATE, Role.LEADER):
        assert raft.vote == raft.me, raft.vote
    if leads:
        assert raft.last_term == raft.term, (raft.last_term, raft.term)
    assert raft.confirmed <= leads
    assert raft.own_term_committed <= leads


def _check_replication(replica: Replica, replication: Replication) -> None:
    log = replica.log
    assert tuple(replication.members) == replica.configurations.newest.members()
    for member, progress in replication.members.items():
        if member == replica.me:
            assert progress is replication.own
            continue
        assert progress.match < progress.next, (member, progress.match, progress.next)
        assert progress.match <= log.last_index, (member, progress.match, log.last_index)
        assert progress.next <= log.last_index + 1, (member, progress.next, log.last_index)
        assert progress.acknowledged <= progress.match or progress.rolled_back
        assert max(progress.acked_round, progress.sent_round) <= replication.round
        if progress.flow is Flow.REPLICATE:
            # One entry may exceed the bound where nothing else is under way.
            inflight = log.bytes_between(progress.match, progress.next - 1)
            single = progress.next - 1 <= max(progress.match, log.base_index) + 1
            assert inflight <= replica.settings.inflight_bytes_max or single, (member, inflight)
        else:
            assert progress.flow is Flow.SNAPSHOT or progress.snapshot_index == 0
        if progress.pin >= 0:
            assert progress.pin >= log.base_index, (member, progress.pin, log.base_index)


class Witness:
    """Watches one member from call to call: what never falls, and what is decided once."""

    __slots__ = ("_applied", "_commit", "_raft", "_role", "_term", "_vote")

    def __init__(self, raft: Raft) -> None:
        self._raft = raft
        self._remember()

    def observe(self, *, whole: bool = True) -> None:
        """Asserts the facts of now (see `check`) and those about the step since the last call."""
        raft = self._raft
        check(raft, whole=whole)
        assert raft.term >= self._term, (raft.term, self._term)
        assert raft.commit_index >= self._commit, (raft.commit_index, self._commit)
        assert raft.applied_index >= self._applied, (raft.applied_index, self._applied)
        if raft.term == self._term:
            assert self._vote is None or raft.vote == self._vote, (raft.term, raft.vote, self._vote)
            if raft.role is Role.LEADER:
                assert self._role in (Role.LEADER, Role.CANDIDATE), (
                    "a lead begins with a campaign in its term"
                )
        self._remember()

    def _remember(self) -> None:
        raft = self._raft
        self._term = raft.term
        self._vote = raft.vote
        self._role = raft.role
        self._commit = raft.commit_index
        self._applied = raft.applied_index
