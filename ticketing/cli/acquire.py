"""`ticketing acquire`: takes a lock, for a command or for whoever releases it later."""

from __future__ import annotations

import asyncio
import math
import os
import signal
from typing import Annotated

import typer

from ticketing.cli.errors import CommandFailed, ExitCode, say, usage_error
from ticketing.cli.obtain import Ask, obtain, open_broker
from ticketing.cli.options import (
    Addr,
    Config,
    Output,
    Tls,
    TokenFile,
    access_of,
    invocation_of,
    new_app,
    wants_json,
    whole_number,
)
from ticketing.cli.output import write_json, write_line
from ticketing.cli.run_under_lock import Run, Supervisor, default_grace_s
from ticketing.cli.signal_relay import STOP_SIGNALS, SignalRelay
from ticketing.client import Ticket
from ticketing.config.client_file import Access, Typed
from ticketing.protocol.fields import LEASE_MAX, LEASE_MIN, WAIT_MAX, key_problem

app = new_app()


@app.command(
    epilog="Example: ticketing acquire stock/42 --wait 5 --lease 30 -- ./take-stock --all"
    " (runs ./take-stock under the lock; without -- it prints the fencing token)"
)
def acquire(
    context: typer.Context,
    key: Annotated[str | None, typer.Argument(metavar="KEY", show_default=False)] = None,
    key_option: Annotated[
        str | None, typer.Option("--key", metavar="KEY", help="For a key that starts with a hyphen.")
    ] = None,
    wait: Annotated[str, typer.Option(metavar="SECONDS", help=f"0 to {WAIT_MAX}; 0 tries once.")] = "5",
    lease: Annotated[
        str,
        typer.Option(
            metavar="SECONDS", help=f"{LEASE_MIN} to {LEASE_MAX}; it ends the lock of a dead holder."
        ),
    ] = "30",
    budget: Annotated[
        str, typer.Option(metavar="SECONDS", help="What the work needs: less left of the lease is a failure.")
    ] = "0",
    extend: Annotated[
        bool, typer.Option("--extend", help="With a command: extend the lease as long as it runs.")
    ] = False,
    grace: Annotated[
        str | None,
        typer.Option(
            metavar="SECONDS",
            help="Between SIGTERM and SIGKILL at the lease's end. [default: 5, or lease / 4]",
        ),
    ] = None,
    on_lease_end: Annotated[
        str | None, typer.Option(metavar="WHAT", help="kill (default), or warn: leave the command alone.")
    ] = None,
    fail_code: Annotated[
        str | None, typer.Option(metavar="N", help="With a command: instead of our own codes 3 to 8.")
    ] = None,
    config: Config = None,
    addr: Addr = None,
    token_file: TokenFile = None,
    tls: Tls = None,
    output: Output = "text",
) -> int:
    """Acquire a lock. With -- CMD run CMD under it and release it after; without, print its fencing token."""
    invocation = invocation_of(context)
    as_json = wants_json(output)
    name = key_given(key, key_option)
    ask = Ask(
        key=name,
        wait_s=seconds(wait, "--wait", 0, WAIT_MAX),
        lease_s=seconds(lease, "--lease", LEASE_MIN, LEASE_MAX, above_zero=True),
        budget_s=seconds(budget, "--budget", 0, LEASE_MAX),
    )
    if ask.budget_s > math.ceil(ask.lease_s):
        raise usage_error(f"--budget {ask.budget_s:g} is above the lease of {math.ceil(ask.lease_s)} s")
    run = None
    if invocation.command is not None:
        run = _run(ask, invocation.command, extend, grace, on_lease_end)
    else:
        _refuse_without_command(extend=extend, grace=grace, on_lease_end=on_lease_end, fail_code=fail_code)
    own_code = None if fail_code is None else whole_number(fail_code, "--fail-code", 0, 255)
    access = access_of(Typed(config=config, addrs=addr or (), token_file=token_file, tls=tls))
    try:
        return asyncio.run(_acquire(ask, access, run, as_json=as_json, debug=invocation.debug))
    except CommandFailed as failed:
        if own_code is not None and ExitCode.NOT_ACQUIRED <= failed.code <= ExitCode.REFUSED:
            raise CommandFailed(str(failed), own_code, hint=failed.hint) from None
        raise


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
    supervisor = Supervisor(run, environment=os.environ) if run is not None else None
    stop = Stop(supervisor)
    numbers = supervisor.signals if supervisor is not None else STOP_SIGNALS
    relay = SignalRelay(asyncio.get_running_loop(), numbers, stop.on_signal)
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


def key_given(argument: str | None, option: str | None) -> str:
    """The key, from either place; refused before anything is sent if it can be no key."""
    if argument is not None and option is not None:
        raise usage_error("the key is given twice, as an argument and with --key")
    key = argument if argument is not None else option
    if key is None:
        raise usage_error("the key is missing", hint="a key that starts with a hyphen is given with --key")
    if problem := key_problem(key.encode("utf-8", "surrogateescape")):
        raise usage_error(problem)
    return key


def seconds(text: str, option: str, low: int, high: int, *, above_zero: bool = False) -> float:
    """Seconds, fractions allowed: on the wire they are rounded up to whole ones. Never clipped."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if math.isfinite(value) and value >= 0 and math.ceil(value) <= high and not (above_zero and value == 0):
        return value
    raise usage_error(f"{option} must be from {low} to {high} seconds, not {text!r}")
