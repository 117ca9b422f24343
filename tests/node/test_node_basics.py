"""A cluster in memory that forms, serves and hands over."""

from __future__ import annotations

from tests.node.fake_shell import OWNER, Cluster, formed
from ticketing.node.settings import S
from ticketing.protocol import frames
from ticketing.raft.types import MS


def test_a_cluster_forms_and_the_lowest_place_leads_without_waiting_for_a_timeout() -> None:
    cluster = Cluster()
    cluster.start()
    world = cluster.world
    world.until(lambda: all(machine.up.raft is not None for machine in cluster.machines))
    world.run(50 * MS)
    raft = cluster.machines[0].up.raft
    assert raft is not None
    assert raft.leader == raft.me


def test_a_free_key_is_granted_and_handed_to_the_head_of_its_queue() -> None:
    cluster = formed()
    first, second = cluster.connect(cluster.leader), cluster.connect(cluster.leader)
    grant = cluster.ask(first, frames.encode_q(10, 10, OWNER + 1, b"k"), b"G")
    second.send(frames.encode_q(10, 10, OWNER + 2, b"k"))
    cluster.world.run(S)
    assert second.replies == []
    first.send(frames.encode_release(grant[1], b"k"))
    cluster.world.run(20 * MS)
    assert first.word() == "GR"
    (handed,) = second.said(frames.GRANTED_WAITED)
    assert handed[1] == grant[1] + 1
    assert 1_000 <= handed[3] <= 1_010


def test_a_standalone_node_serves() -> None:
    cluster = formed(1)
    client = cluster.connect(cluster.leader)
    assert client.handshake.leader == cluster.leader.place.client
    cluster.world.run(5 * S)
    assert cluster.ask(client, frames.encode_acquire(0, 10, OWNER + 1, b"k"), b"A")[2] == OWNER + 1


def test_a_standalone_node_names_itself_before_it_serves_and_holds_what_comes() -> None:
    cluster = Cluster(1)
    cluster.start()
    machine = cluster.machines[0]
    client = machine.connect()
    client.machine.world.until(lambda: client.ready)
    assert client.handshake.leader == machine.place.client
    client.send(frames.encode_q(0, 10, OWNER + 1, b"k"))
    cluster.world.until(lambda: client.said(frames.GRANTED_WAITED))
    assert client.word() == "G"


def test_a_turn_that_proposes_much_makes_several_entries_and_every_request_is_answered() -> None:
    cluster = formed()
    client = cluster.connect(cluster.leader)
    count = 4_000
    keys = [b"%0100d" % number for number in range(count)]
    before = cluster.leader.up.raft
    assert before is not None
    index = before.last_index
    client.send(b"".join(frames.encode_q(10, 10, OWNER + n, key) for n, key in enumerate(keys)))
    cluster.world.until(lambda: len(client.said(frames.GRANTED_WAITED)) == count)
    raft = cluster.leader.up.raft
    assert raft is not None
    assert 2 <= raft.last_index - index <= 10
    assert [reply[4] for reply in client.replies] == keys


def test_a_killed_leader_is_replaced_in_a_fraction_of_the_timeout_and_leases_go_on() -> None:
    cluster = formed()
    leader = cluster.leader
    client = cluster.connect(leader)
    token = cluster.ask(client, frames.encode_q(0, 10, OWNER + 1, b"k"), b"G")[1]
    granted_ns = cluster.world.now_ns
    leader.kill()
    before_ns = cluster.world.now_ns
    cluster.world.until(lambda: cluster.serving())
    assert cluster.world.now_ns - before_ns < 300 * MS
    cluster.settle()
    other = cluster.connect(cluster.leader)
    grant = cluster.ask(other, frames.encode_q(30, 10, OWNER + 2, b"k"), b"G")
    assert grant[1] > token
    assert 10 * S <= cluster.world.now_ns - granted_ns + 10 * MS < 11 * S
