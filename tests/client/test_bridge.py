"""Without a loop, from other loops and threads, over a fork, at the interpreter's end (spec 10)."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.client.locking import LockServer
from tests.client.scripted import Server, until
from ticketing.client import IndeterminateCancelledError, TicketBroker, TicketError
from ticketing.client.bridge import Call


class Serving:
    """A lock server on a thread of its own."""

    def __init__(self) -> None:
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self.server = Server()
        self.locks = LockServer(self.server)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        assert self._ready.wait(10)

    def _run(self) -> None:
        self._loop.run_until_complete(self.server.start())
        self._loop.call_soon(self._ready.set)
        self._loop.run_forever()
        self._loop.run_until_complete(self.server.stop())
        self._loop.close()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    @property
    def address(self) -> str:
        return self.server.address

    def wait_until(self, condition: object) -> None:
        for _ in range(10_000):
            if condition():  # type: ignore[operator]
                return
            time.sleep(0.001)
        pytest.fail("nothing happened for ten seconds")


@pytest.fixture(autouse=True)
def nothing_unheard() -> None:
    """In place of the asynchronous one: these tests run their own loops."""


@pytest.fixture
def serving() -> Iterator[Serving]:
    serving = Serving()
    yield serving
    serving.stop()


def test_a_thread_without_a_loop_acquires_extends_and_releases(serving: Serving) -> None:
    with TicketBroker([serving.address]) as broker:
        assert broker.wait_ready_sync(5)
        with broker.acquire_sync("key", 5, 30, 2) as ticket:
            assert serving.locks.holder(b"key") == ticket.token
            with pytest.raises(TicketError) as caught:
                broker.acquire_sync("key", 0, 30, 2)
            assert caught.value.kind == "timeout"
        assert serving.locks.holder(b"key") is None
        assert broker.release_sync("key", ticket.token) is False
        assert broker.settled_sync(1)
    names = [thread.name for thread in threading.enumerate()]
    assert "ticketing-loop" not in names
    with pytest.raises(TicketError) as caught:
        broker.acquire_sync("key", 0, 30, 2)
    assert caught.value.kind == "closed"


def test_many_threads_share_a_broker(serving: Serving) -> None:
    inside = 0

    def work(number: int) -> int:
        nonlocal inside
        with broker.acquire_sync("key", 20, 30, 0) as ticket:
            inside += 1
            assert inside == 1
            inside -= 1
        return ticket.token

    with TicketBroker([serving.address]) as broker, ThreadPoolExecutor(8) as pool:
        assert broker.wait_ready_sync(5)
        tokens = list(pool.map(work, range(40)))
    assert len(set(tokens)) == 40


def test_other_loops_hop_to_the_thread_and_back(serving: Serving) -> None:
    async def main() -> int:
        async with await broker.acquire("key", 5, 30, 0) as ticket:
            assert await ticket.extend() is True
            return ticket.token

    serving.server.answer = None
    answer = LockServer(serving.server)._answer

    def with_extend(asked: object) -> None:
        if asked.opcode == 0x58:  # type: ignore[attr-defined]
            asked.extended()  # type: ignore[attr-defined]
        else:
            answer(asked)  # type: ignore[arg-type]

    serving.server.answer = with_extend
    with TicketBroker([serving.address]) as broker:
        assert broker.wait_ready_sync(5)
        assert asyncio.run(main()) < asyncio.run(main())


def test_a_call_from_another_loop_that_is_cancelled_leaves_nothing_behind(serving: Serving) -> None:
    async def main() -> None:
        call = asyncio.ensure_future(broker.acquire("key", 100, 30, 0))
        await until(lambda: serving.locks.waiting(b"key") == 1)
        call.cancel()
        with pytest.raises(IndeterminateCancelledError):
            await call
        assert await broker.settled(5)
        assert serving.locks.waiting(b"key") == 0
        for number in range(60):
            call = asyncio.ensure_future(broker.acquire("free", 100, 30, 0))
            await asyncio.sleep(number * 0.000_05)
            call.cancel()
            try:
                await (await call).release()
            except asyncio.CancelledError:
                assert await broker.settled(5)
        # What was given back after its caller had left may still be on its way.
        await until(lambda: serving.locks.holder(b"free") is None)

    with TicketBroker([serving.address]) as broker:
        assert broker.wait_ready_sync(5)
        with broker.acquire_sync("key", 5, 30, 0):
            asyncio.run(main())


def test_what_a_call_brings_after_its_caller_has_left_is_handed_back() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        for turns_before in range(4):
            unwanted: list[int] = []

            async def work() -> int:
                return 5

            call = Call(loop, work, unwanted.append)
            for _ in range(turns_before):
                await asyncio.sleep(0)
            call.abandon()
            for _ in range(5):
                await asyncio.sleep(0)
            assert call.outcome.done()
            brought = call.outcome.exception() is None
            assert unwanted == ([5] if brought else []), turns_before

    asyncio.run(main())


def test_when_its_loop_was_closed_it_binds_anew(serving: Serving) -> None:
    broker = TicketBroker([serving.address])

    async def main() -> int:
        async with await broker.acquire("key", 5, 30, 0) as ticket:
            return ticket.token

    assert asyncio.run(main()) < asyncio.run(main())
    with broker.acquire_sync("key", 5, 30, 0):
        pass
    broker.close()


def test_a_blocking_call_inside_the_brokers_own_loop_is_refused(serving: Serving) -> None:
    async def main() -> None:
        async with TicketBroker([serving.address]) as broker:
            assert await broker.wait_ready(5)
            ticket = await broker.acquire("key", 5, 30, 0)
            for call in (
                lambda: broker.acquire_sync("key", 5, 30, 0),
                ticket.release_sync,
                lambda: broker.wait_ready_sync(5),
                broker.close,
            ):
                with pytest.raises(TicketError) as caught:
                    call()
                assert caught.value.kind == "invalid_input"
            await ticket.release()

    asyncio.run(main())


def test_a_blocking_first_use_inside_somebody_elses_loop_has_a_thread_of_its_own(serving: Serving) -> None:
    async def main() -> None:
        with TicketBroker([serving.address]) as broker, broker.acquire_sync("key", 5, 30, 0) as ticket:
            assert ticket.token

    asyncio.run(main())


def test_a_bound_loop_that_does_not_run_is_refused_and_not_waited_for(serving: Serving) -> None:
    loop = asyncio.new_event_loop()
    broker = TicketBroker([serving.address])
    assert loop.run_until_complete(broker.wait_ready(5))
    with pytest.raises(TicketError) as caught:
        broker.acquire_sync("key", 5, 30, 0)
    assert caught.value.kind == "invalid_input"
    loop.run_until_complete(broker.aclose())
    loop.close()


def test_a_broker_that_is_dropped_unclosed_says_so_and_ends(serving: Serving) -> None:
    broker = TicketBroker([serving.address])
    assert broker.wait_ready_sync(5)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del broker
        gc.collect()
    assert ResourceWarning in [warning.category for warning in caught]
    serving.wait_until(lambda: not serving.server.sessions)


def test_the_child_of_a_fork_is_told_and_the_parent_unharmed(serving: Serving) -> None:
    unused = TicketBroker([serving.address])
    with TicketBroker([serving.address]) as broker:
        ticket = broker.acquire_sync("key", 5, 30, 0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of forking with threads, from 3.12 on
            child = os.fork()
        if child == 0:
            code = 1
            try:
                started = time.monotonic()
                try:
                    broker.acquire_sync("other", 5, 30, 0)
                except TicketError as error:
                    if error.kind == "closed":
                        code = 2
                with unused.acquire_sync("third", 5, 30, 0):
                    code += 1
                unused.close()
                if time.monotonic() - started > 5:
                    code = 4
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 3
        assert serving.locks.holder(b"key") == ticket.token
        assert ticket.release_sync() is True
    unused.close()


SCRIPT = """
import os, sys, threading, time
from ticketing.client import TicketBroker, TicketError
broker = TicketBroker([sys.argv[1]])
assert broker.wait_ready_sync(5)
"""


WAITING = """
ticket = broker.acquire_sync("key", 5, 30, 0)
def wait():
    try:
        broker.acquire_sync("key", 200, 30, 0)
    except TicketError as error:
        print(error.kind)
