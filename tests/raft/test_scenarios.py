"""Field reports played through in a network; `Network` asserts what is safe after every event."""

from __future__ import annotations

import random
from functools import partial

import pytest

from tests.raft.network import Network, Process, S
from ticketing.raft.election import Role
from ticketing.raft.membership import swapping, with_learner
from ticketing.raft.messages import (
    AppendEntries,
    PreVoteRequest,
    TimeoutNow,
    VoteRequest,
    WireEntry,
    encode_change,
)
from ticketing.raft.types import MS, Base, Configuration, ConfigurationChange, EntryKind, Member, RaftSettings


def others(network: Network, member: Member) -> list[Member]:
    return [other for other in network.processes if other != member]


def led_by_another(network: Network, than: Process) -> bool:
    leader = network.leader()
    return leader is not None and leader is not than and leader.raft.own_term_committed


def followers(network: Network) -> list[Process]:
    return [process for process in network.running() if process.raft.role is not Role.LEADER]


def serving(network: Network) -> bool:
    leader = network.leader()
    return leader is not None and leader.raft.own_term_committed


def decide(network: Network, within_ns: int = 5 * S) -> None:
    """A proposal made now is decided."""
    leader = network.run_to_leader(within_ns)
    index = network.propose(leader)
    assert network.run(within_ns, lambda: network.highest_decided >= index)


def take_in(network: Network) -> Member:
    """The leader takes a blank process in as a learner."""
    leader = network.run_to_leader()
    learner = network.start_blank()
    change(network, with_learner(leader.raft.configuration, learner))
    return learner


def change(network: Network, configuration: Configuration) -> None:
    leader = network.run_to_leader()
    leader.raft.propose_configuration(ConfigurationChange(configuration), leader.now())
    network.flush(leader)


def come_level(network: Network, member: Member) -> None:
    raft = network.run_to_leader().raft

    def level() -> bool:
        progress = raft.progress(member)
        return progress is not None and progress.match >= raft.commit_index > 0

    assert network.run(5 * S, level), f"{member} does not come level"


def replace(network: Network, old: Member) -> Member:
    """Replaces a voter as the node does: learner, level, joint, final."""
    learner = take_in(network)
    leader = network.run_to_leader()
    come_level(network, learner)
    change(network, swapping(leader.raft.configuration, old, learner))

    def done() -> bool:
        now = network.leader()
        return (
            now is not None
            and now.raft.committed_configuration.voters.count(learner) == 1
            and not (now.raft.committed_configuration.joint)
        )

    assert network.run(5 * S, done), "the change does not end"
    return learner


def test_f059_a_leader_without_a_majority_steps_down_and_one_clean_take_over_follows() -> None:
    network = Network(1, voters=5)
    old = network.run_to_leader()
    companion = others(network, old.member)[0]
    network.split([old.member, companion])
    decided = network.highest_decided
    cut_at = network.now

    while network.propose(old, b"x" * 1000):
        network.run(10 * MS)
    assert old.raft.role is Role.FOLLOWER
    assert network.now - cut_at <= 900 * MS
    log = old.raft._replica.log
    assert log.bytes_between(0, log.last_index) < network.settings.uncommitted_bytes_max
    new = network.run_to_leader()
    assert new.member not in (old.member, companion)
    assert all(entry.index <= decided for entry in old.applied)
    term = new.raft.term
    decide(network)
    network.run(30 * S)
    assert new.raft.term == term, "the minority side disturbs nobody"
    network.heal()
    decide(network)
    network.run(2 * S)
    assert (new.raft.role, new.raft.term) == (Role.LEADER, term)
    assert old.raft.last_index == new.raft.last_index


def test_f060_three_of_five_elect_a_leader_whatever_state_each_is_in() -> None:
    """The leader dies while one follower lags and another has just come back from a partition."""
    rounds = []
    for seed in range(60):
        network = Network(seed, voters=5)
        rng = random.Random(seed)
        leader = network.run_to_leader()
        lagging, healed, dead, _ = rng.sample(others(network, leader.member), 4)
        network.cut |= {(leader.member, lagging)}
        network.isolate(healed)
        network.run(rng.randrange(100 * MS, 3 * S))
        decide(network)
        network.heal()
        network.run(rng.randrange(0, 300 * MS))
        network.crash(dead)
        network.crash(leader.member)
        crashed_at = network.now
        network.run_to_leader(5 * S)
        rounds.append((network.now - crashed_at) / (800 * MS))
    assert max(rounds) < 3
    assert sum(needed > 2 for needed in rounds) <= 1


