"""Closed-loop throughput: acquire+release pairs per second at 1, 16 and 64 workers.

Standalone and with 3 nodes. Each worker takes and releases a key of its own (`own keys`), or all share 4 keys
(`hand-over`). Client and servers share the machine. Server CPU is that of all node processes together.
"""

from __future__ import annotations

import argparse
import asyncio
import time

import uvloop

from benchmarks.cluster import BenchCluster
from benchmarks.figures import percentile, table
from benchmarks.rawclient import RawSession, connect_to_leader, frames, owner
from ticketing.protocol.decoder import Reply

WARM_UP_S = 0.5


class Worker:
    """One caller: acquires, releases at once, acquires again."""

    __slots__ = ("asked", "key", "load", "owner")

    def __init__(self, load: Load, key: bytes) -> None:
        self.load = load
        self.key = key
        self.owner = 0
        self.asked = 0.0

    def ask(self) -> None:
        self.owner = owner()
        self.load.waiting[self.owner] = self
        self.asked = time.perf_counter()
        self.load.session.send(frames.encode_q(200, 30, self.owner, self.key))


class Load:
    """The workers of one run, on one session."""

    def __init__(self, session: RawSession, keys: list[bytes]) -> None:
        self.session = session
        self.waiting: dict[int, Worker] = {}
        self.holding: dict[int, Worker] = {}
        self.latencies: list[float] = []
        self.pairs = 0
        self.stopping = False
        self.idle = asyncio.get_running_loop().create_future()
        session.on_reply = self.reply
        self.workers = [Worker(self, key) for key in keys]

    def reply(self, reply: Reply) -> None:
        op, token, ident, _waited, key = reply
        if op == frames.GRANTED_WAITED:
            worker = self.waiting.pop(ident)
            self.latencies.append(time.perf_counter() - worker.asked)
            self.holding[token] = worker
            self.session.send(frames.encode_release(token, key))
        elif op == frames.RELEASED:
            worker = self.holding.pop(token)
            self.pairs += 1
            if not self.stopping:
                worker.ask()
            elif not self.waiting and not self.holding:
                self.idle.set_result(None)
        elif op != frames.LEADER:
            raise RuntimeError(f"unexpected reply {reply!r}")


async def run(cluster: BenchCluster, workers: int, keys: int, seconds: float) -> list[str]:
    session = await connect_to_leader(cluster.addresses, cluster.token)
    load = Load(session, [b"bench-%d" % (number % keys) for number in range(workers)])
    for worker in load.workers:
        worker.ask()
    await asyncio.sleep(WARM_UP_S)
    load.latencies.clear()
    pairs, cpu_s, client_s, began = load.pairs, cluster.cpu_s(), time.process_time(), time.perf_counter()
    await asyncio.sleep(seconds)
    took = time.perf_counter() - began
    pairs = load.pairs - pairs
    cpu_s = cluster.cpu_s() - cpu_s
    client_s = time.process_time() - client_s
    latencies = list(load.latencies)
    load.stopping = True
    await asyncio.wait_for(load.idle, 10)
    session.close()
    return [
        f"{pairs / took:,.0f}",
        f"{percentile(latencies, 0.5) * 1e6:,.0f}",
        f"{percentile(latencies, 0.99) * 1e6:,.0f}",
        f"{cpu_s / pairs * 1e6:.1f}",
        f"{client_s / pairs * 1e6:.1f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0, help="measured time of each run")
    parser.add_argument("--nodes", type=int, nargs="*", default=[1, 3])
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 16, 64])
    arguments = parser.parse_args()
    rows = []
    for nodes in arguments.nodes:
        with BenchCluster(nodes) as cluster:
            name = "standalone" if nodes == 1 else f"{nodes} nodes"
            for workers in arguments.workers:
                figures = uvloop.run(run(cluster, workers, workers, arguments.seconds))
                rows.append([f"{name}, own keys", str(workers), *figures])
            figures = uvloop.run(run(cluster, 64, 4, arguments.seconds))
            rows.append([f"{name}, hand-over on 4 keys", "64", *figures])
    header = [
        "workload",
        "workers",
        "pairs/s",
        "p50 µs",
        "p99 µs",
        "server CPU µs/pair",
        "client CPU µs/pair",
    ]
    print(table(header, rows))


if __name__ == "__main__":
    main()
