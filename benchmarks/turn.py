"""What a turn costs, by its parts: the logic of one or three nodes in one process, without sockets (`turn_job`).

With `--against FOLDER`, another working copy of this project, both run in a process of their own and take turns; of a
pair of turns the ratio is taken, and shown is the median of all. Times are medians of a part's time in one round: of an
acquire and its release of every worker, or of a hand-over of each key.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from types import TracebackType

from benchmarks.figures import table

JOB = Path(__file__).with_name("turn_job.py")
OURS = JOB.parent.parent
ROUNDS = {"one": 600, "queue": 300, "many": 40}
FOLLOWING = ("append", "flush after append")
"""Parts of the two followers; all others are the leader's."""


class Nodes:
    """A child process with the nodes of one working copy; leaving the context ends it."""

    def __init__(self, folder: Path, nodes: int) -> None:
        environment = {**os.environ, "PYTHONPATH": str(folder)}
        self._process = subprocess.Popen(
            [sys.executable, str(JOB), str(nodes)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def turn(self, workload: str, rounds: int | None = None) -> dict[str, float]:
        """Microseconds of each part in one round; `leader` and `followers` are sums."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{workload} {rounds or ROUNDS[workload]}\n")
        self._process.stdin.flush()
        parts = {part: ns / 1000 for part, ns in json.loads(self._process.stdout.readline()).items()}
        followers = sum(parts.get(part, 0.0) for part in FOLLOWING)
        return {"leader": sum(parts.values()) - followers, "followers": followers, **parts}

    def __enter__(self) -> Nodes:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        if self._process.wait(10) and error is None:
            raise RuntimeError(f"{JOB.name} ended with {self._process.returncode}")


def rows_of(workload: str, mine: list[dict[str, float]], theirs: list[dict[str, float]]) -> list[list[str]]:
    rows = []
    for part in mine[0]:
        ours = [turn.get(part, 0.0) for turn in mine]
        row = [workload, part, f"{statistics.median(ours):.1f}"]
        if theirs:
            others = [turn.get(part, 0.0) for turn in theirs]
            ratios = [one / other for one, other in zip(ours, others, strict=True) if other]
            row.append(f"{statistics.median(others):.1f}")
            row.append(f"{statistics.median(ratios):.3f}" if ratios else "")
        if any(ours):
            rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "workloads", nargs="*", choices=[*ROUNDS, []], help=f"of {', '.join(ROUNDS)}; all of them"
    )
    parser.add_argument("--nodes", type=int, choices=(1, 3), default=3)
    parser.add_argument("--turns", type=int, default=15, help="of each working copy")
    parser.add_argument("--against", type=Path, help="another working copy to compare with")
    arguments = parser.parse_args()
    header = ["workload", "part", "µs a round"]
    rows = []
    with Nodes(OURS, arguments.nodes) as ours:
        if arguments.against is None:
            for workload in arguments.workloads or ROUNDS:
                rows += rows_of(workload, [ours.turn(workload) for _ in range(arguments.turns)], [])
        else:
            header += ["other", "ratio"]
            with Nodes(arguments.against.resolve(), arguments.nodes) as other:
                for workload in arguments.workloads or ROUNDS:
                    pairs = [(ours.turn(workload), other.turn(workload)) for _ in range(arguments.turns)]
                    rows += rows_of(workload, [mine for mine, _ in pairs], [theirs for _, theirs in pairs])
    print(table(header, rows))


if __name__ == "__main__":
    main()
