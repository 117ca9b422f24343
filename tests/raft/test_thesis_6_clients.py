"""Raft thesis, section 6.2 (CheckQuorum) and 6.4 (reads); spec 9 on gaps; field reports F059, F074."""

from tests.raft.hand import FIVE, A, B, C, D, Hand, commands, leader, only
from ticketing.raft.election import Role
from ticketing.raft.messages import AppendEntries, AppendRefusal, AppendReply, PreVoteRequest
from ticketing.raft.types import MS, Configuration

# --- CheckQuorum


def test_6_2_a_leader_without_a_majority_for_800_ms_steps_down() -> None:
    hand = leader()
    began = hand.now
    hand.wait(800 * MS)
    assert hand.plays(Role.LEADER)
    hand.wait(51 * MS)
    assert hand.plays(Role.FOLLOWER)
    assert (hand.raft.leader, hand.raft.term) == (None, 2)
    assert hand.now - began <= 851 * MS


def test_6_2_a_minority_s_answers_do_not_keep_it() -> None:
    hand = leader(FIVE)
    for _ in range(20):
        hand.wait(50 * MS)
        if hand.raft.role is Role.LEADER:
            hand.acknowledge(B)
    assert hand.plays(Role.FOLLOWER)


def test_6_2_a_majority_s_answers_keep_it_refusals_too() -> None:
    hand = leader()
    for _ in range(100):
        hand.wait(50 * MS)
        round_ = hand.raft._election.lead.replication.round  # type: ignore[union-attr]
        hand.hear(B, AppendRefusal(2, round_, 2, last_index=2, hint_index=2, hint_term=2))
    assert hand.plays(Role.LEADER)


def test_6_2_being_asked_for_a_vote_is_not_being_followed() -> None:
    """The leader's outbound is dead: others campaign. Their asking must not keep it in the lead."""
    hand = leader()
    for _ in range(18):
        hand.wait(50 * MS)
        hand.hear(B, PreVoteRequest(2, 2, 2))
        hand.hear(C, PreVoteRequest(2, 2, 2))
    assert hand.plays(Role.FOLLOWER)


def test_6_2_a_learner_s_answers_do_not_keep_it() -> None:
    hand = leader(Configuration((A, B, C), learners=(D,)))
    for _ in range(18):
        hand.wait(50 * MS)
        if hand.raft.role is Role.LEADER:
            hand.acknowledge(D)
    assert hand.plays(Role.FOLLOWER)


# --- barriers


def test_6_4_a_barrier_needs_a_round_begun_after_it() -> None:
    hand = leader()
    round_ = hand.raft._election.lead.replication.round  # type: ignore[union-attr]
    identity = hand.raft.begin_barrier()
    messages = hand.turn()
    assert {m.round for _, m in only(AppendEntries, messages)} == {round_ + 1}
    hand.hear(B, AppendReply(2, round_, 2, 2))
    assert hand.output.barriers == [], "that answer was on its way already"
    hand.hear(B, AppendReply(2, round_ + 1, 2, 2))
    assert hand.output.barriers == [identity]


def test_6_4_an_answer_that_comes_late_takes_nothing_back() -> None:
    hand = leader(FIVE)
    identity = hand.raft.begin_barrier()
    hand.turn()
    hand.acknowledge(B)
    hand.hear(B, AppendReply(2, 1, 2, 2))
    hand.acknowledge(C)
    assert hand.output.barriers == [identity]


def test_6_4_a_barrier_comes_with_or_after_what_was_committed_at_its_begin() -> None:
    hand = leader()
    hand.propose(b"x")
    hand.raft.step(B, AppendReply(2, 1, 3, 3), hand.now)
    identity = hand.raft.begin_barrier()
    hand.turn()
    hand.acknowledge(C)
    assert hand.raft.applied_index >= 3
    assert hand.output.barriers == [identity]


def test_f074_a_new_leader_s_barrier_waits_for_its_first_entry() -> None:
    """What earlier leaders committed is known only then."""
    hand = Hand()
    hand.append(B, 2, (1, 1), commands(2))
    hand.lead()
    identity = hand.raft.begin_barrier()
    hand.turn()
    hand.acknowledge(B, C, match=2)
    assert hand.output.barriers == []
    assert not hand.raft.own_term_committed
    hand.acknowledge(B)
    assert hand.output.barriers == [identity]
    assert [entry.index for entry in hand.output.committed] == [2, 3]
    assert hand.raft.own_term_committed


