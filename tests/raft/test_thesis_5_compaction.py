"""Raft thesis, chapter 5: what a log may lose, what a snapshot says, sends and replaces."""

import pytest

from tests.raft.hand import THREE, A, B, C, D, Hand, change, commands, leader, only
from tests.raft.taking_in import LEARNING, SIZE, progress, refuse, with_blank_learner, write
from ticketing.raft import core
from ticketing.raft.election import Role
from ticketing.raft.membership import swapping
from ticketing.raft.messages import AppendEntries, AppendRefusal, AppendReply, PreVoteRequest
from ticketing.raft.progress import Flow
from ticketing.raft.types import BLANK, MS, Base, ConfigurationChange, RaftSettings

JOINT = swapping(LEARNING, C, D)

# --- what a log loses, and what it keeps of it


def test_5_1_2_applied_entries_are_kept_up_to_a_bound() -> None:
    hand = leader(settings=RaftSettings(log_keep_bytes=8 * SIZE))
    for _ in range(40):
        hand.propose(b"x" * 10)
        hand.acknowledge(B, C)
    assert 8 <= hand.raft.last_index - hand.raft.log_base_index <= 10


def test_5_1_what_is_not_committed_is_never_compacted() -> None:
    hand = leader(settings=RaftSettings(log_keep_bytes=0))
    hand.propose(*[b"x"] * 10)
    assert (hand.raft.log_base_index, hand.raft.last_index) == (2, 12)


def test_5_1_a_follower_compacts_as_well() -> None:
    hand = Hand(settings=RaftSettings(log_keep_bytes=0))
    hand.append(B, 2, (1, 1), commands(2, 2, 2), commit=3)
    assert hand.raft.log_base_index == 3
    assert hand.append(B, 2, (4, 2), [], commit=4) == AppendReply(2, 2, 4, 4)


def test_5_1_the_base_s_index_and_term_stand_for_the_entry_that_is_gone() -> None:
    """The entry before the first one that is left is compared like any other."""
    hand = Hand()
    assert hand.raft.restore(Base(10, 5, THREE), hand.now)
    assert hand.append(B, 6, (10, 4), commands(6)) == AppendRefusal(6, 1, 10, 10, 10, 5)
    assert hand.append(B, 6, (10, 5), commands(6)) == AppendReply(6, 2, 11, 11)


def test_5_1_what_lies_before_the_base_is_known_to_agree() -> None:
    hand = Hand()
    assert hand.raft.restore(Base(10, 5, THREE), hand.now)
    assert hand.append(B, 6, (8, 3), commands(5, 5, 6), commit=10) == AppendReply(6, 1, 11, 11)
    assert hand.log() == [(11, 6)]


def test_5_1_a_vote_is_given_by_the_base_where_nothing_else_is_left() -> None:
    hand = Hand()
    assert hand.raft.restore(Base(10, 5, THREE), hand.now)
    assert not hand.vote(C, 6, (9, 5))
    assert not hand.vote(C, 6, (30, 4))
    assert hand.vote(C, 6, (10, 5))


def test_5_1_2_a_long_log_is_dropped_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was kept for a member's snapshot can be a million entries: freeing them at once would stop the loop."""
    monkeypatch.setattr(core, "COMPACTED_AT_ONCE", 3)
    hand = Hand(settings=RaftSettings(log_keep_bytes=0))
    hand.append(B, 2, (1, 1), commands(*[2] * 8), commit=9)
    bases = [hand.raft.log_base_index]
    for _ in range(3):
        hand.turn()
        bases.append(hand.raft.log_base_index)
    assert bases == [4, 7, 9, 9]


def test_5_1_a_snapshot_carries_the_configuration_that_was_in_force_at_its_index() -> None:
    hand = leader()
    hand.raft.propose_configuration(ConfigurationChange(LEARNING), hand.now)
    hand.turn()
    assert hand.raft.configuration == LEARNING
    assert hand.raft.snapshot_base() == Base(2, 2, THREE), "the change is not committed"
    hand.acknowledge(B)
    assert hand.raft.snapshot_base() == Base(3, 2, LEARNING)


def test_5_1_taken_in_a_joint_configuration_it_says_so_and_the_receiver_lives_by_it() -> None:
    hand = leader(LEARNING)
    hand.raft.propose_configuration(ConfigurationChange(JOINT), hand.now)
    hand.turn()
    hand.acknowledge(B)
    base = hand.raft.snapshot_base()
    assert base.configuration == JOINT
    receiver = Hand(me=D, base=BLANK)
    assert receiver.raft.restore(base, receiver.now)
    assert receiver.raft.term == base.term
    assert [member for member, _ in only(PreVoteRequest, receiver.time_out())] == [A, B, C]


# --- the leader sends one


def test_5_1_a_blank_learner_needs_a_snapshot_and_the_node_is_told() -> None:
    hand = with_blank_learner()
    refuse(hand)
    assert hand.output.snapshots_wanted == [D]
    assert progress(hand, D).state is Flow.SNAPSHOT


