"""Whether the client's memory stays flat: a million acquires, each on a key that was never used before.

64 workers on one broker against a standalone node. Told are the resident memory of the client's process and the
blocks that Python has allocated, every tenth of the way. Exit status 1 where one of them grew from the first tenth
to the last by more than 1 % and more than 1 MiB, or 1,000 blocks.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import sys
import time
from pathlib import Path

from benchmarks.cluster import BenchCluster
from benchmarks.figures import table
from ticketing.client import TicketBroker

WORKERS = 64
PAGE = os.sysconf("SC_PAGE_SIZE")
MIB = 1024 * 1024


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * PAGE


async def work(broker: TicketBroker, first: int, count: int) -> None:
    for number in range(first, first + count):
        # Every tenth is extended as well.
        async with await broker.acquire(f"key-{number}", 5, 30, 0, auto_extend=number % 10 == 0) as ticket:
            if number % 10 == 0:
                await ticket.extend()


async def run(cluster: BenchCluster, acquires: int) -> tuple[list[list[str]], bool]:
    rows, figures = [], []
    each = acquires // 10 // WORKERS
    async with TicketBroker(cluster.addresses, token=cluster.token) as broker:
        await broker.wait_ready(10)
        for tenth in range(10):
            began = time.perf_counter()
            await asyncio.gather(
                *[work(broker, (tenth * WORKERS + worker) * each, each) for worker in range(WORKERS)]
            )
            took = time.perf_counter() - began
            gc.collect()
            resident, blocks = resident_bytes(), sys.getallocatedblocks()
            figures.append((resident, blocks))
            rate = each * WORKERS / took
            done = each * WORKERS * (tenth + 1)
            rows.append([f"{done:,}", f"{resident / MIB:.2f}", f"{blocks:,}", f"{rate:,.0f}"])
    (first, first_blocks), (last, last_blocks) = figures[0], figures[-1]
    flat = last - first <= max(first // 100, MIB) and last_blocks - first_blocks <= max(
        first_blocks // 100, 1000
    )
    return rows, flat


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--acquires", type=int, default=1_000_000)
    arguments = parser.parse_args()
    with BenchCluster(1) as cluster:
        rows, flat = asyncio.run(run(cluster, arguments.acquires))
    print(table(["acquires", "resident MiB", "blocks", "pairs/s"], rows))
    print("flat" if flat else "not flat")
    sys.exit(0 if flat else 1)


if __name__ == "__main__":
    main()
