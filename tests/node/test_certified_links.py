"""With TLS: whose certificate is good for which place (spec 9, Peer link; docs/operations.md, Certificates)."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from tests.node.fake_shell import Cluster, FakeLink, Machine, formed
from ticketing.node.link import PeerKind, encode_frame
from ticketing.node.membership_messages import DialMe, JoinAnswer, Verdict, encode
from ticketing.node.replacement import Replacement
from ticketing.node.settings import OperatorCommand, S
from ticketing.raft.types import MS

Certify = Callable[[Machine, tuple[str, ...]], None]


@pytest.fixture
def certify(monkeypatch: pytest.MonkeyPatch) -> Certify:
    """Gives a machine a certificate for these hosts; one without is not asked for any."""
    hosts: dict[Machine, tuple[str, ...]] = {}

    def certifies(link: FakeLink, address: str) -> bool:
        if link.other is None or link.other.machine not in hosts:
            return True
        return address.rpartition(":")[0] in hosts[link.other.machine]

    monkeypatch.setattr(FakeLink, "certifies", certifies)
    return hosts.__setitem__


def speaks(at: Machine, place: str) -> bool:
    """Whether a process of that place has a proved link to this one."""
    return any(
        link.inbound and link.logic.peer is not None and link.logic.peer.place == place for link in at.links
    )


def moved(cluster: Cluster, place: str, host: str, number: int = 77) -> Machine:
    """A machine that is to take a place over from another host, as `node replace --host` prepares it."""
    home = next(machine for machine in cluster.machines if machine.place.name == place)
    addresses = {
        name: getattr(home.place, name).replace(place, host, 1) for name in ("client", "peer", "admin")
    }
    places = tuple(
        known._replace(**addresses) if known.name == place else known for known in home.settings.places
    )
    settings = msgspec.structs.replace(
        home.settings, places=places, permit="", operator_command=OperatorCommand(command_id=f"move {place}")
    )
    return Machine(cluster.world, settings, number)


def test_a_process_with_another_places_certificate_is_turned_away_and_both_say_why(certify: Certify) -> None:
    cluster = Cluster()
    a, b, c = cluster.machines
    for machine in (a, b, c):
        certify(machine, (machine.place.name,))
    certify(c, ("b",))  # stolen from b, or copied there by mistake
    cluster.start()
    cluster.world.run(5 * S)
    assert not speaks(a, "c")
    assert not cluster.serving()
    assert a.logged("peer link refused")
    said = [facts for _, event, facts in a.lines if event == "peer link refused"]
    assert any(f["reason"] == "other_certificate" and "c:6225" in str(f["detail"]) for f in said)
    theirs = [facts for _, event, facts in c.lines if event == "peer link refused"]
    assert any(facts["reason"] == "other_certificate" for facts in theirs)
    certify(c, ("c",))
    cluster.world.until(cluster.serving)


def test_a_place_moves_with_a_certificate_for_its_former_host_too(certify: Certify) -> None:
    cluster = formed()
    follower = cluster.followers[0]
    place = follower.place.name
    new = moved(cluster, place, "new")
    certify(new, ("new", place))
    new.start()
    cluster.world.until(lambda: follower.stopped is not None)
    assert follower.stopped is not None
    assert follower.stopped[0] == 12
    cluster.world.run(2 * S)
    assert new.up.raft is not None
    assert new.up.raft.configuration.is_voter(new.up.raft.me)

    # From now on it is known by its new host as well: the former name may go with the next certificate.
    certify(new, ("new",))
    for link in [link for link in new.links if not link.inbound]:
        new.up.peers.close(link, cluster.world.now_ns)
    new.end_turn()
    cluster.world.run(2 * S)
    assert speaks(cluster.leader, place)


def test_a_place_moves_to_a_host_that_another_place_has_left() -> None:
    """Nodes that have run all along know both by addresses of their files, which are those of the first day."""
    cluster = formed()
    leader, (first, second) = cluster.leader, cluster.followers
    host = first.place.name
    spare = moved(cluster, host, "spare")
    spare.start()
    cluster.world.until(lambda: first.stopped is not None)
    first.kill()
    cluster.settle()
    new = moved(cluster, second.place.name, host, 78)
    places = (spare.place if known.name == host else known for known in new.settings.places)
    new.settings = msgspec.structs.replace(new.settings, places=tuple(places))
    new.start()
    cluster.world.until(lambda: second.stopped is not None)
    cluster.world.until(
        lambda: new.up.raft is not None and new.up.raft.configuration.is_voter(new.up.raft.me)
    )
    assert leader is cluster.leader
    assert new.place.peer == first.place.peer


def test_a_voter_that_slept_while_a_place_moved_votes_for_it_though_nobody_is_left_to_tell_it_where(
    certify: Certify, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader waits for whoever is not heard from; however little it waits, no majority may be unable to elect."""
    monkeypatch.setattr(Replacement, "_another_is_missing", lambda *_: None)
    cluster = formed()
    teller, (moving, asleep) = cluster.leader, cluster.followers
    place = moving.place.name
    for machine in cluster.machines:
        certify(machine, (machine.place.name,))
    asleep.pause()
    asleep.cut = True
    new = moved(cluster, place, "new")
    certify(new, ("new", place))
    new.start()
    cluster.world.until(lambda: moving.stopped is not None)
    teller.kill()
    asleep.cut = False
    asleep.resume()
    cluster.world.until(lambda: new.up.lead is not None and new.up.lead.serving)
    assert asleep.up.traffic.addresses_of(place) == [moving.place.peer, new.place.peer]


