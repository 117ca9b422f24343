"""The order of a turn's duties, and what a leader does after its own loop stood still (spec 4, 8, 9)."""

from __future__ import annotations

import pytest

from tests.node.fake_shell import OWNER, Client, Cluster, Machine, formed
from ticketing.node.link import PeerKind, encode_frame
from ticketing.node.members import MembersChange
from ticketing.node.settings import Limits, S
from ticketing.protocol import frames
from ticketing.raft import messages
from ticketing.raft.types import MS, ConfigurationChange, Member, RaftSettings


def drop_acks(cluster: Cluster) -> None:
    """The leader hears nothing of its followers' Raft."""
    cluster.leader.drops = lambda _place, kind, _payload: kind == PeerKind.RAFT


def drop_all_to(machine: Machine) -> None:
    machine.drops = lambda _place, _kind, _payload: True


def take_all(cluster: Cluster) -> None:
    for machine in cluster.machines:
        machine.drops = lambda _place, _kind, _payload: False


def test_after_a_gap_a_leader_answers_nothing_before_a_majority_has_confirmed_it() -> None:
    cluster = formed()
    leader = cluster.leader
    client = cluster.connect(leader)
    cluster.ask(client, frames.encode_q(0, 100, OWNER + 1, b"held"), b"G")
    leader.pause()
    client.send(frames.encode_acquire(0, 10, OWNER + 2, b"held"))  # T by the table as it stands
    cluster.world.run(450 * MS)
    drop_acks(cluster)
    written = client.written
    leader.resume()
    cluster.world.run(100 * MS)
    assert client.written == written
    take_all(cluster)
    cluster.world.run(100 * MS)
    assert client.word()[:2] == "GT"


def test_a_lead_that_ends_within_a_turn_decides_nothing_more_in_it() -> None:
    cluster = formed()
    leader, node = cluster.leader, cluster.leader.up
    client = cluster.connect(leader)
    session = client.session
    assert session is not None
    assert node.raft is not None
    link = next(link for link in leader.links if link.inbound and link.logic.peer is not None)
    later = node.domain_tag + messages.encode(messages.StaleTerm(node.raft.term + 1))
    node.link_data(link, encode_frame(PeerKind.RAFT, later))
    node.session_data(session, frames.encode_q(0, 9, OWNER + 1, b"k"))
    assert node.lead is None  # though the turn goes on
    leader.end_turn()
    cluster.world.run(5 * MS)
    assert client.word()[:1] == "V"


def test_a_stop_between_the_reading_and_the_end_of_a_turn_is_a_gap_as_well() -> None:
    cluster = formed()
    leader = cluster.leader
    client = cluster.connect(leader)
    cluster.ask(client, frames.encode_q(0, 100, OWNER + 1, b"held"), b"G")
    drop_acks(cluster)
    session, node = client.session, leader.up
    assert session is not None
    node.session_data(session, frames.encode_acquire(0, 10, OWNER + 2, b"held"))
    cluster.world.now_ns += 450 * MS
    written = client.written
    leader.end_turn()
    assert node.loop_turn.gaps == 1
    assert client.written == written


def test_a_stop_in_a_turn_without_work_is_found_at_its_end() -> None:
    cluster = formed()
    leader, node = cluster.leader, cluster.leader.up
    raft = node.raft
    assert raft is not None
    drop_acks(cluster)
    link = next(link for link in leader.links if link.inbound and link.logic.peer is not None)
    known = node.domain_tag + messages.encode(messages.AppendReply(raft.term, 0, 0, raft.last_index))
    node.link_data(link, encode_frame(PeerKind.RAFT, known))
    assert not node.loop_turn.busy
    cluster.world.now_ns += 450 * MS
    leader.end_turn()
    assert node.loop_turn.gaps == 1
    assert not raft.confirmed


