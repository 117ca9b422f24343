"""Raft thesis, section 9.6 (PreVote) and 4.2.3 (disruptive servers); field reports F060, F061, F064."""

import pytest

from tests.raft.hand import A, B, C, Hand, commands, leader, only
from ticketing.raft.election import Role
from ticketing.raft.messages import PreVoteAnswer, PreVoteRequest, VoteAnswer, VoteRequest
from ticketing.raft.types import MS


def test_9_6_a_timeout_asks_first_and_changes_no_term() -> None:
    hand = Hand()
    messages = hand.time_out()
    assert messages == [(member, PreVoteRequest(1, 1, 1)) for member in (B, C)]
    assert (hand.raft.role, hand.raft.term, hand.raft.vote) == (Role.PRE_CANDIDATE, 1, None)


def test_9_6_the_term_rises_once_a_majority_would_vote() -> None:
    hand = Hand()
    hand.time_out()
    hand.hear(B, PreVoteAnswer(1, 2, granted=True))
    assert (hand.raft.role, hand.raft.term) == (Role.CANDIDATE, 2)


def test_9_6_asked_one_changes_nothing() -> None:
    hand = Hand()
    shown = hand.raft.shows(), hand.raft.next_deadline_ns
    assert hand.pre_vote(B, 1, (1, 1))
    assert hand.pre_vote(C, 1, (1, 1)), "a pre-vote is no vote: both may have it"
    assert (hand.raft.shows(), hand.raft.next_deadline_ns) == shown


def test_9_6_not_even_the_real_term_of_the_asker_is_taken_over() -> None:
    hand = Hand()
    assert hand.pre_vote(B, 7, (1, 1))
    assert hand.raft.term == 1


@pytest.mark.parametrize(
    ("term", "last", "granted"),
    [
        (2, (3, 2), True),
        (5, (3, 2), True),
        (1, (3, 2), False),
        (2, (2, 2), False),
        (5, (9, 1), False),
    ],
)
def test_9_6_it_is_granted_where_a_vote_in_the_next_term_would_be(
    term: int, last: tuple[int, int], granted: bool
) -> None:
    hand = Hand()
    hand.append(B, 2, (1, 1), commands(2, 2))
    hand.wait(1_000 * MS)
    assert hand.pre_vote(C, term, last) is granted


def test_9_6_a_refusal_tells_the_term_and_that_is_followed() -> None:
    """Or a pre-candidate of an old term could never come level."""
    asked = Hand(term=4)
    answer = asked.answer(B, PreVoteRequest(1, 1, 1))
    assert answer == PreVoteAnswer(4, 2, granted=False)
    hand = Hand(me=B)
    hand.time_out()
    hand.hear(A, answer)
    assert (hand.raft.role, hand.raft.term) == (Role.FOLLOWER, 4)


def test_9_6_a_granted_one_does_not_raise_the_term() -> None:
    hand = Hand()
    hand.time_out()
    hand.hear(C, PreVoteAnswer(1, 2, granted=False))
    assert hand.raft.term == 1


def test_9_6_refused_by_a_majority_it_waits_again() -> None:
    hand = Hand()
    hand.time_out()
    hand.hear(B, PreVoteAnswer(1, 2, granted=False), PreVoteAnswer(1, 2, granted=False))
    assert hand.plays(Role.PRE_CANDIDATE)
    hand.hear(C, PreVoteAnswer(1, 2, granted=False))
    assert hand.plays(Role.FOLLOWER)
    assert hand.raft.next_deadline_ns > hand.now + 400 * MS


def test_4_2_3_no_vote_and_no_new_term_while_the_leader_is_heard() -> None:
    hand = Hand()
    hand.append(B, 2, (1, 1))
    hand.now += 399 * MS
    assert not hand.pre_vote(C, 2, (5, 2))
    assert not hand.vote(C, 9, (5, 2))
    assert (hand.raft.term, hand.raft.leader) == (2, B)
    hand.now += 1 * MS
    assert hand.pre_vote(C, 2, (5, 2))
    assert hand.vote(C, 9, (5, 2))


def test_4_2_3_a_leader_gives_no_vote_while_it_leads() -> None:
    hand = leader()
    hand.now += 700 * MS
    assert not hand.pre_vote(C, 2, (5, 2))
    assert not hand.vote(C, 9, (5, 2))
    assert (hand.raft.role, hand.raft.term) == (Role.LEADER, 2)


def test_4_2_3_a_refusal_for_the_lease_is_answered_with_the_own_term() -> None:
    hand = leader()
    assert hand.answer(C, VoteRequest(9, 5, 2, False)) == VoteAnswer(2, granted=False)


def test_f060_a_pre_candidate_remembers_no_leader() -> None:
    """Else two that both gave their leader up would refuse each other in its name."""
    hand = Hand()
    hand.append(B, 2, (1, 1))
    hand.time_out()
    assert hand.raft.leader is None
    assert hand.pre_vote(C, 2, (1, 1))


def test_f060_nor_one_whose_leader_s_process_is_gone() -> None:
    hand = Hand()
    hand.append(B, 2, (1, 1))
    hand.raft.leader_gone(hand.now)
    hand.turn()
    assert hand.output.role_changed
    assert hand.pre_vote(C, 2, (1, 1))


def test_9_a_crashed_leader_is_replaced_in_a_fraction_of_the_timeout() -> None:
    waits = []
    for seed in range(200):
        hand = Hand(seed=seed)
        hand.append(B, 2, (1, 1))
        hand.raft.leader_gone(hand.now)
        waits.append(hand.raft.next_deadline_ns - hand.now)
        assert only(PreVoteRequest, hand.time_out())
    assert min(waits) > 0
    assert max(waits) <= 100 * MS
    assert max(waits) - min(waits) > 80 * MS


def test_9_that_is_nothing_to_a_leader_or_to_who_knows_none() -> None:
    hand = leader()
    hand.raft.leader_gone(hand.now)
    assert hand.plays(Role.LEADER)
    hand = Hand()
    before = hand.raft.next_deadline_ns
    hand.raft.leader_gone(hand.now)
    assert hand.raft.next_deadline_ns == before


def test_f061_who_hears_nobody_never_raises_its_term() -> None:
    hand = Hand()
    hand.append(B, 2, (1, 1))
    messages = hand.wait(120_000 * MS)
    assert len(only(PreVoteRequest, messages)) > 200
    assert only(VoteRequest, messages) == []
    assert hand.raft.term == 2
    hand.append(B, 2, (1, 1))
    assert (hand.raft.role, hand.raft.leader) == (Role.FOLLOWER, B)
