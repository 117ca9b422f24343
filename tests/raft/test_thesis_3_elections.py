"""Raft thesis, section 3.3 (terms), 3.4 (elections) and 3.6.1 (who may be elected)."""

import pytest

from tests.raft.hand import FIVE, THREE, A, B, C, D, E, Hand, commands, leader, only
from ticketing.raft.core import Raft
from ticketing.raft.election import Role
from ticketing.raft.messages import (
    AppendEntries,
    AppendReply,
    PreVoteAnswer,
    StaleTerm,
    VoteAnswer,
    VoteRequest,
)
from ticketing.raft.types import BLANK, MS, Configuration, RaftSettings


def test_3_3_a_later_term_makes_a_leader_a_follower() -> None:
    hand = leader()
    hand.hear(B, AppendReply(hand.raft.term + 3, 1, 0, 0))
    assert hand.raft.role is Role.FOLLOWER
    assert hand.raft.term == 5
    assert hand.raft.leader is None
    assert hand.raft.vote is None
    assert hand.output.role_changed


def test_3_3_a_candidate_that_hears_a_later_term_becomes_a_follower() -> None:
    hand = Hand()
    hand.campaign()
    hand.hear(B, VoteAnswer(9, granted=False))
    assert (hand.raft.role, hand.raft.term) == (Role.FOLLOWER, 9)


def test_3_3_a_leader_of_an_earlier_term_is_told_the_term() -> None:
    hand = Hand(term=5)
    assert hand.answer(B, AppendEntries(4, 1, 1, 1, 0, [])) == StaleTerm(5)
    assert hand.raft.leader is None


def test_3_3_answers_of_an_earlier_term_are_ignored_without_an_answer() -> None:
    hand = leader()
    before = hand.raft.commit_index
    assert hand.hear(B, AppendReply(1, 9, 2, 2), VoteAnswer(1, granted=True)) == []
    assert hand.raft.commit_index == before


def test_3_4_everybody_starts_as_a_follower_that_waits() -> None:
    hand = Hand()
    assert hand.raft.role is Role.FOLLOWER
    assert hand.wait(400 * MS) == []


def test_3_4_timeouts_are_drawn_anew_from_above_400_to_800_ms_for_each_wait() -> None:
    hand = Hand()
    waits = []
    for _ in range(300):
        hand.append(B, 2, (1, 1))
        waits.append(hand.raft.next_deadline_ns - hand.now)
    assert min(waits) > 400 * MS
    assert max(waits) <= 800 * MS
    assert len(set(waits)) > 290
    assert max(waits) - min(waits) > 390 * MS


def test_3_4_heartbeats_keep_a_follower_waiting() -> None:
    hand = Hand()
    for _ in range(100):
        hand.append(B, 2, (1, 1))
        assert hand.wait(50 * MS) == []
    assert hand.raft.role is Role.FOLLOWER


def test_3_4_a_candidate_votes_for_itself_in_the_next_term_and_asks_the_others() -> None:
    hand = Hand()
    messages = hand.campaign()
    assert (hand.raft.term, hand.raft.vote) == (2, A)
    assert messages == [(member, VoteRequest(2, 1, 1, False)) for member in (B, C)]


@pytest.mark.parametrize(
    ("configuration", "votes", "wins"),
    [
        (THREE, [B], True),
        (THREE, [], False),
        (FIVE, [B], False),
        (FIVE, [B, E], True),
    ],
)
def test_3_4_a_majority_of_the_votes_makes_a_leader(
    configuration: Configuration, votes: list[tuple[int, int]], wins: bool
) -> None:
    hand = Hand(base=configuration)
    hand.campaign()
    for voter in (B, C, D, E):
        if voter in votes:
            hand.hear(voter, VoteAnswer(2, granted=True))
    assert (hand.raft.role is Role.LEADER) is wins


def test_3_4_one_voter_s_answer_counts_once_however_often_it_comes() -> None:
    hand = Hand(base=FIVE)
    hand.campaign()
    hand.hear(B, VoteAnswer(2, granted=True), VoteAnswer(2, granted=True))
    assert hand.raft.role is Role.CANDIDATE


def test_3_4_votes_of_others_than_the_voters_count_for_nothing() -> None:
    hand = Hand(base=Configuration((A, B, C), learners=(D,)))
    hand.campaign()
    hand.hear(D, VoteAnswer(2, granted=True))
    hand.hear(E, VoteAnswer(2, granted=True))
    assert hand.raft.role is Role.CANDIDATE


def test_3_4_votes_of_an_earlier_election_do_not_count() -> None:
    hand = Hand()
    hand.campaign()
    hand.campaign()
    hand.hear(B, VoteAnswer(2, granted=True))
    assert (hand.raft.role, hand.raft.term) == (Role.CANDIDATE, 3)


def test_3_4_a_candidate_without_a_majority_starts_over_in_time() -> None:
    hand = Hand()
    hand.campaign()
    deadline = hand.raft.next_deadline_ns
    assert 400 * MS < deadline - hand.now <= 800 * MS
    hand.campaign()
    assert hand.raft.term == 3


