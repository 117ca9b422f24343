"""Server processes of a benchmark: they end with us, and tell what they cost."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

HOST = "127.0.0.1"
PROJECT = Path(__file__).parents[2]
START_S = 60.0
STOP_S = 5.0
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


class ServerProcess:
    """One process, its output in a file of its own. It is killed when whoever started it is gone."""

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        *,
        folder: Path | None = None,
        sources: Path = PROJECT,
    ) -> None:
        """`sources`: where it finds the project's modules."""
        self.log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                list(command),
                cwd=folder,
                env={**os.environ, "PYTHONPATH": str(sources)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - no threads run here
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def check(self) -> None:
        """RuntimeError with its last words if it has ended."""
        status = self._process.poll()
        if status is not None:
            words = self.log.read_text(errors="replace").splitlines()[-20:]
            raise RuntimeError("\n".join([f"{self._process.args!r} ended with status {status}:", *words]))

    def stop(self) -> None:
        """SIGTERM, and SIGKILL where that is not enough."""
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


def _die_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def python_module(module: str, *words: str) -> list[str]:
    """A command that runs a module of ours with this interpreter."""
    return [sys.executable, "-m", module, *words]


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody has at the moment."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server((HOST, 0))) for _ in range(count)]
        return [int(one.getsockname()[1]) for one in sockets]


def port_answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((HOST, port), timeout=1):
        return True
    return False


def wait_until(
    condition: Callable[[], bool], what: str, processes: Sequence[ServerProcess], within_s: float = START_S
) -> None:
    """Waits for `condition`; an error if a process ends first or the time is over."""
    deadline = time.monotonic() + within_s
    while not condition():
        for process in processes:
            process.check()
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {within_s:.0f} s; see {processes[0].log.parent}")
        time.sleep(0.02)


def memory_folder() -> tempfile.TemporaryDirectory[str]:
    """A folder whose files are in memory."""
    return tempfile.TemporaryDirectory(prefix="ticketing-bench-", dir="/dev/shm")


def cpu_clock(pid: int) -> int:
    """The clock of the CPU time of another process, for `time.clock_gettime_ns` (clock_getcpuclockid(3))."""
    return ~pid << 3 | 2


def cpu_ns(pids: Sequence[int]) -> int:
    """User and system time of these processes so far, threads that are over included."""
    return sum(time.clock_gettime_ns(cpu_clock(pid)) for pid in pids)
