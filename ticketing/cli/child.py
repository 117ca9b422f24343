"""A command as a child process: started without a shell, signalled as a group or as a tree, waited for."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def on_a_terminal() -> bool:
    """Whether we are in the foreground of a terminal: a group of its own could then not read from it."""
    try:
        descriptor = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(descriptor) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(descriptor)


class Child:
    """One command. All three streams, and whatever else was handed to us open, are its own.

    Not on a terminal it leads a process group, and signals go to the group. On a terminal it stays in ours, where
    Ctrl-C and Ctrl-Z reach it; what is to end with it is then found as the tree of our descendants.
    """

    def __init__(self, process: subprocess.Popen[bytes], *, own_group: bool) -> None:
        self.own_group = own_group
        self._process = process
        self.pid = process.pid
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        """The exit code as shells tell it: 128 + n for a signal."""
        threading.Thread(target=self._wait, args=(asyncio.get_running_loop(),), daemon=True).start()

    def send(self, number: int) -> None:
        """Passes a signal on: to the group where it has its own, else to the command itself."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self.own_group:
                os.killpg(self.pid, number)
            elif not self.ended.done():
                os.kill(self.pid, number)

    def send_to_all(self, number: int) -> None:
        """A signal to everything of the command that is left; what is stopped is woken, so that it can end."""
        if self.own_group:
            self.send(number)
            self.send(signal.SIGCONT)
            return
        for pid in descendants(os.getpid()):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
                os.kill(pid, signal.SIGCONT)

    def anything_left(self) -> bool:
        """Whether the command, or what it started and left in its group or tree, still runs."""
        if not self.ended.done():
            return True
        if not self.own_group:
            return bool(descendants(os.getpid()))
        try:
            os.killpg(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        # Zombies that nobody has buried (a container's first process often does not) are still in the group.
        rows = _processes()
        return not rows or any(row.group == self.pid for row in rows)

    def _wait(self, loop: asyncio.AbstractEventLoop) -> None:
        status = self._process.wait()
        code = 128 - status if status < 0 else status
        with contextlib.suppress(RuntimeError):  # the loop is closed: we are on our way out
            loop.call_soon_threadsafe(self._tell, code)

    def _tell(self, code: int) -> None:
        if not self.ended.done():
            self.ended.set_result(code)


def start_child(
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    own_group: bool,
    die_with_us: bool,
    mask: Iterable[int] | None,
) -> Child:
    """Starts a command; `OSError` where it cannot be.

    `die_with_us`: where the system can (Linux), the command is ended when this process is, however that ends.
    `mask`: the signal mask it gets; None: ours.
    """
    prctl = ctypes.CDLL(None).prctl if sys.platform.startswith("linux") else None
    if prctl is not None and not own_group:
        prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    parent = os.getpid()
    blocked = None if mask is None else set(mask)

    def prepare() -> None:
        if prctl is not None and die_with_us:
            prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != parent:
                os._exit(137)
        if blocked is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)

    process = subprocess.Popen(  # noqa: S603 - running what was asked for is the purpose
        list(command),
        env=dict(environment),
        close_fds=False,
        process_group=0 if own_group else None,
        preexec_fn=prepare,  # noqa: PLW1509 - it calls the system alone: no lock of another thread's is needed
    )
    return Child(process, own_group=own_group)


class _Process(NamedTuple):
    pid: int
    parent: int
    group: int


def _processes() -> list[_Process]:
    """All living processes that the system shows, by pid; empty where it shows none."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = entry.read_text(errors="replace")
        except OSError:
            continue
        state, parent, group = text.rpartition(")")[2].split()[:3]
        if state not in "ZX":
            found.append(_Process(int(entry.parent.name), int(parent), int(group)))
    return sorted(found)


def descendants(pid: int) -> list[int]:
    """The living processes below `pid`, parents first, as far as the system shows them."""
    children: dict[int, list[int]] = {}
    for row in _processes():
        children.setdefault(row.parent, []).append(row.pid)
    found: list[int] = []
    level = [pid]
    while level:
        level = [child for parent in level for child in children.get(parent, [])]
        found += level
    return found
