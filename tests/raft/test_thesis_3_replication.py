"""Raft thesis, 3.5 (replication), 3.6.2 (entries of earlier terms), 10.2.1 (batches, pipelines)."""

import pytest

from tests.raft.hand import THREE, A, B, C, D, Hand, commands, leader, only
from ticketing.raft.log import ENTRY_OVERHEAD
from ticketing.raft.messages import AppendEntries, AppendRefusal, AppendReply, StaleTerm, WireEntry
from ticketing.raft.progress import Flow
from ticketing.raft.replica import UnsupportedEntryError
from ticketing.raft.types import BLANK, MS, Base, Configuration, EntryKind, Member, RaftSettings

# --- the follower


def test_3_5_a_follower_appends_what_follows_its_log() -> None:
    hand = Hand()
    assert hand.append(B, 2, (1, 1), commands(2, 2)) == AppendReply(2, 1, 3, 3)
    assert hand.log() == [(2, 2), (3, 2)]
    assert hand.raft.leader == B


def test_3_5_a_follower_refuses_what_would_leave_a_gap_and_says_where_it_ends() -> None:
    hand = Hand()
    answer = hand.append(B, 2, (5, 2), commands(2))
    assert answer == AppendRefusal(2, 1, prev_index=5, last_index=1, hint_index=1, hint_term=1)
    assert hand.log() == []


def test_3_5_a_follower_refuses_where_the_previous_entry_is_of_another_term() -> None:
    hand = Hand()
    hand.append(B, 2, (1, 1), commands(2, 2, 2))
    answer = hand.append(C, 5, (4, 4), commands(5))
    assert isinstance(answer, AppendRefusal)
    assert (answer.hint_index, answer.hint_term) == (4, 2), "an entry of an earlier term may still agree"
    answer = hand.append(C, 5, (4, 1), commands(5))
    assert isinstance(answer, AppendRefusal)
    assert (answer.hint_index, answer.hint_term) == (1, 1), "what is of a later term cannot"


def test_3_5_a_conflicting_entry_goes_with_all_after_it() -> None:
    hand = Hand()
    hand.append(B, 2, (1, 1), commands(2, 2, 2))
    hand.append(C, 3, (2, 2), commands(3))
    assert hand.log() == [(2, 2), (3, 3)]


def test_3_5_what_agrees_stays_although_the_append_is_shorter() -> None:
    """A delayed append must not cut off what a later one brought."""
    hand = Hand()
    hand.append(B, 2, (1, 1), commands(2, 2, 2))
    assert hand.append(B, 2, (1, 1), commands(2)) == AppendReply(2, 2, match=4, last_index=4)
    assert len(hand.log()) == 3


def test_3_5_an_append_that_overlaps_brings_only_what_is_missing() -> None:
    hand = Hand()
    hand.append(B, 2, (1, 1), commands(2, 2))
    hand.append(B, 2, (1, 1), commands(2, 2, 2, 2))
    assert hand.log() == [(2, 2), (3, 2), (4, 2), (5, 2)]


def test_3_5_a_follower_commits_what_the_leader_committed_and_it_has_checked() -> None:
    hand = Hand()
    hand.append(B, 2, (1, 1), commands(2, 2, 2))
    hand.append(B, 2, (2, 2), [], commit=4)
    assert hand.raft.commit_index == 2, "entries 3 and 4 may not be the leader's"
    hand.append(B, 2, (4, 2), [], commit=4)
    assert hand.raft.commit_index == 4
    assert [entry.index for entry in hand.committed] == [2, 3, 4]


def test_3_5_an_append_from_before_the_commit_index_is_answered_with_that() -> None:
    hand = Hand()
    hand.append(B, 2, (1, 1), commands(2, 2, 2), commit=4)
    assert hand.append(B, 2, (1, 1), commands(2)) == AppendReply(2, 2, match=4, last_index=4)
    answer = hand.append(B, 2, (1, 1), commands(2, 2, 2, 2))
    assert answer == AppendReply(2, 3, match=5, last_index=5)


def test_3_5_a_committed_entry_is_never_given_up() -> None:
    hand = Hand()
    hand.append(B, 2, (1, 1), commands(2, 2), commit=3)
    hand.append(C, 9, (1, 1), commands(9, 9, 9))
    assert hand.log() == [(2, 2), (3, 2), (4, 9)], "what C says of 2 and 3 is not even looked at"


