"""A domain that is over gives way to a new one, with processes that outlived it (spec 9, Forming)."""

from __future__ import annotations

from tests.node.fake_shell import OWNER, Cluster, Machine, formed
from ticketing.node.forming_messages import Formed, decode_forming
from ticketing.node.link import PeerKind
from ticketing.node.settings import S
from ticketing.protocol import frames
from ticketing.raft import messages
from ticketing.raft.types import MS


def formed_anew() -> tuple[Cluster, str]:
    """Three of five lost; two survivors and three new processes form a domain at the operator's word."""
    cluster = formed(5)
    survivor = cluster.machines[0]
    former = survivor.up.state
    assert former is not None
    for _ in range(3):
        before = cluster.leader
        assert before.up.transfer(None) is None
        before.end_turn()
        cluster.world.until(lambda before=before: cluster.serving() not in ([], [before]))  # type: ignore[misc]
        cluster.settle()
    for machine in cluster.machines[2:]:
        machine.kill()
    cluster.world.run(2 * S)
    for machine in cluster.machines[2:]:
        machine.start()
    cluster.world.run(32 * S)
    node = survivor.up
    refusal: list[str | None] = []
    client = cluster.connect(survivor)
    survivor.call(lambda: refusal.append(node.form(first=True, first_token=0)))
    cluster.world.run(0)
    assert refusal == [None]
    cluster.settle()
    assert client.closed  # its banner had named the former domain
    assert client.word() == "E"
    return cluster, former.domain.domain_id


def test_a_survivor_takes_part_in_a_new_domain_whose_tokens_are_greater() -> None:
    cluster, former = formed_anew()
    states = [machine.up.state for machine in cluster.machines]
    assert len({state.domain.domain_id for state in states if state is not None}) == 1
    assert states[0] is not None
    assert states[0].domain.domain_id != former
    client = cluster.connect(cluster.leader)
    grant = cluster.ask(client, frames.encode_q(0, 10, OWNER + 1, b"k"), b"G")
    assert grant[1] >= states[0].domain.first_token


def test_links_of_a_survivor_that_break_later_are_made_again() -> None:
    """Its term is lower in the new domain: it is not rolled back for that."""
    cluster, _former = formed_anew()

    def cut_and_heal(machine: Machine) -> None:
        machine.cut = True
        cluster.world.run(5 * S)
        machine.cut = False
        cluster.world.run(8 * S)  # what was dialled in vain is dialled again

    cut_and_heal(cluster.machines[0])
    cluster.settle()
    for machine in cluster.machines:
        assert machine.up.peers.missing() == []
        assert len(machine.up.peers.reachable()) == 4


def test_a_session_of_the_former_domain_is_told_that_there_is_no_membership_or_leader() -> None:
    cluster = formed()
    survivor = cluster.machines[0]
    client = cluster.connect(survivor)
    for machine in cluster.machines[1:]:
        machine.kill()
    cluster.world.run(2 * S)
    client.send(frames.encode_q(5, 5, OWNER + 1, b"k"))
    cluster.world.run(50 * MS)
    assert client.word()[-1] == "V"
    client.send(frames.encode_release(7, b"k"))
    cluster.world.run(50 * MS)
    assert client.replies[-1][0] == frames.ERROR
    assert client.replies[-1][4] == b"no_leader"


def test_a_half_formed_process_takes_only_its_own_domain_for_formed() -> None:
    cluster = Cluster()
    first, second = cluster.machines[0], cluster.machines[1]

    def no_word(_place: str, kind: int, payload: bytes) -> bool:
        """All but that the domain exists."""
        return kind == PeerKind.RAFT or (
            kind == PeerKind.FORMING and isinstance(decode_forming(payload), Formed)
        )

    second.drops = no_word
    cluster.start()
    cluster.world.until(lambda: first.up.raft is not None)
    cluster.world.run(50 * MS)
    assert second.up.raft is None
    peer = next(peer for peer in second.up.peers.reachable() if peer.place == first.place.name)
    word = messages.encode(messages.StaleTerm(3))
    second.call(lambda: second.up.traffic._raft_message(peer, b"another." + word, cluster.world.now_ns))
    cluster.world.run(0)
    assert second.up.raft is None
    assert first.up.state is not None
    domain = bytes.fromhex(first.up.state.domain.domain_id)
    second.call(lambda: second.up.traffic._raft_message(peer, domain + word, cluster.world.now_ns))
    cluster.world.run(0)
    assert second.up.state is not None
    assert second.up.state.domain.domain_id == first.up.state.domain.domain_id


def test_a_domain_formed_by_an_operator_serves_after_the_longest_lease_and_not_before() -> None:
    cluster = formed()
    for machine in cluster.machines:
        machine.kill()
    cluster.world.run(S)
    for machine in cluster.machines:
        machine.start()
    cluster.world.run(5 * S)
    first = cluster.machines[0]
    first.call(lambda: first.up.form(first=False, first_token=0))
    cluster.world.until(lambda: any(machine.up.lead is not None for machine in cluster.machines), 10 * S)
    formed_ns = cluster.world.now_ns
    cluster.world.run(S)
    (leader,) = [machine for machine in cluster.machines if machine.up.lead is not None]
    clients = [cluster.connect(machine) for machine in cluster.machines]
    for client in clients:
        client.send(frames.encode_q(9, 9, OWNER + 1, b"k"))
        cluster.world.run(20 * MS)
        assert client.word() == "V"
    stray = cluster.connect(leader)
    stray.send(frames.encode_release(7, b"k"))
    cluster.world.run(20 * MS)
    assert stray.word() == "E"
    # A process that is taken in meanwhile waits as long as the others.
    late = next(machine for machine in cluster.machines if machine is not leader)
    late.kill()
    cluster.world.run(2 * S)
    late.start()
    cluster.world.run(10 * S)
    state = late.up.state
    assert state is not None
    assert state.in_quarantine(formed_ns + 249 * S)
    cluster.world.run(formed_ns + 249 * S - cluster.world.now_ns)
    assert cluster.serving() == []
    assert not any(client.said(frames.LEADER) for client in clients)
    cluster.world.run(2 * S)
    cluster.settle()
    survivors = [client for client in clients if client.machine is not late]
    assert all(client.said(frames.LEADER) for client in survivors)
    assert cluster.ask(cluster.connect(cluster.leader), frames.encode_q(0, 9, OWNER + 2, b"k"), b"GT")[0] == (
        frames.GRANTED_WAITED
    )
