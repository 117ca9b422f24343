"""Rolled back: a lower term, or another vote in the same term, than shown before the nonce was sent."""

import pytest

from ticketing.node.shown import MEMBERS_MAX, Shown, ShownRecord, Shows
from ticketing.raft.types import Member

A, B, C = Member(1, 11), Member(2, 22), Member(3, 33)


@pytest.mark.parametrize(
    ("term", "vote", "shows", "rolled_back"),
    [
        (5, None, Shows(5), False),
        (5, None, Shows(5, B), False),
        (5, None, Shows(4, B), True),
        (5, None, Shows(6), False),
        (5, B, Shows(5, B), False),
        (5, B, Shows(5, C), True),
        (5, B, Shows(5, None), True),
        (5, B, Shows(5, Member(2, 23)), True),
        (5, B, Shows(6, C), False),
        (5, B, Shows(6, None), False),
        (5, B, Shows(4, B), True),
    ],
)
def test_judgement(term: int, vote: Member | None, shows: Shows, rolled_back: bool) -> None:
    record = ShownRecord()
    record.seen(A, term, vote)
    assert record.rolled_back(A, shows, record.mark()) is rolled_back


def test_a_shorter_log_is_not_judged_in_a_hello() -> None:
    record = ShownRecord()
    record.seen(A, 5, B)
    assert not record.rolled_back(A, Shows(5, B, last_index=0), record.mark())


def test_only_what_was_shown_before_the_nonce_counts() -> None:
    record = ShownRecord()
    record.seen(A, 5, B)
    mark = record.mark()
    record.seen(A, 7, C)
    assert not record.rolled_back(A, Shows(5, B), mark)
    assert record.rolled_back(A, Shows(5, B), record.mark())


def test_a_member_never_heard_of_is_not_rolled_back() -> None:
    record = ShownRecord()
    record.seen(A, 5, B)
    assert not record.rolled_back(Member(A.node_id, 12), Shows(0), record.mark())


def test_a_late_message_of_a_lower_term_lowers_nothing() -> None:
    record = ShownRecord()
    record.seen(A, 5, B)
    record.seen(A, 4, C)
    assert record.mark()[A] == Shown(5, B)


def test_a_message_without_vote_does_not_wipe_the_vote() -> None:
    record = ShownRecord()
    record.seen(A, 5, B)
    record.seen(A, 5)
    assert record.rolled_back(A, Shows(5, C), record.mark())


def test_a_vote_shown_later_in_the_term_is_kept() -> None:
    record = ShownRecord()
    record.seen(A, 5)
    record.seen(A, 5, B)
    assert record.mark()[A] == Shown(5, B)


def test_a_second_vote_in_a_term_does_not_replace_the_first() -> None:
    record = ShownRecord()
    record.seen(A, 5, B)
    record.seen(A, 5, C)
    assert record.rolled_back(A, Shows(5, C), record.mark())


def test_a_higher_term_begins_without_vote() -> None:
    record = ShownRecord()
    record.seen(A, 5, B)
    record.seen(A, 6)
    assert not record.rolled_back(A, Shows(6, C), record.mark())


def test_a_forgotten_member_is_not_judged() -> None:
    record = ShownRecord()
    record.seen(A, 5, B)
    record.forget(A)
    record.forget(B)
    assert not record.rolled_back(A, Shows(0), record.mark())


def test_bounded_and_who_was_silent_longest_makes_room() -> None:
    record = ShownRecord()
    for number in range(MEMBERS_MAX):
        record.seen(Member(number, number), 1)
    record.seen(Member(0, 0), 2)
    record.seen(Member(1000, 1000), 1)
    mark = record.mark()
    assert len(mark) == MEMBERS_MAX
    assert Member(0, 0) in mark
    assert Member(1, 1) not in mark
