"""What no working member says changes nothing at its receiver and breaks none of its invariants."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.raft.hand import THREE, A, B, C, Hand, change, commands, leader
from ticketing.raft.messages import (
    AppendEntries,
    AppendRefusal,
    AppendReply,
    Message,
    PreVoteAnswer,
    PreVoteRequest,
    StaleTerm,
    TimeoutNow,
    VoteAnswer,
    VoteRequest,
    WireEntry,
    encode,
)
from ticketing.raft.plausible import NUMBER_MAX, TERMS_AHEAD_MAX, ImplausibleError, check_base
from ticketing.raft.replica import UnsupportedEntryError
from ticketing.raft.types import Base, Configuration, Member

LAST = (1 << 64) - 1


def follower() -> Hand:
    """Has three entries of terms 2, 2 and 3, all but the last committed."""
    hand = Hand()
    hand.append(B, 3, (1, 1), commands(2, 2, 3), commit=3)
    return hand


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (follower, StaleTerm(3 + TERMS_AHEAD_MAX + 1)),
        (follower, TimeoutNow(LAST)),
        (follower, VoteRequest(LAST, 4, 3, transfer=True)),
        (follower, PreVoteAnswer(LAST, 7, granted=False)),
        (follower, AppendEntries(3, 9, 4, 3, 4, commands(2))),
        (follower, AppendEntries(3, 9, 4, 3, 4, commands(4))),
        (follower, AppendEntries(3, 9, 4, 9, 4, [])),
        (follower, AppendEntries(3, 9, 1, 1, 4, commands(1, 1, 1))),
        (follower, AppendEntries(3, 9, NUMBER_MAX, 3, 4, [])),
        (follower, AppendEntries(3, LAST, 4, 3, 4, [])),
        (follower, AppendEntries(3, 9, 4, 3, 4, [change(3, Configuration(()))])),
        (follower, AppendEntries(3, 9, 4, 3, 4, [change(3, Configuration((A, B, Member(2, 7))))])),
        (leader, AppendReply(2, 1, 3, 3)),
        (leader, AppendReply(2, 99, 2, 2)),
        (leader, AppendRefusal(2, 1, 3, 2, 1, 1)),
    ],
    ids=lambda value: value.__name__ if callable(value) else repr(value),
)
def test_what_no_member_can_truthfully_say_changes_nothing(
    make: Callable[[], Hand], message: Message
) -> None:
    hand = make()
    before = hand.raft.shows(), hand.log(), hand.raft.role, hand.raft.configuration, hand.raft.commit_index
    with pytest.raises(ImplausibleError):
        hand.raft.step(B, message, hand.now)
    after = hand.raft.shows(), hand.log(), hand.raft.role, hand.raft.configuration, hand.raft.commit_index
    assert after == before
    assert hand.turn() == []


def test_a_leader_of_a_former_term_is_told_of_the_new_one_whatever_its_log_holds_where_ours_is_committed() -> (
    None
):
    hand = Hand()
    hand.append(B, 3, (1, 1), commands(2, 2, 3), commit=4)
    hand.turn()
    hand.raft.step(C, AppendEntries(2, 9, 1, 1, 1, commands(2, 2, 2, 2)), hand.now)
    assert [(member, message) for member, message in hand.turn()] == [(C, StaleTerm(3))]
    assert hand.raft.commit_index == 4


def test_a_term_far_ahead_can_still_be_followed_by_elections() -> None:
    hand = Hand()
    hand.hear(B, StaleTerm(1 + TERMS_AHEAD_MAX))
    assert hand.raft.term == 1 + TERMS_AHEAD_MAX
    hand.lead()
    assert hand.raft.term == 2 + TERMS_AHEAD_MAX


@pytest.mark.parametrize(
    "base",
    [Base(0, 1, THREE), Base(NUMBER_MAX, 1, THREE), Base(5, LAST, THREE), Base(5, 1, Configuration(()))],
)
def test_a_snapshot_that_no_member_has_is_refused(base: Base) -> None:
    with pytest.raises(ImplausibleError):
        check_base(3, base)


numbers = st.one_of(
    st.integers(0, 6), st.sampled_from([TERMS_AHEAD_MAX, NUMBER_MAX - 1, NUMBER_MAX, 2**63, LAST])
)
entries = st.lists(
    st.one_of(
        st.builds(WireEntry, numbers, st.integers(0, 2), st.binary(max_size=4), numbers),
        st.builds(change, numbers, st.sampled_from([THREE, Configuration((A, C)), Configuration(())])),
    ),
    max_size=4,
)
messages = st.one_of(
    st.builds(PreVoteRequest, numbers, numbers, numbers),
    st.builds(PreVoteAnswer, numbers, numbers, st.booleans()),
    st.builds(VoteRequest, numbers, numbers, numbers, st.booleans()),
    st.builds(VoteAnswer, numbers, st.booleans()),
    st.builds(AppendEntries, numbers, numbers, numbers, numbers, numbers, entries),
    st.builds(AppendReply, numbers, numbers, numbers, numbers),
    st.builds(AppendRefusal, numbers, numbers, numbers, numbers, numbers, numbers),
    st.builds(TimeoutNow, numbers),
    st.builds(StaleTerm, numbers),
)


@given(st.booleans(), st.lists(st.tuples(st.sampled_from([B, C]), messages), max_size=12))
@settings(max_examples=400, deadline=None)
def test_whatever_a_member_says_the_receiver_goes_on_and_can_say_its_part(
    leads: bool, said: list[tuple[Member, Message]]
) -> None:
    """But for two leaders of one term, where either may be right and the receiver stops."""
    hand = leader() if leads else follower()
    for sender, message in said:
        try:
            hand.raft.step(sender, message, hand.now)
        except ImplausibleError:
            continue
        except UnsupportedEntryError:
            return
        except AssertionError as error:
            if "lead term" in str(error) or (
                isinstance(message, AppendEntries) and hand.raft.leader != sender
            ):
                return
            raise
        for _member, answer in hand.raft.take_output(hand.now).messages:
            encode(answer)
    for _ in range(4):
        hand.now = max(hand.now, hand.raft.next_deadline_ns)
        hand.raft.tick(hand.now)
        for _member, answer in hand.raft.take_output(hand.now).messages:
            encode(answer)
