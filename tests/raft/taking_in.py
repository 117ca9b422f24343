"""A leader that takes the blank process D in, and what tests of snapshots say of it."""

from tests.raft.hand import THREE, B, D, Hand, leader
from ticketing.raft.log import ENTRY_OVERHEAD
from ticketing.raft.membership import with_learner
from ticketing.raft.messages import AppendRefusal
from ticketing.raft.progress import ProgressView
from ticketing.raft.types import ConfigurationChange, RaftSettings

LEARNING = with_learner(THREE, D)
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


def refuse(hand: Hand) -> None:
    """A blank process answers an append: there is nothing here."""
    view = progress(hand, D)
    round_ = hand.raft._election.lead.replication.round  # type: ignore[union-attr]
    hand.hear(D, AppendRefusal(hand.raft.term, round_, view.next - 1, 0, 0, 0))
