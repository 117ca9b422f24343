"""Snapshots from one whole node to another (spec 6, 7, 9)."""

from __future__ import annotations

import pytest

from tests.node.fake_shell import OWNER, Cluster, FakeLink, Machine, formed
from ticketing.locks.restore import BadSnapshot
from ticketing.locks.table import LockTable
from ticketing.node import snapshots
from ticketing.node.link import PeerKind, encode_frame
from ticketing.node.members import Members
from ticketing.node.peers import LinkState
from ticketing.node.settings import S
from ticketing.node.state import DomainFacts
from ticketing.protocol import frames
from ticketing.raft.types import MS, Base, Configuration, Member, RaftSettings

SMALL_LOG = RaftSettings(log_keep_bytes=2_000)


def hold(cluster: Cluster, keys: range, lease: int = 100) -> None:
    """Has these keys held by a client of the leader."""
    client = cluster.connect(cluster.leader)
    for n in keys:
        client.send(frames.encode_q(0, lease, OWNER + 1 + n, b"k%d" % n))
        cluster.world.run(MS)
    cluster.world.run(50 * MS)
    assert len(client.said(frames.GRANTED_WAITED)) == len(keys)


def rejoined(machine: Machine) -> bool:
    raft = machine.up.raft
    return raft is not None and raft.configuration.is_voter(raft.me) and not raft.configuration.joint


def restarted(cluster: Cluster, machine: Machine) -> None:
    """Kills a process and starts the next one of its place; until it is a voter."""
    machine.kill()
    cluster.world.run(2 * S)
    machine.start()
    cluster.world.until(lambda: rejoined(machine), 20 * S)


def same_state(cluster: Cluster) -> bool:
    sums = {m.up.state.checksum() for m in cluster.machines if m.node is not None and m.up.state is not None}
    return len(sums) == 1


def test_a_process_that_starts_again_is_a_voter_within_seconds_and_holds_the_same_state() -> None:
    cluster = formed(raft=SMALL_LOG)
    hold(cluster, range(100))
    follower = cluster.followers[0]
    former = follower.up.member
    restarted(cluster, follower)
    cluster.world.run(S)
    assert follower.up.member.node_id == 4
    assert former not in cluster.leader.up.raft.configuration.members()  # type: ignore[union-attr]
    assert same_state(cluster)


def test_stamps_that_came_by_snapshot_are_never_before_the_grant_and_hardly_after_it() -> None:
    cluster = formed(raft=SMALL_LOG)
    hold(cluster, range(100))
    leader, follower = cluster.leader, cluster.followers[0]
    restarted(cluster, follower)
    assert leader.up.state is not None
    assert follower.up.state is not None
    now_ns = cluster.world.now_ns
    for key, held in leader.up.state.table.held.items():
        late_ns = follower.up.state.table.held[key].stamp_ns - held.stamp_ns
        assert 0 <= late_ns <= (now_ns - held.stamp_ns) * 2 // 1000 + 100 * MS


def test_a_snapshot_whose_link_leads_to_another_process_is_begun_again() -> None:
    cluster = formed(raft=SMALL_LOG)
    hold(cluster, range(100))
    leader, (follower, other) = cluster.leader, cluster.followers
    follower.kill()
    cluster.world.run(2 * S)
    wrong = True
    dial = leader.dial

    def misled(address: str, purpose: str) -> FakeLink:
        return dial(other.place.peer if wrong and purpose == "snapshot" else address, purpose)

    leader.dial = misled  # type: ignore[method-assign]
    follower.start()
    cluster.world.run(5 * S)
    assert not rejoined(follower)
    wrong = False
    cluster.world.until(lambda: rejoined(follower), 20 * S)


def test_a_snapshot_that_does_not_move_is_given_up_and_its_link_closed() -> None:
    cluster = formed(raft=SMALL_LOG)
    hold(cluster, range(100))
    leader, follower = cluster.leader, cluster.followers[0]
    follower.kill()
    cluster.world.run(2 * S)
    leader.buffered = lambda link: 1 << 30 if link.purpose == "snapshot" else 0  # type: ignore[method-assign]
    follower.start()
    cluster.world.until(lambda: leader.logged("snapshot stalled"), 30 * S)
    del leader.buffered
    cluster.world.until(lambda: rejoined(follower), 30 * S)
    cluster.world.run(3 * S)
    assert [link for link in leader.links if link.purpose == "snapshot"] == []