def test_5_1_a_member_that_lags_further_than_the_log_reaches_gets_a_snapshot() -> None:
    hand = leader(settings=RaftSettings(log_keep_bytes=4 * SIZE, inflight_bytes_max=2 * SIZE))
    write(hand, 20)
    assert hand.raft.log_base_index > progress(hand, C).next
    assert progress(hand, C).state is Flow.SNAPSHOT
    assert progress(hand, C).next <= 5, "nothing more was sent once the window was full"
    hand.wait(50 * MS)
    assert hand.output.snapshots_wanted == [C]


def test_5_1_and_goes_on_without_one_when_it_turns_out_to_be_further() -> None:
    hand = leader(settings=RaftSettings(log_keep_bytes=4 * SIZE, inflight_bytes_max=2 * SIZE))
    write(hand, 20)
    hand.wait(50 * MS)
    hand.acknowledge(C, match=hand.raft.last_index - 1)
    assert progress(hand, C).state is Flow.REPLICATE


def test_5_1_meanwhile_it_gets_heartbeats_that_fit_any_log_and_no_entries() -> None:
    hand = with_blank_learner()
    refuse(hand)
    hand.raft.snapshot_begun(D, hand.raft.snapshot_base(), hand.now)
    hand.propose(b"x")
    beats = [m for member, m in only(AppendEntries, hand.wait(100 * MS)) if member == D]
    assert [(m.prev_index, m.entries) for m in beats] == [(0, []), (0, [])]
    blank = Hand(me=D, base=BLANK)
    assert blank.answer(A, beats[0]) == AppendReply(2, beats[0].round, 0, 0)


def test_5_1_after_the_snapshot_the_log_goes_on_from_it() -> None:
    hand = with_blank_learner()
    refuse(hand)
    base = hand.raft.snapshot_base()
    hand.raft.snapshot_begun(D, base, hand.now)
    hand.propose(b"a", b"b")
    hand.raft.snapshot_done(D, hand.now)
    messages = [m for member, m in only(AppendEntries, hand.turn()) if member == D]
    assert [(m.prev_index, len(m.entries)) for m in messages] == [(base.index, 2)]


def test_5_1_1_the_log_goes_on_while_a_snapshot_is_written() -> None:
    """It is of the moment at which it was begun, and what was committed since follows it."""
    hand = with_blank_learner()
    refuse(hand)
    base = hand.raft.snapshot_base()
    write(hand, 3)
    assert hand.raft.snapshot_begun(D, base, hand.now)
    messages = hand.acknowledge(D, match=base.index)
    assert [(m.prev_index, len(m.entries)) for _, m in only(AppendEntries, messages)] == [(base.index, 3)]


# --- the receiver


def test_5_1_a_snapshot_takes_the_place_of_a_log_without_its_base() -> None:
    hand = Hand()
    hand.append(B, 2, (1, 1), commands(2, 2))
    assert hand.raft.restore(Base(10, 5, LEARNING), hand.now)
    assert hand.log() == []
    assert (hand.raft.commit_index, hand.raft.applied_index, hand.raft.last_index) == (10, 10, 10)
    assert (hand.raft.configuration, hand.raft.last_term) == (LEARNING, 5)


def test_5_1_one_of_another_term_at_that_index_too() -> None:
    hand = Hand()
    hand.append(B, 2, (1, 1), commands(2, 2, 2))
    assert hand.raft.restore(Base(3, 5, THREE), hand.now)
    assert (hand.raft.last_index, hand.log()) == (3, [])


def test_5_1_a_log_that_contains_the_base_keeps_what_comes_after_it() -> None:
    hand = Hand()
    hand.append(B, 2, (1, 1), [*commands(2, 2), change(2, LEARNING), *commands(2)])
    assert hand.raft.restore(Base(3, 2, THREE), hand.now)
    assert hand.log() == [(4, 2), (5, 2)]
    assert (hand.raft.configuration, hand.raft.committed_configuration) == (LEARNING, THREE)
    hand.append(B, 2, (5, 2), [], commit=5)
    assert [entry.index for entry in hand.committed] == [4, 5], "and what the snapshot has is not repeated"


def test_5_1_a_snapshot_that_is_not_past_the_commit_index_changes_nothing() -> None:
    hand = Hand()
    hand.append(B, 2, (1, 1), commands(2, 2), commit=3)
    before = hand.raft.shows(), hand.log(), hand.raft.configuration
    assert not hand.raft.restore(Base(3, 2, LEARNING), hand.now)
    assert (hand.raft.shows(), hand.log(), hand.raft.configuration) == before


def test_5_1_the_leader_is_told_at_once_where_to_go_on() -> None:
    hand = Hand(me=D, base=BLANK)
    beat = AppendEntries(2, 7, 0, 0, 40, [])
    hand.hear(A, beat)
    assert hand.raft.restore(Base(30, 2, LEARNING), hand.now)
    assert hand.turn() == [(A, AppendReply(2, 7, 30, 30))]


def test_a_campaign_under_the_old_log_is_off() -> None:
    hand = Hand()
    hand.campaign()
    assert hand.raft.restore(Base(30, 2, THREE), hand.now)
    assert hand.plays(Role.FOLLOWER)
