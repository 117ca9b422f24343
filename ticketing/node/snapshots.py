"""Snapshots of the replicated state on their way to one member: the stream out and the stream in (spec 6, 7, 9).

A snapshot travels on a connection of its own, in slices, so that neither end stops for it and no heartbeat waits
behind it. Its header holds the sender's elapsed clock, read before the first byte leaves.
"""

from __future__ import annotations

import msgspec

from ticketing.locks.restore import BadSnapshot, SnapshotLoader
from ticketing.locks.snapshot_header import SnapshotHeader
from ticketing.locks.table import LockTable
from ticketing.node.link import PeerKind, encode_frame
from ticketing.node.members import Members
from ticketing.node.settings import S
from ticketing.node.shell import Link, Shell
from ticketing.node.state import DomainFacts, ReplicatedState
from ticketing.raft.types import Base, Member

FORMAT = 1
SLICE_RECORDS = 500
"""Held keys a slice: well under a millisecond of work, about 50 KiB."""
SLICES_A_STEP = 4
BUFFERED_MAX = 512 * 1024
"""Bytes handed to the link's transport and not taken by the kernel, past which slices wait."""
STALLED_NS = 10 * S
"""A stream on which nothing moved for this long is given up."""
SILENT_NS = 3 * S
"""So is one to a member that has not answered its leader for this long: word that the state is in place would not come
either, and another one, perhaps needed for a majority, waits for its own.
"""


class Begin(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Opens the stream."""

    format: int
    domain: DomainFacts
    base: Base
    members: bytes
    sender_clock_ns: int
    quarantine_stamp_ns: int
    table: SnapshotHeader


class Slice(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Some held keys, as `SnapshotReader.next_slice` made them."""

    records: bytes


class End(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """All slices were sent."""


class Installed(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """From the receiver, on its own peer link: the state of `index` is in place there."""

    index: int


SnapshotMessage = Begin | Slice | End | Installed

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[SnapshotMessage] = msgspec.msgpack.Decoder(SnapshotMessage)


def encode(message: SnapshotMessage) -> bytes:
    """The payload of one frame of kind SNAPSHOT."""
    return _encoder.encode(message)


def decode(payload: bytes) -> SnapshotMessage:
    """The message in a frame of kind SNAPSHOT; anything else raises `msgspec.DecodeError`."""
    return _decoder.decode(payload)


class SnapshotSender:
    """One snapshot to one member. The state is fixed when this is made; slices follow as the link takes them."""

    def __init__(
        self, shell: Shell, member: Member, state: ReplicatedState, base: Base, bytes_per_s: int
    ) -> None:
        self.member = member
        self.base = base
        self.link: Link | None = None
        self.sent_bytes = 0
        self.sent_records = 0
        self.total_records = len(state.table.held)
        self.all_sent = False
        self._shell = shell
        self._state = state
        self._members = state.members.encode()
        self._reader = state.table.begin_snapshot()
        self._bytes_per_s = bytes_per_s
        self._allowance = 0
        now_ns = shell.elapsed_ns()
        self._allowed_ns = now_ns
        self.moved_ns = now_ns

    def connected(self, link: Link) -> None:
        """The link is up: the header goes out."""
        self.link = link
        header = self._reader.header()
        begin = Begin(
            FORMAT,
            self._state.domain,
            self.base,
            self._members,
            self._shell.elapsed_ns(),
            self._state.quarantine_stamp_ns,
            header,
        )
        self._send(begin)

    def step(self, now_ns: int) -> bool:
        """Sends what the rate and the link allow now; whether more is left to be sent."""
        link = self.link
        if link is None or self.all_sent:
            return False
        burst = self._bytes_per_s // 20
        gained = (now_ns - self._allowed_ns) * self._bytes_per_s // S
        self._allowance = min(self._allowance + gained, burst)
        self._allowed_ns = now_ns
        for _ in range(SLICES_A_STEP):
            if self._allowance <= 0 or self._shell.buffered(link) > BUFFERED_MAX:
                return True
            records = self._reader.next_slice(SLICE_RECORDS)
            self.moved_ns = now_ns
            if not records:
                self._send(End())
                self.all_sent = True
                return False
            self._send(Slice(records))
            self.sent_records = min(self.sent_records + SLICE_RECORDS, self.total_records)
        return True

    def _send(self, message: SnapshotMessage) -> None:
        assert self.link is not None
        payload = encode(message)
        self.sent_bytes += len(payload)
        self._allowance -= len(payload)
        self._shell.send(self.link, encode_frame(PeerKind.SNAPSHOT, payload))

    def stalled(self, now_ns: int) -> bool:
        """Whether nothing has moved for too long."""
        return now_ns - self.moved_ns > STALLED_NS

    def close(self) -> None:
        """Ends the stream and frees what it kept."""
        self._reader.close()
        if self.link is not None:
            self._shell.hang_up(self.link)
            self.link = None


class SnapshotReceiver:
    """One snapshot coming in over one link. Raises `BadSnapshot` for what is none; the link is then closed."""

    def __init__(self, domain_id: str) -> None:
        """`domain_id`: of the receiver; no other domain's state is taken."""
        self.base: Base | None = None
        self._domain_id = domain_id
        self._members = Members()
        self._begin: Begin | None = None
        self._loader: SnapshotLoader | None = None
        self._ended = False
        self._quarantine_stamp_ns = 0

    def receive(self, message: SnapshotMessage, now_ns: int) -> None:
        """Takes the next message of the stream, read at `now_ns`."""
        if isinstance(message, Begin):
            if self._begin is not None or message.format != FORMAT:
                raise BadSnapshot(f"a second header, or format {message.format} where {FORMAT} is read")
            if message.domain.domain_id != self._domain_id:
                raise BadSnapshot(f"of domain {message.domain.shown}")
            self._members = Members.decode(message.members)
            self._begin = message
            self.base = message.base
            self._loader = SnapshotLoader(message.table, now_ns, message.sender_clock_ns)
            age_ns = max(0, message.sender_clock_ns - message.quarantine_stamp_ns)
            self._quarantine_stamp_ns = now_ns - age_ns * 998 // 1000
        elif self._loader is None or self._ended:
            raise BadSnapshot("a slice outside a snapshot")
        elif isinstance(message, Slice):
            self._loader.feed(message.records)
        else:
            self._ended = True

    def step(self) -> ReplicatedState | None:
        """One slice of the work after the end; the state once it is whole."""
        if not self._ended:
            return None
        assert self._loader is not None
        assert self._begin is not None
        table: LockTable | None = self._loader.finish_slice()
        if table is None:
            return None
        begin = self._begin
        return ReplicatedState(begin.domain, table, self._members, begin.base, self._quarantine_stamp_ns)

    def abandon(self) -> LockTable | None:
        """The stream is over before its end: what has come of the table, to be taken apart."""
        return None if self._loader is None else self._loader.abandon()

    @property
    def finishing(self) -> bool:
        """Everything has arrived; `step` is to be called until it gives the state."""
        return self._ended
