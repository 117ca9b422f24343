"""A throw-away cluster for a benchmark, and what its node processes cost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from types import TracebackType
from typing import Any, NamedTuple

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class BenchNode(NamedTuple):
    """One node process."""

    place: str
    address: str
    admin: str
    pid: int


class BenchCluster:
    """`ticketing dev` as a child process; leaving the context stops it."""

    def __init__(self, nodes: int) -> None:
        self._nodes = nodes
        self._process: subprocess.Popen[str] | None = None
        self.view: dict[str, Any] = {}
        self.nodes: list[BenchNode] = []

    def __enter__(self) -> BenchCluster:
        command = [sys.executable, "-m", "ticketing", "dev", "--nodes", str(self._nodes), "-o", "json"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"ticketing dev ended with status {self._process.wait()}")
        self.view = json.loads(line)
        self.nodes = [
            BenchNode(node["place"], node["client"], node["admin"], node["pid"])
            for node in self.view["nodes"]
        ]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(timeout=30)

    @property
    def token(self) -> str:
        """The client token."""
        return str(self.view["token"])

    @property
    def addresses(self) -> list[str]:
        """Client addresses of all nodes."""
        return [node.address for node in self.nodes]

    def cpu_s(self) -> float:
        """User and system time of all node processes so far."""
        return sum(process_cpu_s(node.pid) for node in self.nodes)


def process_cpu_s(pid: int) -> float:
    """User and system time of one process so far."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as stat:  # noqa: PTH123
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S
