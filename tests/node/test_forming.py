"""Each rule of forming, one by one."""

from collections.abc import Callable

import msgspec
import pytest

from tests.node.forming_cluster import START_WALL_MS, Cluster
from ticketing.node.first_state import FIRST_TOKEN_MAX, QUARANTINE_S, TOKENS_PER_S, FirstState
from ticketing.node.forming_messages import (
    Decline,
    Formed,
    Promise,
    Propose,
    Record,
    Recorded,
    decode_forming,
    encode_forming,
)
from ticketing.node.forming_process import LEADERLESS_NS, RELEASE_MS
from ticketing.node.forming_proposer import ASK_NS
from ticketing.node.settings import S
from ticketing.raft.types import MS


def started(count: int = 3, *, permit: str = "permit", age_s: int = 60) -> Cluster:
    cluster = Cluster(count, permit=permit, age_s=age_s)
    cluster.start()
    cluster.connect_all()
    return cluster


def formed(count: int = 3) -> Cluster:
    cluster = started(count)
    cluster.run(2)
    assert len(cluster.formed) == 1
    return cluster


def only(cluster: Cluster) -> FirstState:
    (state,) = cluster.formed.values()
    return state


def form(cluster: Cluster, *, first: bool = False, first_token: int = 0) -> str | None:
    process = cluster.process(1)
    reason = process.forming.operator_form(first=first, first_token=first_token, now_ns=cluster.now_ns)
    process.act()
    return reason


# --- by a permit


