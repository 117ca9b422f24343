"""Raft thesis, chapter 4: when configurations are in force, joint majorities, who may lead."""

import pytest

from tests.raft.hand import THREE, A, B, C, D, E, Hand, change, commands, leader, only
from ticketing.raft.election import Role
from ticketing.raft.membership import ChangeRefused, swapping, with_learner, without_learner
from ticketing.raft.messages import (
    AppendEntries,
    PreVoteAnswer,
    PreVoteRequest,
    TimeoutNow,
    VoteAnswer,
    VoteRequest,
    decode_change,
)
from ticketing.raft.types import MS, Base, Configuration, ConfigurationChange, EntryKind, Member

LEARNING = with_learner(THREE, D)
JOINT = swapping(LEARNING, C, D)
FINAL = Configuration((A, B, D))


def propose(hand: Hand, configuration: Configuration, context: bytes = b"") -> int:
    index = hand.raft.propose_configuration(ConfigurationChange(configuration, context), hand.now)
    hand.turn()
    return index


def reason(hand: Hand, configuration: Configuration) -> str:
    before = hand.raft.last_index
    with pytest.raises(ChangeRefused) as refused:
        hand.raft.propose_configuration(ConfigurationChange(configuration), hand.now)
    assert hand.raft.last_index == before, "a refusal changes nothing"
    return refused.value.reason


def in_joint() -> Hand:
    """A leader with D level and the joint configuration just appended."""
    hand = leader(LEARNING)
    propose(hand, JOINT)
    return hand


# --- when a configuration is in force


def test_4_1_a_configuration_is_in_force_from_when_it_is_appended() -> None:
    hand = leader()
    index = propose(hand, LEARNING)
    assert (hand.raft.configuration, hand.raft.configuration_index) == (LEARNING, index)
    assert hand.raft.committed_configuration == THREE
    assert hand.raft.progress(D) is not None
    hand.acknowledge(B)
    assert hand.raft.committed_configuration == LEARNING


def test_4_1_on_a_follower_as_well_and_no_longer_when_its_entry_is_truncated() -> None:
    hand = Hand()
    hand.append(B, 2, (1, 1), [change(2, LEARNING)])
    assert hand.raft.configuration == LEARNING
    hand.append(C, 3, (1, 1), commands(3))
    assert (hand.raft.configuration, hand.raft.configuration_index) == (THREE, 1)


def test_4_1_the_state_machine_s_part_comes_with_the_committed_entry() -> None:
    hand = leader()
    propose(hand, LEARNING, context=b"place and addresses")
    hand.acknowledge(B)
    (entry,) = hand.output.committed
    assert entry.kind == EntryKind.CONFIGURATION
    assert decode_change(entry.data).context == b"place and addresses"
    assert entry.decoded == decode_change(entry.data)


# --- when a change is taken


def test_4_1_no_change_before_an_entry_of_the_own_term_is_committed() -> None:
    """Without it two leaders' changes could be decided by majorities that do not meet."""
    hand = Hand()
    hand.lead()
    assert reason(hand, LEARNING) == "own_term_uncommitted"
    hand.acknowledge(B)
    assert propose(hand, LEARNING)


def test_4_1_one_change_at_a_time() -> None:
    hand = leader()
    propose(hand, LEARNING)
    assert reason(hand, with_learner(LEARNING, E)) == "change_open"
    hand.acknowledge(B)
    assert propose(hand, with_learner(LEARNING, E))


def test_4_3_no_change_while_a_joint_one_is_open() -> None:
    hand = in_joint()
    hand.acknowledge(B, D)
    assert reason(hand, LEARNING) == "change_open"


def test_a_change_is_refused_for_what_it_says_and_where_nobody_leads() -> None:
    assert reason(leader(), FINAL) == "invalid"
    assert reason(Hand(), LEARNING) == "not_leader"


def test_a_change_is_refused_while_the_lead_is_given_away() -> None:
    hand = leader()
    assert hand.raft.transfer(B, hand.now) is None
    assert reason(hand, LEARNING) == "transferring"


def test_the_byte_bound_does_not_stand_against_a_change() -> None:
    hand = leader()
    hand.propose(b"x" * hand.raft.room())
    assert hand.raft.room() == 0
    assert propose(hand, LEARNING)


# --- learners


def test_4_2_1_a_learner_is_replicated_to_and_counts_in_no_majority() -> None:
    hand = leader(LEARNING)
    messages = hand.propose(b"x")
    assert [member for member, _ in only(AppendEntries, messages)] == [B, C, D]
    hand.acknowledge(D)
    assert hand.raft.commit_index == 2
    hand.acknowledge(B)
    assert hand.raft.commit_index == 3


def test_4_2_1_a_learner_that_was_given_up_is_sent_nothing_more() -> None:
    hand = leader(LEARNING)
    propose(hand, without_learner(LEARNING, D))
    assert hand.raft.progress(D) is None
    assert {member for member, _ in hand.propose(b"x")} == {B, C}


