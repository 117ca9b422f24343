"""How much log a member keeps: not more than its bounds, and not less than it promises to who lags a little."""

from __future__ import annotations

from tests.sim.seen import Domain
from tests.sim.world import Violation
from ticketing.raft.core import COMPACTED_AT_ONCE, Raft
from ticketing.raft.log import ENTRY_OVERHEAD
from ticketing.raft.types import EntryKind


def check_uncommitted(name: str, raft: Raft) -> None:
    """The byte bound of what is not known to be committed (spec 9). Only a leader's first entry and changes of members
    are appended whatever it says, and they count for nothing here.
    """
    replica = raft._replica
    found, limit = replica.uncommitted_bytes(), replica.settings.uncommitted_bytes_max
    if found <= limit:
        return
    for entry in replica.log.entries(replica.commit_index + 1, replica.log.last_index):
        if entry.kind != EntryKind.COMMANDS:
            found -= len(entry.data) + ENTRY_OVERHEAD
    if found > limit:
        raise Violation("bounded log", f"{name}: {found} bytes are not committed")


def check_kept(name: str, raft: Raft) -> None:
    """What is applied goes, but for `log_keep_bytes` and an eighth, or what somebody needs who gets a snapshot.

    To be called where entries are handed out, which is when the log is looked through.
    """
    replica, lead = raft._replica, raft._election.lead
    log, settings = replica.log, replica.settings
    limit = settings.log_keep_bytes + settings.log_keep_bytes // 8
    if lead is not None and any(progress.pin >= 0 for progress in lead.replication.members.values()):
        limit = max(limit, settings.learner_log_bytes_max)
    kept = log.bytes_between(log.base_index, replica.applied_index)
    if kept > limit and replica.applied_index - log.base_index < COMPACTED_AT_ONCE:
        raise Violation("bounded log", f"{name}: {kept} bytes are kept that are applied")


def check_compacted(name: str, raft: Raft, domain: Domain) -> None:
    """`log_keep_bytes` are kept, as far as whole entries go. To be called where the base has moved by compaction."""
    replica = raft._replica
    log = replica.log
    known = domain.known.get((log.base_index, log.base_term))
    if known is None:
        return
    kept = log.bytes_between(log.base_index, replica.applied_index)
    if kept + len(known[1]) + ENTRY_OVERHEAD <= replica.settings.log_keep_bytes:
        raise Violation("bounded log", f"{name} keeps no more than {kept} bytes that are applied")