def test_one_barrier_serves_all_who_ask_in_a_turn() -> None:
    hand = leader()
    first = hand.raft.begin_barrier()
    assert hand.raft.begin_barrier() == first
    hand.turn()
    assert hand.raft.begin_barrier() != first


def test_barriers_come_in_order_and_once() -> None:
    hand = leader()
    identities = []
    for _ in range(3):
        identities.append(hand.raft.begin_barrier())
        hand.turn()
    hand.acknowledge(B)
    assert hand.output.barriers == identities
    hand.acknowledge(C)
    assert hand.output.barriers == []


def test_barriers_are_lost_with_the_lead() -> None:
    hand = leader()
    identity = hand.raft.begin_barrier()
    hand.hear(B, AppendReply(9, 1, 0, 0))
    assert (hand.output.barriers, hand.output.barriers_lost) == ([], [identity])
    assert hand.raft.begin_barrier() == 0


def test_a_voter_alone_has_its_barrier_at_once() -> None:
    hand = Hand(base=Configuration((A,)))
    hand.time_out()
    identity = hand.raft.begin_barrier()
    hand.turn()
    assert hand.output.barriers == [identity]


# --- gaps of the own loop


def test_9_a_gap_counts_one_tick_at_most() -> None:
    hand = Hand()
    hand.append(B, 2, (1, 1))
    left = hand.raft.next_deadline_ns - hand.now
    hand.now += 30_000 * MS
    hand.raft.after_gap(30_000 * MS, hand.now)
    assert hand.raft.next_deadline_ns - hand.now == left - 50 * MS
    hand.raft.tick(hand.now)
    assert hand.plays(Role.FOLLOWER)


def test_9_the_order_of_messages_and_gap_does_not_matter() -> None:
    """What lay in the sockets may have restarted the timer already: it is not moved past a fresh wait."""
    hand = Hand()
    hand.append(B, 2, (1, 1))
    hand.now += 30_000 * MS
    hand.append(B, 2, (1, 1))
    hand.raft.after_gap(30_000 * MS, hand.now)
    assert hand.now < hand.raft.next_deadline_ns <= hand.now + 800 * MS


def test_9_a_short_gap_changes_nothing() -> None:
    hand = leader()
    hand.now += 50 * MS
    hand.raft.after_gap(50 * MS, hand.now)
    assert hand.raft.confirmed


def test_9_a_leader_does_not_step_down_for_its_own_gap_but_confirms_its_lead() -> None:
    hand = leader()
    hand.now += 5_000 * MS
    hand.raft.after_gap(5_000 * MS, hand.now)
    hand.raft.tick(hand.now)
    assert hand.plays(Role.LEADER)
    assert not hand.raft.confirmed
    messages = hand.turn()
    round_ = {m.round for _, m in only(AppendEntries, messages)}.pop()
    hand.hear(B, AppendReply(2, round_ - 1, 2, 2))
    told = [hand.raft.confirmed]
    hand.hear(B, AppendReply(2, round_, 2, 2))
    told.append(hand.raft.confirmed)
    assert told == [False, True]


def test_9_a_leaders_own_gap_is_no_members_silence_and_no_members_answer() -> None:
    hand = leader()
    before = hand.raft.progress(B)
    assert before is not None
    assert before.answered_ns == before.heard_ns == hand.now
    hand.now += 5_000 * MS
    hand.raft.after_gap(5_000 * MS, hand.now)
    after = hand.raft.progress(B)
    assert after is not None
    assert after.heard_ns > before.heard_ns
    assert after.answered_ns == before.answered_ns


def test_9_a_deposed_leader_finds_out_in_that_round() -> None:
    hand = leader()
    hand.now += 5_000 * MS
    hand.raft.after_gap(5_000 * MS, hand.now)
    hand.turn()
    hand.hear(B, AppendEntries(3, 1, 2, 2, 2, []))
    assert (hand.raft.leader, hand.raft.confirmed) == (B, False)


def test_9_a_gap_at_the_follower_does_not_end_the_lease_of_its_leader() -> None:
    hand = Hand()
    hand.append(B, 2, (1, 1))
    hand.now += 5_000 * MS
    hand.raft.after_gap(5_000 * MS, hand.now)
    assert not hand.pre_vote(C, 2, (1, 1))