def test_a_snapshot_to_a_member_that_has_fallen_silent_is_given_up_for_those_that_wait() -> None:
    """All of it is sent, and no word of its being in place comes."""
    cluster = formed(raft=SMALL_LOG)
    hold(cluster, range(100))
    leader, follower = cluster.leader, cluster.followers[0]
    follower.kill()
    cluster.world.run(2 * S)
    send = follower.send

    def sending() -> snapshots.SnapshotSender | None:
        return leader.up.snapshots.sender

    follower.start()
    cluster.world.until(sending, 30 * S)
    follower.send = lambda link, frame: None if link.purpose == "peer" else send(link, frame)  # type: ignore[method-assign]
    cluster.world.run(2 * S)
    sender = sending()
    assert sender is not None
    assert sender.all_sent
    cluster.world.run(2 * S)
    assert sending() is None
    assert leader.logged("snapshot to a silent member given up") == 1
    follower.send = send  # type: ignore[method-assign]
    cluster.world.until(lambda: rejoined(follower), 30 * S)


def test_a_snapshot_in_slices_of_a_slow_link_is_not_disturbed_by_grants() -> None:
    cluster = formed(raft=SMALL_LOG, snapshot_bytes_per_s=100_000)
    hold(cluster, range(600))
    leader, follower = cluster.leader, cluster.followers[0]
    follower.kill()
    cluster.world.run(2 * S)
    follower.start()
    cluster.world.until(lambda: leader.up.snapshots.sender is not None, 10 * S)
    hold(cluster, range(600, 700))
    cluster.world.until(lambda: rejoined(follower), 20 * S)
    cluster.world.run(S)
    assert same_state(cluster)


def test_word_of_an_earlier_snapshot_does_not_end_the_present_one() -> None:
    cluster = formed(raft=SMALL_LOG, snapshot_bytes_per_s=100_000)
    hold(cluster, range(600))
    leader, follower = cluster.leader, cluster.followers[0]
    follower.kill()
    cluster.world.run(2 * S)
    follower.start()
    traffic = leader.up.snapshots
    cluster.world.until(lambda: traffic.sender is not None and traffic.sender.sent_records > 0, 10 * S)
    sender = traffic.sender
    word = snapshots.encode(snapshots.Installed(1))
    follower.call(lambda: follower.up.peers.send(leader.up.incarnation, PeerKind.SNAPSHOT, word))
    cluster.world.run(5 * MS)
    assert traffic.sender is sender
    cluster.world.until(lambda: rejoined(follower), 20 * S)


def begin(domain_id: str, members: bytes) -> snapshots.Begin:
    table = LockTable(1 << 40)
    domain = DomainFacts(domain_id, 1 << 40, 0, 0, 0)
    return snapshots.Begin(
        snapshots.FORMAT,
        domain,
        Base(1_000_000, 900, Configuration((Member(1, 7),))),
        members,
        0,
        0,
        table.begin_snapshot().header(),
    )


def test_a_snapshot_of_another_domain_is_not_taken() -> None:
    receiver = snapshots.SnapshotReceiver("00000000000000aa")
    with pytest.raises(BadSnapshot):
        receiver.receive(begin("00000000000000bb", Members().encode()), 0)


def send_snapshot(to: Machine, sender: Machine, message: snapshots.Begin) -> None:
    """A whole snapshot without keys, on a link of its own from `sender`."""
    link = sender.dial(to.place.peer, "snapshot")
    node = sender.up
    node.turn()
    link.logic = LinkState(None, sender.world.now_ns)
    node.peers._snapshots[link] = None
    host = node.traffic.snapshot_link_up

    def up(peer: object, at: object) -> None:
        del peer, at
        for part in (message, snapshots.End()):
            sender.send(link, encode_frame(PeerKind.SNAPSHOT, snapshots.encode(part)))

    node.traffic.snapshot_link_up = up  # type: ignore[assignment,method-assign]
    sender.end_turn()
    sender.world.run(100 * MS)
    node.traffic.snapshot_link_up = host  # type: ignore[method-assign]


def test_a_snapshot_with_members_that_cannot_be_read_closes_its_link_and_nothing_more() -> None:
    cluster = formed()
    leader, follower = cluster.leader, cluster.followers[0]
    assert leader.up.state is not None
    send_snapshot(follower, leader, begin(leader.up.state.domain.domain_id, b"\xc1"))
    assert follower.logged("a peer's message cannot be read") == 1
    assert follower.up.snapshots.receivers == {}


def test_a_leader_takes_no_snapshot() -> None:
    """Its log holds everything; its desk stands on the table that it has."""
    cluster = formed()
    leader, follower = cluster.leader, cluster.followers[0]
    state = leader.up.state
    assert state is not None
    send_snapshot(leader, follower, begin(state.domain.domain_id, state.members.encode()))
    assert leader.up.state is state
    hold(cluster, range(3))
