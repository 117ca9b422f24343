"""The byte bound on what is not committed (spec 9; field report F078)."""

from tests.raft.hand import B, C, Hand, commands, leader, only
from ticketing.raft.log import ENTRY_OVERHEAD
from ticketing.raft.messages import AppendEntries, AppendReply, WireEntry
from ticketing.raft.replica import HAND_OUT_BYTES
from ticketing.raft.types import MIB, EntryKind, RaftSettings

SETTINGS = RaftSettings(uncommitted_bytes_max=10_000, uncommitted_bytes_reserved=2_000)


def test_the_default_is_16_mib_of_which_1_mib_is_reserved() -> None:
    hand = leader()
    assert hand.raft.room() == 15 * MIB - ENTRY_OVERHEAD
    assert hand.raft.room(reserved=True) == 16 * MIB - ENTRY_OVERHEAD


def test_what_fits_the_room_is_taken_and_nothing_more() -> None:
    hand = leader(settings=SETTINGS)
    room = hand.raft.room()
    last = hand.raft.last_index
    assert hand.raft.refusal(room + 1) == "full"
    assert hand.raft.propose(b"x" * (room + 1), hand.now) == 0
    assert hand.raft.last_index == last, "a refusal changes nothing"
    assert hand.raft.refusal(room) is None
    assert hand.raft.propose(b"x" * room, hand.now) == last + 1
    assert hand.raft.room() == 0


def test_what_frees_keys_has_a_reserve_of_its_own() -> None:
    hand = leader(settings=SETTINGS)
    hand.propose(b"x" * hand.raft.room())
    assert hand.raft.propose(b"grant", hand.now) == 0
    assert hand.raft.propose(b"release", hand.now, reserved=True)
    assert 0 < hand.raft.room(reserved=True) < 2_000


def test_commitment_makes_room() -> None:
    hand = leader(settings=SETTINGS)
    full = hand.raft.room()
    hand.propose(b"x" * full)
    hand.acknowledge(B)
    assert hand.raft.room() == full


def test_f078_a_new_leader_counts_what_earlier_terms_left() -> None:
    hand = Hand(settings=SETTINGS)
    hand.append(B, 2, (1, 1), commands(*[2] * 30))
    hand.lead()
    left = 30 * (len(b"term 2") + ENTRY_OVERHEAD) + ENTRY_OVERHEAD
    assert hand.raft.room() == 8_000 - left - ENTRY_OVERHEAD
    hand.acknowledge(C)
    assert hand.raft.room() == 8_000 - ENTRY_OVERHEAD


def test_f078_flapping_leaders_cannot_amass_a_log() -> None:
    """Terms come and go without a commitment; each leader fills what it may."""
    hand = Hand(settings=SETTINGS)
    for _ in range(10):
        hand.lead()
        while hand.raft.propose(b"x" * 100, hand.now):
            pass
        hand.turn()
        hand.hear(B, AppendReply(hand.raft.term + 1, 1, 0, 0))
    log = hand.raft._replica.log
    assert log.bytes_between(1, log.last_index) <= 8_000 + 10 * ENTRY_OVERHEAD


def test_an_entry_s_own_weight_is_counted_so_that_empty_ones_are_bounded_too() -> None:
    hand = leader(settings=SETTINGS)
    count = 0
    while hand.raft.propose(b"", hand.now):
        count += 1
    assert count == 8_000 // ENTRY_OVERHEAD


def test_nobody_but_a_leader_takes_proposals() -> None:
    hand = Hand()
    assert hand.raft.propose(b"x", hand.now) == 0
    assert (hand.raft.refusal(1), hand.raft.room()) == ("not_leader", 0)
    assert only(AppendEntries, hand.turn()) == []


def test_what_a_new_leader_commits_at_a_stroke_is_handed_out_in_slices() -> None:
    hand = Hand()
    size = HAND_OUT_BYTES // 2 - ENTRY_OVERHEAD
    left = [WireEntry(2, EntryKind.COMMANDS, b"x" * size, 0)] * 4
    left.append(WireEntry(2, EntryKind.COMMANDS, b"x" * 2 * HAND_OUT_BYTES, 0))
    hand.append(B, 2, (1, 1), left)
    hand.lead()
    barrier = hand.raft.begin_barrier()
    hand.turn()
    hand.acknowledge(C)
    assert hand.raft.commit_index == hand.raft.last_index == 7
    outputs = [hand.output]
    while hand.raft.applied_index < hand.raft.commit_index:
        hand.turn()
        outputs.append(hand.output)
    assert [[entry.index for entry in output.committed] for output in outputs] == [[2, 3], [4, 5], [6], [7]]
    # A barrier speaks of the state after all of it.
    assert [output.barriers for output in outputs] == [[], [], [], [barrier]]
