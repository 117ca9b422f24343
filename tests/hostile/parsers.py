"""Everything that reads bytes from outside, as functions that must bear any bytes, with examples to begin from.

A parser here returns, whatever it is given, or fails with an assertion of what it promises: at most one problem,
nothing kept beyond its bound, the same outcome however the bytes were cut. What it may raise on wrong bytes is caught
here by name: anything else is a fault.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec

from ticketing.locks.codec import UnknownEntry, decode_commands, encode_commands
from ticketing.locks.commands import Cancel, Extend, Turn
from ticketing.locks.restore import BadSnapshot, SnapshotLoader
from ticketing.locks.snapshot_header import SnapshotHeader
from ticketing.locks.table import LockTable
from ticketing.node import clock_messages, forming_messages, membership_messages, snapshots
from ticketing.node.handshake import ACCEPTOR, DIALLER, NONCE_BYTES, LinkFacts, LinkPeer, PeerHandshake
from ticketing.node.link import FRAME_BYTES_MAX, HANDSHAKE_BYTES_MAX, FrameDecoder, PeerKind, encode_frame
from ticketing.node.members import MemberRecord, Members
from ticketing.node.shown import Mark, Shows
from ticketing.node.state import DomainFacts
from ticketing.protocol import frames
from ticketing.protocol.decoder import ReplyDecoder, RequestDecoder
from ticketing.protocol.fields import KEY_LINE_MAX, LINE_BYTES_MAX
from ticketing.protocol.handshake import (
    Banner,
    ClientHandshake,
    ServerHandshake,
    build_banner,
    digest,
    new_nonce,
)
from ticketing.raft import messages
from ticketing.raft.types import BLANK, Configuration, ConfigurationChange, Member
from ticketing.server.files import StateError, read_facts
from ticketing.server.tls import describe_not_tls, first_record_complete

NONCE = new_nonce(bytes(32))
UNREADABLE = (msgspec.DecodeError, RecursionError)
PENDING_MAX = KEY_LINE_MAX + 32
"""The longest unfinished frame of a client: header and key line."""


class Somebody:
    """A process without membership (`LinkHost`)."""

    def __init__(self, place: str) -> None:
        self._facts = LinkFacts(place, 0, len(place), "", "", "", "0")

    def facts(self) -> LinkFacts:
        return self._facts

    def shows(self) -> Shows:
        return Shows()

    def mark(self) -> Mark:
        return {}

    def judge(self, peer: LinkPeer, mark: Mark) -> str | None:
        return None


def _cuts(data: bytes) -> list[list[bytes]]:
    """The same bytes in one piece, in two, and one by one as far as that is cheap."""
    middle = len(data) // 3
    pieces = [[data], [data[:middle], data[middle:]]]
    if len(data) <= 300:
        pieces.append([data[place : place + 1] for place in range(len(data))])
    return pieces


def requests(data: bytes) -> None:
    seen = []
    for pieces in _cuts(data):
        decoder = RequestDecoder()
        found = [request for piece in pieces for request in decoder.feed(piece)]
        assert decoder.pending <= PENDING_MAX
        assert decoder.problem in (None, "bad_frame", "bad_key")
        assert decoder.detail.isprintable()
        seen.append((found, decoder.problem))
    assert all(one == seen[0] for one in seen)


def replies(data: bytes) -> None:
    seen = []
    for pieces in _cuts(data):
        decoder = ReplyDecoder()
        found = [reply for piece in pieces for reply in decoder.feed(piece)]
        assert decoder.problem in (None, "malformed")
        assert decoder.detail.isprintable()
        seen.append((found, decoder.problem))
    assert all(one == seen[0] for one in seen)


def client_answers(data: bytes) -> None:
    for pieces in _cuts(data):
        handshake = ServerHandshake(build_banner(Banner(NONCE)), NONCE, ("token",))
        for piece in pieces:
            if handshake.outcome is None:
                handshake.feed(piece)
        assert handshake.outcome in (None, "ok", "auth_failed", "bad_frame")
        assert handshake.detail.isprintable()
        assert len(handshake._buffer) <= LINE_BYTES_MAX


def server_lines(data: bytes) -> None:
    for pieces in _cuts(data):
        handshake = ClientHandshake("token")
        for piece in pieces:
            if handshake.outcome is None:
                handshake.feed(piece)
        assert handshake.detail.isprintable()
        assert handshake.outcome is not None or len(handshake._buffer) <= LINE_BYTES_MAX


def peer_openings(data: bytes) -> None:
    for role in (ACCEPTOR, DIALLER):
        for framed in (False, True):
            purpose = "peer" if role == DIALLER else ""
            handshake = PeerHandshake(role, Somebody("a"), [b"secret"], bytes(NONCE_BYTES), purpose=purpose)
            if role == DIALLER:
                handshake.start()
            handshake.feed(encode_frame(PeerKind.HANDSHAKE, b"TKTPEER\x01" + data) if framed else data)
            assert not isinstance(handshake.outcome, LinkPeer), "proved without the secret"
            assert handshake.outcome is not None or len(handshake._buffer) <= HANDSHAKE_BYTES_MAX + 5


def peer_frames(data: bytes) -> None:
    seen = []
    for pieces in _cuts(data):
        decoder = FrameDecoder()
        found = [frame for piece in pieces for frame in decoder.feed(piece)]
        assert all(len(payload) < FRAME_BYTES_MAX for _kind, payload in found)
        seen.append((found, decoder.failure))
    assert all(one == seen[0] for one in seen)


def _decoded(decode: Callable[[bytes], object]) -> Callable[[bytes], None]:
    def parse(data: bytes) -> None:
        try:
            decode(data)
        except UNREADABLE:
            return

    return parse


def lock_entries(data: bytes) -> None:
    try:
        decode_commands(data)
    except (UnknownEntry, RecursionError):
        return


def lock_slices(data: bytes) -> None:
    header = SnapshotHeader(1, 1 << 40, 2, b"", ())
    try:
        loader = SnapshotLoader(header, 1_000, 1_000)
        loader.feed(data)
        loader.finish()
    except (BadSnapshot, RecursionError):
        return


def snapshot_streams(data: bytes) -> None:
    receiver = snapshots.SnapshotReceiver("00000000000000aa")
    try:
        for part in data.split(b"|||"):
            receiver.receive(snapshots.decode(part), 5)
        receiver.step()
    except (BadSnapshot, *UNREADABLE):
        return


def state_files(data: bytes) -> None:
    for name in ("permit.json", "record.json", "floor.json", "replace.json"):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / name).write_bytes(data)
            try:
                facts = read_facts(Path(folder))
            except StateError:
                continue
            assert 0 <= facts.earlier_first_token < 1 << 62


def first_bytes(data: bytes) -> None:
    first_record_complete(data)
    told = describe_not_tls(data)
    assert told is None or told.isprintable()


def _examples() -> dict[str, list[bytes]]:
    me, other = Member(1, 7), Member(2, 8)
    three = Configuration((me, other, Member(3, 9)))
    entry = messages.WireEntry(2, 1, encode_commands([Extend(b"k", 5, 9)]), 10)
    dialler = PeerHandshake(DIALLER, Somebody("a"), [b"secret"], bytes(NONCE_BYTES), purpose="peer")
    acceptor = PeerHandshake(ACCEPTOR, Somebody("bb"), [b"secret"], bytes(NONCE_BYTES))
    hello = dialler.start()
    welcome = acceptor.feed(hello)
    proof = dialler.feed(welcome)
    table = LockTable(1 << 40)
    table.apply([Turn(b"k", 0, 1 << 63, 5, 1_000, "name")], 5)
    reader = table.begin_snapshot()
    domain = DomainFacts("00000000000000aa", 1 << 40, 0, 0, 0)
    begin = snapshots.Begin(snapshots.FORMAT, domain, BLANK, Members().encode(), 1, 1, reader.header())
    records = reader.next_slice(10)
    stream: list[snapshots.SnapshotMessage] = [begin, snapshots.Slice(records), snapshots.End()]
    ask = membership_messages.JoinAsk("a", 7, "h:1", "h:2", "h:3")
    return {
        "requests": [
            frames.encode_q(5, 5, 1 << 63, b"key"),
            frames.encode_release(5, b"key") + frames.encode_cancel(1 << 63, b"key") + b"\n",
            frames.encode_extend(5, 250, b"key") + frames.encode_hello(b"who"),
        ],
        "replies": [
            frames.encode_granted(5, 1 << 63, b"key") + frames.encode_leader("127.0.0.1:5225"),
            frames.encode_granted_waited(5, 1 << 63, 7, b"key") + frames.encode_error("bad_frame"),
        ],
        "client_answers": [digest("token", NONCE), digest("wrong", NONCE) + b"rest"],
        "server_lines": [build_banner(Banner(NONCE, extended=True)) + b"L127.0.0.1:5225\n"],
        "peer_openings": [hello, welcome, proof, hello[13:]],
        "peer_frames": [encode_frame(PeerKind.RAFT, b"payload") * 2, hello + b"\x00"],
        "raft_messages": [
            messages.encode(messages.AppendEntries(2, 1, 1, 1, 1, [entry])),
            messages.encode(messages.VoteRequest(2, 1, 1, transfer=True)),
        ],
        "raft_configurations": [messages.encode_change(ConfigurationChange(three, b"context"))],
        "forming_messages": [
            forming_messages.encode_forming(forming_messages.Propose("0" * 16, False, "p", "c", 5)),
            forming_messages.encode_forming(forming_messages.Promise("0" * 16, 7, 0, True)),
        ],
        "membership_messages": [membership_messages.encode(ask)],
        "leave_messages": [membership_messages.encode(membership_messages.LeaveAsk(1, 7, 2))],
        "clock_messages": [clock_messages.encode(clock_messages.ClockReply(1, 2, 3, 4, 5))],
        "snapshot_messages": [snapshots.encode(begin), snapshots.encode(snapshots.Slice(records))],
        "member_records": [Members([MemberRecord("a", 1, 7, "h:1", "h:2", "h:3")]).encode()],
        "lock_entries": [
            encode_commands([Turn(b"k", 0, 1 << 63, 5, 1_000, "name"), Cancel((1 << 63,))]),
            encode_commands([Extend(b"k", 5, 9)]),
        ],
        "lock_slices": [records],
        "snapshot_streams": [b"|||".join(map(snapshots.encode, stream))],
        "state_files": [
            b'{"permit": "p", "made_ms": 5}',
            b'{"domain": "5.00000000000000aa", "first_token": "5"}',
            b'{"command_id": "c", "who": "w", "why": "y", "x": [[[]]]}',
        ],
        "first_bytes": [bytes.fromhex("160301000501"), b"GET / HTTP/1.1", b"SSH-2.0"],
    }


PARSERS: dict[str, Callable[[bytes], None]] = {
    "requests": requests,
    "replies": replies,
    "client_answers": client_answers,
    "server_lines": server_lines,
    "peer_openings": peer_openings,
    "peer_frames": peer_frames,
    "raft_messages": _decoded(messages.decode),
    "raft_configurations": _decoded(messages.decode_change),
    "forming_messages": _decoded(forming_messages.decode_forming),
    "membership_messages": _decoded(membership_messages.decode_membership),
    "leave_messages": _decoded(membership_messages.decode_leave),
    "clock_messages": _decoded(clock_messages.decode),
    "snapshot_messages": _decoded(snapshots.decode),
    "member_records": _decoded(Members.decode),
    "lock_entries": lock_entries,
    "lock_slices": lock_slices,
    "snapshot_streams": snapshot_streams,
    "state_files": state_files,
    "first_bytes": first_bytes,
}
EXAMPLES = _examples()
"""By parser: whole and valid ones, to be cut, joined and spoilt."""
assert EXAMPLES.keys() == PARSERS.keys()