@pytest.mark.parametrize("deaf", [True, False])
def test_f061_a_follower_with_one_direction_cut_deposes_nobody(deaf: bool) -> None:
    network = Network(3)
    leader = network.run_to_leader()
    term = leader.raft.term
    victim = others(network, leader.member)[0]
    for other in others(network, victim):
        network.cut.add((other, victim) if deaf else (victim, other))
    for _ in range(30):
        network.run(1 * S)
        decide(network)
    assert (network.leader(), leader.raft.term) == (leader, term)
    network.heal()
    network.run(3 * S)
    assert (network.leader(), leader.raft.term) == (leader, term), "nor after healing"
    assert network.raft(victim).applied_index == leader.raft.applied_index


def test_f061_a_leader_that_hears_nobody_steps_down_and_another_follows() -> None:
    network = Network(4)
    leader = network.run_to_leader()
    for other in others(network, leader.member):
        network.cut.add((other, leader.member))
    cut_at = network.now
    assert network.run(5 * S, partial(led_by_another, network, leader))
    assert network.now - cut_at < 2500 * MS
    new = network.run_to_leader()
    term = new.raft.term
    network.run(30 * S)
    network.heal()
    network.run(3 * S)
    assert (network.leader(), new.raft.term) == (new, term)


def test_f064_a_removed_member_comes_back_and_upsets_nobody() -> None:
    network = Network(5)
    leader = network.run_to_leader()
    term = leader.raft.term
    victim = others(network, leader.member)[0]
    network.isolate(victim)
    network.run(30 * S)
    replace(network, victim)
    network.sent.clear()
    network.heal()
    for _ in range(30):
        network.run(1 * S)
        decide(network)
    assert (network.leader(), leader.raft.term) == (leader, term)
    assert network.raft(victim).term == term, "it asked, and was refused by all who hear the leader"
    assert network.sent.get("VoteRequest", 0) == 0


@pytest.mark.parametrize("voter_down", [False, True])
def test_f065_a_learner_never_leads_however_the_leader_dies(voter_down: bool) -> None:
    for seed in range(40):
        network = Network(seed)
        leader = network.run_to_leader()
        for _ in range(20):
            network.propose(leader)
        if voter_down:
            network.crash(others(network, leader.member)[0])
        learner = take_in(network)
        network.run(random.Random(seed).randrange(1, 300 * MS))
        network.crash(leader.member)

        def learner_stands(network: Network = network, learner: Member = learner) -> bool:
            return network.raft(learner).role in (Role.CANDIDATE, Role.LEADER)

        assert not network.run(4 * S, learner_stands), f"seed {seed}"
        assert serving(network) is not voter_down, f"seed {seed}"


def test_f072_a_leader_can_be_replaced_under_load_and_through_a_partition() -> None:
    for seed in range(20):
        network = Network(seed, settings=RaftSettings(log_keep_bytes=2_000))
        rng = random.Random(seed)
        leader = network.run_to_leader()
        learner = take_in(network)
        come_level(network, learner)
        cut_at = network.now + rng.randrange(1, 20 * MS)
        pair = {(leader.member, learner), (learner, leader.member)}
        network.at(cut_at, partial(network.cut.update, pair))
        network.at(cut_at + 200 * MS, network.cut.clear)
        change(network, swapping(leader.raft.configuration, leader.member, learner))
        pause = longest = 0
        for _ in range(150):
            network.run(10 * MS)
            now = network.leader()
            if now is not None and network.propose(now) and now.raft.own_term_committed:
                pause = 0
            pause += 10 * MS
            longest = max(longest, pause)
        new = network.run_to_leader()
        assert new is not leader
        assert leader.raft.role is Role.FOLLOWER
        assert learner in new.raft.committed_configuration.voters
        assert longest <= 1200 * MS, f"seed {seed}: {longest / MS} ms"


