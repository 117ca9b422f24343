"""Versions of what travels between nodes: the newest common one is spoken, any other refused in clear words (spec 6).

What the previous program wrote is kept in `formats/`, so that it is read here without that program; `test_upgrade` runs
both beside each other.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.node.fake_shell import Cluster, FakeLink, formed
from tests.operations import format_samples
from tests.operations.format_samples import DOMAIN, MESSAGES, End, encoded, sample_state, snapshot_frames
from ticketing.locks.codec import UnknownEntry, decode_commands, encode_commands
from ticketing.locks.commands import FORMAT as ENTRY_FORMAT
from ticketing.locks.restore import BadSnapshot
from ticketing.locks.snapshot_header import SNAPSHOT_FORMAT, SnapshotHeader
from ticketing.node import clock_messages, forming_messages, membership_messages, snapshots
from ticketing.node.handshake import FORMAT as LINK_FORMAT
from ticketing.node.handshake import FORMAT_OLDEST, NONCE_BYTES, LinkFacts, LinkPeer
from ticketing.node.link import HEADER, PeerKind, encode_frame
from ticketing.node.members import Members
from ticketing.node.settings import OperatorCommand, S
from ticketing.node.shell import Link
from ticketing.node.snapshots import FORMAT as STREAM_FORMAT
from ticketing.node.snapshots import Begin, SnapshotReceiver
from ticketing.node.state import DomainFacts
from ticketing.raft import messages as raft_messages
from ticketing.raft.types import MS, Base, Configuration, EntryKind, Member
from ticketing.server.files import command_content, read_facts

FORMATS = Path(__file__).parent / "formats"
OTHER_LINK_FORMATS = [FORMAT_OLDEST - 1, LINK_FORMAT + 1]
OTHER_FORMATS = [0, 2]
HELLO = b"TKTPEER\x01"
MAC_BYTES = 32


def test_the_formats_of_today() -> None:
    """Who raises one of these has the readers take the previous one, too, and keeps what that wrote in `formats/`."""
    assert (LINK_FORMAT, FORMAT_OLDEST) == (2, 1)
    assert (ENTRY_FORMAT, SNAPSHOT_FORMAT, STREAM_FORMAT) == (1, 1, 1)
    assert encode_commands([])[:1] == bytes((ENTRY_FORMAT,))


def opening(cluster: Cluster, newest: int, oldest: int) -> tuple[FakeLink, bytes]:
    """A stranger's link to the leader, with what the leader answers to its opening."""
    leader = cluster.leader
    answered: list[bytes] = []
    stranger = FakeLink(leader, "10.0.0.9:1", inbound=True, purpose="")
    leader.links[stranger] = None
    send = leader.send

    def noted(link: Link, frame: bytes) -> None:
        if link is stranger:
            answered.append(frame)
        else:
            send(link, frame)

    leader.send = noted  # type: ignore[method-assign]
    facts = LinkFacts("b", 0, 99, "", "digest", "", "0")
    hello = [1, newest, oldest, "peer", "", facts, b"n" * NONCE_BYTES, "a field of the future"]
    leader.call(lambda: leader.up.link_up(stranger))
    frame = encode_frame(PeerKind.HANDSHAKE, HELLO + msgspec.msgpack.encode(hello))
    leader.call(lambda: leader.up.link_data(stranger, frame))
    cluster.world.run(100 * MS)
    leader.send = send  # type: ignore[method-assign]
    return stranger, b"".join(answered)


@pytest.mark.parametrize(
    ("newest", "oldest", "common"),
    [
        (1, 1, 1),
        (LINK_FORMAT, FORMAT_OLDEST, LINK_FORMAT),
        (LINK_FORMAT + 1, LINK_FORMAT, LINK_FORMAT),
        (LINK_FORMAT + 7, 1, LINK_FORMAT),
    ],
)
def test_a_link_speaks_the_newest_format_that_both_ends_know(newest: int, oldest: int, common: int) -> None:
    _, answer = opening(formed(), newest, oldest)
    payload = answer[HEADER.size : -MAC_BYTES]
    assert payload.startswith(HELLO)
    _tag, spoken, *_ = msgspec.msgpack.decode(payload[len(HELLO) :])
    assert spoken == common