def test_3_4_a_candidate_that_hears_the_leader_of_its_term_follows_it() -> None:
    hand = Hand()
    hand.campaign()
    hand.append(B, 2, (1, 1))
    assert (hand.raft.role, hand.raft.leader, hand.raft.vote) == (Role.FOLLOWER, B, A)


def test_3_4_a_refused_candidate_stands_down_as_soon_as_it_cannot_win() -> None:
    hand = Hand()
    hand.campaign()
    hand.hear(B, VoteAnswer(2, granted=False))
    assert hand.plays(Role.CANDIDATE)
    hand.hear(C, VoteAnswer(2, granted=False))
    assert hand.plays(Role.FOLLOWER)


def test_3_4_one_vote_a_term_first_come_first_served() -> None:
    hand = Hand()
    assert hand.vote(B, 2, (1, 1))
    assert not hand.vote(C, 2, (1, 1))
    assert hand.vote(B, 2, (1, 1)), "the same candidate may ask again: its answer may have been lost"
    assert hand.vote(C, 3, (1, 1)), "another term, another vote"


def test_3_4_no_vote_in_a_term_that_has_a_leader() -> None:
    hand = Hand()
    hand.append(B, 2, (1, 1))
    hand.wait(399 * MS)
    assert not hand.vote(C, 2, (5, 2), transfer=True)


def test_3_4_giving_a_vote_restarts_the_timer_refusing_it_does_not() -> None:
    hand = Hand()
    hand.now += 300 * MS
    before = hand.raft.next_deadline_ns
    hand.vote(B, 2, (0, 0))  # refused for its log; only the new term is taken note of
    again = hand.raft.next_deadline_ns
    assert again > before, "a new term starts a new wait"
    hand.now += 100 * MS
    assert not hand.vote(C, 2, (0, 0))
    assert hand.raft.next_deadline_ns == again
    hand.now += 100 * MS
    assert hand.vote(C, 2, (1, 1))
    assert hand.raft.next_deadline_ns > hand.now + 400 * MS


def test_3_4_a_new_leader_shows_itself_at_once() -> None:
    hand = Hand()
    messages = hand.lead()
    assert [member for member, _ in only(AppendEntries, messages)] == [B, C]
    assert hand.raft.leader == A


def test_3_4_a_voter_alone_elects_itself_at_once() -> None:
    hand = Hand(base=Configuration((A,)))
    assert hand.raft.next_deadline_ns == hand.now
    hand.time_out()
    assert hand.raft.role is Role.LEADER
    assert hand.raft.own_term_committed
    assert [entry.index for entry in hand.committed] == [2]


@pytest.mark.parametrize(
    ("last", "granted"),
    [
        ((3, 2), True),
        ((4, 2), True),
        ((2, 2), False),
        ((2, 3), True),
        ((9, 1), False),
        ((1, 1), False),
    ],
)
def test_3_6_1_a_vote_goes_to_a_log_at_least_as_far_as_one_s_own(
    last: tuple[int, int], granted: bool
) -> None:
    hand = Hand()
    hand.append(B, 2, (1, 1), commands(2, 2))
    hand.time_out()
    assert hand.vote(C, 5, last) is granted
    assert hand.raft.term == 5, "the term is taken note of either way"


def test_9_learners_and_strangers_vote_when_asked() -> None:
    learner = Hand(me=D, base=Configuration((A, B, C), learners=(D,)))
    assert learner.vote(A, 2, (1, 1))
    blank = Hand(me=E, base=BLANK)
    assert blank.vote(A, 2, (1, 1))
    assert not blank.vote(B, 2, (1, 1))


def test_9_a_blank_process_never_campaigns() -> None:
    hand = Hand(me=E, base=BLANK)
    assert hand.wait(10_000 * MS) == []
    hand.vote(A, 2, (0, 0))
    assert hand.wait(10_000 * MS) == []


def test_the_timeout_lies_above_the_lease() -> None:
    settings = RaftSettings(leader_lease_ns=401 * MS)
    with pytest.raises(AssertionError):
        Hand(settings=settings)


def test_two_leaders_in_one_term_stop_the_node() -> None:
    hand = leader()
    with pytest.raises(AssertionError, match="both lead term 2"):
        hand.raft.step(B, AppendEntries(2, 1, 1, 1, 0, []), hand.now)


def test_a_pre_vote_answer_for_another_term_does_not_count() -> None:
    hand = Hand()
    hand.time_out()
    hand.hear(B, PreVoteAnswer(1, 7, granted=True))
    assert hand.raft.role is Role.PRE_CANDIDATE


def test_what_a_link_shows_is_term_vote_and_last_index() -> None:
    hand = Hand()
    hand.vote(B, 4, (1, 1))
    assert hand.raft.shows() == (4, B, 1)
    assert isinstance(hand.raft, Raft)
