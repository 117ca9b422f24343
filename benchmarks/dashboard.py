"""The dashboard's cost: its own CPU at many held locks, and what it adds to the leader's.

`python -m benchmarks.dashboard` holds 100,000 locks and a queue of 1,000 on one key of a fresh cluster, measures the
leader's CPU without a dashboard, opens `ticketing top` on a terminal of its own, and measures both again.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import uvloop

from benchmarks.cluster import BenchCluster
from benchmarks.figures import table
from benchmarks.rawclient import connect_to_leader, frames, owner
from ticketing.cli.admin_client import AdminAccess, ask_all
from ticketing.config.client_file import read_admin_file
from ticketing.protocol.decoder import Reply

LEASE_S = 250
IN_FLIGHT = 2_000
QUEUE = 1_000
SETTLE_S = 5.0
ROWS, COLUMNS = 40, 120


async def hold(cluster: BenchCluster, locks: int) -> None:
    """Acquires so many keys, and queues behind the first; returns when all of it stands. Sessions stay open."""
    session = await connect_to_leader(cluster.addresses, cluster.token)
    done = asyncio.get_running_loop().create_future()
    granted = sent = 0

    def reply(answer: Reply) -> None:
        nonlocal granted
        if answer[0] == frames.GRANTED_WAITED:
            granted += 1
            send()
            if granted == locks and not done.done():
                done.set_result(None)

    def send() -> None:
        nonlocal sent
        while sent < locks and sent - granted < IN_FLIGHT:
            session.send(frames.encode_q(5, LEASE_S, owner(), b"event/2026/seat/%06d" % sent))
            sent += 1

    session.on_reply = reply
    send()
    await done
    for _ in range(QUEUE):
        session.send(frames.encode_q(255, LEASE_S, owner(), b"event/2026/seat/000000"))
    await asyncio.sleep(0.5)
    session.send(frames.encode_hello(b"benchmark"))


def leader_pid(cluster: BenchCluster) -> int:
    """Of the node that serves."""
    facts = read_admin_file(Path(cluster.view["admin_config"]))
    answers = ask_all(AdminAccess(facts.nodes, facts.token, facts.tls), "/v1/status")
    place = next(answer.place for answer in answers if answer.facts is not None and answer.facts["serving"])
    return next(node.pid for node in cluster.nodes if node.place == place)


@contextlib.contextmanager
def dashboard(cluster: BenchCluster, locks: int, *options: str) -> Iterator[int]:
    """`ticketing top` on a terminal whose other end reads; its process id."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    command = [sys.executable, "-m", "ticketing", "top", "--config", cluster.view["config"], *options]
    process = subprocess.Popen(
        command,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        env={**os.environ, "TERM": "xterm-256color"},
    )
    os.close(slave)

    drawn = bytearray()

    def drain() -> None:
        with contextlib.suppress(OSError):
            while part := os.read(master, 65_536):
                drawn.extend(part)

    threading.Thread(target=drain, daemon=True).start()
    try:
        yield process.pid
        # A dashboard that shows nothing would cost nothing.
        assert process.poll() is None
        assert f"{locks:,}".encode() in drawn
        assert b"seat/" in drawn
    finally:
        process.terminate()
        process.wait(timeout=10)
        os.close(master)


def cpu_ns(pid: int) -> int:
    """What all threads of a process have used, by the scheduler's own clock: counting by ticks misses short bursts."""
    return sum(int(file.read_text().split()[0]) for file in Path(f"/proc/{pid}/task").glob("*/schedstat"))


def shares(pids: list[int], seconds: float) -> list[float]:
    """Share of one core that each process used over a time."""
    before = [cpu_ns(pid) for pid in pids]
    began_ns = time.perf_counter_ns()
    time.sleep(seconds)
    elapsed_ns = time.perf_counter_ns() - began_ns
    return [(cpu_ns(pid) - used) / elapsed_ns for pid, used in zip(pids, before, strict=True)]


async def measure(cluster: BenchCluster, locks: int, seconds: float) -> list[list[str]]:
    await hold(cluster, locks)
    leader = leader_pid(cluster)
    await asyncio.sleep(SETTLE_S)
    (idle,) = await asyncio.to_thread(shares, [leader], seconds)
    rows = [["no dashboard", "-", f"{idle * 100:.2f} %", "-"]]
    for name, options in (("by queue", ()), ("by age", ("--sort", "age")), ("by key", ("--sort", "key"))):
        with dashboard(cluster, locks, "--interval", "1", *options) as pid:
            await asyncio.sleep(SETTLE_S)
            top, busy = await asyncio.to_thread(shares, [pid, leader], seconds)
        rows.append([name, f"{top * 100:.2f} %", f"{busy * 100:.2f} %", f"{(busy - idle) * 100:+.2f} %"])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--locks", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=15.0, help="of each measurement")
    chosen = parser.parse_args()
    with BenchCluster(3) as cluster:
        rows = uvloop.run(measure(cluster, chosen.locks, chosen.seconds))
    print(f"{chosen.locks} locks held, {QUEUE} waiters on one key, refresh every second; shares of one core")
    print(table(["list", "dashboard", "leader", "leader, added"], rows))


if __name__ == "__main__":
    main()
