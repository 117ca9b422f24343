"""Snapshots and the log that is kept for them (Raft thesis, chapter 5; spec 9, replacement)."""

from tests.raft.hand import THREE, A, B, C, D, Hand, change, commands, leader, only
from ticketing.raft.election import Role
from ticketing.raft.log import ENTRY_OVERHEAD
from ticketing.raft.membership import swapping, with_learner
from ticketing.raft.messages import AppendEntries, AppendRefusal, AppendReply, PreVoteRequest
from ticketing.raft.progress import Flow, ProgressView
from ticketing.raft.types import BLANK, MS, Base, Configuration, ConfigurationChange, RaftSettings

LEARNING = with_learner(THREE, D)
JOINT = swapping(LEARNING, C, D)
SIZE = 10 + ENTRY_OVERHEAD


def progress(hand: Hand, member: tuple[int, int]) -> ProgressView:
    (found,) = (m for m in hand.raft.configuration.members() if m == member)
    view = hand.raft.progress(found)
    assert view is not None
    return view


def write(hand: Hand, entries: int, *members: tuple[int, int]) -> None:
    """Committed entries of SIZE bytes, acknowledged by B and whoever else is named."""
    known = [m for m in hand.raft.configuration.members() if m == B or m in members]
    for _ in range(entries):
        hand.propose(b"x" * 10)
        hand.acknowledge(*known)


def with_blank_learner(settings: RaftSettings | None = None) -> Hand:
    """A leader that just took in the blank learner D."""
    hand = leader(settings=settings)
    hand.raft.propose_configuration(ConfigurationChange(LEARNING), hand.now)
    hand.turn()
    hand.acknowledge(B)
    return hand


def refuse(hand: Hand, member: tuple[int, int]) -> None:
    """A blank process answers an append: there is nothing here."""
    view = progress(hand, member)
    round_ = hand.raft._election.lead.replication.round  # type: ignore[union-attr]
    hand.hear(D, AppendRefusal(hand.raft.term, round_, view.next - 1, 0, 0, 0))


# --- the leader


def test_a_blank_learner_needs_a_snapshot_and_the_node_is_told() -> None:
    hand = with_blank_learner()
    refuse(hand, D)
    assert hand.output.snapshots_wanted == [D]
    assert progress(hand, D).state is Flow.SNAPSHOT


def test_the_node_is_told_again_with_each_heartbeat_until_it_has_begun() -> None:
    hand = with_blank_learner()
    refuse(hand, D)
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


def test_meanwhile_it_gets_heartbeats_that_fit_any_log_and_no_entries() -> None:
    hand = with_blank_learner()
    refuse(hand, D)
    hand.raft.snapshot_begun(D, hand.raft.snapshot_base(), hand.now)
    hand.propose(b"x")
    beats = [m for member, m in only(AppendEntries, hand.wait(100 * MS)) if member == D]
    assert [(m.prev_index, m.entries) for m in beats] == [(0, []), (0, [])]
    blank = Hand(me=D, base=BLANK)
    assert blank.answer(A, beats[0]) == AppendReply(2, beats[0].round, 0, 0)


def test_after_the_snapshot_the_log_goes_on_from_it() -> None:
    hand = with_blank_learner()
    refuse(hand, D)
    base = hand.raft.snapshot_base()
    hand.raft.snapshot_begun(D, base, hand.now)
    hand.propose(b"a", b"b")
    hand.raft.snapshot_done(D, hand.now)
    messages = [m for member, m in only(AppendEntries, hand.turn()) if member == D]
    assert [(m.prev_index, len(m.entries)) for m in messages] == [(base.index, 2)]


def test_the_receiver_s_own_word_serves_as_well_as_the_stream_s_end() -> None:
    hand = with_blank_learner()
    refuse(hand, D)
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
    refuse(hand, D)
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
    refuse(hand, D)
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


def test_a_member_that_lags_further_than_the_log_reaches_gets_a_snapshot() -> None:
    hand = leader(settings=RaftSettings(log_keep_bytes=4 * SIZE, inflight_bytes_max=2 * SIZE))
    write(hand, 20)
    assert hand.raft.log_base_index > progress(hand, C).next
    assert progress(hand, C).state is Flow.SNAPSHOT
    assert progress(hand, C).next <= 5, "nothing more was sent once the window was full"
    hand.wait(50 * MS)
    assert hand.output.snapshots_wanted == [C]


def test_and_goes_on_without_one_when_it_turns_out_to_be_further() -> None:
    hand = leader(settings=RaftSettings(log_keep_bytes=4 * SIZE, inflight_bytes_max=2 * SIZE))
    write(hand, 20)
    hand.wait(50 * MS)
    hand.acknowledge(C, match=hand.raft.last_index - 1)
    assert progress(hand, C).state is Flow.REPLICATE


# --- the log that is kept


def test_the_log_after_a_begun_snapshot_is_kept() -> None:
    hand = with_blank_learner(RaftSettings(log_keep_bytes=2 * SIZE))
    refuse(hand, D)
    base = hand.raft.snapshot_base()
    hand.raft.snapshot_begun(D, base, hand.now)
    write(hand, 30)
    assert hand.raft.log_base_index <= base.index


