"""Systems that speak our wire: the reference servers, and the clients that all of them share with ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from benchmarks.systems.processes import (
    HOST,
    ServerProcess,
    free_ports,
    memory_folder,
    port_answers,
    python_module,
    wait_until,
)
from benchmarks.systems.system import System
from benchmarks.systems.wire_server import TOKEN


class WiredSystem(System):
    """A reference server: a module of ours that takes a port, and whatever `arguments` says."""

    module: ClassVar[str]

    def __init__(self) -> None:
        self.processes: list[ServerProcess] = []
        self._folder = memory_folder()
        self.port = 0

    def __enter__(self) -> WiredSystem:
        (self.port,) = free_ports(1)
        self.start()
        wait_until(lambda: port_answers(self.port), self.title, self.processes)
        return self

    def start(self) -> None:
        """Starts the processes."""
        self.processes.append(self.process(str(self.port)))

    def process(self, *words: str) -> ServerProcess:
        """One more process of the module."""
        log = Path(self._folder.name, f"{len(self.processes)}.log")
        return ServerProcess(python_module(self.module, *words), log)

    def __exit__(self, *_error: object) -> None:
        for process in self.processes:
            process.stop()
        self._folder.cleanup()

    def target(self) -> dict[str, Any]:
        return {"addresses": [f"{HOST}:{self.port}"], "token": TOKEN, "authority": None}

    def pids(self) -> list[int]:
        return [process.pid for process in self.processes]