@pytest.mark.parametrize("other", OTHER_LINK_FORMATS)
def test_a_link_without_a_common_format_is_refused_and_both_ranges_are_named(other: int) -> None:
    cluster = formed()
    leader = cluster.leader
    link, answer = opening(cluster, other, other)
    assert answer == b""
    assert link not in leader.links
    refused = next(facts for _, event, facts in leader.lines if event == "peer link refused")
    assert refused["reason"] == "format"
    assert refused["detail"] == f"speaks formats {other} to {other}, this node 1 to 2"


@pytest.mark.parametrize("other", OTHER_FORMATS)
def test_an_entry_of_another_format_stops_the_node_that_cannot_apply_it(other: int) -> None:
    """Passing it over would part this node from the others."""
    cluster = formed()
    leader = cluster.leader
    raft = leader.up.raft
    assert raft is not None
    leader.call(lambda: raft.propose(bytes((other,)) + encode_commands([])[1:], cluster.world.now_ns))
    with pytest.raises(UnknownEntry):
        cluster.world.run(S)
    stopped = [machine.stopped for machine in cluster.machines if machine.stopped is not None]
    ((status, reason),) = stopped
    assert status == 1
    assert f"format {other}, this program reads format 1" in reason


def test_the_log_has_the_kinds_of_entries_of_format_1() -> None:
    assert {kind.value for kind in EntryKind} == {0, 1, 2}, "a new kind is a new format of the log"


def begin(stream: int = STREAM_FORMAT, table: int = SNAPSHOT_FORMAT) -> Begin:
    return Begin(
        stream,
        DomainFacts("ab" * 8, 1, 500 * MS, 0, 0),
        Base(7, 2, Configuration((Member(1, 11),))),
        Members().encode(),
        0,
        0,
        SnapshotHeader(table, 1, 0, b"", ()),
    )


@pytest.mark.parametrize("other", OTHER_FORMATS)
def test_a_snapshot_of_another_format_is_refused_before_anything_of_it_is_kept(other: int) -> None:
    for header in (begin(stream=other), begin(table=other)):
        with pytest.raises(BadSnapshot, match=rf"format {other}\b.* 1\b"):
            SnapshotReceiver("ab" * 8).receive(header, 0)
    receiver = SnapshotReceiver("ab" * 8)
    receiver.receive(begin(), 0)
    assert receiver.base is not None


# --- what each format wrote

DECODERS: dict[str, Any] = {
    "raft": raft_messages.decode,
    "forming": forming_messages.decode_forming,
    "clock": clock_messages.decode,
    "membership": membership_messages.decode_membership,
    "leave": membership_messages.decode_leave,
}


def written(link_format: int) -> dict[str, Any]:
    """What the program of that link format wrote of the samples."""
    found: dict[str, Any] = json.loads((FORMATS / f"link-{link_format}.json").read_text())
    assert found["link format"] == link_format
    return found


def decoded(kind: str, name: str, data: bytes) -> Any:
    if kind != "entry":
        return DECODERS[kind](data)
    return raft_messages.decode_change(data) if name == "change" else decode_commands(data)


NAMES = [(kind, name) for kind, named in MESSAGES.items() for name in named]
SPOKEN = range(FORMAT_OLDEST, LINK_FORMAT + 1)


def test_what_this_program_writes_is_what_it_wrote_before() -> None:
    """Anything else is a new format."""
    assert format_samples.samples() == written(LINK_FORMAT)


@pytest.mark.parametrize("link_format", SPOKEN)
@pytest.mark.parametrize(("kind", "name"), NAMES)
def test_each_message_of_a_spoken_format_is_read(link_format: int, kind: str, name: str) -> None:
    data = bytes.fromhex(written(link_format)["messages"][kind][name])
    assert decoded(kind, name, data) == MESSAGES[kind][name]


@pytest.mark.parametrize(("kind", "name"), NAMES)
def test_a_process_of_the_previous_format_is_sent_what_it_would_have_sent(kind: str, name: str) -> None:
    message = MESSAGES[kind][name]
    speaks_formats = kind in ("membership", "leave")
    sent = membership_messages.encode(message, 1) if speaks_formats else encoded(kind, message)
    assert sent.hex() == written(1)["messages"][kind][name]


