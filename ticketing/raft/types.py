"""The values that the consensus core deals in: members, entries, configurations, settings."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

import msgspec

MS = 1_000_000
"""Nanoseconds in a millisecond. All times in this package are integer nanoseconds of an elapsed clock."""

MIB = 1 << 20


class Member(NamedTuple):
    """One process life: its number and the random incarnation it drew when it started (spec 9)."""

    node_id: int
    incarnation: int

    def __str__(self) -> str:
        return f"{self.node_id}:{self.incarnation & 0xFFFF:04x}"


class EntryKind(IntEnum):
    """What the data of a log entry is."""

    EMPTY = 0
    """A new leader's first entry of its term."""
    COMMANDS = 1
    """Opaque to Raft: what the node proposed in one turn of its loop."""
    CONFIGURATION = 2
    """An encoded `ConfigurationChange`; in force from when it is appended (spec 9)."""


class Entry:
    """One log entry, with two facts of this process beside it that are not replicated.

    `stamp_ns` is this node's elapsed clock when it received the entry, less 0.998 of the age that came with
    it (spec 7). `decoded` is the proposer's own object for `data`, so that the leader need not decode what it
    encoded; in a CONFIGURATION entry it is the `ConfigurationChange`, everywhere.
    """

    __slots__ = ("data", "decoded", "index", "kind", "stamp_ns", "term")

    def __init__(
        self, index: int, term: int, kind: int, data: bytes, stamp_ns: int, decoded: Any = None
    ) -> None:
        self.index = index
        self.term = term
        self.kind = kind
        self.data = data
        self.stamp_ns = stamp_ns
        self.decoded = decoded

    def __repr__(self) -> str:
        return f"Entry({self.index}, term={self.term}, kind={self.kind}, {len(self.data)} bytes)"


class Configuration(msgspec.Struct, frozen=True, array_like=True):
    """Who votes and who only follows. Joint while `outgoing` is not empty (Raft thesis, section 4.3)."""

    voters: tuple[Member, ...]
    outgoing: tuple[Member, ...] = ()
    learners: tuple[Member, ...] = ()

    @property
    def joint(self) -> bool:
        """Whether decisions need a majority of `voters` and one of `outgoing`."""
        return bool(self.outgoing)

    def members(self) -> tuple[Member, ...]:
        """Everybody entries are sent to, each once, in a fixed order."""
        return tuple(dict.fromkeys((*self.voters, *self.outgoing, *self.learners)))

    def is_voter(self, member: Member) -> bool:
        """Whether `member` counts in either majority."""
        return member in self.voters or member in self.outgoing


class ConfigurationChange(msgspec.Struct, frozen=True, array_like=True):
    """The data of a CONFIGURATION entry: the whole configuration and the state machine's part."""

    configuration: Configuration
    context: bytes = b""
    """Opaque to Raft: the state machine's part (places, addresses), applied when the entry is committed."""


class Base(msgspec.Struct, frozen=True, array_like=True):
    """Where a log begins: the last index that a snapshot (or the forming of the domain) covers."""

    index: int
    term: int
    configuration: Configuration


BLANK = Base(0, 0, Configuration(()))
"""A process that has its number but no log yet: it votes when asked, takes a snapshot, and never campaigns.
"""


def first_base(configuration: Configuration) -> Base:
    """The base of a newly formed domain. Its index is 1: nothing but a snapshot brings a blank process behind
    it, for the forming's own state (domain id, first token) is in no entry.
    """
    return Base(1, 1, configuration)


class RaftSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Times in nanoseconds, sizes in bytes. Defaults are those of spec 9."""

    heartbeat_ns: int = 50 * MS
    election_timeout_min_ns: int = 400 * MS
    election_timeout_max_ns: int = 800 * MS
    """A timeout is drawn anew for each wait from (min, max]."""
    leader_lease_ns: int = 400 * MS
    """A vote is refused to others for this long after the leader was heard."""
    quorum_check_ns: int = 800 * MS
    """A leader that has not heard a majority for this long steps down."""
    quorum_check_every_ns: int = 50 * MS
    orphan_campaign_max_ns: int = 100 * MS
    """A follower whose leader's process is gone campaigns after a wait drawn from (0, this]."""
    transfer_timeout_ns: int = 800 * MS
    uncommitted_bytes_max: int = 16 * MIB
    uncommitted_bytes_reserved: int = 1 * MIB
    """Part of `uncommitted_bytes_max` kept for releases, cancels and expiries."""
    inflight_bytes_max: int = 1 * MIB
    """Entries sent to one follower and not acknowledged."""
    message_bytes_max: int = 256 * 1024
    log_keep_bytes: int = 16 * MIB
    """Applied entries kept for followers that lag a little."""
    learner_log_bytes_max: int = 256 * MIB
    """Applied entries kept for a member that is receiving a snapshot; past it the member is given up."""
