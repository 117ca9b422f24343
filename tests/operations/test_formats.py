"""Versions of what travels between nodes: the newest common one is spoken, any other refused in clear words (spec 6).

All formats are at version 1, so there is no previous one to upgrade from yet. These tests are the place for it: when a
format 2 comes, nodes of both versions have to pass here.
"""

from __future__ import annotations

import msgspec
import pytest

from tests.node.fake_shell import Cluster, FakeLink, formed
from ticketing.locks.codec import UnknownEntry, encode_commands
from ticketing.locks.commands import FORMAT as ENTRY_FORMAT
from ticketing.locks.restore import BadSnapshot
from ticketing.locks.snapshot import SNAPSHOT_FORMAT, SnapshotHeader
from ticketing.node.handshake import FORMAT as LINK_FORMAT
from ticketing.node.handshake import FORMAT_OLDEST, NONCE_BYTES, LinkFacts
from ticketing.node.link import HEADER, PeerKind, encode_frame
from ticketing.node.members import Members
from ticketing.node.settings import S
from ticketing.node.shell import Link
from ticketing.node.snapshots import FORMAT as STREAM_FORMAT
from ticketing.node.snapshots import Begin, SnapshotReceiver
from ticketing.node.state import DomainFacts
from ticketing.raft.types import MS, Base, Configuration, EntryKind, Member

OTHER_FORMATS = [0, 2]
HELLO = b"TKTPEER\x01"
MAC_BYTES = 32


def test_the_formats_of_today() -> None:
    """Who raises one of these makes `FORMAT_OLDEST` and the readers take the previous one, and tests it here."""
    assert (LINK_FORMAT, FORMAT_OLDEST) == (1, 1)
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


@pytest.mark.parametrize("newest", [LINK_FORMAT, LINK_FORMAT + 1, LINK_FORMAT + 7])
def test_a_link_speaks_the_newest_format_that_both_ends_know(newest: int) -> None:
    _, answer = opening(formed(), newest, LINK_FORMAT)
    payload = answer[HEADER.size : -MAC_BYTES]
    assert payload.startswith(HELLO)
    _tag, spoken, *_ = msgspec.msgpack.decode(payload[len(HELLO) :])
    assert spoken == LINK_FORMAT


@pytest.mark.parametrize("other", OTHER_FORMATS)
def test_a_link_without_a_common_format_is_refused_and_both_ranges_are_named(other: int) -> None:
    cluster = formed()
    leader = cluster.leader
    link, answer = opening(cluster, other, other)
    assert answer == b""
    assert link not in leader.links
    refused = next(facts for _, event, facts in leader.lines if event == "peer link refused")
    assert refused["reason"] == "format"
    assert refused["detail"] == f"speaks formats {other} to {other}, this node 1 to 1"


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
