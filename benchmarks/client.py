"""What an acquire and its release cost the client: ours beside the published 0.3.0, on the same server.

Both run in a process of their own, take turns, and do the same number of pairs each turn; of a pair of turns the
ratio is taken, and of all ratios the median. So a machine that others use as well changes both alike. The published
package comes from the package index into a folder that is thrown away (`--published` names one that has it).
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from benchmarks.cluster import BenchCluster
from benchmarks.figures import table

PUBLISHED = "ticketing==0.3.0"
JOB = Path(__file__).with_name("client_job.py")


class Turn(NamedTuple):
    """What one turn of one client took."""

    cpu_ns: int
    took_ns: int
    pairs: int

    @property
    def cpu_us(self) -> float:
        return self.cpu_ns / self.pairs / 1000

    @property
    def rate(self) -> float:
        return self.pairs / self.took_ns * 1e9


class Client:
    """A child process with one broker; leaving the context ends it."""

    def __init__(self, name: str, cluster: BenchCluster, folder: Path | None) -> None:
        environment = dict(os.environ)
        if folder is not None:
            environment["PYTHONPATH"] = str(folder)
        command = [sys.executable, str(JOB), name, cluster.token, *cluster.addresses]
        self._process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def turn(self, workers: int, pairs: int) -> Turn:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{workers} {pairs}\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a client ended with status {self._process.wait()}")
        return Turn(*(int(word) for word in line.split()))

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate(timeout=20)


def measure(ours: Client, published: Client, workers: int, pairs: int, turns: int) -> list[str]:
    each = max(1, pairs // workers)
    for client in (ours, published):
        client.turn(workers, each)  # to warm up
    mine, theirs = [], []
    for number in range(turns):
        # Who goes first changes as well.
        for which in ("mine", "theirs") if number % 2 else ("theirs", "mine"):
            if which == "mine":
                mine.append(ours.turn(workers, each))
            else:
                theirs.append(published.turn(workers, each))
    ratios = [one.cpu_ns / other.cpu_ns for one, other in zip(mine, theirs, strict=True)]
    rates = [one.rate / other.rate for one, other in zip(mine, theirs, strict=True)]
    low, _, high = statistics.quantiles(ratios, n=4)
    return [
        str(workers),
        f"{statistics.median(turn.cpu_us for turn in mine):.1f}",
        f"{statistics.median(turn.cpu_us for turn in theirs):.1f}",
        f"{statistics.median(ratios):.3f}",
        f"{low:.3f}..{high:.3f}",
        f"{statistics.median(turn.rate for turn in mine):,.0f}",
        f"{statistics.median(turn.rate for turn in theirs):,.0f}",
        f"{statistics.median(rates):.3f}",
    ]


def install(folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder)]
    subprocess.run([*command, PUBLISHED], check=True)
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 16, 64])
    parser.add_argument("--pairs", type=int, default=1000, help="in one turn, all workers together")
    parser.add_argument("--turns", type=int, default=31, help="of each client")
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--published", type=Path, help="a folder with the published package")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary, BenchCluster(arguments.nodes) as cluster:
        folder = arguments.published or install(Path(temporary))
        with Client("ours", cluster, None) as ours, Client("published", cluster, folder) as published:
            rows = [
                measure(ours, published, workers, arguments.pairs, arguments.turns)
                for workers in arguments.workers
            ]
    header = [
        "workers",
        "CPU µs/pair",
        "published",
        "ratio",
        "quartiles",
        "pairs/s",
        "published",
        "ratio",
    ]
    print(table(header, rows))


if __name__ == "__main__":
    main()
