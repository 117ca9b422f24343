"""Closed loop: each worker acquires, releases at once, and acquires again.

Worker `n` of `workers` takes key `n % keys`: with as many keys as workers each has its own, with fewer every grant is
a hand-over to the next in line. Measured is a window after a warm-up; a pair counts in the window in which it ends.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from benchmarks.load.figures import Figures, figures
from benchmarks.load.order import Order
from benchmarks.systems.processes import cpu_ns
from benchmarks.systems.system import AsyncClient, BlockingClient, CallbackClient

END_S = 60.0


class ClosedLoop(NamedTuple):
    """One run."""

    workers: int
    keys: int
    seconds: float
    warm_up_s: float
    pids: Sequence[int]
    """Server processes, for their CPU time."""


class Tally:
    """What the workers of one run have done."""

    def __init__(self, run: ClosedLoop) -> None:
        self.run = run
        self.keys = [f"bench-{number}" for number in range(run.keys)]
        self.orders = [Order() for _ in self.keys]
        self.latencies: list[float] = []
        self.pairs = 0
        self.stopping = False
        self._begun = (0, 0, 0, 0.0)

    def begin(self) -> None:
        """The warm-up is over."""
        self.latencies.clear()
        for order in self.orders:
            order.overtaken = 0
        self._begun = (self.pairs, cpu_ns(self.run.pids), time.process_time_ns(), time.perf_counter())

    def end(self) -> Figures:
        """The window is over."""
        pairs, server_ns, client_ns, began = self._begun
        took_s = time.perf_counter() - began
        result = figures(
            list(self.latencies),
            self.pairs - pairs,
            took_s,
            cpu_ns(self.run.pids) - server_ns,
            time.process_time_ns() - client_ns,
            sum(order.overtaken for order in self.orders),
        )
        self.stopping = True
        return result


async def run_async(client: AsyncClient, run: ClosedLoop) -> Figures:
    tally = Tally(run)

    async def work(number: int) -> None:
        key, order = tally.keys[number % run.keys], tally.orders[number % run.keys]
        clock, latencies = time.perf_counter, tally.latencies
        acquire, release = client.acquire, client.release
        while not tally.stopping:
            turn = order.asked()
            asked = clock()
            grant = await acquire(key)
            latencies.append(clock() - asked)
            order.granted(turn)
            await release(grant)
            tally.pairs += 1

    async with asyncio.TaskGroup() as group:
        for number in range(run.workers):
            group.create_task(work(number))
        await asyncio.sleep(run.warm_up_s)
        tally.begin()
        await asyncio.sleep(run.seconds)
        return tally.end()


class CallbackWorker:
    """One caller without a task."""

    __slots__ = ("_asked", "_client", "_granted", "_key", "_order", "_released", "_tally", "_turn", "done")

    def __init__(self, client: CallbackClient, tally: Tally, number: int) -> None:
        self._client = client
        self._tally = tally
        self._key = tally.keys[number % len(tally.keys)].encode()
        self._order = tally.orders[number % len(tally.keys)]
        self._granted: Callable[[Any], None] = self._on_granted
        self._released: Callable[[], None] = self._on_released
        self.done = asyncio.get_running_loop().create_future()

    def ask(self) -> None:
        self._turn = self._order.asked()
        self._asked = time.perf_counter()
        self._client.acquire(self._key, self._granted)

    def _on_granted(self, grant: Any) -> None:
        tally = self._tally
        tally.latencies.append(time.perf_counter() - self._asked)
        self._order.granted(self._turn)
        self._client.release(grant, self._released)

    def _on_released(self) -> None:
        tally = self._tally
        tally.pairs += 1
        if tally.stopping:
            self.done.set_result(None)
        else:
            self.ask()


async def run_callbacks(client: CallbackClient, run: ClosedLoop) -> Figures:
    tally = Tally(run)
    workers = [CallbackWorker(client, tally, number) for number in range(run.workers)]
    for worker in workers:
        worker.ask()
    await asyncio.sleep(run.warm_up_s)
    tally.begin()
    await asyncio.sleep(run.seconds)
    result = tally.end()
    async with asyncio.timeout(END_S):
        await asyncio.gather(*(worker.done for worker in workers))
    return result


def run_blocking(client: BlockingClient, run: ClosedLoop) -> Figures:
    tally = Tally(run)
    guard = threading.Lock()
    """Asking has to be one step with taking a number; it is as good as free beside a blocking client's own work."""
    failures: list[BaseException] = []

    def work(number: int) -> None:
        key, order = tally.keys[number % run.keys], tally.orders[number % run.keys]
        try:
            while not tally.stopping:
                with guard:
                    turn = order.asked()
                asked = time.perf_counter()
                grant = client.acquire(number, key)
                took = time.perf_counter() - asked
                with guard:
                    tally.latencies.append(took)
                    order.granted(turn)
                client.release(grant)
                with guard:
                    tally.pairs += 1
        except BaseException as failure:
            tally.stopping = True
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(run.workers)]
    for thread in threads:
        thread.start()
    time.sleep(run.warm_up_s)
    with guard:
        tally.begin()
    time.sleep(run.seconds)
    with guard:
        if failures:
            raise failures[0]
        result = tally.end()
    for thread in threads:
        thread.join(END_S)
        if thread.is_alive():
            raise RuntimeError(f"a worker has not ended within {END_S:.0f} s")
    return result
