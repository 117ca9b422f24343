"""What was seen so far: of one process, and of one domain by all of its processes together."""

from __future__ import annotations

from tests.sim.invariants_desk import Owed
from tests.sim.invariants_turns import Idle
from ticketing.node.lead import Lead
from ticketing.node.snapshots import SnapshotSender
from ticketing.node.state import ReplicatedState
from ticketing.raft.core import Raft
from ticketing.raft.election import Role
from ticketing.raft.invariants import Witness
from ticketing.raft.types import Configuration, Entry, Member

Fact = tuple[int, bytes]
"""Kind and data of an entry."""


class Watched:
    """What was seen of one process last."""

    __slots__ = (
        "applied",
        "base",
        "commit",
        "commit_led",
        "facts",
        "idle",
        "last",
        "last_index",
        "owed",
        "raft",
        "role",
        "sender",
        "serving",
        "skipped",
        "standing",
        "state",
        "term",
        "token",
        "witness",
    )

    def __init__(self) -> None:
        self.idle = Idle()
        self.owed = Owed()
        self.raft: Raft | None = None
        self.witness: Witness | None = None
        self.facts: tuple[object, ...] = ()
        """Where nothing of this has changed there is nothing new to be looked at."""
        self.last: Entry | None = None
        self.last_index = 0
        self.base = 0
        """The index that the log began after."""
        self.applied = 0
        self.term = self.commit = 0
        self.role = Role.FOLLOWER
        self.state: ReplicatedState | None = None
        self.token = 0
        self.serving: Lead | None = None
        self.commit_led = 0
        """The commit index of its present lead."""
        self.standing: tuple[int, Role, int] | None = None
        self.skipped = 0
        self.sender: SnapshotSender | None = None


class Domain:
    """What is known of one domain by all its processes together."""

    def __init__(self, first_token: int, formed_ns: int) -> None:
        self.first_token = first_token
        self.formed_ns = formed_ns
        """When the first of its members knew of it."""
        self.highest_token = first_token - 1
        """Of all that were granted."""
        self.leaders: dict[int, Member] = {}
        self.decided: dict[int, tuple[int, Fact]] = {}
        """By index: term and content of what was committed."""
        self.highest = 1
        self.applied = 1
        """The highest index that any of its members has applied."""
        self.known: dict[tuple[int, int], Fact] = {}
        """By (index, term): the one content that such an entry has."""
        self.behind: dict[tuple[int, int], int] = {}
        """By (index, term): the term of the entry before it."""
        self.appended_ns: dict[tuple[int, int], int] = {}
        """By (index, term): when its leader appended it."""
        self.bases: dict[int, Configuration] = {}
        """By index that a log begins behind: the configuration in force there."""
        self.sums: dict[int, int] = {}
        self.token_of: dict[tuple[bytes, int], int] = {}
        """By key and owner: the token of its latest grant."""
        self.granted_ns: dict[tuple[int, int], int] = {}
        """By token and renewal: when the grant, or that extension, was appended, or earlier."""
