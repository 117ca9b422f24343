"""The node's folder `state/`: its lock, its durable files, and what they tell at the start (spec 9,
Forming, Rejoin).

`permit.json`   {"permit", "made_ms"}   written by `init`: the one-time permit to form a domain
`record.json`   {"domain", "first_token", "place", "node_id", "incarnation", "formed_ms", "members"}
                the newest domain that this folder took part in
`floor.json`    {"first_token"}         the greatest first token of any domain seen
`replace.json`  {"command_id", "who", "why"}   written by `ticketing node replace` into the folder of a process
                that is to fill a place at an operator's word; removed once it does
`lock`          held by the running process, with its pid
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from pathlib import Path
from typing import Annotated, NamedTuple, TypeVar

import msgspec

from ticketing.locks.table import TOKEN_LIMIT
from ticketing.node.settings import NodeSettings, OperatorCommand
from ticketing.node.state_files import FLOOR, PERMIT, RECORD, REPLACE

_T = TypeVar("_T")

LOCK = "lock"

COMMAND_ID_CHARS_MAX = 64
FILE_BYTES_MAX = 1 << 20
TRIES = 3
TRY_AGAIN_S = 0.02


class StateError(Exception):
    """The folder cannot be used: path, reason, and what to do.

    `configuration`: trying again with the same files will not help.
    """

    def __init__(self, message: str, *, configuration: bool) -> None:
        super().__init__(message)
        self.configuration = configuration


class StateFacts(NamedTuple):
    """What `state/` tells a node that starts."""

    permit: str = ""
    permit_made_ms: int = 0
    earlier_first_token: int = 0
    """The greatest in record and floor, 0 for none."""
    earlier_domain: str = ""
    operator_command: OperatorCommand | None = None

    def applied_to(self, settings: NodeSettings) -> NodeSettings:
        """The settings with these facts in them."""
        return msgspec.structs.replace(
            settings,
            permit=self.permit,
            permit_made_ms=self.permit_made_ms,
            earlier_first_token=self.earlier_first_token,
            earlier_domain=self.earlier_domain,
            operator_command=self.operator_command,
        )


class _Permit(msgspec.Struct):
    permit: str
    made_ms: int


_FirstToken = Annotated[int, msgspec.Meta(ge=0, le=TOKEN_LIMIT - 1)]


class _Record(msgspec.Struct):
    domain: str
    first_token: _FirstToken


class _Floor(msgspec.Struct):
    first_token: _FirstToken


def read_facts(folder: Path) -> StateFacts:
    """Reads permit, record and floor. A file that is there and cannot be read is a fault, never an absence:
    whoever took a damaged record for none could form a domain beside a living one.
    """
    permit = _read(folder / PERMIT, _Permit)
    record = _read(folder / RECORD, _Record)
    floor = _read(folder / FLOOR, _Floor)
    return StateFacts(
        permit.permit if permit is not None else "",
        permit.made_ms if permit is not None else 0,
        max(record.first_token if record is not None else 0, floor.first_token if floor is not None else 0),
        record.domain if record is not None else "",
        _read_command(folder / REPLACE),
    )


def command_content(command: OperatorCommand) -> bytes:
    """What `replace.json` holds for this command."""
    return msgspec.json.encode(command) + b"\n"


def _read_command(path: Path) -> OperatorCommand | None:
    command = _read(path, OperatorCommand)
    if command is not None and not 0 < len(command.command_id) <= COMMAND_ID_CHARS_MAX:
        raise StateError(f"{path}: command_id has 1 to {COMMAND_ID_CHARS_MAX} characters", configuration=True)
    return command


def _read(path: Path, form: type[_T]) -> _T | None:
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StateError(f"{path}: {error.strerror}", configuration=True) from None
    if len(content) > FILE_BYTES_MAX:
        raise StateError(f"{path}: larger than {FILE_BYTES_MAX} bytes", configuration=True)
    try:
        # Not strict: a number may stand there as text, as 64-bit numbers do in all our JSON.
        return msgspec.json.decode(content, type=form, strict=False)
    except (msgspec.DecodeError, RecursionError) as error:
        raise StateError(
            f"{path}: {error}; restore it, or give this node a new folder", configuration=True
        ) from None


def store(folder: Path, name: str, content: bytes) -> None:
    """Replaces a file durably: after this call it holds `content` whatever happens, before it the former
    content.

    Blocks on the disk; `OSError` where it cannot be done.
    """
    path, fresh = folder / name, folder / f"{name}.new"
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    fresh.replace(path)
    _sync_folder(folder)


def remove(folder: Path, name: str) -> None:
    """Removes a file durably, if it is there. Blocks on the disk."""
    with contextlib.suppress(FileNotFoundError):
        (folder / name).unlink()
    _sync_folder(folder)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class StateLock:
    """The hold of one process on one `state/` folder; it ends with the process, whatever ends that."""

    def __init__(self, folder: Path) -> None:
        """Makes the folder where it is missing and takes the lock.

        Raises:
            StateError: another process holds it (its pid is named), or the folder cannot be written.

        """
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StateError(f"{error.filename or folder}: {error.strerror}", configuration=True) from None
        try:
            self._take()
        except OSError as error:
            pid = _pid_in(self._descriptor)
            os.close(self._descriptor)
            if error.errno in (errno.EAGAIN, errno.EACCES):
                owner = f"process {pid}" if pid else "another process"
                raise StateError(f"{folder}: {owner} runs on this folder", configuration=False) from None
            raise StateError(f"{folder / LOCK}: {error.strerror}", configuration=True) from None
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def _take(self) -> None:
        for _ in range(TRIES - 1):
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(TRY_AGAIN_S)  # somebody may only have looked (`running_pid`)
            else:
                return
        fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def release(self) -> None:
        """Gives the folder up; a second time is harmless."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def running_pid(folder: Path) -> int | None:
    """The process that runs on a folder, or None; 0 where one runs and its pid cannot be read."""
    try:
        descriptor = os.open(folder / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return _pid_in(descriptor)
    finally:
        os.close(descriptor)
    return None


def _pid_in(descriptor: int) -> int:
    text = os.pread(descriptor, 32, 0).strip()
    return int(text) if text.isdigit() else 0
