"""The record of many runs: which seeds were run, with which sources, and what they came to.

It is a small JSON file that one campaign after another adds to. A seed is another run with other sources, so each
state of the sources has an entry of its own, and only its seeds are left out when it is run again. The file is
replaced as a whole, so it is true whenever the program ends.
"""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from tests.sim.run import Result
from tests.sim.world import S

ROOT = Path(__file__).parents[2]
SOURCES = ("ticketing", "tests/sim")
"""What a run depends on."""


class Violated(msgspec.Struct):
    """One finding."""

    seed: int
    failure: str


class Entry(msgspec.Struct):
    """The runs of one state of the sources."""

    sources: str
    """A digest of them."""
    commit: str = ""
    """What was checked out, for people."""
    seeds: list[tuple[int, int]] = []
    """Ranges, both ends included, rising, none adjacent to the next."""
    count: int = 0
    events: int = 0
    virtual_s: float = 0.0
    cpu_s: float = 0.0
    real_s: float = 0.0
    grants: int = 0
    leads: int = 0
    conflicts: int = 0
    changes: int = 0
    snapshots: int = 0
    violated: list[Violated] = []

    def add(self, result: Result) -> None:
        """One more run."""
        self.seeds = merged([*self.seeds, (result.seed, result.seed)])
        self.count += 1
        self.events += result.events
        self.virtual_s += result.virtual_ns / S
        self.cpu_s += result.cpu_s
        self.grants += result.grants
        self.leads += result.leads
        self.conflicts += result.conflicts
        self.changes += result.changes
        self.snapshots += result.snapshots
        if result.failure:
            self.violated.append(Violated(result.seed, result.failure))

    def __str__(self) -> str:
        events_s = self.events / max(self.cpu_s, 1e-9)
        ratio = self.virtual_s / max(self.cpu_s, 1e-9)
        return (
            f"{self.count} seeds, {len(self.violated)} violated; {self.events} events; virtual {self.virtual_s:.0f} s"
            f" in {self.cpu_s:.0f} s of CPU time ({events_s:.0f} events/s, virtual:CPU {ratio:.0f})"
            f" and {self.real_s:.0f} s (virtual:real {self.virtual_s / max(self.real_s, 1e-9):.0f});"
            f" {self.grants} grants, {self.leads} leads, {self.conflicts} conflicts of logs,"
            f" {self.changes} changes of members, {self.snapshots} snapshots"
        )


class Record(msgspec.Struct):
    """All entries, in the order in which they were begun."""

    entries: list[Entry] = []

    @classmethod
    def load(cls, path: Path) -> Record:
        """The record in a file; an empty one where there is no file."""
        return msgspec.json.decode(path.read_bytes(), type=cls) if path.exists() else cls()

    def save(self, path: Path) -> None:
        """Replaces the file, in a folder that may be new."""
        path.parent.mkdir(parents=True, exist_ok=True)
        written = path.with_name(path.name + ".new")
        written.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n")
        written.replace(path)

    def entry(self, sources: str, commit: str = "") -> Entry:
        """The entry of a state of the sources, a new one perhaps."""
        for entry in self.entries:
            if entry.sources == sources:
                return entry
        self.entries.append(Entry(sources, commit))
        return self.entries[-1]

    def total(self) -> Entry:
        """All of it added up."""
        total = Entry("all")
        for entry in self.entries:
            total.seeds = merged([*total.seeds, *entry.seeds])
            total.count += entry.count
            total.events += entry.events
            total.virtual_s += entry.virtual_s
            total.cpu_s += entry.cpu_s
            total.real_s += entry.real_s
            total.grants += entry.grants
            total.leads += entry.leads
            total.conflicts += entry.conflicts
            total.changes += entry.changes
            total.snapshots += entry.snapshots
            total.violated += entry.violated
        return total


def merged(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same seeds in as few ranges as can be."""
    result: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if result and low <= result[-1][1] + 1:
            result[-1] = result[-1][0], max(result[-1][1], high)
        else:
            result.append((low, high))
    return result


def missing(ranges: Iterable[tuple[int, int]], first: int, last: int) -> Iterator[int]:
    """The seeds first..last that are in none of the ranges."""
    seed = first
    for low, high in merged(ranges):
        yield from range(seed, min(low, last + 1))
        seed = max(seed, high + 1)
    yield from range(seed, last + 1)


def present_sources() -> str:
    """A digest of all that a run depends on, the interpreter apart."""
    summed = hashlib.sha256()
    for folder in SOURCES:
        for path in sorted((ROOT / folder).rglob("*.py")):
            summed.update(f"{path.relative_to(ROOT)}\n".encode())
            summed.update(path.read_bytes())
    return summed.hexdigest()[:12]


def present_commit() -> str:
    """What is checked out, as far as that can be told."""
    command = ["git", "rev-parse", "--short=10", "HEAD"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"
