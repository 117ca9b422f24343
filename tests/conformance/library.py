"""The libraries under test, and the processes that drive them (the line protocol of README.md, from our side)."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

PROJECT = Path(__file__).parents[2]
LINE_BYTES = 1024 * 1024
ANSWER_S = 60.0
"""No call takes longer in these scenarios; a driver that does not answer by then hangs."""


class Library(NamedTuple):
    """A client library, and the command that drives it; no command where it is not built here."""

    name: str
    command: Sequence[str]
    missing: str = ""
    """Why there is no command."""
    blocking: bool = False
    """It has blocking calls as well."""


def python_library() -> Library:
    """This project's own."""
    return Library("python", (sys.executable, "-m", "tests.conformance.driver"), blocking=True)


def rust_library() -> Library:
    """The crate's driver, where somebody built it."""
    named = os.environ.get("TICKETING_RUST_DRIVER")
    target = PROJECT / "clients" / "rust" / "target"
    found = (
        [Path(named)]
        if named
        else [target / kind / "examples" / "conformance_driver" for kind in ("release", "debug")]
    )
    for path in found:
        if path.is_file():
            return Library("rust", (str(path),))
    reason = "the Rust driver is not built: cargo build --example conformance_driver in clients/rust"
    return Library("rust", (), reason)


LIBRARIES = (python_library(), rust_library())


class CallError(Exception):
    """The library answered a call with an error."""

    def __init__(self, call: dict[str, Any], answer: dict[str, Any]) -> None:
        self.kind: str = answer["error"]
        self.message: str = answer.get("message", "")
        self.field: str = answer.get("field", "")
        self.value: str | None = answer.get("value")
        self.range: str = answer.get("range", "")
        super().__init__(f"{call['do']}: {self.kind}: {self.message}")


class Driver:
    """One driver process."""

    def __init__(self, library: Library, log: Path) -> None:
        """`log`: where its standard error goes."""
        self.library = library
        self._numbers = itertools.count(1)
        self._open: dict[int, tuple[dict[str, Any], asyncio.Future[dict[str, Any]]]] = {}
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._log = log
        self.fault = ""

    async def start(self) -> None:
        """Starts the process, and returns when it is ready."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TICKETING_")}
        with self._log.open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self.library.command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                limit=LINE_BYTES,
                cwd=PROJECT,
                env=environment | {"PYTHONPATH": str(PROJECT), "RUST_BACKTRACE": "1"},
            )
        assert self._process.stdout is not None
        async with asyncio.timeout(ANSWER_S):
            first = await self._process.stdout.readline()
        assert first, f"the driver ended before it was ready:\n{self.said()}"
        assert json.loads(first) == {"ready": True, "library": self.library.name}, first
        self._reading = asyncio.create_task(self._read())

    def begin(self, do: str, **arguments: Any) -> Asked:
        """Hands over a call."""
        assert self._process is not None
        assert self._process.stdin is not None
        number = next(self._numbers)
        call = {"id": number, "do": do, **arguments}
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._open[number] = (call, future)
        if self.fault:
            self._fail(self.fault)
        else:
            self._process.stdin.write(json.dumps(call).encode() + b"\n")
        return Asked(number, call, future)

    async def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            answer = json.loads(line)
            if "fault" in answer:
                self._fail(f"the {self.library.name} library has a fault: {answer['fault']}")
                continue
            found = self._open.pop(answer["id"], None)
            if found is None:
                self._fail(f"an answer to no call: {line!r}")
            elif not found[1].done():
                found[1].set_result(answer)
        self._fail("the driver ended")

    def _fail(self, fault: str) -> None:
        self.fault = self.fault or fault
        for _, future in self._open.values():
            if not future.done():
                future.set_exception(AssertionError(self.fault))
                future.exception()  # heard, whether or not somebody awaits it
        self._open.clear()

    def said(self) -> str:
        """The last of what the process wrote to its standard error."""
        return self._log.read_bytes()[-6000:].decode(errors="replace") if self._log.exists() else ""

    async def end(self) -> int:
        """Ends its input, and returns its exit status."""
        process = self._process
        if process is None:
            return 0
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(ANSWER_S):
                status = await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
            raise AssertionError("the driver did not end at the end of its input") from None
        finally:
            if self._reading is not None:
                await asyncio.wait([self._reading], timeout=5)
                self._reading.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await self._reading
        return status


class Asked:
    """A call under way. Awaited, it returns what the library answered; CallError where that is an error."""

    def __init__(self, number: int, call: dict[str, Any], future: asyncio.Future[dict[str, Any]]) -> None:
        self.number = number
        self._call = call
        self._future = future

    @property
    def done(self) -> bool:
        """Whether it was answered."""
        return self._future.done()

    async def answer(self) -> dict[str, Any]:
        """What it brought."""
        async with asyncio.timeout(ANSWER_S):
            answer = await asyncio.shield(self._future)
        if "error" in answer:
            raise CallError(self._call, answer)
        brought: dict[str, Any] = answer["ok"]
        return brought

    async def failure(self) -> CallError:
        """The error that it ends with."""
        try:
            brought = await self.answer()
        except CallError as error:
            return error
        raise AssertionError(f"{self._call['do']} succeeded: {brought}")