def test_a_follower_acknowledges_a_turn_and_not_an_append() -> None:
    hand = Hand()
    answers = hand.hear(
        B,
        AppendEntries(2, 7, 1, 1, 0, commands(2)),
        AppendEntries(2, 7, 2, 2, 0, commands(2)),
        AppendEntries(2, 8, 3, 2, 2, commands(2, 2)),
    )
    assert answers == [(B, AppendReply(2, 8, match=5, last_index=5))]


def test_a_refusal_does_not_swallow_the_acknowledgement_before_it() -> None:
    hand = Hand()
    answers = hand.hear(
        B, AppendEntries(2, 1, 1, 1, 0, commands(2)), AppendEntries(2, 1, 9, 2, 0, commands(2))
    )
    assert answers[0] == (B, AppendReply(2, 1, match=2, last_index=2))
    assert isinstance(answers[1][1], AppendRefusal)


def test_an_acknowledgement_is_not_sent_in_a_later_term() -> None:
    hand = Hand()
    answers = hand.hear(B, AppendEntries(2, 1, 1, 1, 0, commands(2)), StaleTerm(7))
    assert answers == []


def test_an_entry_of_unknown_kind_stops_the_node() -> None:
    hand = Hand()
    append = AppendEntries(2, 1, 1, 1, 0, [WireEntry(2, 9, b"", 0)])
    with pytest.raises(UnsupportedEntryError, match="kind 9"):
        hand.raft.step(B, append, hand.now)


# --- the leader


def test_3_5_a_leader_s_first_entry_is_empty_and_of_its_term() -> None:
    hand = Hand()
    (_, append), _ = only(AppendEntries, hand.lead())
    assert append == AppendEntries(2, 1, 1, 1, 1, [WireEntry(2, EntryKind.EMPTY, b"", 0)])


def test_3_5_an_entry_is_committed_once_a_majority_has_it() -> None:
    hand = leader()
    hand.propose(b"x")
    assert hand.raft.commit_index == 2
    hand.acknowledge(B)
    assert hand.raft.commit_index == 3
    assert [(entry.index, entry.data) for entry in hand.output.committed] == [(3, b"x")]


def test_3_5_the_leader_hands_out_its_own_object() -> None:
    hand = leader()
    decoded = object()
    hand.raft.propose(b"x", hand.now, decoded=decoded)
    hand.acknowledge(B)
    assert hand.committed[-1].decoded is decoded


def test_3_5_the_next_append_carries_the_commit_index() -> None:
    hand = leader()
    hand.propose(b"x")
    hand.acknowledge(B, C)
    messages = hand.wait(50 * MS)
    assert [append.commit for _, append in only(AppendEntries, messages)] == [3, 3]


def test_3_5_a_refusal_makes_the_leader_go_back_until_the_logs_agree() -> None:
    hand = Hand()
    hand.append(B, 2, (1, 1), commands(2, 2, 2, 2))
    hand.lead()
    messages = hand.hear(C, AppendRefusal(3, 1, prev_index=5, last_index=3, hint_index=3, hint_term=2))
    assert [(m.prev_index, len(m.entries)) for _, m in only(AppendEntries, messages)] == [(3, 3)]
    messages = hand.hear(C, AppendRefusal(3, 1, prev_index=3, last_index=3, hint_index=1, hint_term=1))
    assert [(m.prev_index, len(m.entries)) for _, m in only(AppendEntries, messages)] == [(1, 5)]


def test_3_5_one_exchange_for_each_conflicting_term() -> None:
    """Leader 1 1 1 4 4 5, follower 1 1 2 2 2 2 2: the leader skips what is of a later term than the hint."""
    hand = Hand()
    hand.append(B, 5, (1, 1), commands(1, 1, 4, 4, 5))
    hand.lead()
    messages = hand.hear(C, AppendRefusal(6, 1, prev_index=6, last_index=8, hint_index=6, hint_term=2))
    (_, append) = only(AppendEntries, messages)[0]
    assert (append.prev_index, append.prev_term) == (3, 1)


def test_an_old_refusal_changes_nothing() -> None:
    hand = leader()
    hand.propose(b"x")
    hand.acknowledge(B, C)
    before = hand.raft.progress(C)
    assert hand.hear(C, AppendRefusal(2, 1, prev_index=2, last_index=3, hint_index=1, hint_term=1)) == []
    assert hand.raft.progress(C) == before


