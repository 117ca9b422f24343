"""Links between whole nodes: bad frames, silence, who is gone, whose messages count (spec 9)."""

from __future__ import annotations

import msgspec
import pytest

from tests.node.fake_shell import Cluster, FakeLink, Machine, formed
from ticketing.node.link import PeerKind, encode_frame
from ticketing.node.membership_messages import JoinAsk, decode_membership
from ticketing.node.peers import INBOUND_MAX, UNPROVED_MAX
from ticketing.node.settings import S
from ticketing.raft import messages
from ticketing.raft.types import MS


def inbound_of(machine: Machine, place: str) -> FakeLink:
    """The link on which that place's process speaks to this one."""
    return next(
        link
        for link in machine.links
        if link.inbound and link.logic.peer is not None and link.logic.peer.place == place
    )


def test_several_frames_that_cannot_be_read_close_the_link_once() -> None:
    cluster = formed()
    leader, follower = cluster.leader, cluster.followers[0]
    link = inbound_of(leader, follower.place.name)
    bad = encode_frame(PeerKind.RAFT, b"\xc1") + encode_frame(PeerKind.MEMBERSHIP, b"\xc1")
    leader.call(lambda: leader.up.link_data(link, bad + bad))
    cluster.world.run(S)
    assert leader.logged("a peer's message cannot be read") == 1
    cluster.settle()
    assert all(machine.up.peers.missing() == [] for machine in cluster.machines)


def test_a_frame_of_a_kind_that_is_not_known_is_passed_over() -> None:
    cluster = formed()
    leader, follower = cluster.leader, cluster.followers[0]
    link = inbound_of(leader, follower.place.name)
    leader.call(lambda: leader.up.link_data(link, encode_frame(77, b"?")))
    cluster.world.run(100 * MS)
    assert link.open


def test_a_machine_that_lost_its_power_has_no_link_after_a_few_seconds() -> None:
    cluster = formed()
    leader, follower = cluster.leader, cluster.followers[0]
    incarnation = follower.up.incarnation
    follower.cut = True
    follower.pause()
    cluster.world.run(4 * S)
    assert not leader.up.peers.linked(incarnation)


def test_two_links_of_one_process_leave_the_newer_one() -> None:
    """What still lies in the older one was said before anything on the newer one."""
    cluster = formed()
    leader, follower = cluster.leader, cluster.followers[0]
    old = inbound_of(leader, follower.place.name)
    own = next(link for link in follower.links if link is old.other)
    own.other = None  # its FIN does not arrive
    follower.up.turn()
    follower.up.peers.close(own, cluster.world.now_ns)
    follower.end_turn()
    cluster.world.run(S)
    assert not old.open
    assert inbound_of(leader, follower.place.name).open


def test_a_raft_message_of_another_domain_does_not_count_whoever_sends_it() -> None:
    cluster = formed()
    leader, follower = cluster.leader, cluster.followers[0]
    raft = leader.up.raft
    assert raft is not None
    link = inbound_of(leader, follower.place.name)
    term = raft.term
    message = messages.encode(messages.StaleTerm(term + 50))
    leader.call(lambda: leader.up.link_data(link, encode_frame(PeerKind.RAFT, b"another." + message)))
    cluster.world.run(100 * MS)
    assert raft.term == term
    assert link.open
    assert leader.up.state is not None
    domain = bytes.fromhex(leader.up.state.domain.domain_id)
    leader.call(lambda: leader.up.link_data(link, encode_frame(PeerKind.RAFT, domain + message)))
    cluster.world.run(MS)
    assert raft.term == term + 50