def test_a_grant_that_waited_for_confirmation_and_was_never_confirmed_is_not_told() -> None:
    cluster = formed()
    leader = cluster.leader
    client = cluster.connect(leader)
    client.send(frames.encode_q(0, 1, OWNER + 1, b"k"))
    cluster.world.run(2 * MS + MS // 2)  # in the followers' logs, their acknowledgements under way
    leader.pause()
    cluster.world.run(MS)
    # The acknowledgements lie in the socket of the stopped leader; meanwhile others lead, and expire the lease.
    drop_all_to(leader)
    others = [machine for machine in cluster.machines if machine is not leader]
    cluster.world.until(lambda: any(m.up.lead is not None and m.up.lead.serving for m in others))
    cluster.world.until(lambda: all(m.up.state is not None and not m.up.state.table.held for m in others))
    leader.resume()
    assert leader.up.state is not None
    assert leader.up.state.table.held  # granted, as far as is known here
    take_all(cluster)
    cluster.world.run(300 * MS)
    assert client.word() in ("E", "M")


def test_a_grant_ended_before_it_was_written_is_answered_timeout() -> None:
    cluster = formed(1)
    client = cluster.connect(cluster.leader)
    client.send(frames.encode_q(9, 9, OWNER + 1, b"k") + frames.encode_cancel(OWNER + 1, b"k"))
    cluster.world.run(50 * MS)
    assert client.word() == "TR"


def test_no_grant_is_proposed_under_a_gate_that_closed_while_the_leader_was_unconfirmed() -> None:
    cluster = formed()
    leader = cluster.leader
    first, second = cluster.connect(leader), cluster.connect(leader)
    token = cluster.ask(first, frames.encode_q(0, 100, OWNER + 1, b"k"), b"G")[1]
    second.send(frames.encode_q(200, 100, OWNER + 2, b"k"))
    cluster.world.run(20 * MS)
    drop_acks(cluster)
    first.send(frames.encode_extend(token, 200, b"k") + frames.encode_release(token, b"k"))
    cluster.world.run(20 * MS)
    for machine in cluster.machines:
        machine.pause()
    take_all(cluster)
    cluster.world.run(5 * S)  # every sample of a clock is too old now
    drop = frames.GRANTED_WAITED
    for machine in cluster.machines:
        machine.drops = lambda _place, kind, _payload: kind == PeerKind.CLOCK
    for machine in cluster.machines:
        machine.resume()
    cluster.world.run(400 * MS)
    assert second.said(drop) == []


def test_a_session_on_a_leader_that_may_not_answer_is_not_sent_to_that_leader() -> None:
    cluster = formed(limits=Limits(held_back=1))
    leader = cluster.leader
    client = cluster.connect(leader)
    leader.pause()
    client.send(frames.encode_q(9, 9, OWNER + 1, b"k") + frames.encode_release(5, b"k"))
    cluster.world.run(450 * MS)
    drop_acks(cluster)
    leader.resume()
    cluster.world.run(100 * MS)
    take_all(cluster)
    cluster.world.run(100 * MS)
    assert client.said(frames.MOVED) == []


def test_requests_held_by_a_new_leader_are_taken_up_in_slices_and_in_order() -> None:
    cluster = formed()
    leader = cluster.leader
    client = cluster.connect(leader)
    leader.pause()
    count = 5_000
    client.send(b"".join(frames.encode_q(99, 9, OWNER + n, b"k") for n in range(1, count + 1)))
    cluster.world.run(450 * MS)
    leader.resume()
    cluster.world.until(lambda: leader.up.lead is not None and leader.up.lead.serving)
    lead = leader.up.lead
    assert lead is not None
    assert lead.desk.waiting < count - 1
    client.send(frames.encode_q(0, 9, OWNER + count + 1, b"k"))
    cluster.world.run(200 * MS)
    assert lead.desk.waiting == count - 1
    answered = [reply for reply in client.replies if reply[0] != frames.LEADER]
    assert [(chr(reply[0]), reply[2]) for reply in answered] == [
        ("G", OWNER + 1),
        ("T", OWNER + count + 1),
    ]


def test_work_left_over_by_a_tick_goes_on_at_once() -> None:
    cluster = formed()
    node = cluster.leader.up
    node.turn()
    node.loop_turn.work_left = True
    node.flush()
    assert node.next_deadline_ns() - cluster.world.now_ns <= 2 * MS


@pytest.mark.parametrize("late_ms", [0, 10])
def test_a_transfer_that_is_refused_late_in_a_turn_leaves_the_gate_as_the_clocks_are_now(
    late_ms: int,
) -> None:
    """A reading of the elapsed clock from the turn's beginning says nothing about the wall clock of now."""
    cluster = formed()
    leader, node = cluster.leader, cluster.leader.up
    lead = node.lead
    assert lead is not None
    leader.wall_offset_ns = -252 * MS
    now_ns = node.turn()
    assert not lead.desk.gate_open
    cluster.world.now_ns += late_ms * MS
    assert node.leading.transfer_to(Member(99, 99), now_ns) == "not_voter"
    assert not lead.desk.gate_open


def waiters(cluster: Cluster, client: Client, count: int) -> None:
    client.send(b"".join(frames.encode_q(99, 9, OWNER + n, b"w") for n in range(1, count + 1)))
    cluster.world.run(20 * MS)


def test_many_waiters_are_told_in_slices_when_the_lead_is_lost() -> None:
    cluster = formed()
    leader = cluster.leader
    client = cluster.connect(leader)
    count = 12_000
    waiters(cluster, client, count)
    assert leader.up.transfer(None) is None
    leader.end_turn()
    cluster.world.until(lambda: leader.up.lead is None)
    cluster.world.run(0)
    assert len(client.said(frames.NOT_LEADING)) < count - 1
    cluster.world.run(300 * MS)
    assert len(client.said(frames.NOT_LEADING)) == count - 1
    assert len(client.said(frames.GRANTED_WAITED)) == 1


def test_a_proposal_that_raft_does_not_take_is_kept_and_made_later() -> None:
    settings = RaftSettings(uncommitted_bytes_max=8_192, uncommitted_bytes_reserved=1_024)
    cluster = formed(raft=settings)
    leader = cluster.leader
    client = cluster.connect(leader)
    drop_acks(cluster)
    cluster.world.run(MS)
    count = 300
    for n in range(1, count + 1):
        client.send(frames.encode_q(60, 60, OWNER + n, b"k%d" % n))
        cluster.world.run(MS)
    take_all(cluster)
    cluster.world.run(2 * S)
    assert len(client.said(frames.GRANTED_WAITED)) == count


@pytest.mark.parametrize("less", [500, 1_000, 2_000, 5_000])
def test_an_entry_larger_than_the_room_that_is_left_does_not_end_the_node(less: int) -> None:
    """Raft appends entries of its own between the beginning of a turn and its end."""
    settings = RaftSettings(uncommitted_bytes_max=8_192, uncommitted_bytes_reserved=1_024)
    cluster = formed(raft=settings)
    leader = cluster.leader
    client = cluster.connect(leader)
    session, node = client.session, leader.up
    assert session is not None
    node.turn()
    assert node.raft is not None
    requests = b"".join(frames.encode_q(60, 60, OWNER + n, b"k%d" % n) for n in range(1, 200))
    node.session_data(session, requests)
    change = MembersChange("undo", "a", 0, why="x" * (node.raft.room(reserved=True) - less))
    node.raft.propose_configuration(
        ConfigurationChange(node.raft.configuration, change.encode()), cluster.world.now_ns
    )
    leader.end_turn()
    cluster.world.run(2 * S)
    assert len(client.said(frames.GRANTED_WAITED)) == 199


def test_a_lead_that_raft_gives_away_by_itself_keeps_what_was_not_proposed() -> None:
    cluster = formed()
    leader = cluster.leader
    client = cluster.connect(leader)
    session, node = client.session, leader.up
    assert session is not None
    node.session_data(session, frames.encode_q(9, 9, OWNER + 1, b"k"))
    assert node.raft is not None
    target = next(m for m in node.raft.configuration.voters if m != node.raft.me)
    assert node.raft.transfer(target, cluster.world.now_ns) is None
    leader.end_turn()
    cluster.world.run(500 * MS)
    assert client.word()[0] == "V"


def test_requests_held_by_a_lead_that_is_lost_are_answered_in_slices() -> None:
    cluster = formed()
    leader = cluster.leader
    client = cluster.connect(leader)
    leader.pause()
    count = 5_000
    client.send(b"".join(frames.encode_q(99, 9, OWNER + n, b"k") for n in range(1, count + 1)))
    cluster.world.run(1_500 * MS)  # others lead by now
    leader.resume()
    cluster.world.until(lambda: leader.up.lead is None)
    cluster.world.run(MS + MS // 2)
    assert 0 < len(client.said(frames.NOT_LEADING)) < count
    cluster.world.run(100 * MS)
    assert len(client.said(frames.NOT_LEADING)) == count
    assert not client.closed
