"""What the commit index was a moment ago: the measure of a learner that has caught up (spec 9, Replacement)."""

from __future__ import annotations

from collections import deque

from ticketing.raft.types import MS

_SAMPLE_EVERY_NS = 25 * MS
_SAMPLE_LATE_NS = 200 * MS


class CommitHistory:
    """The commit index of a moment ago, from samples taken as steps come; bounded by its window."""

    __slots__ = ("_samples", "ago_ns")

    def __init__(self, ago_ns: int) -> None:
        self.ago_ns = ago_ns
        self._samples: deque[tuple[int, int]] = deque()

    def note(self, now_ns: int, commit_index: int) -> None:
        """The commit index now."""
        samples = self._samples
        if not samples or now_ns - samples[-1][0] >= _SAMPLE_EVERY_NS:
            samples.append((now_ns, commit_index))
        while len(samples) > 1 and samples[1][0] <= now_ns - self.ago_ns:
            samples.popleft()

    def stood(self, now_ns: int) -> tuple[int, int] | None:
        """(when, index): the index that stood `ago_ns` before now; None where no sample is of that time."""
        if not self._samples:
            return None
        at_ns, index = self._samples[0]
        age_ns = now_ns - at_ns
        # Steps that stood still leave an index that is too old: it would prove less than it should.
        return (at_ns, index) if self.ago_ns <= age_ns <= self.ago_ns + _SAMPLE_LATE_NS else None