def test_who_is_to_be_dialled_says_so_at_an_address_that_it_has_a_certificate_for(certify: Certify) -> None:
    cluster = formed()
    leader, follower = cluster.leader, cluster.followers[0]
    place, incarnation = follower.place.name, follower.up.incarnation
    certify(follower, (place,))
    link = next(link for link in leader.links if link.inbound and link.logic.peer.place == place)

    def dials_after(address: str, incarnation: int = incarnation) -> bool:
        said = encode(DialMe(place, incarnation, address))
        leader.call(lambda: leader.up.link_data(link, encode_frame(PeerKind.MEMBERSHIP, said)))
        cluster.world.run(100 * MS)
        return address in leader.up.membership.targets()

    assert not dials_after("elsewhere:6225")
    assert leader.logged("asks to be dialled at an address that it has no certificate for") == 1
    certify(follower, (place, "elsewhere"))
    assert not dials_after("elsewhere:6225", incarnation + 1)
    assert dials_after("elsewhere:6225")


def test_a_place_does_not_move_to_a_host_by_that_hosts_word_alone(certify: Certify) -> None:
    """The address that a process brings is no proof of the place: every node's certificate names some host."""
    cluster = formed()
    follower = cluster.followers[0]
    new = moved(cluster, follower.place.name, "new")
    certify(new, ("new",))
    new.start()
    cluster.world.run(10 * S)
    assert follower.stopped is None
    assert new.up.raft is None
    assert cluster.leader.logged("peer link refused")


def test_a_process_that_asks_at_an_address_that_is_not_its_own_is_not_taken(certify: Certify) -> None:
    cluster = formed()
    follower = cluster.followers[0]
    place = follower.place.name
    new = moved(cluster, place, "new")
    certify(new, (place,))
    new.start()
    cluster.world.run(10 * S)
    assert follower.stopped is None
    assert cluster.leader.logged("asks for its place at an address that it has no certificate for")


def test_a_leader_that_has_moved_is_found_by_a_process_that_knows_its_former_address(
    certify: Certify,
) -> None:
    """A host whose files were not brought up to date starts its node again while the moved place leads."""
    cluster = formed()
    moving, other = cluster.followers
    place = moving.place.name
    for machine in cluster.machines:
        certify(machine, (machine.place.name,))
    new = moved(cluster, place, "new")
    certify(new, ("new", place))
    new.start()
    cluster.world.until(lambda: moving.stopped is not None)
    cluster.world.run(2 * S)
    certify(new, ("new",))  # its certificate was signed anew since
    former = cluster.leader
    former.call(lambda: former.up.transfer(place))
    cluster.world.until(lambda: new.node is not None and new.node.lead is not None and new.node.lead.serving)
    other.kill()
    assert [known.peer for known in other.settings.places if known.name == place] == [f"{place}:6225"]
    life = other.start()
    cluster.world.until(lambda: life.raft is not None and life.raft.configuration.is_voter(life.raft.me))
    assert other.logged("dialling the leader where it is said to be") == 1
    assert life.peers.missing() == [], "a place is missed only where it is reached at none of its addresses"


def test_where_a_leader_was_said_to_be_counts_only_until_the_members_are_known(certify: Certify) -> None:
    """Or the host that a place has left since could still pass for it."""
    cluster = formed()
    leader, (teller, other) = cluster.leader, cluster.followers
    place = leader.place.name
    other.kill()
    life = other.start()
    cluster.world.until(lambda: len(life.peers.reachable()) == 2)
    peer = next(peer for peer in life.peers.reachable() if peer.place == teller.place.name)
    told = JoinAnswer(life.incarnation, Verdict.NOT_LEADING, "", place, "passing:6225")
    link = FakeLink(other, "", inbound=True, purpose="peer")
    other.call(
        lambda: life.traffic.peer_message(peer, link, PeerKind.MEMBERSHIP, encode(told), cluster.world.now_ns)
    )
    cluster.world.run(MS)
    assert "passing:6225" in life.traffic.addresses_of(place)
    cluster.world.until(lambda: life.raft is not None and life.raft.configuration.is_voter(life.raft.me))
    assert "passing:6225" not in life.traffic.addresses_of(place)


def test_whoever_sits_where_the_leader_is_said_to_be_has_to_prove_itself_like_any_peer(
    certify: Certify,
) -> None:
    cluster = formed()
    leader, (teller, other) = cluster.leader, cluster.followers
    stray = moved(cluster, leader.place.name, "stray")
    stray.settings = msgspec.structs.replace(stray.settings, peer_secrets=(b"another secret",))
    stray.start()
    other.kill()
    life = other.start()
    cluster.world.until(lambda: len(life.peers.reachable()) == 2)
    peer = next(peer for peer in life.peers.reachable() if peer.place == teller.place.name)
    lie = JoinAnswer(life.incarnation, Verdict.NOT_LEADING, "", leader.place.name, "stray:6225")
    link = FakeLink(other, "", inbound=True, purpose="peer")
    other.call(
        lambda: life.traffic.peer_message(peer, link, PeerKind.MEMBERSHIP, encode(lie), cluster.world.now_ns)
    )
    cluster.world.until(lambda: life.raft is not None and life.raft.configuration.is_voter(life.raft.me))
    refused = [facts for _, event, facts in other.lines if event == "peer link refused"]
    assert {(facts["remote"], facts["reason"]) for facts in refused} == {("stray:6225", "wrong_secret")}
