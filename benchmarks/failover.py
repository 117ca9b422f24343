"""Failover: the leader is killed, or told to stop, under load; how long until the next grant.

A new acquire leaves every 10 ms whatever became of the former ones (open loop), each on a key of its own, to
whoever serves. Each trial has a fresh cluster. The gap is the time from the signal to the first grant that
was asked for after it. Every grant that had been answered before is released at the end: that must answer `R`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import statistics
import time

import uvloop

from benchmarks.cluster import BenchCluster
from benchmarks.figures import table
from benchmarks.rawclient import RawSession, connect, frames, owner
from ticketing.protocol.decoder import Reply

INTERVAL_S = 0.01


class Probe:
    """Asks every node that is thought to serve, every 10 ms."""

    def __init__(self, cluster: BenchCluster) -> None:
        self.cluster = cluster
        self.sessions: dict[str, RawSession] = {}
        self.leader: str | None = None
        self.asked: dict[int, float] = {}
        self.granted: list[tuple[float, float, int, bytes]] = []
        """Asked at, granted at, token, key."""
        self.released: dict[int, bool] = {}
        self.number = 0

    async def keep_connected(self, address: str) -> None:
        while True:
            try:
                session = await connect(address, self.cluster.token)
            except OSError:
                await asyncio.sleep(INTERVAL_S)
                continue
            leader = session.ready.result()
            if leader:
                self.leader = leader
            session.on_reply = self.reply
            self.sessions[address] = session
            await session.lost
            if self.sessions.get(address) is session:
                del self.sessions[address]

    def reply(self, reply: Reply) -> None:
        op, token, ident, _waited, key = reply
        if op == frames.GRANTED_WAITED:
            self.granted.append((self.asked.pop(ident), time.perf_counter(), token, key))
        elif op == frames.LEADER or op == frames.MOVED:
            self.leader = key.decode()
        elif op == frames.RELEASED or op == frames.NOT_HELD:
            self.released[token] = op == frames.RELEASED

    def ask(self) -> None:
        session = self.sessions.get(self.leader or "")
        if session is not None:
            ident = owner()
            self.number += 1
            self.asked[ident] = time.perf_counter()
            session.send(frames.encode_q(5, 60, ident, b"probe-%d" % self.number))


async def trial(cluster: BenchCluster, number: int) -> tuple[float, int]:
    """One signal; the gap in seconds and how many answered grants were lost."""
    probe = Probe(cluster)
    tasks = [asyncio.ensure_future(probe.keep_connected(address)) for address in cluster.addresses]
    try:
        async with asyncio.timeout(20):
            while len(probe.granted) < 50:
                probe.ask()
                await asyncio.sleep(INTERVAL_S)
        answered = list(probe.granted)
        victim = next(node for node in cluster.nodes if node.address == probe.leader)
        struck = time.perf_counter()
        os.kill(victim.pid, number)
        async with asyncio.timeout(20):
            while not any(asked > struck for asked, _, _, _ in probe.granted[len(answered) :]):
                probe.ask()
                await asyncio.sleep(INTERVAL_S)
        gap = min(granted for asked, granted, _, _ in probe.granted if asked > struck) - struck
        # Every grant that had been answered is still held: its release says so.
        session = probe.sessions[probe.leader or ""]
        for _, _, token, key in answered:
            session.send(frames.encode_release(token, key))
        async with asyncio.timeout(20):
            while any(token not in probe.released for _, _, token, _ in answered):
                await asyncio.sleep(INTERVAL_S)
        lost = sum(not probe.released[token] for _, _, token, _ in answered)
        return gap, lost
    finally:
        for task in tasks:
            task.cancel()
        for session in probe.sessions.values():
            session.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=20)
    arguments = parser.parse_args()
    rows = []
    for name, number in (("SIGKILL", signal.SIGKILL), ("SIGTERM", signal.SIGTERM)):
        gaps: list[float] = []
        lost = 0
        for _ in range(arguments.trials):
            with BenchCluster(3) as cluster:
                gap, gone = uvloop.run(trial(cluster, number))
            gaps.append(gap)
            lost += gone
        rows.append(
            [
                name,
                str(len(gaps)),
                f"{statistics.median(gaps) * 1e3:.0f}",
                f"{min(gaps) * 1e3:.0f}",
                f"{max(gaps) * 1e3:.0f}",
                str(lost),
            ]
        )
    print(table(["leader gets", "trials", "median ms", "min ms", "max ms", "answered grants lost"], rows))


if __name__ == "__main__":
    main()