def test_f073_a_transfer_waits_for_a_lagging_target_and_is_short_when_it_can_be() -> None:
    network = Network(7)
    leader = network.run_to_leader()
    target = others(network, leader.member)[0]
    for _ in range(50):
        network.propose(leader, b"x" * 500)
    began = network.now
    assert leader.raft.transfer(target, leader.now()) is None
    network.flush(leader)
    assert network.run(1 * S, lambda: network.raft(target).own_term_committed)
    assert network.now - began < 50 * MS
    assert network.raft(target).last_index >= leader.raft.commit_index


def test_f073_a_transfer_whose_word_is_lost_ends_within_its_time() -> None:
    network = Network(8)
    leader = network.run_to_leader()
    target = others(network, leader.member)[0]
    network.drop_message = lambda _sender, _target, message: isinstance(message, TimeoutNow)
    assert leader.raft.transfer(target, leader.now()) is None
    network.flush(leader)
    network.run(799 * MS)
    assert network.propose(leader) == 0
    network.run(2 * MS)
    assert network.propose(leader) > 0
    assert network.leader() is leader


def test_f073_a_target_that_cannot_come_level_keeps_the_lead_where_it_is() -> None:
    network = Network(9)
    leader = network.run_to_leader()
    target = others(network, leader.member)[0]
    network.drop_message = lambda _sender, to, message: to == target and isinstance(message, AppendEntries)
    network.propose(leader)
    assert leader.raft.transfer(target, leader.now()) is None
    network.flush(leader)
    network.run(1 * S)
    assert network.sent.get("TimeoutNow", 0) == 0
    assert leader.raft.transferring is None
    network.drop_message = None
    decide(network)


def test_f074_a_reader_at_a_new_leader_sees_what_the_old_one_decided_last() -> None:
    for seed in range(30):
        network = Network(seed)
        leader = network.run_to_leader()
        decide(network)
        network.crash(leader.member)
        asked = 0
        for _ in range(60):
            network.run(30 * MS)
            for process in followers(network) + [p for p in network.running() if p.raft.role is Role.LEADER]:
                asked += network.begin_barrier(process) > 0
        assert asked > 0
        assert network.barriers_through > 0


def test_f078_throttled_followers_do_not_let_the_log_grow_past_the_bound() -> None:
    network = Network(11)
    network.run_to_leader()
    network.delay_ns = (100 * MS, 150 * MS)
    bound = network.settings.uncommitted_bytes_max
    for _ in range(20):
        leader = network.run_to_leader()
        while network.propose(leader, b"x" * 200_000):
            pass
        for process in network.running():
            log = process.raft._replica.log
            assert log.bytes_between(process.raft.commit_index, log.last_index) <= bound
        leader.raft.transfer(others(network, leader.member)[0], leader.now())
        network.flush(leader)
        network.run(300 * MS)
    network.heal()
    network.delay_ns = (1 * MS, 2 * MS)
    decide(network)


