"""Raft thesis, section 3.10: leadership transfer; field report F073."""

import pytest

from tests.raft.hand import FIVE, THREE, A, B, C, D, E, Hand, commands, leader, only
from ticketing.raft.election import Role
from ticketing.raft.membership import with_learner
from ticketing.raft.messages import AppendEntries, PreVoteRequest, StaleTerm, TimeoutNow, VoteRequest
from ticketing.raft.types import MS, Configuration


def test_a_target_that_is_level_is_told_at_once() -> None:
    hand = leader()
    assert hand.raft.transfer(B, hand.now) is None
    assert only(TimeoutNow, hand.turn()) == [(B, TimeoutNow(2))]
    assert hand.raft.transferring == B
    assert hand.plays(Role.LEADER), "until a later term is seen"


def test_f073_a_target_that_lags_is_caught_up_first() -> None:
    hand = leader()
    hand.propose(b"x", b"y")
    assert hand.raft.transfer(B, hand.now) is None
    assert only(TimeoutNow, hand.turn()) == []
    assert only(TimeoutNow, hand.acknowledge(B, match=3)) == []
    assert only(TimeoutNow, hand.acknowledge(B, match=4)) == [(B, TimeoutNow(2))]


def test_nothing_is_taken_meanwhile_so_that_the_target_can_arrive() -> None:
    hand = leader()
    hand.raft.transfer(B, hand.now)
    assert hand.raft.refusal(1) == "transferring"
    assert hand.raft.room() == hand.raft.room(reserved=True) == 0
    assert hand.raft.propose(b"x", hand.now, reserved=True) == 0
    assert hand.raft.last_index == 2


def test_f073_a_transfer_that_does_not_come_about_is_given_up_in_time() -> None:
    hand = leader()
    hand.raft.transfer(B, hand.now)
    going_on = []
    for _ in range(16):
        hand.wait(50 * MS)
        hand.acknowledge(C)
        going_on.append(hand.raft.transferring == B)
    assert going_on == [True] * 15 + [False]
    assert hand.raft.propose(b"x", hand.now)


def test_f073_the_word_is_repeated_for_it_may_be_lost() -> None:
    hand = leader()
    hand.raft.transfer(B, hand.now)
    hand.turn()
    assert len(only(TimeoutNow, hand.wait(150 * MS))) == 3


def test_heartbeats_go_on_meanwhile() -> None:
    hand = leader()
    hand.raft.transfer(B, hand.now)
    assert {member for member, _ in only(AppendEntries, hand.wait(50 * MS))} == {B, C}


def test_the_target_campaigns_without_a_pre_vote_and_says_why() -> None:
    hand = Hand(me=B)
    hand.append(A, 2, (1, 1), commands(2))
    messages = hand.hear(A, TimeoutNow(2))
    assert messages == [(member, VoteRequest(3, 2, 2, True)) for member in (A, C)]


def test_4_2_3_the_lease_does_not_stand_against_it() -> None:
    hand = Hand(me=C)
    hand.append(A, 2, (1, 1), commands(2))
    assert not hand.vote(B, 3, (2, 2))
    assert hand.raft.term == 2
    assert hand.vote(B, 3, (2, 2), transfer=True)


def test_the_old_leader_votes_for_its_successor() -> None:
    hand = leader()
    hand.raft.transfer(B, hand.now)
    hand.turn()
    assert hand.vote(B, 3, (2, 2), transfer=True)
    assert hand.plays(Role.FOLLOWER)
    assert hand.raft.transferring is None


def test_a_campaign_that_failed_goes_on_with_a_pre_vote() -> None:
    hand = Hand(me=B)
    hand.append(A, 2, (1, 1), commands(2))
    hand.hear(A, TimeoutNow(2))
    assert only(PreVoteRequest, hand.time_out())


def test_the_word_of_a_leader_whose_term_is_over_is_not_followed() -> None:
    hand = Hand(me=B, term=5)
    assert hand.answer(A, TimeoutNow(4)) == StaleTerm(5)
    assert hand.plays(Role.FOLLOWER)


def test_a_second_word_finds_a_later_term() -> None:
    hand = Hand(me=B)
    hand.append(A, 2, (1, 1))
    hand.hear(A, TimeoutNow(2))
    assert hand.answer(A, TimeoutNow(2)) == StaleTerm(3)
    assert hand.raft.term == 3


def test_a_learner_does_not_follow_the_word() -> None:
    hand = Hand(me=D, base=with_learner(THREE, D))
    hand.append(A, 2, (1, 1))
    assert hand.hear(A, TimeoutNow(2)) == []


@pytest.mark.parametrize(("target", "reason"), [(A, "already_leader"), (D, "not_voter"), (E, "not_voter")])
def test_only_another_voter_can_take_the_lead(target: object, reason: str) -> None:
    hand = leader(Configuration((A, B, C), learners=(D,)))
    member = next(m for m in FIVE.voters if m == target)
    assert hand.raft.transfer(member, hand.now) == reason
    assert hand.raft.transferring is None


def test_one_transfer_at_a_time() -> None:
    hand = leader()
    assert hand.raft.transfer(B, hand.now) is None
    assert hand.raft.transfer(C, hand.now) == "transferring"
    assert hand.raft.transfer(B, hand.now) is None
    assert Hand().raft.transfer(B, 0) == "not_leader"