def test_f065_a_learner_does_not_campaign_however_long_it_hears_nothing() -> None:
    hand = Hand(me=D, base=LEARNING)
    hand.append(A, 2, (1, 1), commands(2))
    assert hand.wait(60_000 * MS) == []
    assert hand.raft.role is Role.FOLLOWER
    assert hand.raft.leader is None, "it does not name a leader that is gone either"


def test_f065_nor_before_its_promotion_is_in_its_log() -> None:
    hand = Hand(me=D, base=LEARNING)
    hand.append(A, 2, (1, 1), [change(2, JOINT)])
    hand.append(B, 3, (1, 1), commands(3))
    assert hand.wait(5_000 * MS) == []


# --- joint majorities


@pytest.mark.parametrize(("members", "commits"), [((D,), False), ((C,), False), ((C, D), True), ((B,), True)])
def test_4_3_a_joint_entry_needs_both_majorities(members: tuple[Member, ...], commits: bool) -> None:
    """Voters A B D, outgoing A B C. The leader, A, has it anyway; B is in both halves."""
    hand = in_joint()
    index = hand.raft.last_index
    hand.acknowledge(*members, match=index)
    assert (hand.raft.commit_index == index) is commits


def test_4_3_an_election_under_a_joint_configuration_needs_both_majorities() -> None:
    hand = Hand(me=D, base=JOINT)
    hand.campaign()
    hand.hear(A, VoteAnswer(2, granted=True))
    assert hand.plays(Role.CANDIDATE), "D and A are two of A B D, but one of A B C"
    hand.hear(C, VoteAnswer(2, granted=True))
    assert hand.plays(Role.LEADER)


def test_4_3_a_pre_vote_as_well() -> None:
    hand = Hand(me=D, base=JOINT)
    hand.time_out()
    hand.hear(A, PreVoteAnswer(1, 2, granted=True))
    assert hand.plays(Role.PRE_CANDIDATE)
    hand.hear(B, PreVoteAnswer(1, 2, granted=True))
    assert hand.plays(Role.CANDIDATE)


def test_4_3_all_voters_of_both_are_asked() -> None:
    hand = Hand(base=JOINT)
    assert [member for member, _ in only(PreVoteRequest, hand.time_out())] == [B, D, C]


def test_4_3_a_barrier_needs_both_majorities() -> None:
    hand = in_joint()
    hand.acknowledge(B, D)
    assert not hand.raft.configuration.joint
    joint = Hand(base=JOINT)
    joint.lead()
    identity = joint.raft.begin_barrier()
    joint.turn()
    joint.acknowledge(D)
    assert joint.output.barriers == []
    joint.acknowledge(C)
    assert joint.output.barriers == [identity]


def test_4_3_check_quorum_needs_both_majorities() -> None:
    hand = Hand(base=JOINT)
    hand.lead()
    for _ in range(30):
        hand.wait(50 * MS)
        if hand.raft.role is not Role.LEADER:
            break
        hand.acknowledge(D, match=1)
    assert hand.raft.role is Role.FOLLOWER, "C and B are gone: no majority of the outgoing voters"


def test_4_3_whoever_leads_when_a_joint_entry_is_committed_appends_the_final_one() -> None:
    hand = in_joint()
    messages = hand.acknowledge(B)
    assert hand.raft.configuration == FINAL
    finals = [m.entries[-1] for _, m in only(AppendEntries, messages)]
    assert {decode_change(entry.data) for entry in finals} == {ConfigurationChange(FINAL)}
    assert {member for member, _ in messages} == {B, D}, "C is no member any more"
    hand.acknowledge(D)
    assert hand.raft.committed_configuration == FINAL


def test_4_3_a_new_leader_finishes_what_it_finds() -> None:
    hand = Hand(me=B)
    hand.append(A, 2, (1, 1), [change(2, LEARNING), change(2, JOINT)], commit=2)
    hand.lead()
    assert hand.raft.configuration == JOINT
    hand.acknowledge(D, C)
    assert hand.raft.configuration == FINAL
    hand.acknowledge(D)
    assert hand.raft.committed_configuration == FINAL
    assert hand.plays(Role.LEADER)


def test_4_3_also_where_the_joint_entry_was_committed_before_its_time() -> None:
    hand = Hand(me=B)
    hand.append(A, 2, (1, 1), [change(2, LEARNING), change(2, JOINT)], commit=3)
    assert hand.raft.committed_configuration == JOINT
    hand.lead()
    hand.acknowledge(D, C)
    assert hand.raft.configuration == FINAL


# --- who leads and who is left out


