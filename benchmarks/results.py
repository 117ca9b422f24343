"""The file of results: what was run, on what, and every single figure. Tables and plots are made from it alone."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

from benchmarks.load.figures import Figures
from benchmarks.load.outage import Outage
from benchmarks.plan import Entrant
from benchmarks.systems.processes import PROJECT

FOLDER = PROJECT / "docs" / "performance"
FILE = FOLDER / "results.json"


class Results:
    """Runs and trials, each a flat record."""

    def __init__(self, facts: dict[str, Any] | None = None) -> None:
        self.facts = facts or {"run": machine()}
        self.facts.setdefault("runs", [])
        self.facts.setdefault("failovers", [])

    @classmethod
    def read(cls, path: Path) -> Results:
        return cls(json.loads(path.read_text()))

    @classmethod
    @contextlib.contextmanager
    def extend(cls, path: Path) -> Iterator[Results]:
        """What is in the file (nothing, if there is none), written back at the end."""
        results = cls.read(path) if path.exists() else cls()
        yield results
        results.write(path)

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [f'"{name}": {_rows(content)}' for name, content in self.facts.items()]
        path.write_text("{\n" + ",\n".join(lines) + "\n}\n")

    def forget(self, act: str) -> None:
        """Drops the runs of an act: it is about to be run anew."""
        self.facts["runs"] = [one for one in self.facts["runs"] if one["act"] != act]

    def note(self, act: str, versions: dict[str, str], idle_share: float) -> None:
        """What ran in an act, and the share of a core that it took when nobody asked."""
        said = {name: version for name, version in versions.items() if version}
        self.facts["run"] = machine() | {
            "versions": self.facts["run"].get("versions", {}) | said,
            "idle": self.facts["run"].get("idle", {}) | {act: round(idle_share, 4)},
        }

    def add_run(
        self,
        act: str,
        workload: str,
        system: str,
        client: str,
        number: int,
        figures: Figures,
        arrivals: float | None = None,
    ) -> None:
        """One run of one workload; `number` of the round; `arrivals` a second, of an open loop."""
        record = {"act": act, "workload": workload, "system": system, "client": client, "round": number}
        if arrivals is not None:
            record["arrivals"] = round(arrivals, 1)
        self.facts["runs"].append(record | figures)

    def add_failovers(self, system: str, client: str, kind: str, outages: Sequence[Outage]) -> None:
        """Replaces the trials of that kind, if there are any."""
        key = (system, client, kind)
        kept = [one for one in self.facts["failovers"] if (one["system"], one["client"], one["kind"]) != key]
        self.facts["failovers"] = kept + [
            {"system": system, "client": client, "kind": kind, **outage} for outage in outages
        ]

    def runs(self, act: str, workload: str, entrant: Entrant) -> dict[int, Figures]:
        """By round."""
        return {
            one["round"]: cast("Figures", one)
            for one in self.facts["runs"]
            if (one["act"], one["workload"], one["system"], one["client"]) == (act, workload, *entrant)
        }

    def arrivals(self, act: str, workload: str, entrant: Entrant) -> float:
        """The rate that an open loop was asked for: the same in all rounds."""
        (found,) = {
            one["arrivals"]
            for one in self.facts["runs"]
            if (one["act"], one["workload"], one["system"], one["client"]) == (act, workload, *entrant)
        }
        return float(found)

    def median_of(self, acts: Sequence[str], workload: str, entrant: Entrant, figure: str) -> float | None:
        """The median over the rounds, from the first of the acts that has any; None where none has."""
        for act in acts:
            runs = self.runs(act, workload, entrant)
            if runs:
                return statistics.median(_figure(run, figure) for run in runs.values())
        return None

    def ratio(self, act: str, workload: str, one: Entrant, other: Entrant, figure: str) -> float | None:
        """The median over the rounds of the ratio within a round; None where there is no round with both."""
        ours, theirs = self.runs(act, workload, one), self.runs(act, workload, other)
        ratios = [_figure(ours[n], figure) / _figure(theirs[n], figure) for n in ours if n in theirs]
        return statistics.median(ratios) if ratios else None

    def gaps_s(self, system: str, client: str, kind: str) -> list[float]:
        """The outages of all trials."""
        return [
            one["gap_s"]
            for one in self.facts["failovers"]
            if (one["system"], one["client"], one["kind"]) == (system, client, kind)
        ]

    def lost(self, system: str, client: str, kind: str) -> int:
        """Answered grants that were lost, in all trials."""
        return sum(
            one["lost"]
            for one in self.facts["failovers"]
            if (one["system"], one["client"], one["kind"]) == (system, client, kind)
        )


def _figure(run: Figures, name: str) -> float:
    return float(cast("dict[str, float]", run)[name])


def _rows(content: Any) -> str:
    """A list has one line an element, so that versions of the file can be compared."""
    if not isinstance(content, list):
        return json.dumps(content)
    return "[\n" + ",\n".join(json.dumps(one) for one in content) + "\n]"


def machine() -> dict[str, Any]:
    """What the figures were made on."""
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "commit": _commit(),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def _commit() -> str:
    command = ["git", "-C", str(PROJECT), "rev-parse", "--short", "HEAD"]
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    return ""
