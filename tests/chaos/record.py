"""What a program that uses locks writes down, one JSON line a happening, and the history that is made of it.

All times are CLOCK_MONOTONIC of the one machine, in nanoseconds, read before a call and after its return. A line is
with the kernel before what it announces is done, so a process that is killed leaves nothing out.

A program sees calls of the library, not frames. A call is one request of the checker's (`tests.sim.history`); what a
session is for the wire a *way* is here: a stretch of time in which this process's way to the leader stayed the same.
A call whose way changed meanwhile may have been asked again, so it says nothing about order, and its `N` may be the
effect of an earlier try.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from tests.sim.history import LOST, History, Hold, Request
from tests.sim.world import MS, S

ONE_TRY_NS = 1_400 * MS
"""A release that was answered sooner was tried once (the library tries for 1.5 s)."""
STALE_NS = 6 * S
"""What a leader that a majority has left may say so late that a key is not free: it reads that it has lost the lead
1.01 s after it heard of its majority last, and what it hears may have been under way for as long as a pause or a
retransmission takes; clients lose patience with a silent session after 10 s.
"""

NOT_ACQUIRED = {"timeout": "T", "busy": "B", "not_connected": "V", "closed": "V", "cancelled": "V"}
"""Refusals after which nothing is held."""
UNKNOWN = frozenset({"indeterminate", "insufficient_lease"})
"""It may be held, or was and is being given back."""


class Line(msgspec.Struct, omit_defaults=True):
    """One happening. `n` numbers the calls of acquire of a process; the others name the call that theirs follows."""

    what: str
    """`asked`, `granted`, `refused`; `releasing`, `released`; `extending`, `extended`; `wrote`, `stale`; `way`;
    `fault`: something that must not happen.
    """
    at: int
    n: int = 0
    way: int = 0
    key: str = ""
    wait: int = 0
    lease: int = 0
    token: int = 0
    until: int = 0
    """The conservative end."""
    held: bool | None = None
    """How a release or an extension was answered; None without an answer."""
    kind: str = ""
    """Of an error; of a fault, what is wrong."""
    left: float = 0.0
    """Seconds left before the conservative end, where a write was refused."""


class Recorder:
    """Writes lines."""

    def __init__(self, file: Path) -> None:
        self._descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._encoder = msgspec.json.Encoder()
        self.way = 0

    def write(self, what: str, **facts: Any) -> None:
        """One line, with the time now."""
        line = Line(what, time.monotonic_ns(), way=self.way, **facts)
        os.write(self._descriptor, self._encoder.encode(line) + b"\n")

    def close(self) -> None:
        os.close(self._descriptor)


def read_lines(file: Path, offset: int = 0) -> list[Line]:
    """What was written from an offset on, whole lines only: a process that was killed may have left a part of one."""
    decoder = msgspec.json.Decoder(Line)
    with file.open("rb") as lines:
        lines.seek(offset)
        *whole, _rest = lines.read().split(b"\n")
    return [decoder.decode(line) for line in whole]


class Call:
    """One acquire, and all that came of it."""

    __slots__ = ("hold", "request")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.hold: Hold | None = None


class Witness:
    """All that the programs of a run saw."""

    def __init__(self) -> None:
        self.history = History()
        self.history.stale_ns = STALE_NS
        self.faults: list[str] = []
        """What programs said must not happen."""
        self.grants_ns: list[int] = []
        """When grants were read, in order once `finish` was called."""
        self.outcomes: dict[str, int] = {}
        """How many operations ended how."""
        self.owners: dict[int, tuple[str, str]] = {}
        """By token: key, and the process that was granted it."""
        self._sessions = 0
        self._owner = 1 << 63

    def add(self, process: str, lines: Iterable[Line]) -> None:
        """What one process wrote, in its order."""
        calls: dict[int, Call] = {}
        open_calls: dict[tuple[str, int], Line] = {}
        sessions: dict[int, int] = {}
        for line in lines:
            match line.what:
                case "asked":
                    calls[line.n] = self._asked(line, sessions)
                case "granted":
                    self._granted(process, calls[line.n], line, sessions)
                case "refused":
                    self._refused(process, calls[line.n], line)
                case "releasing" | "extending":
                    open_calls[line.what, line.n] = line
                    self._invoked(calls[line.n], line)
                case "released":
                    self._ended("R", calls[line.n], open_calls.pop(("releasing", line.n)), line)
                case "extended":
                    self._ended("X", calls[line.n], open_calls.pop(("extending", line.n)), line)
                case "wrote":
                    self._count("fenced write")
                case "stale":
                    self._count("write refused as stale")
                    if line.left > 0:
                        self.faults.append(f"{process}: refused as stale with {line.left:.3f} s left: {line}")
                case "fault":
                    self.faults.append(f"{process}: {line.kind}")
                case _:
                    pass
        for call in calls.values():
            if call.request.answer is None:
                call.request.answer = LOST  # the process was killed
                self._count("acquire: process killed")

    def finish(self) -> None:
        """Nothing is added any more."""
        self.grants_ns.sort()

    def _count(self, outcome: str) -> None:
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1

    def _session(self, sessions: dict[int, int], way: int) -> int:
        if way not in sessions:
            self._sessions += 1
            sessions[way] = self._sessions
        return sessions[way]

    def _asked(self, line: Line, sessions: dict[int, int]) -> Call:
        self._owner += 1
        session = self._session(sessions, line.way)
        request = Request(
            "Q", line.key.encode(), self._owner, session, line.at, wait=line.wait, lease=line.lease
        )
        self.history.add(request)
        return Call(request)

    def _answered(self, request: Request, line: Line, sessions: dict[int, int]) -> None:
        request.answered_ns = line.at
        if self._session(sessions, line.way) == request.session:
            self.history.was_read(request, line.at)
        else:
            self._wandered(request)

    def _wandered(self, request: Request) -> None:
        """Its way changed meanwhile: nobody knows on which session it was asked."""
        self._sessions += 1
        request.session = self._sessions
        self.history.ended_sessions[request.session] = request.answered_ns

    def _granted(self, process: str, call: Call, line: Line, sessions: dict[int, int]) -> None:
        request = call.request
        self._answered(request, line, sessions)
        request.answer, request.token = "A", line.token
        call.hold = Hold(request, line.token, line.at, line.until)
        self.history.holds.append(call.hold)
        self.grants_ns.append(line.at)
        self.owners[line.token] = (line.key, process)
        self._count("acquire: granted")

    def _refused(self, process: str, call: Call, line: Line) -> None:
        self._count(f"acquire: {line.kind}")
        request = call.request
        request.answered_ns = line.at
        if line.kind in NOT_ACQUIRED:
            request.answer = NOT_ACQUIRED[line.kind]
        else:
            request.answer = LOST
            if line.kind not in UNKNOWN:
                self.faults.append(f"{process}: an acquire ended with {line.kind}: {line}")

    def _invoked(self, call: Call, line: Line) -> None:
        if line.what == "releasing" and call.hold is not None and call.hold.released_ns is None:
            call.hold.released_ns = line.at

    def _ended(self, op: str, call: Call, begun: Line, line: Line) -> None:
        hold = call.hold
        assert hold is not None
        request = Request(op, hold.key, hold.token, 0, begun.at, lease=begun.lease)
        request.answered_ns = line.at
        once = begun.way == line.way and line.at - begun.at < ONE_TRY_NS
        name = "release" if op == "R" else "extend"
        if line.held is None:
            request.answer = LOST
            self._count(f"{name}: unanswered")
        elif line.held:
            request.answer = op
            self._count(f"{name}: done")
            if op == "X":
                hold.until_ns = max(hold.until_ns, line.until)
        else:
            # Not held: a fact only where no earlier try of the same call can have done it, and the end was not near.
            request.answer = "N" if once and op == "R" else LOST
            self._count(f"{name}: not held")
        self.history.add(request)


def witness(files: Sequence[Path]) -> Witness:
    """Reads what the processes of a run wrote."""
    found = Witness()
    for file in files:
        found.add(file.stem, read_lines(file))
    found.finish()
    return found