def test_and_after_its_end_until_the_member_has_come_level() -> None:
    hand = with_blank_learner(RaftSettings(log_keep_bytes=2 * SIZE))
    refuse(hand, D)
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
    refuse(hand, D)
    hand.raft.snapshot_begun(D, hand.raft.snapshot_base(), hand.now)
    given_up = []
    for _ in range(15):
        write(hand, 1)
        given_up += hand.output.given_up
    assert given_up == [D]
    assert hand.raft.log_base_index >= hand.raft.last_index - 3


def test_a_snapshot_older_than_the_log_is_refused() -> None:
    hand = with_blank_learner(RaftSettings(log_keep_bytes=0))
    refuse(hand, D)
    base = hand.raft.snapshot_base()
    write(hand, 5)
    assert not hand.raft.snapshot_begun(D, base, hand.now)
    assert hand.raft.snapshot_begun(D, hand.raft.snapshot_base(), hand.now)


# --- what a snapshot covers


def test_a_snapshot_carries_the_configuration_that_was_in_force_at_its_index() -> None:
    hand = leader()
    hand.raft.propose_configuration(ConfigurationChange(LEARNING), hand.now)
    hand.turn()
    assert hand.raft.configuration == LEARNING
    assert hand.raft.snapshot_base() == Base(2, 2, THREE), "the change is not committed"
    hand.acknowledge(B)
    assert hand.raft.snapshot_base() == Base(3, 2, LEARNING)


def test_taken_in_a_joint_configuration_it_says_so_and_the_receiver_lives_by_it() -> None:
    hand = leader(LEARNING)
    hand.raft.propose_configuration(ConfigurationChange(JOINT), hand.now)
    hand.turn()
    hand.acknowledge(B)
    base = hand.raft.snapshot_base()
    assert base.configuration == JOINT
    receiver = Hand(me=D, base=BLANK)
    assert receiver.raft.restore(base, receiver.now)
    assert receiver.raft.term == base.term
    assert [member for member, _ in only(PreVoteRequest, receiver.time_out())] == [A, B, C]


# --- the receiver


def test_a_snapshot_takes_the_place_of_a_log_without_its_base() -> None:
    hand = Hand()
    hand.append(B, 2, (1, 1), commands(2, 2))
    assert hand.raft.restore(Base(10, 5, LEARNING), hand.now)
    assert hand.log() == []
    assert (hand.raft.commit_index, hand.raft.applied_index, hand.raft.last_index) == (10, 10, 10)
    assert (hand.raft.configuration, hand.raft.last_term) == (LEARNING, 5)


def test_one_of_another_term_at_that_index_too() -> None:
    hand = Hand()
    hand.append(B, 2, (1, 1), commands(2, 2, 2))
    assert hand.raft.restore(Base(3, 5, THREE), hand.now)
    assert (hand.raft.last_index, hand.log()) == (3, [])


def test_a_log_that_contains_the_base_keeps_what_comes_after_it() -> None:
    hand = Hand()
    hand.append(B, 2, (1, 1), [*commands(2, 2), change(2, LEARNING), *commands(2)])
    assert hand.raft.restore(Base(3, 2, THREE), hand.now)
    assert hand.log() == [(4, 2), (5, 2)]
    assert (hand.raft.configuration, hand.raft.committed_configuration) == (LEARNING, THREE)
    hand.append(B, 2, (5, 2), [], commit=5)
    assert [entry.index for entry in hand.committed] == [4, 5], "and what the snapshot has is not repeated"


def test_a_snapshot_that_is_not_past_the_commit_index_changes_nothing() -> None:
    hand = Hand()
    hand.append(B, 2, (1, 1), commands(2, 2), commit=3)
    before = hand.raft.shows(), hand.log(), hand.raft.configuration
    assert not hand.raft.restore(Base(3, 2, LEARNING), hand.now)
    assert (hand.raft.shows(), hand.log(), hand.raft.configuration) == before


def test_the_leader_is_told_at_once_where_to_go_on() -> None:
    hand = Hand(me=D, base=BLANK)
    beat = AppendEntries(2, 7, 0, 0, 40, [])
    hand.hear(A, beat)
    assert hand.raft.restore(Base(30, 2, LEARNING), hand.now)
    assert hand.turn() == [(A, AppendReply(2, 7, 30, 30))]


def test_a_campaign_under_the_old_log_is_off() -> None:
    hand = Hand()
    hand.campaign()
    assert hand.raft.restore(Base(30, 2, THREE), hand.now)
    assert hand.plays(Role.FOLLOWER)


def test_a_stamp_after_a_snapshot_does_not_depend_on_what_was_before() -> None:
    hand = Hand(me=D, base=BLANK)
    hand.raft.restore(Base(30, 2, Configuration((A, B, C), learners=(D,))), hand.now)
    hand.append(A, 2, (30, 2), commands(2, age_us=5_000_000))
    assert hand.raft._replica.log.last_stamp_ns == hand.now - 4_990 * MS
