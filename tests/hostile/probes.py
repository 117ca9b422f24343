"""What is seen of a node from outside: its memory, its descriptors, its log, and how its neighbours fare."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from tests.e2e.cluster import PROJECT, Cluster, environment
from tests.e2e.waiting import until

SAMPLE_S = 0.05


def resident_mib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


class Sampler:
    """Looks at a process every 50 ms as long as the block lasts."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.before_mib = self.peak_mib = resident_mib(pid)
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Sampler:
        self._task = asyncio.create_task(self._look())
        return self

    async def __aexit__(self, *_exc: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _look(self) -> None:
        while True:
            self.peak_mib = max(self.peak_mib, resident_mib(self._pid))
            await asyncio.sleep(SAMPLE_S)


class LogReader:
    """The lines that a node has written since this was made."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = path.stat().st_size

    def lines(self) -> list[dict[str, Any]]:
        """All whole lines; whatever is not a JSON object has the event `no JSON`."""
        with self._path.open("rb") as file:
            file.seek(self._offset)
            content = file.read()
        found = []
        for line in content.split(b"\n")[:-1]:
            try:
                found.append(json.loads(line))
            except ValueError:
                found.append({"event": "no JSON", "line": line.decode(errors="replace")})
        return found

    def events(self) -> Counter[str]:
        return Counter(line["event"] for line in self.lines())


class Latencies(NamedTuple):
    """Acquires of the neighbour that overlap a span of time."""

    acquires: int
    median_ms: float
    p95_ms: float
    slowest_ms: float
    errors: tuple[str, ...]


class Neighbour:
    """The innocent client of one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        authority = cluster.folder / "ca" / "ca.pem"
        words = [cluster.token, str(authority) if authority.exists() else "off", *cluster.addresses]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.hostile.neighbour", *words],
            cwd=PROJECT,
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._seen: list[tuple[float, float, str | None]] = []
        self._rest = b""
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)

    def _read(self) -> None:
        assert self._process.stdout is not None
        content = self._rest + (self._process.stdout.read() or b"")
        *lines, self._rest = content.split(b"\n")
        self._seen += [tuple(json.loads(line)) for line in lines]

    async def started(self) -> None:
        """Until it has had its first tickets."""

        def served() -> bool:
            self._read()
            return sum(error is None for _began, _took, error in self._seen) > 20

        await until(served, "the neighbour is served", 60.0)

    async def caught_up(self, moment: float) -> None:
        """Until it has said how everything went that it began before this moment."""

        def later() -> bool:
            self._read()
            return bool(self._seen) and self._seen[-1][0] >= moment

        await until(later, "the neighbour goes on", 30.0)

    def between(self, start: float, end: float) -> Latencies:
        """What was under way then, and the first that began afterwards: the span can be shorter than a pause."""
        self._read()
        during = [seen for seen in self._seen if seen[0] < end and seen[0] + seen[1] / 1000 > start]
        during += [seen for seen in self._seen if seen[0] >= end][:1]
        took = sorted(seen[1] for seen in during) or [0.0]
        errors = tuple(seen[2] for seen in during if seen[2] is not None)
        return Latencies(len(during), took[len(took) // 2], took[int(len(took) * 0.95)], took[-1], errors)

    async def rest(self, for_s: float) -> tuple[float, float]:
        """A span without attack."""
        start = time.monotonic()
        await asyncio.sleep(for_s)
        return start, time.monotonic()

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)
        assert self._process.stdout is not None
        self._process.stdout.close()
