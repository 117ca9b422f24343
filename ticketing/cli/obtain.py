"""Getting a lock for a command: reaching the cluster, asking anew where that is safe, and leaving the queue."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable
from typing import NamedTuple

from ticketing.cli.errors import CommandFailed, ExitCode, say
from ticketing.cli.output import shown
from ticketing.client import Ticket, TicketBroker, TicketError
from ticketing.config.client_file import Access

REACH_S = 5.0
"""However short the wait: a cluster that may still answer gets this long to be reached, since that is no waiting for
the lock.
"""
REACH_STEP_S = 0.25


class Ask(NamedTuple):
    """One acquire. Seconds."""

    key: str
    wait_s: float
    lease_s: float
    budget_s: float


class _Reasons(logging.Handler):
    """Keeps why there is no session with an address, as the library last told it."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.by_address: dict[str, str] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Told by the library."""
        address, _, text = record.getMessage().partition(": ")
        reason, failed, _ = text.partition("; next try")
        if failed:
            self.by_address[address] = reason
        elif text.startswith("session open"):
            self.by_address.pop(address, None)


_reasons = _Reasons()


def open_broker(access: Access, *, debug: bool = False, name: str = "ticketing") -> TicketBroker:
    """The client library for a cluster; nothing is connected yet. What it logs is shown with `debug` alone."""
    logger = logging.getLogger("ticketing.client")
    logger.addHandler(_reasons)
    logger.propagate = False
    logger.setLevel(logging.DEBUG)
    if debug:
        shown = logging.StreamHandler()
        shown.setLevel(logging.WARNING)
        logger.addHandler(shown)
    try:
        return TicketBroker(list(access.addrs), token=access.token, tls=access.tls, name=name, logger=logger)
    except TicketError as error:
        raise failure(error, access) from None


async def reach(broker: TicketBroker, access: Access, within_s: float) -> None:
    """Until a session to a serving leader stands; `CommandFailed` where the time is up or we are not let in.

    Where every address has refused a session the time is `within_s`, else at least `REACH_S`: a leader may be elected.
    """
    further_s = max(REACH_S - within_s, 0.0)
    steps = [within_s, *[REACH_STEP_S] * math.ceil(further_s / REACH_STEP_S)]
    waited_s = 0.0
    try:
        for step_s in steps:
            if await broker.wait_ready(step_s):
                return
            waited_s += step_s
            if all(addr in _reasons.by_address for addr in access.addrs):
                break
    except TicketError as error:
        raise failure(error, access) from None
    else:
        whys = [f"{addr} ({_reasons.by_address.get(addr, 'does not lead')})" for addr in access.addrs]
        raise CommandFailed(
            f"no leader was reached within {waited_s:g} s at {', '.join(whys)}",
            ExitCode.UNREACHABLE,
            hint="`ticketing status` tells how the nodes are",
        )


async def obtain(
    broker: TicketBroker, access: Access, ask: Ask, clock_s: Callable[[], float] = time.monotonic
) -> Ticket:
    """The lock, within the wait; `CommandFailed` with the code for why not.

    A request that was lost (an election) is asked anew within the wait, once the cancel of the lost one was
    answered: until then it might still be granted. A wait of 0 is one try.
    """
    deadline_s = clock_s() + ask.wait_s
    await reach(broker, access, ask.wait_s)
    told = False
    while True:
        left_s = max(deadline_s - clock_s(), 0.0)
        if ask.wait_s and not left_s:
            raise _not_acquired(ask)
        try:
            return await broker.acquire(ask.key, left_s, ask.lease_s, ask.budget_s)
        except asyncio.CancelledError:
            # Of the library's errors, the one that is this as well: we are leaving the queue.
            raise
        except TicketError as error:
            if error.kind == "timeout":
                raise _not_acquired(ask) from None
            left_s = max(deadline_s - clock_s(), 0.0)
            if not left_s or not await _may_ask_again(broker, error, left_s):
                raise failure(error, access) from None
            if not told:
                say("the cluster is electing a leader; still waiting")
                told = True


def failure(error: TicketError, access: Access) -> CommandFailed:
    """An error of the library as the end of a command."""
    kind = str(error.kind)
    code, hint = _CODES.get(kind, (ExitCode.FAILURE, ""))
    if kind == "auth" and access.token_from:
        hint = f"the token comes from {access.token_from}: is it this cluster's?"
    return CommandFailed(f"{str(error) or kind}", code, hint=hint)


_CODES: dict[str, tuple[ExitCode, str]] = {
    "timeout": (ExitCode.NOT_ACQUIRED, ""),
    "busy": (
        ExitCode.BUSY,
        "it was not acquired; `ticketing status` tells whether a bound or the clocks refuse",
    ),
    "indeterminate": (ExitCode.INDETERMINATE, "if it was granted nevertheless, it ends with its lease"),
    "insufficient_lease": (ExitCode.INSUFFICIENT_LEASE, "ask for a longer --lease or a smaller --budget"),
    "invalid_input": (ExitCode.USAGE, ""),
    "auth": (ExitCode.REFUSED, "no token was given: --token-file, TICKETING_TOKEN or client.toml names one"),
    "protocol": (ExitCode.UNREACHABLE, "is that the cluster's client port, and not another one?"),
    "not_connected": (ExitCode.UNREACHABLE, "`ticketing status` tells how the nodes are"),
    "io": (ExitCode.UNREACHABLE, ""),
    "closed": (ExitCode.FAILURE, ""),
}


def _not_acquired(ask: Ask) -> CommandFailed:
    if ask.wait_s:
        return CommandFailed(f"{shown(ask.key)} was not free within {ask.wait_s:g} s", ExitCode.NOT_ACQUIRED)
    return CommandFailed(f"{shown(ask.key)} is held by another", ExitCode.NOT_ACQUIRED)


async def _may_ask_again(broker: TicketBroker, error: TicketError, within_s: float) -> bool:
    if error.kind == "not_connected":
        return await broker.wait_ready(within_s)
    return error.kind == "indeterminate" and await broker.settled(within_s)
