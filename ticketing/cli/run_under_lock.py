"""`acquire KEY -- CMD`: runs a command under a lock, from the grant to the release."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import time
from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from ticketing.cli.child import Child, on_a_terminal, start_child
from ticketing.cli.errors import CommandFailed, ExitCode, say, warn
from ticketing.cli.lease_watch import Act, LeaseWatch
from ticketing.cli.signal_relay import STOP_SIGNALS, SignalRelay

FORWARDED = (
    *STOP_SIGNALS,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGWINCH,
    signal.SIGCONT,
    signal.SIGTSTP,
)
"""On a terminal SIGTSTP and SIGCONT are left to the terminal and the shell: they stop and wake us all."""

_LEFT_S = 0.02
"""How often is looked whether what the command left behind is gone."""

_KILLS_MAX = 50
"""SIGKILL is repeated, since what forks may slip through one look at the tree; then there is no more to be done."""


class SupportsBool(Protocol):
    """Something that is true or false."""

    def __bool__(self) -> bool:
        """Whether it is so."""
        ...


class HeldLock(Protocol):
    """What is needed of a ticket."""

    @property
    def token(self) -> int:
        """The fencing token."""
        ...

    @property
    def domain(self) -> str | None:
        """The cluster life that granted it."""
        ...

    @property
    def lost(self) -> SupportsBool:
        """Whether the lock is known to be gone."""
        ...

    def conservative_remaining(self) -> float:
        """Seconds to the conservative end, negative after it."""
        ...

    async def extend(self) -> object:
        """Counts the lease anew."""
        ...

    async def release(self) -> bool:
        """Gives the lock back; False where it was not held any more."""
        ...


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """What to run, and how."""

    key: str
    command: tuple[str, ...]
    lease_s: float
    budget_s: float
    grace_s: float
    extend: bool = False
    leave_alone: bool = False
    """At the end of the lease only say so."""


class Supervisor:
    """One command under one lock. Signals reach it through `on_signal` from before the grant on."""

    def __init__(
        self, run: Run, *, environment: Mapping[str, str], clock_s: Callable[[], float] = time.monotonic
    ):
        self._run = run
        self._environment = environment
        self._clock_s = clock_s
        self._terminal = on_a_terminal()
        self._child: Child | None = None
        self._stop_passed_on = False
        self._releasing = False
        self._asked_again = False
        self._extending: asyncio.Task[None] | None = None
        self.stopped_by = 0
        """The first stop signal that came before the command was started."""

    @property
    def signals(self) -> tuple[int, ...]:
        """Those that are to be relayed to `on_signal`."""
        if self._terminal:
            return tuple(n for n in FORWARDED if n not in (signal.SIGTSTP, signal.SIGCONT))
        return FORWARDED

    def on_signal(self, number: int, from_terminal: bool) -> None:
        """Passes a signal on, once: what the terminal sent has reached a command in our own group by itself."""
        if self._releasing:
            if number in STOP_SIGNALS:
                self._stopped_again(number)
            return
        if self._child is None:
            if number in STOP_SIGNALS and not self.stopped_by:
                self.stopped_by = number
            return
        if number in STOP_SIGNALS:
            self._stop_passed_on = True
        if self._terminal and (from_terminal or number == signal.SIGWINCH):
            return
        self._child.send(number)

    async def run(self, lock: HeldLock, relay: SignalRelay) -> int:
        """From the grant to the release; the exit code. The lock is released whatever happens in between."""
        watch = LeaseWatch(
            lease_s=self._run.lease_s,
            grace_s=self._run.grace_s,
            extend=self._run.extend,
            leave_alone=self._run.leave_alone,
        )
        held: bool | None = True
        try:
            code = await self._run_command(lock, relay, watch)
        finally:
            self._releasing = True
            held = await self._release(lock)
        if self._child is not None and (watch.ran_out or held is False):
            if not watch.ran_out:
                warn(f"the lock was gone before {self._run.command[0]} ended (its own code: {code})")
            return ExitCode.LEASE_RAN_OUT
        return code

    async def _run_command(self, lock: HeldLock, relay: SignalRelay, watch: LeaseWatch) -> int:
        remaining_s = lock.conservative_remaining()
        needed_s = self._run.grace_s + self._run.budget_s
        if lock.lost or remaining_s < needed_s:
            raise CommandFailed(
                f"{max(remaining_s, 0.0):.1f} s of the lease are left, less than grace + budget"
                f" ({needed_s:g} s): the command was not started",
                ExitCode.INSUFFICIENT_LEASE,
                hint="ask for a longer --lease",
            )
        # No await from here to the start: a stop signal either was seen before, or is passed on.
        if self.stopped_by:
            return 128 + self.stopped_by
        code = self._start(lock, remaining_s, relay)
        return code if self._child is None else await self._watch(self._child, lock, watch)

    def _stopped_again(self, number: int) -> None:
        """The release is bounded; who does not want to wait for it asks twice."""
        if self._asked_again:
            os._exit(128 + number)
        self._asked_again = True
        say("releasing the lock; again to stop at once")

    def _start(self, lock: HeldLock, remaining_s: float, relay: SignalRelay) -> int:
        name = self._run.command[0]
        try:
            self._child = start_child(
                self._run.command,
                # After the inherited ones: a nested run has to see its own lock, not the outer one.
                {**self._environment, **child_variables(self._run.key, lock, remaining_s)},
                own_group=not self._terminal,
                die_with_us=not self._run.leave_alone,
                mask=relay.former_mask,
            )
        except OSError as error:
            say(f"error: {name}: {(error.strerror or str(error)).lower()}")
            return ExitCode.NOT_FOUND if isinstance(error, FileNotFoundError) else ExitCode.NOT_EXECUTABLE
        return ExitCode.DONE

    async def _watch(self, child: Child, lock: HeldLock, watch: LeaseWatch) -> int:
        """Until the command, and after a stop or the lease's end all that it left behind, has ended."""
        kills = 0
        while True:
            if child.ended.done():
                if self._stop_passed_on and not watch.ending and child.anything_left():
                    child.send_to_all(signal.SIGTERM)
                    watch.end_now(self._clock_s())
                if not watch.ending or kills >= _KILLS_MAX or not child.anything_left():
                    break
            step = watch.step(self._clock_s(), lock.conservative_remaining(), lost=bool(lock.lost))
            self._do(step.act, child, lock)
            kills += step.act is Act.KILL
            await self._sleep(child, step.wait_s)
        if self._extending is not None:
            self._extending.cancel()
            await asyncio.wait([self._extending])
        return child.ended.result()

    def _do(self, act: Act, child: Child, lock: HeldLock) -> None:
        name = self._run.command[0]
        if act is Act.EXTEND and (self._extending is None or self._extending.done()):
            self._extending = asyncio.get_running_loop().create_task(_extend(lock))
        elif act is Act.TERM:
            why = "the lock is lost" if lock.lost else "the lease is about to run out"
            warn(f"{why}: {name} is asked to end, and ended after {self._run.grace_s:g} s at the latest")
            child.send_to_all(signal.SIGTERM)
        elif act is Act.KILL:
            child.send_to_all(signal.SIGKILL)
        elif act is Act.WARN:
            why = "the lock is lost" if lock.lost else "the lease has run out"
            warn(f"{why}, and {name} still runs: another may hold {self._run.key!r} now")

    async def _sleep(self, child: Child, seconds: float) -> None:
        if child.ended.done():
            await asyncio.sleep(min(seconds, _LEFT_S))
        else:
            await asyncio.wait([child.ended], timeout=seconds)

    async def _release(self, lock: HeldLock) -> bool | None:
        """None: nobody knows. The library bounds it; its failure must not hide how the command ended."""
        try:
            return await lock.release()
        except Exception as error:
            warn(f"the lock was not released ({error}); it ends with its lease")
            return None


async def _extend(lock: HeldLock) -> None:
    try:
        await lock.extend()
    except Exception as error:
        warn(f"the lease could not be extended ({error})")


def child_variables(key: str, lock: HeldLock, remaining_s: float) -> dict[str, str]:
    """What the command is told. The seconds are the conservative ones at its start, whole ones for plain shells."""
    return {
        "TICKETING_KEY": key,
        "TICKETING_FENCING_TOKEN": str(lock.token),
        "TICKETING_DOMAIN": lock.domain or "",
        "TICKETING_LEASE_SECONDS": str(max(0, math.floor(remaining_s))),
    }


def default_grace_s(lease_s: float) -> float:
    """The smaller of 5 s and a quarter of the lease."""
    return min(5.0, lease_s / 4)


def inherited() -> dict[str, str]:
    """The environment that the command would have without us."""
    return dict(os.environ)
