"""What the dashboard asks of the cluster next."""

from __future__ import annotations

from dataclasses import dataclass

PAGE_MAX = 1_000
"""Rows of one answer (docs/admin.md); what lies behind is reached by a filter or the next page."""

PAGE_LEAST = 50

INTERVAL_LEAST_S = 0.25
INTERVAL_MOST_S = 60.0


@dataclass(frozen=True, slots=True)
class Want:
    """The lists to ask for beside every node's status."""

    order: str = "queue"
    prefix: str = ""
    after: str = ""
    """Where the page begins; by key alone."""
    limit: int = 100
    key: str | None = None
    """A key to be shown in full."""
    waiters: int = 100
    locks: bool = True

    def page(self) -> tuple[str, str, str]:
        """What makes it another list."""
        return self.order, self.prefix, self.after


def clamped(interval_s: float) -> float:
    """A refresh interval within its range."""
    return min(INTERVAL_MOST_S, max(INTERVAL_LEAST_S, interval_s))


def rows_for(visible: int) -> int:
    """How many rows to ask for so that scrolling a page further meets no end: few, for they cost the leader."""
    wanted = PAGE_LEAST
    while wanted < visible + PAGE_LEAST // 2 and wanted < PAGE_MAX:
        wanted *= 2
    return min(PAGE_MAX, wanted)
