"""Spec 7: stamps and ages. A stamp is never before its proposal, and not needlessly after it."""

from hypothesis import given
from hypothesis import strategies as st

from tests.raft.hand import B, C, Hand, commands, leader, only
from ticketing.raft.messages import AppendEntries, AppendRefusal, AppendReply
from ticketing.raft.types import MS

S = 1000 * MS


def stamps(hand: Hand) -> list[int]:
    log = hand.raft._replica.log
    return [entry.stamp_ns for entry in log.entries(log.base_index + 1, log.last_index)]


def test_a_leader_stamps_an_entry_with_the_time_of_its_proposal() -> None:
    hand = leader()
    hand.now += 5 * S
    hand.raft.propose(b"x", hand.now)
    assert stamps(hand)[-1] == hand.now


def test_a_fresh_entry_is_stamped_with_its_receipt() -> None:
    hand = Hand()
    hand.append(B, 2, (1, 1), commands(2))
    assert stamps(hand) == [hand.now]


def test_an_entry_sent_again_is_stamped_with_0_998_of_its_age() -> None:
    hand = Hand()
    hand.append(B, 2, (1, 1), commands(2, age_us=10_000_000))
    assert stamps(hand) == [hand.now - 9_980 * MS]


def test_the_age_is_taken_anew_at_each_sending_and_rounded_down() -> None:
    hand = leader()
    hand.propose(b"x")
    hand.now += 3 * S + 999
    messages = hand.hear(C, AppendRefusal(2, 1, prev_index=3, last_index=2, hint_index=2, hint_term=2))
    (_, append) = only(AppendEntries, messages)[0]
    assert [entry.age_us for entry in append.entries] == [3_000_000]


def test_ages_pass_through_a_change_of_leader() -> None:
    """The second leader knows the age by its own receipt, and a restart of the lease is not to be had."""
    hand = Hand()
    hand.append(B, 2, (1, 1), commands(2, age_us=4_000_000))
    hand.lead()
    hand.now += 2 * S
    messages = hand.hear(C, AppendRefusal(3, 1, prev_index=2, last_index=1, hint_index=1, hint_term=1))
    (_, append) = only(AppendEntries, messages)[0]
    waited = hand.now - stamps(hand)[0]
    assert append.entries[0].age_us == waited // 1000
    assert 5_990_000 < append.entries[0].age_us < 6_800_000


def test_stamps_never_fall_along_the_log() -> None:
    """A later stamp is always safe; an index order that is a time order keeps expiries in order."""
    hand = Hand()
    hand.append(B, 2, (1, 1), commands(2, age_us=1_000))
    hand.append(B, 2, (2, 2), commands(2, age_us=9_000_000))
    assert stamps(hand) == [hand.now - 998_000] * 2


def test_an_entry_that_comes_twice_keeps_its_first_stamp() -> None:
    hand = Hand()
    hand.append(B, 2, (1, 1), commands(2))
    first = stamps(hand)
    hand.now += 10 * S
    hand.append(B, 2, (1, 1), commands(2))
    assert stamps(hand) == first


def test_a_clock_reading_older_than_the_stamp_gives_no_age() -> None:
    hand = leader()
    hand.raft.propose(b"x", hand.now + 5 * MS)
    (_, append) = only(AppendEntries, hand.turn())[0]
    assert append.entries[-1].age_us == 0


rates = st.floats(0.999, 1.001)
times = st.integers(0, 400 * S)


@given(rates, rates, times, times)
def test_no_stamp_is_before_its_proposal_whatever_the_rates(
    sender_rate: float, receiver_rate: float, before_ns: int, on_the_way_ns: int
) -> None:
    """True time: proposed at 0, sent after `before_ns`, received `on_the_way_ns` later."""
    age_us = int(before_ns * sender_rate) // 1000
    hand = Hand()
    hand.now += int((before_ns + on_the_way_ns) * receiver_rate)
    proposed_at = 10_000 * MS
    hand.append(B, 2, (1, 1), commands(2, age_us=age_us))
    (stamp,) = stamps(hand)
    assert stamp >= proposed_at - 2, "two for the rounding of this test's own clocks"
    slack = on_the_way_ns * receiver_rate + before_ns * 0.0041 + 2000
    assert stamp <= proposed_at + slack, "and not needlessly after it"


def test_a_reply_is_enough_to_commit_and_keeps_the_leader_s_stamp() -> None:
    hand = leader()
    hand.propose(b"x")
    stamped = stamps(hand)[-1]
    hand.now += S
    hand.hear(B, AppendReply(2, 1, 3, 3))
    assert hand.committed[-1].stamp_ns == stamped
