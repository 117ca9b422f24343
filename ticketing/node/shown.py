"""What members have shown of their Raft state, and whether a member now shows itself rolled back (spec 9,
Identity).

State is volatile, so a process that forgot its term or its vote (a restored machine image, a clone) could
vote twice in one term. The hello of a new link states term, vote and last index, and covers the receiver's
nonce: it was made after that nonce was sent, so it must not fall behind anything that its sender had shown
before. What arrived later says nothing: it may be younger than the hello.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ticketing.raft.types import Member

MEMBERS_MAX = 64
"""Members kept in a record. A domain has at most 6 at a time; what was heard of longest ago makes room."""


class Shows(NamedTuple):
    """A process's own Raft state as it states it in a hello."""

    term: int = 0
    vote: Member | None = None
    """Whom it voted for in `term`; None states that it has not voted there."""
    last_index: int = 0


class Shown(NamedTuple):
    """The greatest term a member has shown, and the vote it has shown in it (None: nothing known of a
    vote).
    """

    term: int
    vote: Member | None


Mark = Mapping[Member, Shown]
"""What every member had shown at the moment an own nonce was sent. Records are immutable, so a shallow
copy holds.
"""


class ShownRecord:
    """Keeps, for each member, the greatest term that it has shown and its vote there. Bounded by
    `MEMBERS_MAX`.
    """

    __slots__ = ("_shown",)

    def __init__(self) -> None:
        self._shown: dict[Member, Shown] = {}

    def seen(self, member: Member, term: int, vote: Member | None = None) -> None:
        """`member` has shown that it is in `term` and, if `vote` is given, whom it voted for there.

        Real terms only, never the prospective one of a PreVote. A vote request or an AppendEntries shows a
        vote for its own sender, a granted vote one for whoever asked, an accepted hello the one that it
        states.
        """
        shown = self._shown.get(member)
        if shown is None:
            while len(self._shown) >= MEMBERS_MAX:
                del self._shown[next(iter(self._shown))]
        elif term < shown.term or (term == shown.term and (vote is None or vote == shown.vote)):
            return
        elif term == shown.term and shown.vote is not None:
            # Two votes in one term on running links: the first stays, so that the next hello is judged by it.
            return
        else:
            del self._shown[member]
        self._shown[member] = Shown(term, vote)

    def mark(self) -> Mark:
        """To be taken at the moment an own nonce is sent, for the judgement of what covers that nonce."""
        return self._shown.copy()

    def rolled_back(self, member: Member, shows: Shows, mark: Mark) -> bool:
        """Whether `shows` falls behind the mark: a lower term, or another vote in the same term.

        No vote where one had been shown is another vote. The last index is not judged here: logs may be cut.
        """
        shown = mark.get(member)
        if shown is None:
            return False
        if shows.term != shown.term:
            return shows.term < shown.term
        return shown.vote is not None and shows.vote != shown.vote

    def forget(self, member: Member) -> None:
        """Drops a member that a committed configuration has removed: it is refused for that, whatever it
        shows.
        """
        self._shown.pop(member, None)
