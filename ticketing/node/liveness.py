"""Facts about the members as their leader sees them, and what they say about who lives (spec 9).

Two questions are kept apart. A voter is *living* when a link to it is up and it was heard within a second:
only the living count when somebody wants to leave. Its place may be *taken* when it is the contrary of
both: no link, and not heard for a second. In between (a link, but silence) neither is assumed, nor is it of
anybody while the leader has just begun or stood still.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from ticketing.node.members import Members
from ticketing.node.settings import S
from ticketing.raft.types import Configuration, Member

SILENT_NS = 1 * S


class MemberFacts(NamedTuple):
    """One member other than the leader, as the leader sees it now."""

    linked: bool
    """Whether any link with exactly this process life is up, dialled or accepted."""
    heard_ns: int
    """Elapsed clock when it last answered this leader; the beginning of the lead or of the membership before that. For
    as long as the leader's own loop stood still nobody counts as silent. Judges who is *gone*.
    """
    answered_ns: int
    """Elapsed clock when it last answered this leader, whatever the leader did meanwhile; 0 where it has not. Judges
    who *lives*: what a leader that has just begun, or stood still, has not heard it does not know.
    """
    match: int
    """Its log equals the leader's up to here."""
    given_up: bool = False
    """Raft no longer keeps the log for its catching up (past the bound)."""
    progress: str = ""
    """How its catching up stands, for people; may be empty."""


class ClusterFacts(NamedTuple):
    """What the leader knows when it is asked for a decision."""

    me: Member
    configuration: Configuration
    """The newest in the log."""
    configuration_index: int
    committed: bool
    """The entry of `configuration` is committed and applied here, so `members` is what belongs to it."""
    ready: bool
    """Its own first entry is committed and its lead is confirmed (no gap of its own loop is open)."""
    since_ns: int
    """When this lead began."""
    commit_index: int
    members: Members
    peers: Mapping[Member, MemberFacts]
    """Every member of `configuration` but `me`."""
    leaving: tuple[Member, ...] = ()
    """Voters that were given leave to stop, `me` among them where it stops."""

    def living(self, member: Member, now_ns: int) -> bool:
        """Whether a link is up, it was heard within a second, and it is not about to stop."""
        if member in self.leaving:
            return False
        if member == self.me:
            return True
        facts = self.peers.get(member)
        return facts is not None and facts.linked and now_ns - facts.answered_ns < SILENT_NS

    def silent(self, member: Member, now_ns: int) -> bool:
        """Whether it was seen not to live: no link, not heard for a second, or about to stop."""
        if member in self.leaving:
            return True
        if member == self.me:
            return False
        facts = self.peers.get(member)
        return facts is None or not facts.linked or now_ns - facts.heard_ns >= SILENT_NS

    def gone(self, member: Member, now_ns: int) -> bool:
        """Whether its place may be taken by whoever comes for it: no link, and not heard for a second."""
        if member == self.me:
            return False
        facts = self.peers.get(member)
        return facts is None or (not facts.linked and now_ns - facts.heard_ns >= SILENT_NS)

    def not_living(self, now_ns: int) -> list[Member]:
        """The voters (of the new half, where joint) that are not living."""
        return [voter for voter in self.configuration.voters if not self.living(voter, now_ns)]

    def place_of(self, member: Member) -> str:
        """The name of its place, or its number where no record is known."""
        record = self.members.find(member)
        return record.place if record is not None else str(member)

    def seen(self, member: Member, now_ns: int) -> str:
        """How a member looks from here, for people."""
        if member == self.me:
            return "it is the leader itself"
        facts = self.peers.get(member)
        if facts is None:
            return "nothing is known of it"
        link = "a link is up" if facts.linked else "no link"
        return f"{link}, heard {(now_ns - facts.heard_ns) / S:.1f} s ago"


def spare(voters: Iterable[Member], living: Callable[[Member], bool]) -> int:
    """How many more of these voters may be lost while a majority of them lives; negative where none lives
    now.
    """
    total = alive = 0
    for voter in voters:
        total += 1
        alive += living(voter)
    return alive - (total // 2 + 1)


def redundancy(configuration: Configuration, living: Callable[[Member], bool]) -> int:
    """Failures until the domain is lost; during a change the smaller figure of both halves (spec 9).

    0 is an alarm: one more failure ends the domain. -1: a majority does not live already.
    """
    figure = spare(configuration.voters, living)
    if configuration.outgoing:
        figure = min(figure, spare(configuration.outgoing, living))
    return max(figure, -1)
