"""The processes of a run: in a session of their own, ended with the run, served first; and the life that all lead.

What else the machine does must not look like a fault of the cluster: its own elections would hide those that the
nemesis causes. All of a run together takes about a third of one core.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from tests.e2e.cluster import _die_with_parent as die_with_parent

NICE = -10


def start(
    words: Sequence[str],
    *,
    folder: Path,
    environment: Mapping[str, str],
    output: int | IO[bytes],
    errors: int | IO[bytes] | None = None,
    input_from: int = subprocess.DEVNULL,
) -> subprocess.Popen[bytes]:
    """Starts a process; the kernel ends it should this one be killed."""
    return subprocess.Popen(
        words,
        cwd=folder,
        env=environment,
        stdin=input_from,
        stdout=output,
        stderr=errors,
        start_new_session=True,
        preexec_fn=_prepare,
    )


def _prepare() -> None:
    die_with_parent()
    served_first()


def served_first() -> None:
    """Raises the priority of this process, where that is allowed."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, NICE)
    # Where the kernel shares the processor out between sessions first, what counts is the session's own value.
    if os.getsid(0) == os.getpid():
        with contextlib.suppress(OSError):
            Path("/proc/self/autogroup").write_text(str(NICE))


class Supervised:
    """What is struck and started anew: one process at a time."""

    def __init__(self) -> None:
        self.paused = False
        self.wanted = False
        """Whoever supervises starts it again when it ends."""
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def pause(self) -> None:
        """SIGSTOP."""
        if self.running:
            assert self._process is not None
            self._process.send_signal(signal.SIGSTOP)
            self.paused = True

    def resume(self) -> None:
        """SIGCONT."""
        if self.running and self.paused:
            assert self._process is not None
            self._process.send_signal(signal.SIGCONT)
        self.paused = False

    def end(self) -> None:
        """Whatever it does, it is over."""
        self.wanted = False
        if self._process is not None:
            if self._process.poll() is None:
                self._process.kill()
            self._process.wait(10)