def test_an_answer_that_has_more_in_this_format_is_cut_to_the_former() -> None:
    answer = membership_messages.JoinAnswer(
        44, membership_messages.Verdict.NOT_LEADING, "node-1 leads", "node-1", "h1:6225"
    )
    assert membership_messages.encode(answer, 1).hex() == written(1)["messages"]["membership"]["join answer"]
    assert membership_messages.decode_membership(membership_messages.encode(answer)) == answer


def test_what_format_2_alone_has_is_said_on_no_link_of_the_former(monkeypatch: pytest.MonkeyPatch) -> None:
    ask = membership_messages.DialMe("node-2", 44, "new:6225")
    assert membership_messages.encode(ask).hex() == "9406a66e6f64652d322ca86e65773a36323235"
    assert membership_messages.decode_membership(membership_messages.encode(ask)) == ask
    cluster = formed()
    leader = cluster.leader
    former, present = leader.up.peers.reachable()
    former = msgspec.structs.replace(former, format=1)
    asked: list[int] = []

    def send(incarnation: int, kind: int, payload: bytes) -> bool:
        if kind == PeerKind.MEMBERSHIP:
            message = membership_messages.decode_membership(payload)
            assert message == membership_messages.DialMe(
                leader.place.name, leader.up.incarnation, leader.place.peer
            )
            asked.append(incarnation)
        return True

    monkeypatch.setattr(leader.up.peers, "one_way", lambda _now_ns: [former, present])
    monkeypatch.setattr(leader.up.peers, "send", send)
    cluster.world.run(1500 * MS)
    assert set(asked) == {present.facts.incarnation}


@pytest.mark.parametrize("link_format", SPOKEN)
def test_a_dialler_of_a_spoken_format_is_accepted_and_answered_in_it(link_format: int) -> None:
    hello, welcome, proof, verdict = (bytes.fromhex(frame) for frame in written(link_format)["handshake"])
    acceptor = End(2).handshake()
    assert acceptor.feed(hello) == welcome
    assert acceptor.feed(proof) == verdict
    assert isinstance(acceptor.outcome, LinkPeer)
    assert acceptor.outcome.format == link_format


@pytest.mark.parametrize("link_format", SPOKEN)
def test_a_snapshot_of_a_spoken_format_is_the_state_that_was_sent(link_format: int) -> None:
    *stream, installed = (bytes.fromhex(frame) for frame in written(link_format)["snapshot"])
    assert isinstance(snapshots.decode(installed), snapshots.Installed)
    receiver = SnapshotReceiver(DOMAIN)
    for frame in stream:
        receiver.receive(snapshots.decode(frame[HEADER.size :]), 0)
    state = receiver.step()
    assert state is not None
    assert state.checksum() == written(link_format)["checksum"] == sample_state().checksum()
    assert [frame.hex() for frame in snapshot_frames(sample_state())] == written(link_format)["snapshot"], (
        "and it is sent as it was"
    )


def test_the_state_files_of_format_1_are_read() -> None:
    facts = read_facts(FORMATS / "state-1")
    assert facts.permit == "a603a20773c380b82e02fd61c0434ec5"
    assert facts.permit_made_ms == 1796060642356
    assert facts.earlier_domain == "81f329e91c679147"
    assert facts.earlier_first_token == 1883306107863040
    command = OperatorCommand(command_id="command-1", who="somebody", why="a reason")
    assert facts.operator_command == command
    assert command_content(command) == (FORMATS / "state-1" / "replace.json").read_bytes()


def test_the_state_files_are_written_as_format_1_has_them() -> None:
    """A node that is taken back to the former version reads them."""
    cluster = formed()
    kept = {
        name: json.loads((FORMATS / "state-1" / name).read_text()) for name in ("record.json", "floor.json")
    }
    for name, known in kept.items():
        fresh = json.loads(cluster.leader.disk[name])
        assert {key: type(value) for key, value in fresh.items()} == {
            key: type(value) for key, value in known.items()
        }
