"""Client sessions of a whole node: handshake, dispatch, and what a node says that does not lead (spec 3, 4)."""

from __future__ import annotations

import pytest

from tests.node.fake_shell import LATENCY_NS, OWNER, Client, Cluster, formed
from ticketing.native import is_compiled
from ticketing.node.settings import Limits, S
from ticketing.protocol import frames
from ticketing.raft.types import MS

needs_sources = pytest.mark.skipif(is_compiled(), reason="replaces a method to count its calls")


def reason(client: Client) -> bytes:
    (reply,) = client.said(frames.ERROR)
    return reply[4]


def hanging_up(cluster: Cluster, client: Client, *, by_timeout: bool = False) -> None:
    client.close(by_timeout=by_timeout)
    cluster.world.run(20 * MS)


# --- handshake


def test_the_first_line_names_the_leader_and_the_banner_the_node() -> None:
    cluster = formed()
    for machine in cluster.machines:
        client = cluster.connect(machine)
        assert client.handshake.leader == cluster.leader.place.client
        banner = client.handshake.banner
        assert banner is not None
        assert banner.node_address == machine.place.client
        assert machine.up.state is not None
        assert banner.domain == machine.up.state.domain.shown


def test_a_process_without_membership_lets_clients_in_and_answers_requests_with_not_active() -> None:
    cluster = Cluster(permit="")
    cluster.start()
    client = cluster.connect(cluster.machines[0])
    assert client.handshake.leader is None
    cluster.world.run(5 * S)
    assert not client.closed  # only in answer to a request
    client.send(frames.encode_hello(b"me") + frames.encode_q(1, 1, OWNER + 1, b"k"))
    cluster.world.run(50 * MS)
    assert reason(client) == b"not_active"


def test_a_client_may_call_itself_what_it_likes() -> None:
    cluster = formed()
    client = cluster.connect(cluster.leader)
    client.send(b"H\xff\xfe\n" + frames.encode_q(0, 9, OWNER + 1, b"k"))
    cluster.world.run(50 * MS)
    assert client.word() == "G"
    assert client.session is not None
    assert client.session.name == "\ufffd\ufffd"


def test_a_wrong_token_is_refused_a_second_later_and_anything_after_it_is_ignored() -> None:
    cluster = formed(client_tokens=("right",))
    client = cluster.leader.connect()
    cluster.world.run(20 * MS)
    client.send(frames.encode_q(1, 1, OWNER + 1, b"k"))
    cluster.world.run(500 * MS)
    assert client.handshake.outcome != "auth_failed"
    cluster.world.run(S)
    assert client.handshake.outcome == "auth_failed"
    assert cluster.leader.up.clients.counters["auth_failed"] == 1
    assert cluster.leader.up.clients.opening_count == 0


def test_who_does_not_authenticate_in_time_is_told_so() -> None:
    cluster = formed(client_tokens=("right",))
    leader = cluster.leader
    client = leader.connect()
    client.send = lambda data: None  # type: ignore[method-assign]
    cluster.world.run(50 * MS)
    session = client.session
    assert session is not None
    leader.call(lambda: leader.up.session_overdue(session))
    cluster.world.run(50 * MS)
    assert client.handshake.outcome == "auth_timeout"


def test_sessions_beyond_the_bound_are_refused_and_there_is_room_again_when_one_ends() -> None:
    cluster = formed(limits=Limits(sessions=2))
    first, _second = cluster.connect(cluster.leader), cluster.connect(cluster.leader)
    third = cluster.leader.connect()
    cluster.world.run(50 * MS)
    assert third.handshake.outcome == "too_many_sessions"
    hanging_up(cluster, first)
    assert cluster.connect(cluster.leader).ready
    assert cluster.leader.up.clients.ready_count == 2


def test_frames_behind_the_answer_in_one_segment_are_requests() -> None:
    cluster = formed()
    client = cluster.leader.connect()
    send = client.send
    client.send = lambda data: send(data + frames.encode_q(0, 5, OWNER + 1, b"k"))  # type: ignore[method-assign]
    cluster.world.run(50 * MS)
    assert client.word() == "G"


# --- requests


def test_every_request_of_a_session_is_answered_by_its_own_frame() -> None:
    cluster = formed()
    client = cluster.connect(cluster.leader)
    token = cluster.ask(client, frames.encode_acquire(0, 5, OWNER + 1, b"k"), b"A")[1]
    client.send(
        frames.encode_extend(token, 9, b"k")
        + frames.encode_q(0, 5, OWNER + 2, b"k")
        + frames.encode_acquire(300, 5, OWNER + 3, b"k")
        + frames.encode_release(token + 1, b"k")
        + frames.encode_release(token, b"k")
    )
    cluster.world.run(50 * MS)
    assert sorted(client.word()[1:]) == sorted("XTBNR")
    assert cluster.ask(client, frames.encode_cancel(OWNER + 9, b"k"), b"RN")[0] == frames.NOT_HELD


