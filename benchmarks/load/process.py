"""The harness' side of a client process."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Any, cast

from benchmarks.load.figures import Figures
from benchmarks.load.outage import Outage
from benchmarks.systems.processes import PROJECT
from benchmarks.systems.system import System

END_S = 10.0


class LoadProcess:
    """One client, connected to one system; jobs are done one after the other."""

    def __init__(
        self, system: System, client: str, more: dict[str, Any] | None = None, before: Sequence[str] = ()
    ) -> None:
        """`client` as `module:class`; `more` goes into the target; `before` stands before the command."""
        self.system = system
        self.name = f"{client} on {system.name}"
        target = {**system.target(), **(more or {})}
        self._process = subprocess.Popen(
            [*before, system.interpreter(), "-m", "benchmarks.load", client, json.dumps(target)],
            env={**os.environ, "PYTHONPATH": str(PROJECT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ready(self) -> None:
        """Waits until it is connected."""
        self._answer()

    def closed(self, workers: int, keys: int, seconds: float, warm_up_s: float) -> Figures:
        return self._do(
            {"job": "closed", "workers": workers, "keys": keys, "seconds": seconds, "warm_up_s": warm_up_s}
        )

    def open(self, rate: float, seconds: float, warm_up_s: float) -> Figures:
        return self._do({"job": "open", "rate": rate, "seconds": seconds, "warm_up_s": warm_up_s})

    def burst(self, requests: int, keys: int) -> Figures:
        return self._do({"job": "burst", "requests": requests, "keys": keys})

    def outage(self, strike: Callable[[str | None], None]) -> Outage:
        """Calls `strike` with the leader's address, where the client knows it, once callers are served."""
        self._write({"job": "outage"})
        leader = self._answer()["leader"]
        # All processes of a machine share the clock. The strike is over a moment later than it is said to be.
        struck = time.perf_counter()
        strike(leader)
        self._write(struck)
        return cast("Outage", self._answer())

    def close(self) -> None:
        """Ends the process."""
        try:
            self._process.communicate(timeout=END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()

    def _do(self, job: dict[str, Any]) -> Figures:
        self._write({**job, "pids": self.system.pids()})
        return cast("Figures", self._answer())

    def _write(self, line: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(line) + "\n")
        self._process.stdin.flush()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} ended with status {self._process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(f"{self.name}: {answer['error']}")
        return answer
