"""Both loops, certificates, and a scripted node behind real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import uvloop

from tests.server.certificates import Authority, make_authority

Factory = Callable[[], asyncio.AbstractEventLoop]


@pytest.fixture(params=["asyncio", "uvloop"])
def loop_factory(request: pytest.FixtureRequest) -> Factory:
    return asyncio.new_event_loop if request.param == "asyncio" else uvloop.new_event_loop


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return make_authority(tmp_path_factory.mktemp("ca"))


LIMIT_S = 10.0


def tell_what_waits() -> None:
    for task in asyncio.all_tasks():
        task.print_stack()


@pytest.fixture
def on_loop(loop_factory: Factory) -> Iterator[Callable[[Any], Any]]:
    """Runs a coroutine on this test's loop; whatever reaches the exception handler fails the test."""
    faults: list[dict[str, Any]] = []

    def run(coroutine: Any) -> Any:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.get_loop().set_exception_handler(lambda _loop, context: faults.append(context))
            runner.get_loop().call_later(LIMIT_S - 1, tell_what_waits)
            return runner.run(asyncio.wait_for(coroutine, LIMIT_S))

    yield run
    assert faults == []
