"""What the other systems have in common: processes in a folder, clients in an environment of their own."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.peers import PYTHON
from benchmarks.systems.processes import ServerProcess, memory_folder
from benchmarks.systems.system import System


class Peer(System):
    """Servers of somebody else's. Their files are in memory unless `on_disk`."""

    on_disk = False

    def __init__(self) -> None:
        self.processes: list[ServerProcess] = []
        self._folder = (
            tempfile.TemporaryDirectory(prefix="ticketing-bench-") if self.on_disk else memory_folder()
        )

    @property
    def folder(self) -> Path:
        return Path(self._folder.name)

    def run(self, *command: str) -> ServerProcess:
        """Starts one more server."""
        log = self.folder / f"{len(self.processes)}.log"
        process = ServerProcess(command, log, folder=self.folder)
        self.processes.append(process)
        return process

    def __exit__(self, *_error: object) -> None:
        for process in self.processes:
            process.kill()
        self._folder.cleanup()

    def pids(self) -> list[int]:
        return [process.pid for process in self.processes]

    def interpreter(self) -> str:
        return str(PYTHON)


def first_line(command: Sequence[str]) -> str:
    """What a command says first of its version."""
    done = subprocess.run(list(command), capture_output=True, text=True, check=True)
    return (done.stdout or done.stderr).splitlines()[0].strip()
