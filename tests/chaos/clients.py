"""The programs of a run: one process a machine, started anew when it was killed, under a new name each time."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.chaos.network import Network
from tests.chaos.processes import Supervised, start
from tests.e2e.cluster import PROJECT, environment

FINISH_S = 40.0
"""The longest wait, the longest lease, and what the library takes to close."""


class Client(Supervised):
    """One machine's program."""

    def __init__(
        self, name: str, folder: Path, network: Network, client_file: Path, dsn: str, seed: int
    ) -> None:
        super().__init__()
        self.name = name
        self.network = network
        self.address = network.address(name)
        self.files: list[Path] = []
        self.faults: list[str] = []
        self._folder = folder
        self._client_file = client_file
        self._dsn = dsn
        self._seed = seed
        self._killed = False

    @property
    def _errors(self) -> Path:
        return self._folder / f"{self.name}.err"

    def start(self) -> None:
        """The next life of this program."""
        assert not self.running
        life = f"{self.name}-{len(self.files) + 1}"
        history = self._folder / f"{life}.jsonl"
        history.touch()
        self.files.append(history)
        self._killed = self.paused = False
        self.wanted = True
        words = [life, str(self._client_file), self._dsn, str(history), f"{self._seed}/{life}"]
        with self._errors.open("ab") as errors:
            command = [*self.network.prefix(self.name), sys.executable, "-m", "tests.chaos.workload", *words]
            self._process = start(
                command, folder=PROJECT, environment=environment(), output=errors, errors=errors
            )

    def supervise(self) -> None:
        """Notes an end that nobody asked for."""
        if (
            self.wanted
            and not self._killed
            and self._process is not None
            and self._process.poll() is not None
        ):
            said = self._errors.read_text(errors="replace")[-2000:]
            self.faults.append(f"{self.name} ended by itself with status {self._process.returncode}:\n{said}")
            self.start()

    def kill(self) -> None:
        if self.running:
            assert self._process is not None
            self._killed = True
            self._process.kill()
            self._process.wait(10)

    def tell_to_finish(self) -> None:
        """It takes nothing new, gives everything back and ends."""
        self.wanted = False
        if self.running:
            assert self._process is not None
            self._process.send_signal(signal.SIGTERM)

    def finished(self, deadline: float) -> None:
        """Notes a fault where it has not ended well by then."""
        if self._process is None or self._killed:
            return
        try:
            status = self._process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.faults.append(f"{self.name} did not end")
            return
        if status:
            said = self._errors.read_text(errors="replace")[-2000:]
            self.faults.append(f"{self.name} ended with status {status}:\n{said}")
