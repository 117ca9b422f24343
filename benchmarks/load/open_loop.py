"""Open loop: requests arrive at a given rate whatever became of the former ones.

The latency of an acquire counts from the moment it was due, so that a system that stalls is charged for everybody who
would have asked meanwhile (no coordinated omission). Keys are uncontended: what is measured is the system's own queue.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from benchmarks.load.arrivals import Pacer, poisson
from benchmarks.load.figures import Figures, figures
from benchmarks.systems.processes import cpu_ns
from benchmarks.systems.system import AsyncClient, BlockingClient, CallbackClient

KEYS = 4096
"""Taken in turn: a key comes round again only when the grant before is long over."""
END_S = 60.0
"""How long what is still under way after the last arrival may take."""
THREADS = 64


class OpenLoop(NamedTuple):
    """One run."""

    rate: float
    seconds: float
    warm_up_s: float
    """Arrivals of the first seconds are not counted."""
    pids: Sequence[int]


class _Window:
    """The measured time of a run."""

    def __init__(self, run: OpenLoop) -> None:
        self.run = run
        start = time.perf_counter() + 0.05
        self.due = [start + at for at in poisson(run.rate, run.warm_up_s + run.seconds)]
        self._counted_from = start + run.warm_up_s
        self._latencies: list[float] = []
        self._began = (cpu_ns(run.pids), time.process_time_ns())

    def granted(self, number: int) -> None:
        due = self.due[number]
        if due >= self._counted_from:
            self._latencies.append(time.perf_counter() - due)

    def end(self) -> Figures:
        server_ns, client_ns = self._began
        took_s = time.perf_counter() - self.due[0]
        share = len(self._latencies) / len(self.due)
        return figures(
            self._latencies,
            len(self._latencies),
            took_s * share,
            int((cpu_ns(self.run.pids) - server_ns) * share),
            int((time.process_time_ns() - client_ns) * share),
            0,
        )


async def run_async(client: AsyncClient, run: OpenLoop) -> Figures:
    window = _Window(run)

    async def ask(number: int) -> None:
        grant = await client.acquire(f"open-{number % KEYS}")
        window.granted(number)
        await client.release(grant)

    async with asyncio.timeout(run.warm_up_s + run.seconds + END_S), asyncio.TaskGroup() as group:
        await Pacer(window.due, lambda number: _start(group, ask(number))).over
    return window.end()


def _start(group: asyncio.TaskGroup, work: Any) -> None:
    group.create_task(work)


async def run_callbacks(client: CallbackClient, run: OpenLoop) -> Figures:
    window = _Window(run)
    left = len(window.due)
    over = asyncio.get_running_loop().create_future()

    def released() -> None:
        nonlocal left
        left -= 1
        if not left:
            over.set_result(None)

    def ask(number: int) -> None:
        def granted(grant: Any) -> None:
            window.granted(number)
            client.release(grant, released)

        client.acquire(b"open-%d" % (number % KEYS), granted)

    pacer = Pacer(window.due, ask)
    async with asyncio.timeout(run.warm_up_s + run.seconds + END_S):
        await pacer.over
        await over
    return window.end()


def run_blocking(client: BlockingClient, run: OpenLoop) -> Figures:
    """Threads take the next arrival as they are free; one that is late already starts at once."""
    window = _Window(run)
    numbers = iter(range(len(window.due)))
    guard = threading.Lock()
    failures: list[BaseException] = []

    def work(worker: int) -> None:
        try:
            while not failures:
                with guard:
                    number = next(numbers, None)
                if number is None:
                    return
                time.sleep(max(0.0, window.due[number] - time.perf_counter()))
                grant = client.acquire(worker, f"open-{number % KEYS}")
                with guard:
                    window.granted(number)
                client.release(grant)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(worker,), daemon=True) for worker in range(THREADS)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + run.warm_up_s + run.seconds + END_S
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
        if thread.is_alive():
            raise TimeoutError(f"requests are under way {END_S:.0f} s after the last arrival")
    if failures:
        raise failures[0]
    return window.end()