@pytest.mark.parametrize("count", [3, 5])
def test_with_permits_all_form_one_domain_that_serves_at_once(count: int) -> None:
    cluster = started(count)
    cluster.run(2)
    state = only(cluster)
    assert [process.joined for process in cluster.processes()] == [state.domain_id] * count
    assert [(member.place, member.node_id) for member in state.members] == [
        (f"node-{number}", number) for number in range(1, count + 1)
    ]
    assert [member.incarnation for member in state.members] == [
        process.incarnation for process in cluster.processes()
    ]
    assert state.members[1][3:] == ("h2:5225", "h2:6225", "h2:7225")
    assert state.quarantine_s == 0
    assert state.permit == "permit"
    assert state.delta_ns == 500 * MS
    assert state.first_token % TOKENS_PER_S == 0
    assert abs(state.first_token // TOKENS_PER_S - START_WALL_MS // 1000 - 1000) <= 2
    assert len(state.domain_id) == 16
    assert state.domain == f"{state.first_token}.{state.domain_id}"
    for process in cluster.processes():
        assert process.machine.record == state
        assert process.forming.formed
        assert process.forming.permit == ""
        assert process.forming.waiting_for == []
        assert process.forming.state_text == "formed"


def test_without_permit_nothing_forms() -> None:
    cluster = started(permit="")
    cluster.run(100)
    assert not cluster.formed
    for process in cluster.processes():
        assert "operator" in process.forming.state_text
        assert process.forming.asks_for_place
    assert "node-2: has no valid permit" in cluster.process(1).forming.waiting_for


def _one_down(cluster: Cluster) -> None:
    cluster.kill("node-3")


def _one_link_missing(cluster: Cluster) -> None:
    cluster.cut("node-2", "node-3")


def _another_permit(cluster: Cluster) -> None:
    cluster.kill("node-3")
    cluster.machines["node-3"].permit = "another"
    cluster.start("node-3")
    cluster.connect_all()


def _no_permit(cluster: Cluster) -> None:
    cluster.kill("node-3")
    cluster.machines["node-3"].permit = ""
    cluster.start("node-3")
    cluster.connect_all()


def _another_configuration(cluster: Cluster) -> None:
    cluster.kill("node-3")
    cluster.machines["node-3"].cluster = "another"
    cluster.start("node-3")
    cluster.connect_all()


def _another_delta(cluster: Cluster) -> None:
    cluster.kill("node-3")
    cluster.machines["node-3"].delta_ns = 200 * MS
    cluster.start("node-3")
    cluster.connect_all()


def _clock_off(cluster: Cluster) -> None:
    cluster.machines["node-3"].wall_offset_ms = 501


def _clocks_off_between_others(cluster: Cluster) -> None:
    # Each within Δ of node-1, not of each other.
    cluster.machines["node-2"].wall_offset_ms = -400
    cluster.machines["node-3"].wall_offset_ms = 400


def _clock_unknown(cluster: Cluster) -> None:
    cluster.clocks_unknown.add(frozenset(("node-2", "node-3")))


def _before_release(cluster: Cluster) -> None:
    for machine in cluster.machines.values():
        machine.wall_offset_ms = RELEASE_MS - START_WALL_MS - 100_000_000


@pytest.mark.parametrize(
    ("hinder", "told"),
    [
        (_one_down, "node-3: is not connected"),
        (_one_link_missing, "node-3: is not connected with node-2"),
        (_another_permit, "node-3: has another permit"),
        (_no_permit, "node-3: has no valid permit"),
        (_another_configuration, "node-3: has another configuration"),
        (_another_delta, "has a Δ of 200 ms, node-1 one of 500 ms"),
        (_clock_off, "node-3: its clock and that of node-1 are not within Δ"),
        (_clocks_off_between_others, "are not within Δ"),
        (_clock_unknown, "not yet compared"),
        (_before_release, "node-1: its clock stands before the release"),
    ],
)
def test_what_hinders_forming_is_told(hinder: Callable[[Cluster], None], told: str) -> None:
    cluster = started()
    hinder(cluster)
    cluster.run(5)
    assert not cluster.formed
    assert not any(machine.history for machine in cluster.machines.values())
    assert told in "; ".join(cluster.process(1).forming.waiting_for)


def test_what_hindered_and_is_mended_hinders_no_more() -> None:
    cluster = started()
    _clock_unknown(cluster)
    _one_link_missing(cluster)
    cluster.run(5)
    cluster.clocks_unknown.clear()
    cluster.connect_all()
    cluster.run(2)
    only(cluster)


def test_every_place_tells_what_it_waits_for() -> None:
    cluster = started()
    assert cluster.process(2).forming.waiting_for != []
    cluster.process(2).forming.tick(cluster.now_ns, cluster.process(2).wall_ms)
    assert cluster.process(2).forming.waiting_for == ["node-1: proposes the first state"]
    cluster.cut("node-2", "node-3")
    assert cluster.process(2).forming.waiting_for == ["node-3: is not connected with node-2"]


@pytest.mark.parametrize(
    ("age_s", "quarantine_s"), [(3590, 0), (3700, QUARANTINE_S), (-3590, 0), (-3700, QUARANTINE_S)]
)
def test_a_permit_serves_at_once_within_an_hour_of_init(age_s: int, quarantine_s: int) -> None:
    cluster = started(age_s=age_s)
    cluster.run(2)
    assert only(cluster).quarantine_s == quarantine_s


def test_one_place_that_finds_the_permit_too_old_is_enough() -> None:
    cluster = Cluster(3)
    cluster.machines["node-3"].made_ms -= 3_600_000
    cluster.start()
    cluster.connect_all()
    cluster.run(2)
    assert only(cluster).quarantine_s == QUARANTINE_S


def test_two_processes_of_one_place_form_nothing() -> None:
    cluster = started()
    stray = cluster.process(3).peer()
    stray = msgspec.structs.replace(stray, facts=msgspec.structs.replace(stray.facts, incarnation=999))
    cluster.process(1).forming.peer_up(stray, cluster.now_ns)
    cluster.run(3)
    assert not cluster.formed
    assert "node-3: more than one process is up" in cluster.process(1).forming.waiting_for
    cluster.process(1).forming.peer_down(stray, cluster.now_ns)
    cluster.run(2)
    only(cluster)


# --- two rounds


def step(cluster: Cluster, sender: str, receiver: str) -> object:
    """Delivers one message and returns it."""
    message = decode_forming(cluster.links[sender, receiver][0][1])
    cluster.deliver(sender, receiver)
    return message


def test_nothing_is_written_before_all_have_promised() -> None:
    cluster = started()
    cluster.tick()
    assert isinstance(step(cluster, "node-1", "node-2"), Propose)
    assert isinstance(step(cluster, "node-2", "node-1"), Promise)
    assert not cluster.storing()
    assert cluster.busy_links() != []
    assert isinstance(step(cluster, "node-1", "node-3"), Propose)
    assert isinstance(step(cluster, "node-3", "node-1"), Promise)
    assert [process.machine.name for process in cluster.storing()] == ["node-1"]


def _up_to_own_record(cluster: Cluster) -> None:
    cluster.tick()
    for name in ("node-2", "node-3"):
        step(cluster, "node-1", name)
        step(cluster, name, "node-1")


def test_the_proposer_asks_nobody_to_write_what_it_has_not_written_itself() -> None:
    cluster = started()
    _up_to_own_record(cluster)
    assert cluster.busy_links() == []
    cluster.process(1).finish_store()
    assert isinstance(step(cluster, "node-1", "node-2"), Record)


def test_a_record_is_answered_once_it_is_on_disk_and_all_answers_form_the_domain() -> None:
    cluster = started()
    _up_to_own_record(cluster)
    cluster.process(1).finish_store()
    step(cluster, "node-1", "node-2")
    assert ("node-2", "node-1") not in cluster.busy_links()
    cluster.process(2).finish_store()
    assert isinstance(step(cluster, "node-2", "node-1"), Recorded)
    assert not cluster.process(1).forming.formed
    assert "node-3: has not recorded" in "; ".join(cluster.process(1).forming.waiting_for)
    step(cluster, "node-1", "node-3")
    cluster.process(3).finish_store()
    assert isinstance(step(cluster, "node-3", "node-1"), Recorded)
    assert cluster.process(1).forming.formed
    assert not cluster.process(2).forming.formed


def test_a_promise_lapses_with_its_link() -> None:
    cluster = started()
    _up_to_own_record(cluster)
    cluster.process(1).finish_store()
    record = decode_forming(cluster.links["node-1", "node-2"][0][1])
    cluster.cut("node-1", "node-2")
    cluster.connect("node-1", "node-2")
    cluster.links["node-1", "node-2"].clear()
    process = cluster.process(2)
    process.forming.receive(cluster.process(1).peer(), record, cluster.now_ns, process.wall_ms)
    (answer,) = process.forming.take_output().messages
    assert isinstance(answer[1], Decline)
    assert "lapsed" in answer[1].reason


def test_a_promise_holds_for_one_life_of_the_proposer() -> None:
    cluster = started()
    cluster.tick()
    step(cluster, "node-1", "node-2")
    promise = decode_forming(cluster.links["node-2", "node-1"][0][1])
    assert isinstance(promise, Promise)
    assert promise.proposer == cluster.process(1).incarnation
    cluster.kill("node-1")
    cluster.start("node-1")
    cluster.connect_all()
    cluster.tick()
    cluster.links["node-2", "node-1"].append((0, encode_forming(promise)))
    step(cluster, "node-2", "node-1")
    cluster.settle()
    cluster.run(2)
    assert only(cluster).members[0].incarnation == cluster.process(1).incarnation


@pytest.mark.parametrize(
    "change",
    [
        {"cluster": "another"},
        {"delta_ns": 1},
        {"quarantine_s": 100},
        {"first_token": 0},
        {"first_token": FIRST_TOKEN_MAX + 1},
        {"members": ()},
    ],
)
def test_an_unfit_first_state_is_not_recorded(change: dict[str, object]) -> None:
    cluster = started()
    _up_to_own_record(cluster)
    cluster.process(1).finish_store()
    record = decode_forming(cluster.links["node-1", "node-2"].pop()[1])
    assert isinstance(record, Record)
    unfit = Record(msgspec.structs.replace(record.state, **change))
    cluster.links["node-1", "node-2"].append((0, encode_forming(unfit)))
    step(cluster, "node-1", "node-2")
    assert isinstance(step(cluster, "node-2", "node-1"), Decline)
    assert not cluster.process(2).to_store
    assert cluster.process(2).forming.recorded is None


@pytest.mark.parametrize("number", [0, 1])
def test_a_first_state_of_earlier_lives_is_not_recorded(number: int) -> None:
    cluster = started()
    _up_to_own_record(cluster)
    cluster.process(1).finish_store()
    record = decode_forming(cluster.links["node-1", "node-2"].pop()[1])
    assert isinstance(record, Record)
    members = list(record.state.members)
    members[number] = members[number]._replace(incarnation=77)
    unfit = Record(msgspec.structs.replace(record.state, members=tuple(members)))
    cluster.links["node-1", "node-2"].append((0, encode_forming(unfit)))
    step(cluster, "node-1", "node-2")
    answer = step(cluster, "node-2", "node-1")
    assert isinstance(answer, Decline)
    assert "earlier life" in answer.reason


def test_a_promise_is_for_one_proposal() -> None:
    cluster = started()
    _up_to_own_record(cluster)
    cluster.process(1).finish_store()
    record = decode_forming(cluster.links["node-1", "node-2"].pop()[1])
    assert isinstance(record, Record)
    other = Record(msgspec.structs.replace(record.state, domain_id="f" * 16))
    cluster.links["node-1", "node-2"].append((0, encode_forming(other)))
    step(cluster, "node-1", "node-2")
    assert isinstance(step(cluster, "node-2", "node-1"), Decline)
    assert cluster.process(2).forming.recorded is None


def test_a_record_of_another_life_of_a_place_does_not_count() -> None:
    cluster = started()
    _up_to_own_record(cluster)
    proposer = cluster.process(1)
    state = proposer.to_store[0]
    cluster.kill("node-2")
    cluster.start("node-2")
    cluster.connect("node-1", "node-2")
    cluster.links["node-2", "node-1"].append((0, encode_forming(Recorded(state.domain_id))))
    step(cluster, "node-2", "node-1")
    proposer.finish_store()
    cluster.settle()
    assert not proposer.forming.formed


def test_others_than_the_lowest_place_are_not_obeyed() -> None:
    cluster = started()
    process = cluster.process(3)
    proposal = Propose("0" * 16, False, "permit", "digest", 500 * MS)
    process.forming.receive(cluster.process(2).peer(), proposal, cluster.now_ns, process.wall_ms)
    assert process.forming.take_output().messages == []
    lowest = cluster.process(1)
    lowest.forming.receive(cluster.process(2).peer(), proposal, cluster.now_ns, lowest.wall_ms)
    sent = lowest.forming.take_output().messages
    assert not any(isinstance(message, Promise | Decline) for _, message in sent)


def test_a_process_that_is_not_up_is_not_heard() -> None:
    cluster = started()
    process = cluster.process(2)
    stray = cluster.process(1).peer()
    stray = msgspec.structs.replace(stray, facts=msgspec.structs.replace(stray.facts, incarnation=999))
    proposal = Propose("0" * 16, False, "permit", "digest", 500 * MS)
    process.forming.receive(stray, proposal, cluster.now_ns, process.wall_ms)
    assert process.forming.take_output().messages == []


# --- broken in the middle


def test_links_that_break_while_recording_delay_and_do_not_prevent() -> None:
    cluster = started()
    _up_to_own_record(cluster)
    cluster.process(1).finish_store()
    cluster.cut("node-1", "node-2")
    cluster.run(20)
    assert not cluster.formed
    cluster.connect_all()
    cluster.run(2)
    state = only(cluster)
    assert all(process.joined == state.domain_id for process in cluster.processes())


def test_a_place_that_dies_after_its_answer_does_not_prevent() -> None:
    cluster = started()
    _up_to_own_record(cluster)
    cluster.process(1).finish_store()
    step(cluster, "node-1", "node-2")
    cluster.process(2).finish_store()
    step(cluster, "node-2", "node-1")
    cluster.kill("node-2")
    cluster.start("node-2")
    cluster.connect_all()
    cluster.settle()
    cluster.run(2)
    state = only(cluster)
    assert cluster.process(1).joined == cluster.process(3).joined == state.domain_id
    assert cluster.process(2).forming.asks_for_place


def test_a_place_that_starts_anew_before_it_recorded_ends_the_proposal() -> None:
    cluster = started()
    _up_to_own_record(cluster)
    cluster.process(1).finish_store()
    cluster.kill("node-2")
    cluster.start("node-2")
    cluster.connect_all()
    cluster.run(5)
    assert not cluster.formed
    assert "cannot be completed: node-2" in "; ".join(cluster.process(1).notes)


def test_a_proposer_that_dies_between_the_rounds_leaves_the_permits() -> None:
    cluster = started()
    cluster.tick()
    for name in ("node-2", "node-3"):
        step(cluster, "node-1", name)
    cluster.kill("node-1")
    cluster.start("node-1")
    cluster.connect_all()
    cluster.run(2)
    only(cluster)


def test_a_proposer_that_dies_while_recording_has_used_its_permit() -> None:
    cluster = started()
    _up_to_own_record(cluster)
    cluster.process(1).finish_store()
    cluster.kill("node-1")
    cluster.start("node-1")
    cluster.connect_all()
    cluster.run(20)
    assert not cluster.formed
    assert cluster.process(1).forming.permit == ""
    assert "node-1: has no valid permit" in cluster.process(2).forming.waiting_for
    assert form(cluster) is None
    cluster.run(2)
    assert only(cluster).quarantine_s == QUARANTINE_S


def test_who_missed_formed_asks_again_and_is_told() -> None:
    cluster = started()
    _up_to_own_record(cluster)
    cluster.process(1).finish_store()
    for number in (2, 3):
        step(cluster, "node-1", f"node-{number}")
        cluster.process(number).finish_store()
    step(cluster, "node-2", "node-1")
    step(cluster, "node-3", "node-1")
    assert cluster.process(1).forming.formed
    for link in cluster.links.values():
        link.clear()
    cluster.run(1)
    assert cluster.process(2).forming.formed
    assert cluster.process(3).forming.formed


def test_a_raft_message_of_the_domain_shows_that_it_formed() -> None:
    cluster = started()
    _up_to_own_record(cluster)
    cluster.process(1).finish_store()
    for number in (2, 3):
        step(cluster, "node-1", f"node-{number}")
        cluster.process(number).finish_store()
    step(cluster, "node-2", "node-1")
    step(cluster, "node-3", "node-1")
    for link in cluster.links.values():
        link.clear()
    process = cluster.process(2)
    process.forming.domain_heard("f" * 16, cluster.now_ns)
    assert not process.forming.formed
    cluster.raft_message("node-1", "node-2")
    assert process.forming.formed


def test_a_raft_message_shows_nothing_to_whom_has_not_recorded_that_domain() -> None:
    cluster = started()
    cluster.process(2).forming.domain_heard("f" * 16, cluster.now_ns)
    assert not cluster.process(2).forming.formed


# --- after a domain


def test_processes_that_all_start_anew_wait_for_the_operator() -> None:
    cluster = formed()
    for name in cluster.machines:
        cluster.kill(name)
    cluster.start()
    cluster.connect_all()
    cluster.run(60)
    assert len(cluster.formed) == 1
    assert all(process.forming.asks_for_place for process in cluster.processes())


def test_forms_first_token_rises_above_every_recorded_one() -> None:
    cluster = formed()
    before = only(cluster)
    for name in cluster.machines:
        cluster.kill(name)
    # Only one folder remembers the domain.
    for name in ("node-1", "node-2"):
        cluster.machines[name].record = None
        cluster.machines[name].permit = ""
    cluster.start()
    cluster.connect_all()
    cluster.run(2)
    assert form(cluster) is None
    cluster.run(2)
    after = list(cluster.formed.values())[-1]
    assert after.first_token == before.first_token + 2**40
    assert after.quarantine_s == QUARANTINE_S
    assert after.permit == ""


def test_the_operators_first_token_counts_if_it_is_the_greatest() -> None:
    cluster = started(permit="")
    cluster.run(1)
    assert form(cluster, first_token=2**60) is None
    cluster.run(1)
    assert only(cluster).first_token == 2**60


def test_a_smaller_number_of_the_operator_lowers_nothing() -> None:
    cluster = started(permit="")
    cluster.run(1)
    assert form(cluster, first_token=5) is None
    cluster.run(1)
    assert only(cluster).first_token > START_WALL_MS // 1000 * TOKENS_PER_S


@pytest.mark.parametrize("first_token", [-1, FIRST_TOKEN_MAX + 1])
def test_a_first_token_out_of_range_is_refused(first_token: int) -> None:
    assert "first token" in (form(started(permit=""), first_token=first_token) or "")


def test_a_domain_that_would_leave_no_tokens_is_not_formed() -> None:
    cluster = formed()
    state = msgspec.structs.replace(only(cluster), first_token=FIRST_TOKEN_MAX)
    for name in cluster.machines:
        cluster.kill(name)
    cluster.machines["node-2"].record = state
    cluster.start()
    cluster.connect_all()
    cluster.run(1)
    form(cluster)
    cluster.run(2)
    assert len(cluster.formed) == 1
    assert "above" in "; ".join(cluster.process(1).notes)


@pytest.mark.parametrize(("first", "quarantine_s"), [(False, QUARANTINE_S), (True, 0)])
def test_only_the_operators_first_skips_the_quarantine(first: bool, quarantine_s: int) -> None:
    # No record anywhere: that alone skips nothing.
    cluster = started(permit="")
    cluster.run(1)
    form(cluster, first=first)
    cluster.run(1)
    assert only(cluster).quarantine_s == quarantine_s


def test_a_form_makes_a_fresh_permit_beside_it_worthless() -> None:
    cluster = Cluster(3)
    cluster.machines["node-3"].permit = ""
    cluster.start()
    cluster.connect_all()
    cluster.run(1)
    form(cluster, first=True)
    cluster.run(1)
    only(cluster)
    for name in cluster.machines:
        cluster.kill(name)
    cluster.machines["node-3"].permit = "permit"
    cluster.start()
    cluster.connect_all()
    cluster.run(10)
    assert len(cluster.formed) == 1


def test_form_is_for_the_lowest_place() -> None:
    cluster = started(permit="")
    process = cluster.process(2)
    answer = process.forming.operator_form(first=False, first_token=0, now_ns=cluster.now_ns)
    assert "node-1" in (answer or "")


def test_form_under_a_living_leader_is_refused() -> None:
    cluster = formed()
    assert "living leader" in (form(cluster) or "")


def test_a_place_under_a_living_leader_does_not_take_part() -> None:
    cluster = formed()
    cluster.kill("node-1")
    cluster.start("node-1")
    cluster.connect_all()
    assert form(cluster) is None
    cluster.run(LEADERLESS_NS // S + 5)
    assert len(cluster.formed) == 1
    assert "node-2: has a living leader" in "; ".join(cluster.process(1).forming.waiting_for)


def test_survivors_drop_their_membership_once_they_had_no_leader_for_30_s() -> None:
    cluster = formed()
    old = only(cluster).domain_id
    for name in ("node-1", "node-2"):
        cluster.kill(name)
        cluster.start(name)
    cluster.connect_all()
    assert form(cluster) is None
    cluster.run(25)
    assert len(cluster.formed) == 1
    assert cluster.process(3).joined == old
    cluster.run(8)
    assert len(cluster.formed) == 2
    new = list(cluster.formed)[-1]
    assert all(process.joined == new for process in cluster.processes())


def test_a_domain_without_leader_says_so_after_30_s() -> None:
    cluster = formed()
    for name in ("node-1", "node-2"):
        cluster.kill(name)
    cluster.run(25)
    assert not any("no leader" in note for note in cluster.process(3).notes)
    cluster.run(8)
    assert sum("no leader for 30 s" in note for note in cluster.process(3).notes) == 1
    assert "ticketing form" in cluster.process(3).forming.state_text


def test_a_half_formed_domain_says_so_and_form_starts_over() -> None:
    cluster = started()
    _up_to_own_record(cluster)
    cluster.process(1).finish_store()
    step(cluster, "node-1", "node-2")
    cluster.process(2).finish_store()
    cluster.kill("node-3")
    cluster.start("node-3")
    cluster.connect_all()
    cluster.run(32)
    for number in (1, 2):
        assert "recorded domain" in cluster.process(number).forming.state_text
    assert form(cluster) is None
    cluster.run(2)
    state = only(cluster)
    assert all(process.joined == state.domain_id for process in cluster.processes())
    half = cluster.machines["node-1"].history[0]
    assert state.first_token == half.first_token + 2**40


def test_a_pause_of_the_process_is_no_time_without_leader() -> None:
    cluster = formed()
    for name in ("node-1", "node-2"):
        cluster.kill(name)
    cluster.tick(40 * S)
    assert not any("no leader" in note for note in cluster.process(3).notes)


def test_an_ask_that_cannot_be_followed_lapses() -> None:
    cluster = started(permit="")
    cluster.cut("node-1", "node-3")
    cluster.run(1)
    assert form(cluster) is None
    assert "operator" in cluster.process(1).forming.state_text
    cluster.run(ASK_NS // S + 2)
    assert "lapsed" in "; ".join(cluster.process(1).notes)
    assert "node-3: is not connected" in "; ".join(cluster.process(1).notes)
    cluster.connect_all()
    cluster.run(5)
    assert not cluster.formed


def test_an_operators_half_formed_domain_is_not_completed_when_the_word_is_too_old() -> None:
    cluster = started(permit="")
    cluster.run(1)
    form(cluster)
    for name in ("node-2", "node-3"):
        step(cluster, "node-1", name)
        step(cluster, name, "node-1")
    cluster.process(1).finish_store()
    cluster.cut("node-1", "node-3")
    cluster.run(ASK_NS // S + 2)
    cluster.connect_all()
    cluster.run(5)
    assert not cluster.formed
    assert "given up" in "; ".join(cluster.process(1).notes)


# --- who asks for its place


def test_a_folder_that_lost_its_record_asks_the_domain_that_used_its_permit() -> None:
    cluster = formed()
    cluster.kill("node-3")
    cluster.machines["node-3"].record = None
    cluster.start("node-3")
    assert not cluster.process(3).forming.asks_for_place
    cluster.connect_all()
    assert cluster.process(3).forming.asks_for_place
    assert cluster.take_in("node-3")
    assert not cluster.process(3).forming.asks_for_place


def test_a_half_formed_process_is_taken_in_by_the_domain_that_lived_on() -> None:
    # An operator's `form` reached one place when the old domain's leader came back.
    cluster = started(permit="")
    cluster.run(1)
    form(cluster)
    for name in ("node-2", "node-3"):
        step(cluster, "node-1", name)
        step(cluster, name, "node-1")
    cluster.process(1).finish_store()
    assert not cluster.process(1).forming.asks_for_place
    cluster.process(2).joined = cluster.process(3).joined = "a" * 16
    cluster.relink(cluster.process(2))
    cluster.relink(cluster.process(3))
    for link in cluster.links.values():
        link.clear()
    for _ in range(62):
        cluster.now_ns += S // 2
        cluster.process(1).forming.tick(cluster.now_ns, cluster.process(1).wall_ms)
    assert cluster.process(1).forming.asks_for_place
    cluster.process(1).forming.rejoined(cluster.now_ns)
    assert cluster.process(1).forming.recorded is None
    assert cluster.process(1).forming.permit == ""


# --- on the wire and on disk


def test_messages_travel() -> None:
    state = only(formed())
    for message in (
        Propose("a" * 16, True, "p", "c", 1),
        Promise("a" * 16, 2**64 - 1, 2**61, False),
        Decline("a" * 16, "why"),
        Record(state),
        Recorded("a" * 16),
        Formed("a" * 16),
    ):
        assert decode_forming(encode_forming(message)) == message


def test_a_first_state_is_kept_as_json_exactly() -> None:
    state = only(formed())
    assert msgspec.json.decode(msgspec.json.encode(state), type=FirstState) == state


@pytest.mark.parametrize("payload", [b"", b"\xc0", b"\x92\x01\xa1x", b"\x92\x63\xa1x"])
def test_what_is_no_message_is_refused(payload: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_forming(payload)