def test_a_stranger_s_answers_are_not_counted() -> None:
    hand = leader()
    hand.propose(b"x")
    hand.hear(D, AppendReply(2, 1, 3, 3))
    hand.hear(Member(99, 99), AppendRefusal(2, 1, 3, 3, 1, 1))
    assert hand.raft.commit_index == 2


# --- commitment of entries from earlier terms


def test_3_6_2_an_entry_of_an_earlier_term_is_not_committed_by_counting() -> None:
    """Figure 3.7: a majority has the entry of term 2, and yet another leader may still replace it."""
    hand = Hand()
    hand.append(B, 2, (1, 1), commands(2))
    hand.lead()
    assert hand.log() == [(2, 2), (3, 3)]
    hand.acknowledge(B, C, match=2)
    assert hand.raft.commit_index == 1
    assert not hand.raft.own_term_committed


def test_3_6_2_it_is_committed_with_the_first_entry_of_the_new_term() -> None:
    hand = Hand()
    hand.append(B, 2, (1, 1), commands(2))
    hand.lead()
    hand.acknowledge(B, match=3)
    assert hand.raft.commit_index == 3
    assert hand.raft.own_term_committed
    assert [entry.term for entry in hand.committed] == [2, 3]


# --- batches and pipelines


def test_10_2_1_all_proposals_of_a_turn_are_one_append_a_follower() -> None:
    hand = leader()
    messages = hand.propose(b"a", b"b", b"c")
    assert [member for member, _ in messages] == [B, C]
    (_, append), (_, other) = only(AppendEntries, messages)
    assert [entry.data for entry in append.entries] == [b"a", b"b", b"c"]
    sent = [message for _, message in hand.output.messages]
    assert sent[0] is sent[1], "equal messages are one object, encoded once"
    assert append == other


def test_10_2_1_a_follower_that_lags_is_sent_its_own_part_and_not_that_of_the_others() -> None:
    hand = Hand()
    hand.append(B, 2, (1, 1), commands(2, 2, 2, 2))
    hand.lead()
    hand.acknowledge(B)
    assert hand.raft.propose(b"x", hand.now) == 7
    messages = hand.hear(C, AppendRefusal(3, 1, prev_index=5, last_index=1, hint_index=1, hint_term=1))
    appends = [
        (member, append.prev_index, len(append.entries)) for member, append in only(AppendEntries, messages)
    ]
    assert appends == [(B, 6, 1), (C, 1, 6)]


def test_10_2_1_the_leader_does_not_wait_for_an_answer() -> None:
    hand = leader()
    first = only(AppendEntries, hand.propose(b"a"))[0][1]
    second = only(AppendEntries, hand.propose(b"b"))[0][1]
    assert (first.prev_index, second.prev_index) == (2, 3)
    assert [entry.data for entry in second.entries] == [b"b"]


def test_what_is_under_way_to_a_follower_is_bounded() -> None:
    room = 3 * (100 + ENTRY_OVERHEAD)
    hand = leader(settings=RaftSettings(inflight_bytes_max=room))
    messages = hand.propose(*[b"x" * 100] * 5)
    assert [len(m.entries) for _, m in only(AppendEntries, messages)] == [3, 3]
    progress = hand.raft.progress(B)
    assert progress is not None
    assert (progress.inflight_bytes, progress.next) == (room, 6)
    messages = hand.acknowledge(B, match=4)
    assert [(member, len(m.entries)) for member, m in only(AppendEntries, messages)] == [(B, 2)]


def test_a_message_is_bounded_and_an_entry_above_it_goes_alone() -> None:
    size = 100 + ENTRY_OVERHEAD
    hand = leader(settings=RaftSettings(message_bytes_max=2 * size))
    messages = hand.propose(*[b"x" * 100] * 3, b"y" * 5000, b"z")
    counts = [len(m.entries) for member, m in only(AppendEntries, messages) if member == B]
    assert counts == [2, 1, 1, 1]


def test_an_entry_above_the_window_goes_when_nothing_else_is_under_way() -> None:
    hand = leader(settings=RaftSettings(inflight_bytes_max=1000))
    messages = hand.propose(b"x" * 5000, b"y")
    assert [len(m.entries) for member, m in only(AppendEntries, messages) if member == B] == [1]
    messages = hand.acknowledge(B, match=3)
    assert [m.entries[0].data for member, m in only(AppendEntries, messages) if member == B] == [b"y"]