def test_a_fault_ends_the_session_behind_the_answers_to_what_came_before() -> None:
    cluster = formed()
    client = cluster.connect(cluster.leader)
    client.send(frames.encode_q(9, 0, OWNER + 1, b"k") + b"?")
    cluster.world.run(50 * MS)
    assert client.word() == "BE"
    assert reason(client) == b"bad_frame"
    assert client.closed


def test_a_grant_whose_answer_was_never_handed_to_a_transport_is_released() -> None:
    cluster = formed()
    client, other = cluster.connect(cluster.leader), cluster.connect(cluster.leader)
    client.send(frames.encode_q(0, 200, OWNER + 1, b"k"))
    cluster.world.run(LATENCY_NS)
    client.close()  # its grant is on its way through the log
    cluster.world.run(20 * MS)
    assert cluster.ask(other, frames.encode_q(0, 5, OWNER + 2, b"k"), b"GT")[0] == frames.GRANTED_WAITED


def test_a_grant_that_was_told_stays_when_its_session_ends() -> None:
    cluster = formed()
    client, other = cluster.connect(cluster.leader), cluster.connect(cluster.leader)
    cluster.ask(client, frames.encode_q(0, 200, OWNER + 1, b"k"), b"G")
    hanging_up(cluster, client)
    assert cluster.ask(other, frames.encode_q(0, 5, OWNER + 2, b"k"), b"GT")[0] == frames.TIMEOUT


def test_waiters_of_a_session_that_ends_leave_the_queue() -> None:
    cluster = formed()
    holder, gone, next_one = (cluster.connect(cluster.leader) for _ in range(3))
    token = cluster.ask(holder, frames.encode_q(0, 200, OWNER + 1, b"k"), b"G")[1]
    gone.send(frames.encode_q(99, 5, OWNER + 2, b"k"))
    cluster.world.run(5 * MS)
    next_one.send(frames.encode_q(99, 5, OWNER + 3, b"k"))
    cluster.world.run(5 * MS)
    gone.close()
    holder.send(frames.encode_release(token, b"k"))
    cluster.world.run(20 * MS)
    assert next_one.word() == "G"


# --- not leading


def test_a_follower_answers_acquires_with_not_leading_and_names_the_leader() -> None:
    cluster = formed()
    client = cluster.connect(cluster.followers[0])
    client.send(frames.encode_q(9, 9, OWNER + 1, b"k") + frames.encode_acquire(9, 9, OWNER + 2, b"k"))
    cluster.world.run(50 * MS)
    assert client.word() == "VLBL"
    assert client.said(frames.LEADER)[0][4].decode() == cluster.leader.place.client
    assert not client.closed


def test_a_follower_sends_a_session_that_wants_to_release_to_the_leader() -> None:
    cluster = formed()
    for request in (
        frames.encode_release(7, b"k"),
        frames.encode_extend(7, 9, b"k"),
        frames.encode_cancel(OWNER + 1, b"k"),
    ):
        client = cluster.connect(cluster.followers[0])
        client.send(request + frames.encode_q(9, 9, OWNER + 2, b"k"))
        cluster.world.run(50 * MS)
        assert client.word() == "M"
        assert client.said(frames.MOVED)[0][4].decode() == cluster.leader.place.client
        assert client.closed


def test_sessions_are_told_of_a_new_leader_once_it_serves() -> None:
    cluster = formed()
    clients = [cluster.connect(machine) for machine in cluster.machines]
    before = cluster.leader
    assert before.up.transfer(None) is None
    before.end_turn()
    cluster.world.until(lambda: before.up.lead is None)
    cluster.settle()
    cluster.world.run(20 * MS)
    address = cluster.leader.place.client
    assert address != before.place.client
    for client in clients:
        assert [reply[4].decode() for reply in client.said(frames.LEADER)] == [address]


def test_a_lost_lead_answers_what_was_never_proposed_and_ends_only_who_has_something_in_flight() -> None:
    cluster = formed()
    leader = cluster.leader
    waiting, queued, releasing, idle = (cluster.connect(leader) for _ in range(4))
    token = cluster.ask(releasing, frames.encode_q(0, 200, OWNER + 1, b"k"), b"G")[1]
    waiting.send(frames.encode_q(99, 5, OWNER + 2, b"k"))
    cluster.world.run(5 * MS)
    queued.send(frames.encode_q(99, 5, OWNER + 3, b"k") + frames.encode_acquire(99, 5, OWNER + 4, b"k"))
    cluster.world.run(5 * MS)
    for machine in cluster.machines:
        machine.drops = lambda _place, kind, _payload: kind == 1
    releasing.send(frames.encode_release(token, b"k"))
    cluster.world.run(10 * MS)
    cluster.world.until(lambda: leader.up.lead is None)
    cluster.world.run(20 * MS)
    assert waiting.word() == "E"  # it was proposed as the next one
    assert queued.word() == "VB"
    assert not queued.closed
    assert releasing.word() == "GE"
    assert reason(releasing) == b"no_leader"
    assert idle.word() == ""
    assert not idle.closed


