"""Spec 9, Identity: other incarnations, strangers, and processes that went back in time."""

from tests.raft.hand import FIVE, THREE, A, B, C, D, E, Hand, change, commands, leader, only
from ticketing.raft.membership import with_learner
from ticketing.raft.messages import AppendEntries, AppendRefusal, AppendReply, VoteRequest
from ticketing.raft.types import MS, Configuration, Member

B_AGAIN = Member(B.node_id, 777)
A_AGAIN = Member(A.node_id, 777)


def current_round(hand: Hand) -> int:
    lead = hand.raft._election.lead
    assert lead is not None
    return lead.replication.round


def test_another_incarnation_of_a_known_node_is_refused_and_counted() -> None:
    hand = Hand()
    assert hand.hear(B_AGAIN, VoteRequest(9, 9, 9, True)) == []
    assert hand.hear(B_AGAIN, AppendEntries(9, 1, 1, 1, 1, commands(9))) == []
    assert (hand.raft.term, hand.raft.leader, hand.raft.refused_incarnations) == (1, None, 2)


def test_so_is_one_that_says_it_is_us() -> None:
    hand = Hand()
    assert hand.hear(A_AGAIN, VoteRequest(9, 9, 9, True)) == []
    assert hand.hear(A, VoteRequest(9, 9, 9, True)) == []
    assert hand.raft.refused_incarnations == 2
    blank = Hand(me=D, base=Configuration((A, B, C)))
    assert blank.hear(Member(D.node_id, 1), VoteRequest(9, 9, 9, True)) == []


def test_a_restarted_voter_gives_no_acknowledgement_in_its_former_name() -> None:
    hand = leader()
    hand.propose(b"x")
    hand.hear(B_AGAIN, AppendReply(2, 1, 3, 3))
    assert hand.raft.commit_index == 2


def test_a_node_is_known_from_when_its_configuration_is_appended() -> None:
    hand = Hand()
    other = Member(D.node_id, 777)
    assert hand.vote(other, 2, (1, 1))
    hand.append(B, 3, (1, 1), [change(3, with_learner(THREE, D))])
    assert hand.hear(other, VoteRequest(9, 9, 9, True)) == []


def test_strangers_are_heard() -> None:
    hand = Hand()
    assert hand.append(E, 4, (1, 1), commands(4)) == AppendReply(4, 1, 2, 2)
    assert hand.raft.leader == E


# --- rolled back: a shorter log than acknowledged, on one link within one term


def test_a_member_that_shows_less_than_it_acknowledged_is_reported_and_counts_no_more() -> None:
    hand = leader()
    hand.propose(b"x", b"y")
    hand.acknowledge(B, C)
    hand.wait(50 * MS)
    hand.hear(B, AppendRefusal(2, current_round(hand), 4, last_index=3, hint_index=3, hint_term=2))
    assert hand.output.rolled_back == [B]
    hand.propose(b"z")
    hand.hear(B, AppendReply(2, current_round(hand), 5, 5))
    assert hand.raft.commit_index == 4
    assert hand.raft.transfer(B, hand.now) == "rolled_back"
    assert {member for member, _ in only(AppendEntries, hand.wait(100 * MS))} == {C}
    view = hand.raft.progress(B)
    assert view is not None
    assert view.rolled_back


def test_an_answer_to_what_was_sent_before_the_acknowledgement_came_is_no_proof() -> None:
    """It may have been written before the acknowledgement and overtaken by it."""
    hand = leader()
    hand.propose(b"x")
    hand.acknowledge(B, C)
    hand.hear(B, AppendRefusal(2, current_round(hand), 3, last_index=2, hint_index=2, hint_term=2))
    assert hand.output.rolled_back == []


def test_nor_is_one_on_a_new_link_but_what_is_missing_is_sent_and_not_counted() -> None:
    hand = leader(FIVE)
    hand.propose(b"x", b"y")
    hand.acknowledge(B, match=4)
    hand.raft.link_down(B, hand.now)
    hand.raft.link_up(B, hand.now)
    hand.wait(50 * MS)
    messages = hand.hear(B, AppendRefusal(2, current_round(hand), 4, last_index=3, hint_index=3, hint_term=2))
    assert hand.output.rolled_back == []
    assert [(m.prev_index, len(m.entries)) for member, m in only(AppendEntries, messages)] == [(3, 1)]
    hand.acknowledge(C, match=4)
    assert hand.raft.commit_index == 2, "A and C are two of five"


def test_nor_across_terms() -> None:
    hand = leader()
    hand.propose(b"x")
    hand.acknowledge(B, C)
    hand.hear(C, AppendEntries(3, 1, 3, 2, 3, []))
    hand.lead()
    hand.wait(50 * MS)
    hand.hear(B, AppendRefusal(4, current_round(hand), 3, last_index=2, hint_index=2, hint_term=2))
    assert hand.output.rolled_back == []


def test_a_longer_or_equal_log_is_no_sign_of_it() -> None:
    hand = leader()
    hand.propose(b"x")
    hand.acknowledge(B, C)
    hand.wait(50 * MS)
    hand.hear(B, AppendReply(2, current_round(hand), 2, last_index=3))
    hand.hear(C, AppendReply(2, current_round(hand), 2, last_index=9))
    assert hand.output.rolled_back == []