threading.Thread(target=wait).start()
time.sleep(0.2)
"""


def run(serving: Serving, body: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-X", "dev", "-c", SCRIPT + body, serving.address],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )


@pytest.mark.parametrize(
    ("body", "code", "said"),
    [
        ("ticket = broker.acquire_sync('key', 5, 30, 0)\nsys.exit(3)", 3, ""),
        ("ticket = broker.acquire_sync('key', 5, 30, 0)\nraise ValueError('mine')", 1, "mine"),
        (
            WAITING,
            0,
            "",
        ),
    ],
    ids=["holding", "raising", "waiting"],
)
def test_the_interpreter_ends_as_it_would_without_us(
    serving: Serving, body: str, code: int, said: str
) -> None:
    started = time.monotonic()
    done = run(serving, body)
    assert done.returncode == code, done.stderr
    assert time.monotonic() - started < 5
    assert "ticketing" not in done.stderr.replace("ticketing.client", "")
    assert said in done.stderr
    if not said:
        assert done.stderr == ""
    serving.wait_until(lambda: not serving.server.sessions)


def test_ctrl_c_ends_a_waiting_call_and_leaves_the_queue(serving: Serving) -> None:
    with TicketBroker([serving.address]) as broker:
        ticket = broker.acquire_sync("key", 5, 30, 0)
        body = "broker.acquire_sync('key', 200, 30, 0)"
        process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT + body, serving.address], stderr=subprocess.PIPE, text=True
        )
        serving.wait_until(lambda: serving.locks.waiting(b"key") == 1)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=10)
        assert "KeyboardInterrupt" in said
        assert serving.locks.waiting(b"key") == 0
        assert ticket.release_sync() is True


def test_it_runs_on_uvloop_as_well(serving: Serving) -> None:
    uvloop = pytest.importorskip("uvloop")

    async def main() -> None:
        async with TicketBroker([serving.address]) as broker:
            assert await broker.wait_ready(5)
            waiting = None
            async with await broker.acquire("key", 5, 30, 0):
                waiting = asyncio.ensure_future(broker.acquire("key", 100, 30, 0))
                await until(lambda: serving.locks.waiting(b"key") == 1)
                waiting.cancel()
                with pytest.raises(IndeterminateCancelledError):
                    await waiting
                assert await broker.settled(5)
            assert serving.locks.holder(b"key") is None

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