def test_a_new_leader_holds_requests_until_its_first_entry_is_applied() -> None:
    cluster = formed()
    leader = cluster.leader
    target = cluster.followers[0]
    client = cluster.connect(target)
    assert leader.up.transfer(target.place.name) is None
    leader.end_turn()
    cluster.world.until(lambda: target.up.lead is not None)
    target.drops = lambda _place, kind, _payload: kind == 1
    client.send(frames.encode_q(9, 9, OWNER + 1, b"k"))
    cluster.world.run(100 * MS)
    assert client.word() == ""
    target.drops = lambda _place, _kind, _payload: False
    cluster.world.run(200 * MS)
    assert client.word() in ("GL", "LG")


@pytest.mark.parametrize("ending", ["release", "cancel"])
def test_a_release_that_a_new_leader_holds_outlives_its_session(ending: str) -> None:
    """Whoever releases and closes has said all there is to say: only what waits ends with a session."""
    cluster = formed()
    leader = cluster.leader
    target = cluster.followers[0]
    client = cluster.connect(target)
    token = cluster.ask(cluster.connect(leader), frames.encode_q(9, 200, OWNER + 1, b"k"), b"G")[1]
    assert leader.up.transfer(target.place.name) is None
    leader.end_turn()
    cluster.world.until(lambda: target.up.lead is not None)
    target.drops = lambda _place, kind, _payload: kind == 1
    said = (
        frames.encode_release(token, b"k") if ending == "release" else frames.encode_cancel(OWNER + 1, b"k")
    )
    client.send(frames.encode_q(9, 200, OWNER + 2, b"other") + said)
    cluster.world.run(20 * MS)
    assert target.up.clients.holding
    hanging_up(cluster, client)
    target.drops = lambda _place, _kind, _payload: False
    cluster.world.run(200 * MS)
    assert target is cluster.leader
    assert target.up.state is not None
    assert list(target.up.state.table.held) == []


def rest_of(cluster: Cluster, client: Client, *pieces: bytes) -> None:
    """The client's connection breaks; these bytes of it were read before that and come in turns of their own."""
    session, machine = client.session, client.machine
    assert session is not None
    client.close()
    for piece in pieces:
        machine.call(lambda piece=piece: machine.up.session_rest(session, piece))  # type: ignore[misc]
        cluster.world.run(MS)


@pytest.mark.parametrize("ending", ["release", "cancel"])
def test_of_what_was_read_before_a_session_broke_only_that_which_frees_keys_is_taken(ending: str) -> None:
    cluster = formed()
    client, watcher = cluster.connect(cluster.leader), cluster.connect(cluster.leader)
    token = cluster.ask(client, frames.encode_q(9, 200, OWNER + 1, b"k"), b"G")[1]
    kept = cluster.ask(client, frames.encode_q(9, 200, OWNER + 2, b"kept"), b"G")[1]
    written = len(client.replies)
    free = (
        frames.encode_release(token, b"k") if ending == "release" else frames.encode_cancel(OWNER + 1, b"k")
    )
    rest = (
        frames.encode_q(9, 200, OWNER + 3, b"other")
        + frames.encode_extend(kept, 250, b"kept")
        + frames.encode_acquire(0, 200, OWNER + 4, b"another")
        + free
        + frames.encode_hello(b"nobody")
        + b"?"
        + frames.encode_release(kept, b"kept")  # behind what is no frame nothing counts
    )
    rest_of(cluster, client, *(rest[at : at + 20] for at in range(0, len(rest), 20)))
    for key in (b"k", b"other", b"another"):
        assert cluster.ask(watcher, frames.encode_q(0, 9, OWNER + 5 + len(key), key), b"G")
    assert cluster.leader.up.state is not None
    assert cluster.leader.up.state.table.held[b"kept"].token == kept
    assert len(client.replies) == written


