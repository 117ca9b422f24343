"""The headline job: everybody asks at once, a few keys, queues thousands deep, until all have had their turn."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from benchmarks.load.figures import Figures, figures
from benchmarks.load.order import Order
from benchmarks.systems.processes import cpu_ns
from benchmarks.systems.system import AsyncClient


async def run_burst(client: AsyncClient, requests: int, keys: int, pids: Sequence[int]) -> Figures:
    """`requests` acquires at once, spread over `keys`; each releases as soon as it is granted."""
    orders = [Order() for _ in range(keys)]
    latencies: list[float] = []

    async def ask(number: int) -> None:
        order = orders[number % keys]
        turn = order.asked()
        grant = await client.acquire(f"burst-{number % keys}")
        latencies.append(time.perf_counter() - began)
        order.granted(turn)
        await client.release(grant)

    began, server_ns, client_ns = time.perf_counter(), cpu_ns(pids), time.process_time_ns()
    async with asyncio.TaskGroup() as group:
        for number in range(requests):
            group.create_task(ask(number))
    took_s = time.perf_counter() - began
    server_ns, client_ns = cpu_ns(pids) - server_ns, time.process_time_ns() - client_ns
    overtaken = sum(order.overtaken for order in orders)
    return figures(latencies, requests, took_s, server_ns, client_ns, overtaken)
