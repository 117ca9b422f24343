"""When a majority could serve, and how long nothing was granted then.

A majority *could serve* while more than half of the places have a voter whose process runs, whose clocks are in
range and that no limit chokes, each of which reaches each other of them in both directions, and all of which some
clients reach. A leader that has such a majority stays, whoever reaches it: then it is one of those that clients have to
reach. What it takes to notice a fault, to elect and to find the leader lies within such a time: it is what is measured.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Sequence
from itertools import combinations, pairwise
from typing import NamedTuple


def majority(
    fit: Collection[str],
    places: int,
    connected: Callable[[str, str], bool],
    reached: Callable[[str], bool],
    leader: str | None = None,
) -> bool:
    """Whether enough of those who are fit are all connected with each other, and reached by clients; `leader` leads."""
    enough = places // 2 + 1
    if leader is not None and leader in fit and not reached(leader):
        followers = sum(connected(leader, other) for other in fit if other != leader)
        if followers + 1 >= enough:
            return False  # no voter has a reason to elect another
    usable = [name for name in sorted(fit) if reached(name)]
    return any(
        all(connected(one, other) for one, other in combinations(group, 2))
        for group in combinations(usable, enough)
    )


class Gap(NamedTuple):
    """A time without a grant, in seconds of the run's clock."""

    seconds: float
    began: float


class Timeline:
    """The times in which a majority could serve. Told in order."""

    def __init__(self) -> None:
        self.spans: list[tuple[float, float]] = []
        self._since: float | None = None
        self._over = False

    def note(self, at: float, could_serve: bool) -> None:
        """So it is from now on."""
        if self._over:
            return
        if could_serve and self._since is None:
            self._since = at
        elif not could_serve and self._since is not None:
            self.spans.append((self._since, at))
            self._since = None

    def finish(self, at: float) -> None:
        """What comes later does not count."""
        self.note(at, False)
        self._over = True

    @property
    def total(self) -> float:
        return sum(end - begin for begin, end in self.spans)

    def gaps(self, grants: Sequence[float]) -> list[Gap]:
        """The times between grants (in order) that lie wholly within a span; the longest first."""
        found: list[Gap] = []
        for begin, end in self.spans:
            inside = grants[bisect_left(grants, begin) : bisect_right(grants, end)]
            moments = [begin, *inside, end]
            found.extend(Gap(later - earlier, earlier) for earlier, later in pairwise(moments))
        return sorted(found, reverse=True)
