"""How far a member is, as its leader sees it, and what it may be sent (thesis 3.5, 10.2.1)."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from ticketing.raft.types import Member


class Flow(Enum):
    """How entries are sent to a member."""

    PROBE = "probe"
    """Where its log agrees is not known: one append at a time, `next` is a guess."""
    REPLICATE = "replicate"
    """It agrees up to `match`; everything from there to `next` is under way."""
    SNAPSHOT = "snapshot"
    """It needs what the log no longer has: heartbeats only until the snapshot is there."""


class ProgressView(NamedTuple):
    """A reading of one member's progress."""

    match: int
    next: int
    state: Flow
    heard_ns: int
    """When it last answered this lead; before its first answer, when lead or membership began. A gap in the leader's
    own loop is taken out of the silence: it was not the member's.
    """
    answered_ns: int
    """When it last answered this lead, gap or no gap; 0 where it has not."""
    inflight_bytes: int
    rolled_back: bool


class Progress:
    """Invariants: match < next; `match` was acknowledged in this term; only a proof lowers it."""

    __slots__ = (
        "acked_round",
        "acknowledged",
        "acknowledged_round",
        "answered_ns",
        "flow",
        "heard_ns",
        "match",
        "member",
        "next",
        "pin",
        "rolled_back",
        "sent_round",
        "snapshot_index",
        "waiting",
    )

    def __init__(self, member: Member, next_index: int, now_ns: int) -> None:
        self.member = member
        self.match = 0
        self.next = next_index
        self.flow = Flow.PROBE
        self.heard_ns = now_ns
        self.answered_ns = 0
        self.acked_round = 0
        """The newest round of which an answer came: the member followed this leader after that round began.
        """
        self.sent_round = 0
        self.waiting = False
        """PROBE: the one append is under way; the next goes with the next round."""
        self.acknowledged = 0
        """The greatest match shown on its present link; below, the newest round begun by then."""
        self.acknowledged_round = 0
        self.snapshot_index = 0
        """SNAPSHOT: the index of the snapshot on its way, 0 while none was begun."""
        self.pin = -1
        """The log after this index is kept for the member; -1: no longer than for anybody."""
        self.rolled_back = False

    def probe(self, next_index: int) -> None:
        """Starts over from a guess."""
        self.flow = Flow.PROBE
        self.next = max(next_index, self.match + 1)
        self.waiting = False
        self.snapshot_index = 0

    def renew_link(self) -> None:
        """Its link ended or is new: what was under way is lost, what it shows is judged from zero."""
        self.acknowledged = 0
        if self.flow is not Flow.SNAPSHOT:
            self.probe(self.match + 1)

    def want_snapshot(self) -> None:
        """What it needs next is not in the log any more."""
        self.flow = Flow.SNAPSHOT
        self.waiting = False
        self.snapshot_index = 0

    def acknowledge(self, match: int, round_: int) -> bool:
        """Its log equals ours up to `match`; True if that is news. `round_` is the newest begun."""
        if match > self.acknowledged:
            self.acknowledged = match
            self.acknowledged_round = round_
        if match <= self.match:
            return False
        self.match = match
        if self.next <= match:
            self.next = match + 1
        return True
