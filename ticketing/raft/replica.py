"""What a member has whatever its role: term, vote, log, commit index (thesis, figure 3.1)."""

from __future__ import annotations

import random
from typing import Any

from ticketing.raft.configurations import Configurations
from ticketing.raft.log import Log
from ticketing.raft.messages import (
    AppendEntries,
    AppendRefusal,
    AppendReply,
    Message,
    WireEntry,
    decode_change,
)
from ticketing.raft.plausible import check_configuration
from ticketing.raft.types import Base, Entry, EntryKind, Member, RaftSettings

_CONFIGURATION = EntryKind.CONFIGURATION

HAND_OUT_BYTES = 64 * 1024
"""A new leader can commit all that its predecessor left, megabytes, at a stroke: applying it is cut into slices."""


class UnsupportedEntryError(Exception):
    """The leader sent an entry of a kind that this version does not know: the node has to stop (spec 6)."""


class Replica:
    """Invariants: base ≤ applied ≤ commit ≤ last; the term never falls; one vote a term."""

    __slots__ = (
        "applied_index",
        "commit_index",
        "configurations",
        "log",
        "me",
        "outbox",
        "rng",
        "settings",
        "term",
        "vote",
    )

    def __init__(
        self,
        me: Member,
        base: Base,
        settings: RaftSettings,
        rng: random.Random,
        term: int,
        vote: Member | None,
    ) -> None:
        assert term >= base.term, (term, base.term)
        self.me = me
        self.settings = settings
        self.rng = rng
        self.term = term
        self.vote = vote
        self.log = Log(base.index, base.term)
        self.configurations = Configurations(base.index, base.configuration)
        self.commit_index = base.index
        self.applied_index = base.index
        """Handed out for applying."""
        self.outbox: list[tuple[Member, Message]] = []

    def send(self, member: Member, message: Message) -> None:
        """Queues a message; order is kept."""
        self.outbox.append((member, message))

    def raise_term(self, term: int) -> None:
        """Enters a later term, in which no vote has been given yet."""
        assert term > self.term, (term, self.term)
        self.term = term
        self.vote = None

    def draw(self, above_ns: int, at_most_ns: int) -> int:
        """A wait drawn evenly from (above, at_most]."""
        return above_ns + 1 + int(self.rng.random() * (at_most_ns - above_ns))

    def is_behind(self, last_index: int, last_term: int) -> bool:
        """Whether a log that ends like this is less far than ours (thesis 3.6.1)."""
        log = self.log
        mine = log.last_term
        return last_term < mine or (last_term == mine and last_index < log.last_index)

    def uncommitted_bytes(self) -> int:
        """Size of what was appended and is not known to be committed, of whatever term (F078)."""
        log = self.log
        if self.commit_index == log.last_index:
            return 0
        return log.bytes_between(self.commit_index, log.last_index)

    def append_own(self, kind: EntryKind, data: bytes, now_ns: int, decoded: Any) -> Entry:
        """Appends an entry of this leader's own term."""
        log = self.log
        stamp = log.last_stamp_ns
        if stamp is None or stamp < now_ns:
            stamp = now_ns
        entry = Entry(log.last_index + 1, self.term, int(kind), data, stamp, decoded)
        log.append(entry)
        if kind is _CONFIGURATION:
            self.configurations.append(entry.index, decoded.configuration)
        return entry

    def accept(self, message: AppendEntries, now_ns: int) -> AppendReply | AppendRefusal:
        """A follower's part of replication (thesis 3.5, receiver rules 2-5); the term has been dealt with."""
        log = self.log
        entries = message.entries
        previous = message.prev_index
        if previous < self.commit_index:
            # What is committed here is in the log of every later leader: it need not be compared, and could
            # not be where it was compacted.
            known = self.commit_index - previous
            if known >= len(entries):
                return AppendReply(self.term, message.round, self.commit_index, log.last_index)
            entries = entries[known:]
            previous = self.commit_index
        elif not log.contains(previous, message.prev_term):
            hint = log.last_of_term(previous, message.prev_term)
            return AppendRefusal(self.term, message.round, previous, log.last_index, hint, log.term_at(hint))
        match = previous + len(entries)
        if entries:
            self._store(previous, entries, now_ns)
        commit = min(match, message.commit)
        if commit > self.commit_index:
            self.commit_index = commit
        return AppendReply(self.term, message.round, match, log.last_index)

    def _store(self, previous: int, entries: list[WireEntry], now_ns: int) -> None:
        """Appends what is missing of `entries`, which follow `previous`; a conflict gives way to them."""
        log = self.log
        fresh = 0
        if previous < log.last_index:
            for entry in entries:
                index = previous + 1 + fresh
                if index > log.last_index:
                    break
                if log.term_at(index) != entry.term:
                    assert index > self.commit_index, (self.me, index, self.commit_index, entry.term)
                    log.truncate(index)
                    self.configurations.truncate(index)
                    break
                fresh += 1
            if fresh:
                # What is here keeps its stamp: the earlier receipt is the better bound.
                entries = entries[fresh:]
        floor = log.last_stamp_ns
        index = previous + fresh
        for entry in entries:
            index += 1
            # The age was taken before the bytes left, so 0.998 of it reaches back no further than the
            # sender's stamp, however the two clocks' rates differ within their bound (spec 7). 998 ns a
            # microsecond is exact.
            stamp = now_ns - entry.age_us * 998
            if floor is not None and stamp < floor:
                stamp = floor
            floor = stamp
            self._append_received(index, entry, stamp)

    def _append_received(self, index: int, entry: WireEntry, stamp_ns: int) -> None:
        kind = entry.kind
        if kind == 2:
            change = decode_change(entry.data)
            check_configuration(change.configuration)
            self.log.append(Entry(index, entry.term, kind, entry.data, stamp_ns, change))
            self.configurations.append(index, change.configuration)
            return
        if kind > 2:
            raise UnsupportedEntryError(f"entry {index} of term {entry.term} is of kind {kind}")
        self.log.append(Entry(index, entry.term, kind, entry.data, stamp_ns))

    def hand_out(self) -> list[Entry]:
        """The next committed entries in order, at least one and at most `HAND_OUT_BYTES` of several."""
        first, last = self.applied_index + 1, self.commit_index
        if first < last:
            last = max(first, min(last, self.log.last_fitting(first, HAND_OUT_BYTES)))
        self.applied_index = last
        return self.log.entries(first, last)

    def base_at_applied(self) -> Base:
        """What a snapshot of the state machine taken now covers, with the configuration in force there."""
        index = self.applied_index
        return Base(index, self.log.term_at(index), self.configurations.at(index))

    def restore(self, base: Base) -> bool:
        """The state machine was replaced by a snapshot at `base`; False where that brings nothing new."""
        if base.index <= self.commit_index:
            return False
        if self.log.contains(base.index, base.term):
            self.log.compact(base.index)
            self.configurations.rebase(base.index, base.configuration)
        else:
            self.log.reset(base.index, base.term)
            self.configurations.reset(base.index, base.configuration)
        self.commit_index = self.applied_index = base.index
        return True
