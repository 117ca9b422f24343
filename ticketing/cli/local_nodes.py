"""Node processes of this machine that a command starts and leaves running."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from pathlib import Path
from typing import Any

from ticketing.cli.errors import CommandFailed, warn
from ticketing.config.layout import NODE_FILE, STATE_FOLDER
from ticketing.config.load import load_node
from ticketing.config.owners import give_to_owner, is_strangers, strangers_warning
from ticketing.config.replacement_folder import default_folder
from ticketing.server.files import running_pid

LOG = "node.log"
"""Standard error of a node that was started here, in the node's folder."""

START_S = 20.0
_LINES = 5


def running_here(folder: Path) -> int | None:
    """The pid of the process that runs on a node's folder, 0 where it cannot be read, None where none runs."""
    file = folder / NODE_FILE
    if not file.is_file():
        return None
    with contextlib.suppress(Exception):
        return running_pid(load_node(file).settings.state_dir)
    return running_pid(folder / STATE_FOLDER)


def home_here(cluster: Path, place: str) -> Path | None:
    """The folder of a cluster in which a process of this place runs on this machine; None where none does."""
    for folder in (cluster / place, default_folder(cluster, place)):
        if running_here(folder) is not None:
            return folder
    return None


def start_detached(folder: Path) -> int:
    """Starts the node of a folder, which then outlives this command; its pid once it listens.

    It leads a session of its own, without a terminal; what it says goes to `node.log`. `CommandFailed` with the last
    of that where it ends instead.
    """
    if strange := strangers_warning(folder):
        warn(strange)
    read, write = os.pipe()
    try:
        log = _open_log(folder)
        try:
            pid = _spawn(folder / NODE_FILE, log, write)
        finally:
            os.close(log)
    except OSError as error:
        os.close(read)
        raise CommandFailed(f"cannot start {folder / NODE_FILE}: {(error.strerror or '').lower()}") from None
    finally:
        os.close(write)
    try:
        ready = _until_ready(read)
    finally:
        os.close(read)
    if ready is None:
        raise CommandFailed(
            f"the node of {folder} does not listen yet after {START_S:g} s; its process {pid} goes on",
            hint=f"its log is {folder / LOG}",
        )
    if not ready:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
        raise CommandFailed(
            f"the node of {folder} did not start:\n{last_lines(folder / LOG)}",
            hint=f"its log is {folder / LOG}",
        )
    return pid


def _open_log(folder: Path) -> int:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
    try:
        log = os.open(folder / LOG, flags | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        # A link in a folder of his would have root write to whatever its user likes.
        return os.open(folder / LOG, flags | (os.O_NOFOLLOW if is_strangers(folder) else os.O_CREAT), 0o600)
    give_to_owner(log, folder)
    return log


def _spawn(file: Path, log: int, ready: int) -> int:
    words = [
        sys.executable,
        "-m",
        "ticketing",
        "node",
        "start",
        "--config",
        str(file.absolute()),
        "--ready-fd",
        "3",
    ]
    silence = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    try:
        actions: list[Any] = [
            (os.POSIX_SPAWN_DUP2, silence, 0),
            (os.POSIX_SPAWN_DUP2, log, 1),
            (os.POSIX_SPAWN_DUP2, log, 2),
            (os.POSIX_SPAWN_DUP2, ready, 3),
        ]
        return os.posix_spawn(
            sys.executable, words, dict(os.environ), file_actions=actions, setsid=True, setsigmask=()
        )
    finally:
        os.close(silence)


def _until_ready(descriptor: int) -> bool | None:
    """Whether the node has said that it listens; False at once where it ends, None where it takes too long."""
    deadline_s = time.monotonic() + START_S
    while (left_s := deadline_s - time.monotonic()) > 0:
        if select.select([descriptor], [], [], left_s)[0]:
            return bool(os.read(descriptor, 65_536))
    return None


def last_lines(log: Path, count: int = _LINES) -> str:
    """The end of a log, for an error message."""
    try:
        return "\n".join(log.read_text(errors="replace").splitlines()[-count:])
    except OSError:
        return ""
