"""The figures of a run: written as JSON, and printed for people."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

TOLD_S = 3.0
"""What was under way in a longer time without a grant is printed."""
ENDED_BADLY = re.compile(r"Traceback|internal fault")


@dataclass
class LongGap:
    """A time without a grant, though a majority could serve."""

    seconds: float
    from_second: float
    """Of the run."""
    noted: list[str]
    """What the run's log says of that time, and of the seconds before it."""


@dataclass
class Report:
    """What a run was, what it did, and what came of it."""

    seed: int
    nodes: int
    minutes: float
    version: str
    seconds: float = 0.0
    rounds: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    withheld: dict[str, int] = field(default_factory=dict)
    operations: dict[str, int] = field(default_factory=dict)
    fenced_writes: int = 0
    stale_writes_refused: int = 0
    elections: int = 0
    terms: int = 0
    program_lives: int = 0
    node_lives: int = 0
    majority_could_serve_s: float = 0.0
    longest_without_grant_s: float = 0.0
    gaps_over_1_s: int = 0
    gaps_over_3_s: int = 0
    longest_gaps: list[LongGap] = field(default_factory=list)
    longest_refill_s: float = 0.0
    longest_stall_s: float = 0.0
    """For so long the machine served somebody else, and not this run."""
    gate_closings: int = 0
    violations: list[str] = field(default_factory=list)
    kept: str | None = None

    @property
    def telling(self) -> bool:
        """Whether there is something in it to look at: all that was written is kept then."""
        return bool(self.violations) or self.longest_without_grant_s > TOLD_S

    @property
    def granted(self) -> int:
        return self.operations.get("acquire: granted", 0)

    def write(self, file: Path) -> None:
        file.write_text(json.dumps(asdict(self), indent=2) + "\n")

    def text(self) -> str:
        """For people."""
        rows = [
            f"seed {self.seed}, {self.nodes} nodes, {self.seconds:.0f} s, version {self.version}",
            f"{self.rounds} rounds, {sum(self.faults.values())} faults: {_counts(self.faults)}",
            f"withheld: {_counts(self.withheld)}",
            f"operations: {sum(self.operations.values())}: {_counts(self.operations)}",
            f"{self.fenced_writes} fenced writes, {self.stale_writes_refused} refused as stale",
            f"{self.elections} elections, highest term {self.terms}; the clock gate closed {self.gate_closings} times",
            f"{self.node_lives} lives of nodes, {self.program_lives} of programs",
            f"a majority could serve for {self.majority_could_serve_s:.0f} s",
            f"longest without a grant meanwhile: {self.longest_without_grant_s:.2f} s",
            f"without a grant meanwhile for over 1 s: {self.gaps_over_1_s}, for over 3 s: {self.gaps_over_3_s}",
            *(line for gap in self.longest_gaps if gap.seconds > TOLD_S for line in _told(gap)),
            f"longest until every place had its voter again: {self.longest_refill_s:.1f} s",
            f"longest time for which the machine served somebody else: {self.longest_stall_s:.2f} s",
            f"violations: {len(self.violations)}",
            *self.violations,
        ]
        if self.kept is not None:
            rows.append(f"kept: {self.kept}")
        return "\n".join(rows)


def _told(gap: LongGap) -> list[str]:
    return [
        f"  {gap.seconds:.2f} s from second {gap.from_second:.2f} on, of which the log says:",
        *(f"    {line}" for line in gap.noted),
    ]


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "none"


def read_node_logs(logs: Iterable[Path]) -> tuple[set[int], int, list[str]]:
    """The terms in which somebody led, how often a leader's gate closed, and what no node should say."""
    terms: set[int] = set()
    closings = 0
    bad: list[str] = []
    for log in logs:
        if not log.exists():
            continue
        with log.open(errors="replace") as lines:
            for line in lines:
                if ENDED_BADLY.search(line):
                    bad.append(f"{log}: {line.strip()[:600]}")
                if not line.startswith("{"):
                    continue
                try:
                    told = json.loads(line)
                except ValueError:
                    continue
                if told.get("event") == "leading":
                    terms.add(int(told["term"]))
                elif told.get("event") == "clock gate" and told.get("gate") == "closed":
                    closings += 1
    return terms, closings, bad
