"""The work of `ticketing acquire`: takes a lock, for a command or for whoever releases it later."""

from __future__ import annotations

import asyncio
import math
import os
import signal
from typing import TYPE_CHECKING, NamedTuple

from ticketing.cli.arguments import Invocation, access_of, key_given, seconds, wants_json, whole_number
from ticketing.cli.errors import CommandFailed, ExitCode, say, usage_error
from ticketing.cli.obtain import Ask, obtain, open_broker
from ticketing.cli.output import shown, write_json, write_line
from ticketing.cli.signal_relay import STOP_SIGNALS, SignalRelay
from ticketing.client import Ticket
from ticketing.config.client_file import Access, Typed
from ticketing.protocol.fields import LEASE_MAX, LEASE_MIN, WAIT_MAX

if TYPE_CHECKING:
    from ticketing.cli.run_under_lock import Run, Supervisor


class AcquireWords(NamedTuple):
    """The options of `acquire` as they were typed."""

    key: str | None = None
    key_option: str | None = None
    wait: str = "5"
    lease: str = "30"
    budget: str = "0"
    extend: bool = False
    grace: str | None = None
    on_lease_end: str | None = None
    fail_code: str | None = None
    config: str | None = None
    addr: tuple[str, ...] = ()
    token_file: str | None = None
    tls: str | None = None
    output: str = "text"


def acquire(words: AcquireWords, invocation: Invocation) -> int:
    """The exit code; `CommandFailed` or `ConfigError` where it comes to nothing."""
    as_json = wants_json(words.output)
    ask = Ask(
        key=key_given(words.key, words.key_option),
        wait_s=seconds(words.wait, "--wait", 0, WAIT_MAX),
        lease_s=seconds(words.lease, "--lease", LEASE_MIN, LEASE_MAX, above_zero=True),
        budget_s=seconds(words.budget, "--budget", 0, LEASE_MAX),
    )
    if ask.budget_s > math.ceil(ask.lease_s):
        raise usage_error(f"--budget {ask.budget_s:g} is above the lease of {math.ceil(ask.lease_s)} s")
    run = None
    if invocation.command is not None:
        run = _run(ask, invocation.command, words.extend, words.grace, words.on_lease_end)
    else:
        _refuse_without_command(
            extend=words.extend,
            grace=words.grace,
            on_lease_end=words.on_lease_end,
            fail_code=words.fail_code,
        )
    own_code = None if words.fail_code is None else whole_number(words.fail_code, "--fail-code", 0, 255)
    typed = Typed(config=words.config, addrs=words.addr, token_file=words.token_file, tls=words.tls)
    access = access_of(typed)
    try:
        return asyncio.run(_acquire(ask, access, run, as_json=as_json, debug=invocation.debug))
    except CommandFailed as error:
        failed = _with_holder(error, access, ask) if error.code == ExitCode.NOT_ACQUIRED else error
        if own_code is not None and ExitCode.NOT_ACQUIRED <= failed.code <= ExitCode.REFUSED:
            raise CommandFailed(str(failed), own_code, hint=failed.hint) from None
        raise failed from None


def _with_holder(failed: CommandFailed, access: Access, ask: Ask) -> CommandFailed:
    """The same end, with the name of whoever holds the key where that can be known."""
    from ticketing.cli.holder import holder_of

    holder = holder_of(access, ask.key)
    if not holder:
        return failed
    if ask.wait_s:
        return CommandFailed(f"{failed}: it is held by {holder}", failed.code)
    return CommandFailed(f"{shown(ask.key)} is held by {holder}", failed.code)


class Stop:
    """What signals do: leave the queue; then the command's; a second one in the queue waits for nothing."""

    def __init__(self, supervisor: Supervisor | None) -> None:
        self._supervisor = supervisor
        self._granted = False
        self._waiting: asyncio.Task[object] | None = None
        self.number = 0

    def watch(self, waiting: asyncio.Task[object]) -> None:
        """From now on the first stop signal cancels `waiting`."""
        self._waiting = waiting
        if self.number:
            waiting.cancel()

    def granted(self) -> None:
        """From now on signals are the command's."""
        self._granted = True

    def on_signal(self, number: int, from_terminal: bool) -> None:
        """For the relay."""
        if self._granted and self._supervisor is not None:
            self._supervisor.on_signal(number, from_terminal)
            return
        if number not in STOP_SIGNALS:
            return
        if self.number:
            os._exit(128 + number)
        self.number = number
        if self._waiting is not None:
            self._waiting.cancel()


async def _acquire(ask: Ask, access: Access, run: Run | None, *, as_json: bool, debug: bool) -> int:
    supervisor = None
    if run is not None:
        from ticketing.cli.run_under_lock import Supervisor

        supervisor = Supervisor(run, environment=os.environ)
    stop = Stop(supervisor)
    numbers = supervisor.signals if supervisor is not None else STOP_SIGNALS
    relay = SignalRelay(asyncio.get_running_loop(), numbers, stop.on_signal, senders=supervisor is not None)
    broker = open_broker(access, debug=debug)
    try:
        waiting = asyncio.get_running_loop().create_task(obtain(broker, access, ask))
        stop.watch(waiting)
        try:
            ticket = await waiting
        except asyncio.CancelledError:
            if not stop.number:
                raise
            say("left the queue" if stop.number == signal.SIGINT else f"stopped by signal {stop.number}")
            return 128 + stop.number
        if supervisor is not None:
            if stop.number:
                supervisor.on_signal(stop.number, False)
            stop.granted()
            return await supervisor.run(ticket, relay)
        if stop.number:
            await ticket.release()
            return 128 + stop.number
        try:
            _tell(ask, ticket, as_json=as_json)
        except BaseException:
            await ticket.release()
            raise
        return ExitCode.DONE
    finally:
        # A ticket that is still referred to when its broker is closed is not released: the lock outlives us.
        await broker.aclose()
        relay.close()


def _tell(ask: Ask, ticket: Ticket, *, as_json: bool) -> None:
    if as_json:
        write_json(
            {
                "key": ask.key,
                "token": str(ticket.token),
                "domain": ticket.domain,
                "lease_seconds": math.floor(ticket.conservative_remaining() * 1000) / 1000,
            }
        )
    else:
        write_line(str(ticket.token))


def _run(ask: Ask, command: list[str], extend: bool, grace: str | None, on_lease_end: str | None) -> Run:
    if not command or not command[0]:
        raise usage_error("no command stands after --", hint="ticketing acquire KEY -- CMD ARG...")
    from ticketing.cli.run_under_lock import Run, default_grace_s

    lease_s = math.ceil(ask.lease_s)
    grace_s = default_grace_s(lease_s) if grace is None else seconds(grace, "--grace", 0, LEASE_MAX)
    if grace_s >= lease_s - ask.budget_s:
        raise usage_error(
            f"--grace {grace_s:g} leaves no time to work in: it must be below lease - budget"
            f" ({lease_s - ask.budget_s:g} s)"
        )
    if on_lease_end not in (None, "kill", "warn"):
        raise usage_error(f"--on-lease-end must be kill or warn, not {on_lease_end!r}")
    return Run(
        key=ask.key,
        command=tuple(command),
        lease_s=lease_s,
        budget_s=ask.budget_s,
        grace_s=grace_s,
        extend=extend,
        leave_alone=on_lease_end == "warn",
    )


def _refuse_without_command(**given: object) -> None:
    for name, value in given.items():
        if value is not None and value is not False:
            raise usage_error(
                f"--{name.replace('_', '-')} is for a command under the lock",
                hint="put it after --: ticketing acquire KEY -- CMD ARG...",
            )
