"""Hosts with a disk, a wall clock, limits, and one service: a node, started again by what stands for a supervisor.

Processes are signalled by the id of those that were started here and by nothing else. Should the run itself be
killed, the kernel ends them.
"""

from __future__ import annotations

import contextlib
import resource
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.chaos.network import Network
from tests.chaos.processes import Supervised, start
from tests.e2e.cluster import COMMAND, environment
from tests.operations.machines import faked_wall_clock, forget_faked_clock
from tests.operations.needs import faketime_library

REMOVED = 12
"""Another process fills the place: not to be started again."""
WRONG_CONFIGURATION = 2
RESTART_AFTER_S = 0.5


class Ending(NamedTuple):
    """How a process came to its end."""

    machine: str
    pid: int
    status: int
    """Negative: the signal."""
    cause: str
    """What was done to it; empty where it ended by itself."""
    at: float


class Machine(Supervised):
    """One host. `place` is what its service fills, None for a spare host."""

    def __init__(self, name: str, folder: Path, network: Network) -> None:
        super().__init__()
        self.name = name
        self.folder = folder
        self.network = network
        self.address = network.address(name)
        self.place: str | None = None
        self.causes: list[str] = []
        """What has been done to the present process that may end it."""
        self.offset_s = 0.0
        """Of its wall clock, as far as it was set here."""
        self.clock_set_at = 0.0
        self.rate = 1.0
        """Of all clocks of the present process."""
        self._limits: dict[int, tuple[int, int]] = {}
        """What they were before."""
        self.limited = False
        """A limit that keeps it from serving as it should is in force."""
        self.lives = 0
        self._ended_at: float | None = None
        self._clock = folder / "clock"
        folder.mkdir(parents=True)
        self.set_clock(0.0)

    def __repr__(self) -> str:
        return f"{self.name} ({self.place or 'spare'})"

    @property
    def log(self) -> Path:
        return self.folder / "node.log"

    @property
    def home(self) -> Path:
        """The folder of the node."""
        assert self.place is not None
        return self.folder / self.place

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def receive(self, place: str, source: Path) -> None:
        """A node's folder is copied here, as by scp; whatever was here is thrown away."""
        assert not self.running
        if self.place is not None:
            shutil.rmtree(self.home)
        self.place = place
        shutil.copytree(source, self.home)

    def give_up(self) -> None:
        """The host has no node any more."""
        assert not self.running
        self.wanted = False
        if self.place is not None:
            shutil.rmtree(self.home)
        self.place = None

    # --- the service

    def start(self, rate: float = 1.0) -> None:
        """Starts the node; all clocks of the process run at a rate."""
        assert not self.running, f"{self} runs already"
        self.wanted = True
        self.paused = self.limited = False
        self._limits.clear()
        self.causes = []
        self.rate = rate
        if rate == 1.0:
            clocks = faked_wall_clock(self._clock)
        else:
            clocks = {"LD_PRELOAD": faketime_library(), "FAKETIME": f"+0 x{rate}"}
        with self.log.open("ab") as log:
            words = [*self.network.prefix(self.name), *COMMAND, "node", "start", "--config", str(self.home)]
            self._process = start(
                words, folder=self.home, environment=environment(**clocks), output=log, errors=log
            )
        self.lives += 1
        self._ended_at = None

    def supervise(self, now: float) -> Ending | None:
        """Looks after the process; tells once of its end, and starts it again a little later."""
        if self._process is None or self._process.poll() is None:
            return None
        if self._ended_at is None:
            self._ended_at = now
            forget_faked_clock(self._process.pid)
            status = self._process.returncode
            ending = Ending(self.name, self._process.pid, status, ", ".join(self.causes), now)
            if status in (REMOVED, WRONG_CONFIGURATION):
                self.wanted = False
            return ending
        if self.wanted and now > self._ended_at + RESTART_AFTER_S:
            self.start()
        return None

    @contextlib.contextmanager
    def may_end(self, cause: str) -> Iterator[None]:
        """While this lasts its process may end of it; the one that is there afterwards may not any more."""
        self.causes.append(cause)
        try:
            yield
        finally:
            # A process that was started meanwhile has no such cause; one that has ended is still to be judged.
            if self.running and cause in self.causes:
                self.causes.remove(cause)

    def kill(self, cause: str = "killed") -> None:
        """SIGKILL, and the process is gone on return."""
        if self.running:
            assert self._process is not None
            self.causes.append(cause)
            self._process.kill()
            self._process.wait(10)

    def signal(self, number: int, cause: str) -> None:
        if self.running:
            assert self._process is not None
            self.causes.append(cause)
            self._process.send_signal(number)

    def end(self) -> None:
        super().end()
        if self._process is not None:
            forget_faked_clock(self._process.pid)

    # --- clocks and limits

    def set_clock(self, offset_s: float) -> None:
        """Sets the wall clock off by so much; seen within a second or two."""
        self.offset_s = offset_s
        self.clock_set_at = time.monotonic()
        # In one step: half a file would be another time.
        draft = self._clock.with_suffix(".new")
        draft.write_text(f"{offset_s:+.3f}s\n")
        draft.rename(self._clock)

    def limit_files(self, room: int) -> None:
        """Lets the process open only so many files more than it has."""
        open_now = len(list(Path(f"/proc/{self.pid}/fd").iterdir()))
        self._limit(resource.RLIMIT_NOFILE, open_now + room)

    def limit_memory(self, room: int) -> None:
        """Lets the process take only so many bytes more than it has."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[0])
        self._limit(resource.RLIMIT_AS, pages * resource.getpagesize() + room)

    def lift_limits(self) -> None:
        """As before, where it is still the same process."""
        if self.limited and self.running:
            for what, former in self._limits.items():
                with contextlib.suppress(ProcessLookupError):
                    resource.prlimit(self.pid, what, former)
        self.limited = False
        self._limits.clear()

    def _limit(self, what: int, value: int) -> None:
        former = self._limits[what] = resource.prlimit(self.pid, what)
        resource.prlimit(self.pid, what, (value, former[1]))
        self.limited = True

    def log_end(self, lines: int = 30) -> str:
        """What it said last."""
        said = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(said.splitlines()[-lines:])