def test_what_was_read_before_a_session_broke_is_held_where_the_leader_may_not_answer_yet() -> None:
    cluster = formed(limits=Limits(held_back=2))
    leader, target = cluster.leader, cluster.followers[0]
    asking, client = cluster.connect(leader), cluster.connect(target)
    tokens = [cluster.ask(asking, frames.encode_q(9, 200, OWNER + n, b"k%d" % n), b"G")[1] for n in range(3)]
    assert leader.up.transfer(target.place.name) is None
    leader.end_turn()
    cluster.world.until(lambda: target.up.lead is not None)
    target.drops = lambda _place, kind, _payload: kind == 1
    cluster.world.run(20 * MS)
    assert target.up.clients.holding
    rest_of(cluster, client, *(frames.encode_release(token, b"k%d" % n) for n, token in enumerate(tokens)))
    target.drops = lambda _place, _kind, _payload: False
    cluster.world.run(200 * MS)
    assert target is cluster.leader
    assert target.up.state is not None
    assert list(target.up.state.table.held) == [b"k2"]  # two are the bound
    assert target.up.clients.counters["held_back_full"] == 1


def test_what_was_read_of_a_broken_session_is_void_on_a_node_that_does_not_lead() -> None:
    cluster = formed()
    token = cluster.ask(cluster.connect(cluster.leader), frames.encode_q(9, 200, OWNER + 1, b"k"), b"G")[1]
    client = cluster.connect(cluster.followers[0])
    rest_of(cluster, client, frames.encode_release(token, b"k") + frames.encode_q(0, 9, OWNER + 2, b"k"))
    assert cluster.leader.up.state is not None
    assert list(cluster.leader.up.state.table.held) == [b"k"]
    assert client.replies == []


def test_requests_held_beyond_the_bound_are_answered_at_once() -> None:
    cluster = formed(limits=Limits(held_back=3))
    leader = cluster.leader
    target = cluster.followers[0]
    client = cluster.connect(target)
    assert leader.up.transfer(target.place.name) is None
    leader.end_turn()
    cluster.world.until(lambda: target.up.lead is not None)
    target.drops = lambda _place, kind, _payload: kind == 1
    client.send(b"".join(frames.encode_q(9, 9, OWNER + n, b"k%d" % n) for n in range(1, 6)))
    cluster.world.run(100 * MS)
    assert client.word() == "VV"
    target.drops = lambda _place, _kind, _payload: False
    cluster.world.run(200 * MS)
    assert len(client.said(frames.GRANTED_WAITED)) == 3


# --- keep-alives and probes


def test_a_session_to_which_nothing_was_written_for_three_seconds_gets_a_keep_alive() -> None:
    cluster = formed()
    client = cluster.connect(cluster.followers[0])
    cluster.world.run(3 * S + 200 * MS)
    assert client.keepalives == 1
    cluster.world.run(27 * S)
    assert 10 <= client.keepalives <= 16


@needs_sources
def test_a_session_found_dead_has_the_silent_ones_of_its_host_probed_once_in_three_seconds() -> None:
    cluster = formed()
    leader = cluster.leader
    dead, dead_too = cluster.connect(leader), cluster.connect(leader)
    silent, elsewhere = cluster.connect(leader), cluster.connect(leader, "10.0.0.8")
    busy = cluster.connect(leader)
    cluster.world.run(4 * S)
    before = [client.keepalives for client in (silent, elsewhere, busy)]
    scan = leader.up.clients.tick
    leader.up.clients.tick = lambda now_ns: None  # type: ignore[method-assign]
    busy.send(frames.KEEPALIVE)
    cluster.world.run(20 * MS)
    hanging_up(cluster, dead, by_timeout=True)
    hanging_up(cluster, dead_too, by_timeout=True)
    after = [client.keepalives for client in (silent, elsewhere, busy)]
    assert [b - a for a, b in zip(before, after, strict=True)] == [1, 0, 0]
    leader.up.clients.tick = scan  # type: ignore[method-assign]


@needs_sources
def test_many_sessions_that_die_with_their_host_do_not_look_at_each_other_over_and_over() -> None:
    cluster = formed()
    leader = cluster.leader
    clients = [leader.connect() for _ in range(300)]
    cluster.world.run(4 * S)
    probes = 0
    probe = leader.up.clients.probe

    def counted(session: object) -> None:
        nonlocal probes
        probes += 1
        probe(session)  # type: ignore[arg-type]

    leader.up.clients.probe = counted  # type: ignore[method-assign]
    for client in clients[:200]:
        client.close(by_timeout=True)
        cluster.world.run(MS)
    cluster.world.run(S)
    assert 100 <= probes <= 300


def test_a_slow_session_is_told_so_and_what_it_waited_for_goes_to_the_next() -> None:
    cluster = formed()
    leader = cluster.leader
    slow = cluster.connect(leader)
    session = slow.session
    assert session is not None
    leader.call(lambda: leader.up.session_slow(session))
    cluster.world.run(20 * MS)
    assert reason(slow) == b"slow_consumer"