def test_a_leader_whose_process_is_gone_is_forgotten_at_once_and_one_that_is_paused_is_not() -> None:
    cluster = formed()
    leader, followers = cluster.leader, cluster.followers
    leader.pause()
    for link in list(leader.links):
        if not link.inbound:
            leader.hang_up(link)
    cluster.world.run(100 * MS)
    assert all(machine.up.raft is not None and machine.up.raft.leader is not None for machine in followers)
    former = leader.up.member
    leader.kill()
    cluster.world.run(200 * MS)
    assert all(machine.up.raft is not None and machine.up.raft.leader != former for machine in followers)


def test_nodes_that_start_one_after_the_other_do_not_wait_for_a_back_off_or_the_next_probe() -> None:
    for gap_ms in (130, 350, 900, 2_600):
        cluster = Cluster()
        for machine in cluster.machines:
            cluster.world.run(gap_ms * MS)
            machine.start()
        last_ns = cluster.world.now_ns
        cluster.world.until(cluster.serving)
        assert cluster.world.now_ns - last_ns < 400 * MS, gap_ms


def test_a_member_that_lies_loses_its_link_and_stops_nobody() -> None:
    cluster = formed()
    leader, follower = cluster.leader, cluster.followers[0]
    raft, tag = leader.up.raft, bytes.fromhex(leader.up.traffic.facts().domain)
    assert raft is not None
    lies: list[messages.Message] = [
        messages.AppendReply(raft.term, 1, raft.last_index + 1, raft.last_index + 1),
        messages.AppendRefusal(raft.term, 1 << 40, 1, 1, 1, 1),
        messages.StaleTerm((1 << 64) - 1),
    ]
    for number, lie in enumerate(lies, 1):
        link = inbound_of(leader, follower.place.name)
        frame = encode_frame(PeerKind.RAFT, tag + messages.encode(lie))
        leader.call(lambda link=link, frame=frame: leader.up.link_data(link, frame))  # type: ignore[misc]
        cluster.world.run(S)
        assert leader.logged("a peer says what cannot be true") == number
        assert not link.open
        cluster.settle()
    assert cluster.leader is leader
    assert all(machine.up.peers.missing() == [] for machine in cluster.machines)


def test_strangers_that_stand_at_the_door_keep_no_peer_out() -> None:
    cluster = formed()
    leader, follower = cluster.leader, cluster.followers[0]
    strangers = [
        FakeLink(leader, f"10.9.9.9:{port}", inbound=True, purpose="") for port in range(INBOUND_MAX + 8)
    ]
    for stranger in strangers:
        leader.links[stranger] = None
        leader.call(lambda stranger=stranger: leader.up.link_up(stranger))  # type: ignore[misc]
    own = next(link for link in follower.links if link is inbound_of(leader, follower.place.name).other)
    follower.up.turn()
    follower.up.peers.close(own, cluster.world.now_ns)
    follower.end_turn()
    cluster.world.run(S)
    assert leader.logged("too many peer links") == 0
    assert inbound_of(leader, follower.place.name).open


def test_strangers_at_the_door_are_bounded() -> None:
    cluster = formed()
    leader = cluster.leader
    for port in range(UNPROVED_MAX + 3):
        stranger = FakeLink(leader, f"10.9.9.9:{port}", inbound=True, purpose="")
        leader.call(lambda stranger=stranger: leader.up.link_up(stranger))  # type: ignore[misc]
    cluster.world.run(MS)
    assert leader.logged("too many peer links") == 3


@pytest.mark.parametrize("address", ["", "nonsense", "host:99999", "a b:1", "h:1\n", "h" * 121 + ":1", "+:1"])
def test_no_process_is_taken_in_at_an_address_that_is_none(address: str) -> None:
    """It would stand in the replicated state, and from there in banners and `L`."""
    for client, peer in ((address, "h:2"), ("h:1", address)):
        with pytest.raises((ValueError, msgspec.ValidationError)):
            JoinAsk("a", 7, client, peer, "")
    raw = msgspec.msgpack.encode([1, "a", 7, address, "h:2", "", "", "", ""])
    with pytest.raises(msgspec.ValidationError):
        decode_membership(raw)