def test_a_crashed_leader_whose_links_are_refused_is_replaced_in_a_quarter_of_a_second() -> None:
    waits = []
    for seed in range(50):
        network = Network(seed)
        leader = network.run_to_leader()
        network.run(500 * MS)
        network.crash(leader.member)
        crashed_at = network.now
        network.run(1 * MS)
        for process in network.running():
            process.raft.leader_gone(process.now())
            network.flush(process)
        network.run_to_leader()
        waits.append(network.now - crashed_at)
    assert sorted(waits)[len(waits) // 2] < 100 * MS
    assert sum(wait > 250 * MS for wait in waits) <= 3


def test_a_dead_voter_is_replaced_by_a_blank_process_without_a_pause() -> None:
    network = Network(12)
    leader = network.run_to_leader()
    for _ in range(200):
        network.propose(leader)
        network.run(1 * MS)
    term = leader.raft.term
    victim = others(network, leader.member)[0]
    network.crash(victim)
    learner = replace(network, victim)
    decide(network)
    network.run(200 * MS)
    assert leader.raft.term == term
    assert network.raft(learner).applied_index == leader.raft.applied_index
    # And its vote counts: with the leader gone as well, it and the last one go on.
    network.crash(leader.member)
    decide(network)


def test_all_three_can_be_replaced_one_after_the_other() -> None:
    network = Network(13)
    for old in list(network.processes):
        leader = network.run_to_leader()
        if leader.member == old:
            leader.raft.transfer(others(network, old)[-1], leader.now())
            network.flush(leader)
            assert network.run(2 * S, partial(led_by_another, network, leader))
        replace(network, old)
        network.crash(old)
        decide(network)
    leader = network.run_to_leader()
    assert [voter.node_id for voter in leader.raft.configuration.voters] == [4, 5, 6]


def test_a_quiet_cluster_sends_heartbeats_and_nothing_else() -> None:
    network = Network(14)
    network.run_to_leader()
    network.run(1 * S)
    network.sent.clear()
    network.run(10 * S)
    assert set(network.sent) == {"AppendEntries", "AppendReply"}
    assert 390 <= network.sent["AppendEntries"] <= 402


def test_a_paused_leader_that_wakes_up_deposed_answers_nothing_before_it_knows() -> None:
    """F082's kind: on waking it must not act on its old lead."""
    network = Network(15)
    old = network.run_to_leader()
    network.stop(old.member)
    network.run(3 * S)
    new = network.run_to_leader()
    assert new is not old
    network.go_on(old.member)
    assert not old.raft.confirmed
    network.run(200 * MS)
    assert old.raft.role is Role.FOLLOWER
    assert old.raft.leader == new.member


def test_a_long_pause_of_a_follower_starts_no_election() -> None:
    network = Network(16)
    leader = network.run_to_leader()
    victim = others(network, leader.member)[0]
    network.stop(victim)
    network.run(10 * S)
    network.sent.clear()
    network.go_on(victim)
    network.run(2 * S)
    assert not {PreVoteRequest.__name__, VoteRequest.__name__} & set(network.sent)
    assert network.leader() is leader


def test_9_only_a_learner_can_lead_after_crashes_in_a_replacement_and_it_does() -> None:
    """Voters A to E, N to take E's place; A (term 2) and C (term 3) crash. Who is left, and the last entries:

    B has the joint configuration of term 2, D and E what lies before it, and N, a learner in its own log, the
    first entry of C's term. B needs N, which refuses; D and E need B, which refuses. N alone is refused by
    nobody.
    """
    network = Network(17, voters=5)
    a, b, c, d, e = network.processes
    network.crash(a)
    network.crash(c)
    n = network.start_blank()
    voters = Configuration((a, b, c, d, e))
    learning = with_learner(voters, n)
    joint = swapping(learning, e, n)

    def entry(term: int, kind: EntryKind, configuration: Configuration | None = None) -> WireEntry:
        data = b"" if configuration is None else encode_change(ConfigurationChange(configuration))
        return WireEntry(term, kind, data, 0)

    first = entry(2, EntryKind.CONFIGURATION, learning)
    network.raft(n).restore(Base(1, 1, voters), network.processes[n].now())
    for sender, term, member, entries in (
        (a, 2, b, [first, entry(2, EntryKind.CONFIGURATION, joint)]),
        (a, 2, d, [first]),
        (a, 2, e, [first]),
        (c, 3, n, [first, entry(3, EntryKind.EMPTY)]),
    ):
        process = network.processes[member]
        process.raft.step(sender, AppendEntries(term, 1, 1, 1, 2, entries), process.now())
        network.flush(process)
    led: list[Member] = []

    def voter_leads() -> bool:
        leader = network.leader()
        if leader is not None and leader.member not in led:
            led.append(leader.member)
        return leader is not None and leader.raft.own_term_committed and leader.member != n

    assert network.run(20 * S, voter_leads)
    assert led[0] == n
    assert len(led) == 2, "it hands over at once, for it is no voter"
    leader = network.run_to_leader()
    assert leader.raft.configuration == learning, "the joint configuration was never decided"
    decide(network)
