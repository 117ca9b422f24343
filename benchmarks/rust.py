"""Pairs of acquire and release by the Rust library, beside the Python library on the same server.

Both run in a process of their own and take turns of the same number of pairs; what is printed are medians over the
turns, so a machine that others use as well changes both alike. Each task has a key of its own: nobody waits for
anybody. The Rust side is built first (`cargo build --release --example bench`), which needs Cargo.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from benchmarks.cluster import BenchCluster
from benchmarks.figures import table

PYTHON_JOB = Path(__file__).with_name("client_job.py")
CRATE = Path(__file__).parents[1] / "clients" / "rust"


class Turn(NamedTuple):
    """What one turn of one library took."""

    cpu_ns: int
    took_ns: int
    pairs: int
    median_ns: int


class Library:
    """A child process with one broker; leaving the context ends it."""

    def __init__(self, command: Sequence[str], cluster: BenchCluster, order: str) -> None:
        self._order = order
        self._process = subprocess.Popen(
            [*command, cluster.token, *cluster.addresses],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def turn(self, tasks: int, pairs: int) -> Turn:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(self._order.format(tasks=tasks, pairs=pairs))
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a library's process ended with status {self._process.wait()}")
        return Turn(*(int(word) for word in line.split()))

    def __enter__(self) -> Library:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate(timeout=20)


def built() -> str:
    """The Rust side, built as services build it."""
    cargo = shutil.which("cargo")
    if cargo is None:
        raise SystemExit("benchmarks.rust needs cargo, which is not installed (https://rustup.rs)")
    subprocess.run([cargo, "build", "--quiet", "--release", "--example", "bench"], cwd=CRATE, check=True)
    return str(CRATE / "target" / "release" / "examples" / "bench")


def measure(libraries: dict[str, Library], tasks: int, pairs: int, turns: int) -> list[list[str]]:
    """A row for each library."""
    each = max(1, pairs // tasks)
    seen: dict[str, list[Turn]] = {name: [] for name in libraries}
    for number in range(-1, turns):
        # Who goes first changes from turn to turn.
        names = list(libraries) if number % 2 else list(reversed(libraries))
        for name in names:
            turn = libraries[name].turn(tasks, each)
            if number >= 0:  # the first one warms up
                seen[name].append(turn)
    return [
        [
            f"{tasks} {name}",
            f"{statistics.median(turn.pairs / turn.took_ns * 1e9 for turn in taken):,.0f}",
            f"{statistics.median(turn.median_ns for turn in taken) / 1000:,.0f}",
            f"{statistics.median(turn.cpu_ns / turn.pairs for turn in taken) / 1000:.1f}",
        ]
        for name, taken in seen.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, nargs="*", default=[1, 16, 64])
    parser.add_argument("--pairs", type=int, default=2000, help="in one turn, all tasks together")
    parser.add_argument("--turns", type=int, default=15, help="of each library")
    parser.add_argument("--nodes", type=int, default=1, help="1 is a standalone node")
    parser.add_argument("--threads", type=int, default=2, help="worker threads of the Rust side's runtime")
    arguments = parser.parse_args()
    rust = [built(), str(arguments.threads)]
    python = [sys.executable, str(PYTHON_JOB), "ours"]
    with (
        BenchCluster(arguments.nodes) as cluster,
        Library(python, cluster, "{tasks} {pairs} timed\n") as ours,
        Library(rust, cluster, "{tasks} {pairs}\n") as theirs,
    ):
        libraries = {"Python": ours, "Rust": theirs}
        rows = [
            row
            for tasks in arguments.tasks
            for row in measure(libraries, tasks, arguments.pairs, arguments.turns)
        ]
    print(table(["tasks", "pairs/s", "p50 µs", "client CPU µs/pair"], rows))


if __name__ == "__main__":
    main()
