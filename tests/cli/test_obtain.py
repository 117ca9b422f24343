from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Tell
from tests.cli.planes import Planes
from ticketing.cli.errors import CommandFailed, ExitCode
from ticketing.cli.obtain import Ask, obtain
from ticketing.client import IndeterminateCancelledError, TicketError
from ticketing.config.client_file import Access

ACCESS = Access(("127.0.0.1:5225",), "", "off", None)


class Broker:
    """Gives the prepared outcomes one after the other; time passes only in it."""

    def __init__(self, *outcomes: object, ready: bool | TicketError = True, took_s: float = 0.0) -> None:
        self._outcomes = list(outcomes)
        self._ready = ready
        self._took_s = took_s
        self.now_s = 100.0
        self.waits: list[float] = []
        self.reached_for_s = 0.0
        self.cancels_answered = False

    def clock_s(self) -> float:
        return self.now_s

    async def wait_ready(self, within_s: float) -> bool:
        self.reached_for_s += within_s
        if isinstance(self._ready, TicketError):
            raise self._ready
        return self._ready

    async def acquire(self, key: str, wait: float, lease: float, budget: float) -> object:
        self.waits.append(wait)
        outcome = self._outcomes.pop(0)
        self.now_s += self._took_s
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    async def settled(self, _within_s: float) -> bool:
        return self.cancels_answered


def ask(wait_s: float = 10) -> Ask:
    return Ask(key="k", wait_s=wait_s, lease_s=30, budget_s=0)


async def run(broker: Broker, wait_s: float = 10) -> Any:
    return await obtain(broker, ACCESS, ask(wait_s), broker.clock_s)  # type: ignore[arg-type]


async def test_a_free_key_is_handed_over() -> None:
    broker = Broker("ticket")
    assert await run(broker) == "ticket"
    assert broker.waits == [10]


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("timeout", ExitCode.NOT_ACQUIRED),
        ("busy", ExitCode.BUSY),
        ("indeterminate", ExitCode.INDETERMINATE),
        ("insufficient_lease", ExitCode.INSUFFICIENT_LEASE),
        ("invalid_input", ExitCode.USAGE),
        ("auth", ExitCode.REFUSED),
    ],
)
async def test_every_kind_of_failure_has_its_code(kind: str, code: ExitCode) -> None:
    with pytest.raises(CommandFailed) as failed:
        await run(Broker(TicketError(kind, "because")))
    assert failed.value.code == code


async def test_a_single_try_says_that_the_key_is_held() -> None:
    with pytest.raises(CommandFailed, match="k is held by another") as failed:
        await run(Broker(TicketError("timeout", "")), wait_s=0)
    assert failed.value.code == ExitCode.NOT_ACQUIRED


async def test_nobody_reached_is_unreachable_and_a_refused_token_is_refused() -> None:
    with pytest.raises(CommandFailed, match="no leader was reached within 10 s") as failed:
        await run(Broker(ready=False))
    assert failed.value.code == ExitCode.UNREACHABLE
    with pytest.raises(CommandFailed) as failed:
        await run(Broker(ready=TicketError("auth", "no")))
    assert failed.value.code == ExitCode.REFUSED


@pytest.mark.parametrize("source", ["--token-file", "TICKETING_TOKEN", "/etc/ticketing/client.toml"])
async def test_a_refused_token_is_told_with_where_it_came_from(source: str) -> None:
    access = Access(("a:1",), "a-token", "off", Path("/etc/ticketing/client.toml"), (), (("token", source),))
    refused = Broker(ready=TicketError("auth", "no"))
    with pytest.raises(CommandFailed) as failed:
        await obtain(refused, access, ask(), refused.clock_s)  # type: ignore[arg-type]
    assert failed.value.hint == f"the token comes from {source}: is it this cluster's?"
    with pytest.raises(CommandFailed) as failed:
        await obtain(refused, access._replace(token=""), ask(), refused.clock_s)  # type: ignore[arg-type]
    assert failed.value.hint.startswith("no token was given: --token-file, TICKETING_TOKEN or client.toml")


async def test_a_lost_request_is_asked_anew_once_its_cancel_was_answered(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lost = TicketError("indeterminate", "lost")
    broker = Broker(lost, lost, "ticket", took_s=3)
    broker.cancels_answered = True
    assert await run(broker) == "ticket"
    assert broker.waits == [10, 7, 4]
    assert capsys.readouterr().err.count("\n") == 1


async def test_a_lost_request_whose_cancel_was_not_answered_stays_indeterminate() -> None:
    broker = Broker(TicketError("indeterminate", "lost"), "ticket")
    with pytest.raises(CommandFailed) as failed:
        await run(broker)
    assert failed.value.code == ExitCode.INDETERMINATE


async def test_asking_anew_ends_with_the_wait() -> None:
    lost = TicketError("indeterminate", "lost")
    broker = Broker(lost, lost, lost, "ticket", took_s=4)
    broker.cancels_answered = True
    with pytest.raises(CommandFailed) as failed:
        await run(broker)
    assert broker.waits == [10, 6, 2]
    assert failed.value.code == ExitCode.INDETERMINATE


async def test_a_single_try_is_never_asked_anew() -> None:
    broker = Broker(TicketError("indeterminate", "lost"), "ticket")
    broker.cancels_answered = True
    with pytest.raises(CommandFailed):
        await run(broker, wait_s=0)
    assert broker.waits == [0]


async def test_leaving_the_queue_is_no_failure_to_be_tried_again() -> None:
    broker = Broker(IndeterminateCancelledError("indeterminate", "cancelled"), "ticket")
    broker.cancels_answered = True
    with pytest.raises(asyncio.CancelledError):
        await run(broker)
    assert broker.waits == [10]


@pytest.mark.parametrize("wait_s", [0, 1, 9])
async def test_a_cluster_that_may_still_answer_gets_five_seconds_to_be_reached(wait_s: float) -> None:
    broker = Broker(ready=False)
    with pytest.raises(CommandFailed) as failed:
        await run(broker, wait_s)
    assert failed.value.code == ExitCode.UNREACHABLE
    assert broker.reached_for_s == max(wait_s, 5)


def refusing() -> str:
    """An address on which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as once:
        host, port = once.getsockname()
    return f"{host}:{port}"


def test_where_every_address_refuses_it_ends_with_its_wait_and_names_them(planes: Planes, tell: Tell) -> None:
    first, second = refusing(), refusing()
    code, out, err = tell("acquire", "k", "--wait", "1", "--addr", f"{first},{second}")
    assert (code, out) == (7, "")
    line = err.splitlines()[0]
    assert line.startswith("error: no leader was reached within 1 s at ")
    for address in (first, second):
        assert f"{address} (cannot connect: " in line


def test_an_address_that_is_silent_may_still_answer(planes: Planes, tell: Tell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        host, port = silent.getsockname()
        code, _, err = tell("acquire", "k", "--wait", "0", "--addr", f"{refusing()},{host}:{port}")
    assert code == 7
    assert "no banner of the server within 3 s" in err
