"""All replicated state of a domain: the locks, the members, and the facts that the domain was formed with (spec 6)."""

from __future__ import annotations

import zlib

import msgspec

from ticketing.locks.codec import decode_commands
from ticketing.locks.commands import LockCommand
from ticketing.locks.table import LockTable
from ticketing.node.first_state import FirstState
from ticketing.node.members import MemberRecord, Members
from ticketing.node.settings import S
from ticketing.raft.messages import decode_change
from ticketing.raft.types import Base, Configuration, Entry, EntryKind, Member

_COMMANDS = EntryKind.COMMANDS
_CONFIGURATION = EntryKind.CONFIGURATION

FIRST_INDEX = 1
FIRST_TERM = 1
"""Where the log of a formed domain begins: its first state stands at this index and term."""


class DomainFacts(msgspec.Struct, frozen=True, array_like=True):
    """What a domain was formed with and keeps."""

    domain_id: str
    """16 lower-case hex digits."""
    first_token: int
    delta_ns: int
    quarantine_s: int
    """The domain serves this long after it was formed: 0, or 250."""
    formed_wall_ms: int

    @property
    def shown(self) -> str:
        """As banners and people see it: `<first token>.<domain id>`."""
        return f"{self.first_token}.{self.domain_id}"


class ReplicatedState:
    """The state machine that Raft replicates. Deterministic: apply reads the entry and this state, nothing else."""

    __slots__ = (
        "_ended",
        "applied_index",
        "applied_term",
        "domain",
        "members",
        "quarantine_stamp_ns",
        "table",
    )

    def __init__(
        self,
        domain: DomainFacts,
        table: LockTable,
        members: Members,
        applied: Base,
        quarantine_stamp_ns: int,
    ) -> None:
        self.domain = domain
        self.table = table
        self.members = members
        self.applied_index = applied.index
        self.applied_term = applied.term
        self._ended: list[MemberRecord] = []
        self.quarantine_stamp_ns = quarantine_stamp_ns
        """This node's elapsed clock at the forming, stamped like a lease; not replicated (spec 7)."""

    def in_quarantine(self, now_ns: int) -> bool:
        """Whether the domain is too young to serve: leases of an earlier one could still run (spec 9, Forming)."""
        quarantine_s = self.domain.quarantine_s
        return quarantine_s > 0 and now_ns - self.quarantine_stamp_ns < quarantine_s * S

    def apply(self, entry: Entry) -> tuple[list[LockCommand], list[int]] | None:
        """Applies one committed entry. For lock commands: they and their outcomes, in order.

        Raises `UnknownEntry` for what this program cannot read: the node stops rather than part ways.
        """
        assert entry.index == self.applied_index + 1, f"{entry!r} after {self.applied_index}"
        self.applied_index = entry.index
        self.applied_term = entry.term
        if entry.kind == _COMMANDS:
            decoded = entry.decoded
            commands: list[LockCommand] = decode_commands(entry.data) if decoded is None else decoded
            entry.decoded = None
            return commands, self.table.apply(commands, entry.stamp_ns)
        if entry.kind == _CONFIGURATION:
            self._ended += self.members.apply(decode_change(entry.data))
        return None

    def take_ended(self) -> list[MemberRecord]:
        """The members that applied configuration entries have ended since the last call."""
        ended, self._ended = self._ended, []
        return ended

    def checksum(self) -> int:
        """Equal on all nodes at equal index (stamps lie outside)."""
        return self.table.checksum() ^ self.checksum_without_table()

    def checksum_without_table(self) -> int:
        """What `checksum` has beside the table's."""
        return zlib.crc32(self.domain.shown.encode() + self.members.encode())


def formed_state(first: FirstState, now_ns: int) -> tuple[ReplicatedState, Base]:
    """The state of a domain that has just formed, and where its log begins."""
    voters = tuple(Member(record.node_id, record.incarnation) for record in first.members)
    base = Base(FIRST_INDEX, FIRST_TERM, Configuration(voters))
    facts = DomainFacts(
        first.domain_id, first.first_token, first.delta_ns, first.quarantine_s, first.formed_wall_ms
    )
    state = ReplicatedState(facts, LockTable(first.first_token), Members(first.members), base, now_ns)
    return state, base
