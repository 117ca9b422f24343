"""Who the members of the domain are: part of the replicated state (spec 6 and 9).

Raft's configuration says who votes and who learns; the records here say what places and addresses stand
behind the members. Both change by the same entries: a record comes with the entry that adds its learner,
and goes with the first committed configuration that it is no part of, so the voter that is being swapped
keeps its record until the final configuration is committed.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ticketing.node.first_state import FirstMember
from ticketing.raft.types import Configuration, ConfigurationChange, Member

COMMANDS_MAX = 1024
"""Operator's commands remembered as used, and as many as undone (spec 6)."""

# What is replicated carries no bounds in its types: a bound that only the reader knows would stop every
# node at once. Bounds stand where these texts come in (`ticketing.node.membership_messages`).


class MemberRecord(msgspec.Struct, frozen=True, array_like=True):
    """One process life that is, or was taken to become, a voter."""

    place: str
    node_id: int
    incarnation: int
    client: str
    """`host:port` as clients are to dial it; so are `peer` and `admin` for theirs."""
    peer: str
    admin: str
    command_id: str = ""
    """The operator's command that this process came by: it may take the place of a living voter. Empty:
    came by itself."""

    @property
    def member(self) -> Member:
        """As Raft knows it."""
        return Member(self.node_id, self.incarnation)


class MembersChange(msgspec.Struct, frozen=True, array_like=True):
    """What a configuration entry says beside the configuration itself (`ConfigurationChange.context`)."""

    what: str
    """`add` (a learner), `swap` (it for the voter of its place), `give_up` (the learner), `undo` (so, by an
    operator)."""
    place: str
    node_id: int
    """The learner it is about."""
    records: tuple[MemberRecord, ...] = ()
    """Records that begin with this entry."""
    command_id: str = ""
    who: str = ""
    why: str = ""

    def encode(self) -> bytes:
        """The bytes of `ConfigurationChange.context`."""
        return msgspec.msgpack.encode(self)


class _Image(msgspec.Struct, frozen=True, array_like=True):
    """All of `Members` in a snapshot."""

    records: tuple[MemberRecord, ...]
    highest: int
    newest_swap: int
    used: tuple[str, ...]
    undone: tuple[str, ...]


_change_decoder = msgspec.msgpack.Decoder(MembersChange)
_image_decoder = msgspec.msgpack.Decoder(_Image)


class Members:
    """The records of the committed configuration, and the numbers already used. Deterministic: the same on
    every node at the same index.
    """

    __slots__ = ("_records", "highest", "newest_swap", "undone", "used")

    def __init__(self, records: Iterable[MemberRecord | FirstMember] = ()) -> None:
        """Those of a domain that has just formed, or of a snapshot; none for a process that waits for one."""
        known = (record if isinstance(record, MemberRecord) else MemberRecord(*record) for record in records)
        self._records = {record.node_id: record for record in sorted(known, key=_node_id)}
        self.highest = max(self._records, default=0)
        """The greatest NodeId ever used in this domain."""
        self.newest_swap = 0
        """NodeId of the newest process that became a voter by a swap, 0 for none yet."""
        self.used: tuple[str, ...] = ()
        """Operator's commands by which a voter was swapped, oldest first. They take no second voter's
        place: or a process left behind somewhere could throw out its own successor.
        """
        self.undone: tuple[str, ...] = ()
        """Operator's commands that were undone, oldest first: their processes are not taken any more."""

    @property
    def records(self) -> tuple[MemberRecord, ...]:
        """All records, by NodeId."""
        return tuple(self._records.values())

    def by_node_id(self, node_id: int) -> MemberRecord | None:
        """The record of a NodeId, if it is a member."""
        return self._records.get(node_id)

    def find(self, member: Member) -> MemberRecord | None:
        """The record of exactly this process life."""
        record = self._records.get(member.node_id)
        return record if record is not None and record.incarnation == member.incarnation else None

    def by_incarnation(self, incarnation: int) -> MemberRecord | None:
        """The record of a process life, by what it calls itself."""
        for record in self._records.values():
            if record.incarnation == incarnation:
                return record
        return None

    def voter_of(self, place: str, configuration: Configuration) -> MemberRecord | None:
        """The record of the place's voter; in a joint configuration that of the new half."""
        for voter in configuration.voters:
            record = self.find(voter)
            if record is not None and record.place == place:
                return record
        return None

    def removed(self, node_id: int) -> bool:
        """Whether this NodeId was a member once and, by a committed configuration, is none any more."""
        return 0 < node_id <= self.highest and node_id not in self._records

    def next_node_id(self, configuration: Configuration) -> int:
        """The NodeId for the next learner, above all of the state and all of the newest configuration."""
        return max([self.highest, *(member.node_id for member in configuration.members())]) + 1

    def apply(self, change: ConfigurationChange) -> list[MemberRecord]:
        """Applies a committed configuration entry; returns the records that ended with it.

        The final configuration of a joint change is proposed by Raft itself and carries no context: what
        ends is told by the configuration alone. Raises `msgspec.DecodeError` on a context that this program
        cannot read.
        """
        if change.context:
            self._begin(_change_decoder.decode(change.context))
        members = change.configuration.members()
        ended = [record for record in self._records.values() if record.member not in members]
        for record in ended:
            del self._records[record.node_id]
        return ended

    def _begin(self, change: MembersChange) -> None:
        for record in change.records:
            assert record.node_id > self.highest, f"NodeId {record.node_id} used again ({self.highest})"
            self._records[record.node_id] = record
            self.highest = record.node_id
        if change.what == "swap":
            self.newest_swap = change.node_id
            self.used = _remember(self.used, change.command_id)
        elif change.what == "undo":
            self.undone = _remember(self.undone, change.command_id)

    def encode(self) -> bytes:
        """The whole state; equal states have equal bytes."""
        return msgspec.msgpack.encode(
            _Image(self.records, self.highest, self.newest_swap, self.used, self.undone)
        )

    @classmethod
    def decode(cls, image: bytes | memoryview) -> Members:
        """The state that `encode` wrote; raises `msgspec.DecodeError` for anything else."""
        decoded = _image_decoder.decode(image)
        members = cls(decoded.records)
        members.highest = max(members.highest, decoded.highest)
        members.newest_swap = decoded.newest_swap
        members.used = decoded.used
        members.undone = decoded.undone
        return members


def _remember(commands: tuple[str, ...], command_id: str) -> tuple[str, ...]:
    return (*commands, command_id)[-COMMANDS_MAX:] if command_id else commands


def _node_id(record: MemberRecord) -> int:
    return record.node_id