def test_heartbeats_go_every_50_ms_with_the_previous_entry_and_the_commit_index() -> None:
    hand = leader()
    messages = hand.wait(200 * MS)
    beats = [m for member, m in only(AppendEntries, messages) if member == B]
    assert [(m.prev_index, m.prev_term, m.commit, m.entries) for m in beats] == [(2, 2, 2, [])] * 4
    assert [m.round for m in beats] == [2, 3, 4, 5]


def test_lost_entries_are_found_out_by_the_next_heartbeat() -> None:
    hand = leader()
    hand.propose(b"a", b"b")  # lost
    beat = next(m for member, m in only(AppendEntries, hand.wait(50 * MS)) if member == B)
    assert (beat.prev_index, beat.entries) == (4, [])
    messages = hand.hear(B, AppendRefusal(2, beat.round, 4, last_index=2, hint_index=2, hint_term=2))
    assert [len(m.entries) for _, m in only(AppendEntries, messages)] == [2]


def test_a_probe_is_one_append_at_a_time_and_is_repeated_without_its_load() -> None:
    hand = leader()
    hand.raft.link_up(C, hand.now)
    first = [m for member, m in only(AppendEntries, hand.propose(b"a")) if member == C]
    assert [len(m.entries) for m in first] == [1]
    assert [m for member, m in only(AppendEntries, hand.propose(b"b")) if member == C] == []
    again = [m for member, m in only(AppendEntries, hand.wait(50 * MS)) if member == C]
    assert [(m.prev_index, m.entries) for m in again] == [(2, [])]
    progress = hand.raft.progress(C)
    assert progress is not None
    assert progress.state is Flow.PROBE
    rest = hand.acknowledge(C, match=2)
    assert [len(m.entries) for _, m in only(AppendEntries, rest)] == [2], "now both, at once"


def test_a_new_link_starts_from_what_was_acknowledged() -> None:
    hand = leader()
    hand.propose(b"a", b"b")
    hand.raft.link_down(B, hand.now)
    hand.raft.link_up(B, hand.now)
    messages = hand.turn()
    assert [(member, m.prev_index, len(m.entries)) for member, m in only(AppendEntries, messages)] == [
        (B, 2, 2)
    ]


def test_the_dead_are_not_sent_the_same_load_again_and_again() -> None:
    hand = leader()
    hand.raft.link_down(C, hand.now)
    hand.propose(*[b"x" * 1000] * 50)
    total = 0
    for _ in range(6):
        messages = hand.wait(50 * MS)
        total += sum(len(m.entries) for member, m in only(AppendEntries, messages) if member == C)
        hand.acknowledge(B)
    assert total == 0


# --- the forming


def test_what_is_formed_is_behind_no_blank_log() -> None:
    """An append must not stand for the snapshot: the forming's own state is in no entry."""
    blank = Hand(me=D, base=BLANK)
    assert isinstance(blank.append(A, 1, (1, 1), commands(1)), AppendRefusal)
    with pytest.raises(AssertionError):
        Hand(base=Base(0, 0, THREE))
    with pytest.raises(AssertionError):
        Hand(base=Base(3, 1, Configuration(())))


def test_role_changes_are_told_once() -> None:
    hand = Hand()
    hand.append(B, 2, (1, 1))
    told = [hand.output.role_changed]
    hand.append(B, 2, (1, 1))
    told.append(hand.output.role_changed)
    assert told == [True, False]


def has_output(hand: Hand) -> bool:
    return hand.raft.has_output


def test_word_of_what_is_known_already_needs_no_output() -> None:
    hand = leader()
    hand.propose(b"x")
    hand.acknowledge(B)
    assert not has_output(hand)
    index = hand.raft.last_index
    hand.raft.step(C, AppendReply(hand.raft.term, hand.round, index, index), hand.now)
    assert not has_output(hand)
    hand.raft.propose(b"y", hand.now)
    assert has_output(hand)
    hand.turn()
    assert not has_output(hand)
    hand.raft.begin_barrier()
    assert has_output(hand)


def test_a_follower_that_owes_an_answer_has_output() -> None:
    hand = Hand()
    message = AppendEntries(2, 1, 1, 1, 1, commands(2))
    hand.raft.step(B, message, hand.now)
    assert has_output(hand)
    hand.turn()
    assert not has_output(hand)
