"""One client for `benchmarks.client`, in a process of its own. Run as a file, so that PYTHONPATH decides whose it is.

Arguments: `ours` or `published`, token, addresses. Each line of its input is `<workers> <pairs a worker>`; each line
of its output what that took: CPU nanoseconds of this process, nanoseconds, pairs. With `timed` behind these two numbers
each pair is timed, and a fourth number is their median in nanoseconds.
"""

from __future__ import annotations

import asyncio
import importlib
import statistics
import sys
import time
from typing import Any

LEASE_S = 30


async def work(broker: Any, key: str, arguments: tuple[int, ...], pairs: int) -> None:
    for _ in range(pairs):
        ticket = await broker.acquire(key, *arguments)
        await ticket.release()


async def timed_work(
    broker: Any, key: str, arguments: tuple[int, ...], pairs: int, took_ns: list[int]
) -> None:
    for _ in range(pairs):
        began = time.perf_counter_ns()
        ticket = await broker.acquire(key, *arguments)
        await ticket.release()
        took_ns.append(time.perf_counter_ns() - began)


async def serve(client: str, token: str, addresses: list[str]) -> None:
    broker_type = importlib.import_module("ticketing" if client == "ours" else "saro_ticketing").TicketBroker
    # The published client waits for ever where ours is asked for the longest wait, and knows no budget.
    arguments = (255, LEASE_S, 2) if client == "ours" else (255, LEASE_S)
    broker = broker_type(addresses, token=token)
    if not await broker.wait_ready(10):
        raise SystemExit("no session within ten seconds")
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        words = line.split()
        workers, pairs = int(words[0]), int(words[1])
        pair_ns: list[int] = []
        began, cpu_began = time.perf_counter_ns(), time.process_time_ns()
        if "timed" in words:
            jobs = [
                timed_work(broker, f"{client}-{number}", arguments, pairs, pair_ns)
                for number in range(workers)
            ]
        else:
            jobs = [work(broker, f"{client}-{number}", arguments, pairs) for number in range(workers)]
        await asyncio.gather(*jobs)
        cpu, took = time.process_time_ns() - cpu_began, time.perf_counter_ns() - began
        print(cpu, took, workers * pairs, *([statistics.median_low(pair_ns)] if pair_ns else []), flush=True)
    if client == "ours":
        await broker.aclose()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], sys.argv[2], sys.argv[3:]))
