"""The harness' side of a client process."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from typing import Any, cast

from benchmarks.load.figures import Figures
from benchmarks.systems.processes import PROJECT
from benchmarks.systems.system import System


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

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _do(self, job: dict[str, Any]) -> Figures:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({**job, "pids": self.system.pids()}) + "\n")
        self._process.stdin.flush()
        return cast("Figures", self._answer())

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} ended with status {self._process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(f"{self.name}: {answer['error']}")
        return answer
