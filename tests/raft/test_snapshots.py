"""Snapshots under way, and the log that is kept for them (spec 9, replacement). The rules of the thesis are in
`test_thesis_5_compaction`.
"""

from tests.raft.hand import A, B, C, D, Hand, commands, leader, only
from tests.raft.taking_in import SIZE, progress, refuse, with_blank_learner, write
from ticketing.raft.messages import AppendEntries
from ticketing.raft.progress import Flow
from ticketing.raft.types import BLANK, MS, Base, Configuration, RaftSettings

# --- the leader


def test_the_node_is_told_again_with_each_heartbeat_until_it_has_begun() -> None:
    hand = with_blank_learner()
    refuse(hand)
    wanted = []
    for _ in range(4):
        hand.wait(50 * MS)
        wanted.append(hand.output.snapshots_wanted)
    assert wanted == [[D]] * 4
    assert hand.raft.snapshot_begun(D, hand.raft.snapshot_base(), hand.now)
    hand.wait(50 * MS)
    assert hand.output.snapshots_wanted == []


def test_no_snapshot_for_who_does_not_answer() -> None:
    hand = leader(settings=RaftSettings(log_keep_bytes=2 * SIZE))
    hand.raft.link_down(C, hand.now)
    for _ in range(20):
        hand.wait(50 * MS)
        write(hand, 1)
    assert progress(hand, C).state is Flow.SNAPSHOT
    assert hand.output.snapshots_wanted == []
    hand.acknowledge(C, match=2)
    hand.wait(50 * MS)
    assert hand.output.snapshots_wanted == [C]


def test_the_receiver_s_own_word_serves_as_well_as_the_stream_s_end() -> None:
    hand = with_blank_learner()
    refuse(hand)
    base = hand.raft.snapshot_base()
    hand.raft.snapshot_begun(D, base, hand.now)
    hand.propose(b"a")
    messages = hand.acknowledge(D, match=base.index)
    assert [len(m.entries) for _, m in only(AppendEntries, messages)] == [1]
    hand.raft.snapshot_done(D, hand.now)
    assert progress(hand, D).state is Flow.REPLICATE


def test_once_its_receiver_follows_a_snapshot_is_no_reason_for_output() -> None:
    """The log may be kept for it for hours: until it has outgrown what is kept in any case."""
    hand = with_blank_learner()
    refuse(hand)
    base = hand.raft.snapshot_base()
    hand.raft.snapshot_begun(D, base, hand.now)
    hand.acknowledge(D, match=base.index)
    hand.propose(b"a")
    for member in (B, C, D):
        hand.acknowledge(member)
    assert progress(hand, D).match == hand.raft.last_index
    assert not hand.raft.has_output


def test_a_broken_stream_leads_to_the_next_one() -> None:
    hand = with_blank_learner()
    refuse(hand)
    hand.raft.snapshot_begun(D, hand.raft.snapshot_base(), hand.now)
    hand.raft.snapshot_failed(D, hand.now)
    hand.turn()
    assert hand.output.snapshots_wanted == [], "not in the same breath: it may fail at once again"
    hand.wait(50 * MS)
    assert hand.output.snapshots_wanted == [D]


def test_the_end_of_a_stream_that_nobody_waits_for_is_nothing() -> None:
    hand = leader()
    before = progress(hand, B)
    hand.raft.snapshot_done(B, hand.now)
    hand.raft.snapshot_failed(B, hand.now)
    hand.raft.snapshot_done(D, hand.now)
    assert progress(hand, B) == before
    assert not hand.raft.snapshot_begun(D, hand.raft.snapshot_base(), hand.now)
    assert not Hand().raft.snapshot_begun(B, hand.raft.snapshot_base(), hand.now)


# --- the log that is kept


def test_the_log_after_a_begun_snapshot_is_kept() -> None:
    hand = with_blank_learner(RaftSettings(log_keep_bytes=2 * SIZE))
    refuse(hand)
    base = hand.raft.snapshot_base()
    hand.raft.snapshot_begun(D, base, hand.now)
    write(hand, 30)
    assert hand.raft.log_base_index <= base.index


def test_and_after_its_end_until_the_member_has_come_level() -> None:
    hand = with_blank_learner(RaftSettings(log_keep_bytes=2 * SIZE))
    refuse(hand)
    base = hand.raft.snapshot_base()
    hand.raft.snapshot_begun(D, base, hand.now)
    write(hand, 30)
    hand.raft.snapshot_done(D, hand.now)
    hand.turn()
    write(hand, 10)
    assert hand.raft.log_base_index <= base.index
    write(hand, 10, D)
    assert hand.raft.log_base_index >= hand.raft.last_index - 3


def test_past_the_bound_the_member_is_given_up_and_the_log_let_go() -> None:
    settings = RaftSettings(log_keep_bytes=2 * SIZE, learner_log_bytes_max=10 * SIZE)
    hand = with_blank_learner(settings)
    refuse(hand)
    hand.raft.snapshot_begun(D, hand.raft.snapshot_base(), hand.now)
    given_up = []
    for _ in range(15):
        write(hand, 1)
        given_up += hand.output.given_up
    assert given_up == [D]
    assert hand.raft.log_base_index >= hand.raft.last_index - 3


def test_a_snapshot_older_than_the_log_is_refused() -> None:
    hand = with_blank_learner(RaftSettings(log_keep_bytes=0))
    refuse(hand)
    base = hand.raft.snapshot_base()
    write(hand, 5)
    assert not hand.raft.snapshot_begun(D, base, hand.now)
    assert hand.raft.snapshot_begun(D, hand.raft.snapshot_base(), hand.now)


# --- the receiver


def test_a_stamp_after_a_snapshot_does_not_depend_on_what_was_before() -> None:
    hand = Hand(me=D, base=BLANK)
    hand.raft.restore(Base(30, 2, Configuration((A, B, C), learners=(D,))), hand.now)
    hand.append(A, 2, (30, 2), commands(2, age_us=5_000_000))
    assert hand.raft._replica.log.last_stamp_ns == hand.now - 4_990 * MS