def swapped_leader() -> Hand:
    """A, leading, is the one that was swapped out; the final configuration is appended."""
    hand = leader(LEARNING)
    propose(hand, swapping(LEARNING, A, D))
    hand.acknowledge(B, D)
    assert hand.raft.configuration == Configuration((D, B, C))
    return hand


def test_4_2_2_a_leader_that_is_left_out_leads_until_that_is_committed_and_does_not_count_itself() -> None:
    hand = swapped_leader()
    hand.acknowledge(B)
    assert hand.raft.commit_index == hand.raft.last_index - 1, "one of three, for A is none of them"
    assert hand.plays(Role.LEADER)


def test_4_2_2_then_it_gives_the_lead_to_the_furthest_voter_and_goes() -> None:
    hand = swapped_leader()
    hand.acknowledge(D, match=hand.raft.last_index - 1)
    messages = hand.acknowledge(B, C)
    assert only(TimeoutNow, messages) == [(B, TimeoutNow(2))]
    assert hand.raft.role is Role.FOLLOWER
    assert hand.raft.leader is None
    assert hand.wait(10_000 * MS) == [], "it does not campaign either"


def test_4_2_2_it_goes_even_where_nobody_can_take_the_lead() -> None:
    hand = swapped_leader()
    index = hand.raft.last_index
    hand.propose(b"not committed")
    messages = hand.acknowledge(B, C, match=index)
    assert only(TimeoutNow, messages) == []
    assert hand.raft.transferring == B
    assert hand.raft.propose(b"x", hand.now) == 0
    messages = hand.wait(801 * MS)
    assert only(TimeoutNow, messages) == []
    assert hand.raft.role is Role.FOLLOWER


def test_9_who_is_in_no_configuration_campaigns_only_where_its_log_is_needed() -> None:
    """B lags; only D, a learner in its own log, has what B lacks. D has to lead, without counting itself."""
    hand = Hand(me=D, base=LEARNING)
    hand.append(A, 2, (1, 1), commands(2, 2))
    hand.wait(1_000 * MS)
    assert not hand.pre_vote(B, 2, (2, 2))
    asked = hand.time_out()
    assert [member for member, _ in only(PreVoteRequest, asked)] == [A, B, C]
    hand.hear(B, PreVoteAnswer(2, 3, granted=True))
    assert hand.plays(Role.PRE_CANDIDATE), "one of three: it is no voter itself"
    hand.hear(C, PreVoteAnswer(2, 3, granted=True))
    assert hand.plays(Role.CANDIDATE)
    hand.hear(B, VoteAnswer(3, granted=True))
    assert hand.plays(Role.CANDIDATE)
    hand.hear(C, VoteAnswer(3, granted=True))
    assert hand.plays(Role.LEADER)


def test_9_such_a_leader_commits_its_first_entry_and_hands_over() -> None:
    hand = Hand(me=D, base=LEARNING)
    hand.append(A, 2, (1, 1), commands(2, 2))
    hand.time_out()
    assert not hand.vote(B, 3, (2, 2))
    hand.time_out()
    for member in (B, C):
        hand.hear(member, PreVoteAnswer(3, 4, granted=True))
    for member in (B, C):
        hand.hear(member, VoteAnswer(4, granted=True))
    messages = hand.acknowledge(B, C)
    assert hand.raft.commit_index == 4
    assert only(TimeoutNow, messages) == [(B, TimeoutNow(4))]
    assert hand.plays(Role.FOLLOWER)


def test_9_hearing_a_leader_ends_the_need() -> None:
    hand = Hand(me=D, base=LEARNING)
    hand.append(A, 2, (1, 1), commands(2, 2))
    hand.wait(1_000 * MS)
    hand.pre_vote(B, 2, (2, 2))
    hand.append(A, 2, (3, 2))
    assert hand.wait(5_000 * MS) == []


def test_9_so_does_a_snapshot() -> None:
    """What this log alone had is decided, and elsewhere too."""
    hand = Hand(me=D, base=LEARNING)
    hand.append(A, 2, (1, 1), commands(2, 2))
    hand.wait(1_000 * MS)
    hand.pre_vote(B, 2, (2, 2))
    assert hand.raft.restore(Base(30, 2, LEARNING), hand.now)
    assert hand.wait(5_000 * MS) == []


def test_9_a_vote_refused_for_the_lease_is_no_such_need() -> None:
    hand = Hand(me=D, base=LEARNING)
    hand.append(A, 2, (1, 1), commands(2, 2))
    assert not hand.vote(B, 3, (1, 1))
    assert hand.wait(5_000 * MS) == []


def test_9_votes_are_asked_under_the_newest_configuration_of_the_own_log() -> None:
    hand = Hand(me=B)
    hand.append(A, 2, (1, 1), [change(2, LEARNING), change(2, JOINT), change(2, FINAL)], commit=3)
    messages = hand.campaign()
    assert [member for member, _ in only(VoteRequest, messages)] == [A, D]
