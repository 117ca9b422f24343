"""What a node needs for each lock, waiter and session: memory, CPU and descriptors (the table in docs/operations.md).

Three nodes on this machine. Told is by how much the resident memory of the leader and of a follower grew, divided by
how many there are; the CPU time of all three processes for each one made, many at a time; and the descriptors of the
leader. Memory that Python keeps for its next use counts, so small numbers of things show large figures: ask for many.
Sessions with TLS are measured on a standalone node.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import ssl
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

import uvloop

from benchmarks.cluster import BenchCluster, BenchNode, process_cpu_s
from benchmarks.figures import table
from benchmarks.rawclient import RawSession, connect, connect_to_leader, frames, owner
from ticketing.protocol.decoder import Reply
from ticketing.protocol.fields import split_address

T = TypeVar("T")

PAGE = os.sysconf("SC_PAGE_SIZE")
MIB = 1024 * 1024
HELD_S = 250
WAIT_S = 255
IN_FLIGHT = 2_000
SETTLE_S = 3.0
IDLE_S = 10.0
WAITERS_A_SESSION = 40_000
OPENED_AT_ONCE = 50


class Sight(NamedTuple):
    """A node process at a moment."""

    resident: int
    descriptors: int
    cpu_s: float
    at_s: float


def look(pid: int) -> Sight:
    resident = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * PAGE
    return Sight(resident, len(os.listdir(f"/proc/{pid}/fd")), process_cpu_s(pid), time.monotonic())  # noqa: PTH208


class Watched:
    """The leader first, then a follower, then the rest."""

    def __init__(self, nodes: list[BenchNode], leader: str) -> None:
        self.pids = [node.pid for node in sorted(nodes, key=lambda node: node.address != leader)]

    async def settled(self) -> list[Sight]:
        await asyncio.sleep(SETTLE_S)
        return [look(pid) for pid in self.pids]


def row(what: str, count: int, before: list[Sight], after: list[Sight]) -> list[str]:
    """Growth and cost for each of `count`."""
    grown = [(b.resident - a.resident) / count for a, b in zip(before, after, strict=True)]
    cpu_us = sum(b.cpu_s - a.cpu_s for a, b in zip(before, after, strict=True)) / count * 1e6
    descriptors = (after[0].descriptors - before[0].descriptors) / count
    follower = f"{grown[1]:,.0f}" if len(grown) > 1 else "-"
    return [what, f"{count:,}", f"{grown[0]:,.0f}", follower, f"{cpu_us:.0f}", f"{descriptors:.2g}"]


async def ask_many(
    session: RawSession,
    count: int,
    frame: Callable[[int], bytes],
    *,
    answered: bool,
    granted: Callable[[Reply], None] = lambda _reply: None,
) -> None:
    """Sends so many requests; where each is answered at once, no more than `IN_FLIGHT` are open."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()
    sent = replies = 0
    refused: list[str] = []

    def more() -> None:
        nonlocal sent
        while sent < count and (not answered or sent - replies < IN_FLIGHT):
            session.send(frame(sent))
            sent += 1

    def reply(reply: Reply) -> None:
        nonlocal replies
        if reply[0] == frames.GRANTED_WAITED:
            replies += 1
            granted(reply)
            more()
            if replies == count and not done.done():
                done.set_result(None)
        else:
            refused.append(chr(reply[0]))

    session.on_reply = reply
    more()
    await (asyncio.wait_for(done, 240) if answered else asyncio.sleep(SETTLE_S))
    if refused:
        raise RuntimeError(f"{len(refused)} requests were answered {refused[0]}")
    session.on_reply = lambda _reply: None


class Bench(NamedTuple):
    """A fresh cluster of three: what was freed for one figure must not be used again for the next."""

    token: str
    leader: str
    session: RawSession
    watched: Watched
    empty: list[Sight]


async def locks(bench: Bench, count: int) -> list[str]:
    def frame(number: int) -> bytes:
        return frames.encode_q(0, HELD_S, owner(), b"stock/event-2026/item-%07d" % number)

    await ask_many(bench.session, count, frame, answered=True)
    return row("lock held", count, bench.empty, await bench.watched.settled())


async def waiters(bench: Bench, count: int, *, alone: bool) -> list[str]:
    """On one key all together, or each alone on a key of its own; what the held keys take is not counted."""

    def frame(number: int) -> bytes:
        return frames.encode_q(
            WAIT_S, HELD_S, owner(), b"stock/event-2026/item-%07d" % (number if alone else 0)
        )

    await ask_many(bench.session, count if alone else 1, frame, answered=True)
    held = await bench.watched.settled()
    for first in range(0, count, WAITERS_A_SESSION):
        session = await connect(bench.leader, bench.token)
        wanted = min(WAITERS_A_SESSION, count - first)
        await ask_many(session, wanted, lambda number, first=first: frame(first + number), answered=False)  # type: ignore[misc]
    what = "waiter alone on its key" if alone else "waiter"
    return row(what, count, held, await bench.watched.settled())


async def idle_sessions(
    watched: Watched, address: str, token: str, count: int, what: str, context: ssl.SSLContext | None = None
) -> tuple[list[str], float]:
    """Also what a thousand idle ones cost the node, as a share of one core."""
    host, port = split_address(address)
    loop = asyncio.get_running_loop()

    async def open_one() -> RawSession:
        _transport, session = await loop.create_connection(lambda: RawSession(token), host, port, ssl=context)
        await session.ready
        return session

    before = await watched.settled()
    opened: list[RawSession] = []
    while len(opened) < count:
        opened += await asyncio.gather(*(open_one() for _ in range(min(OPENED_AT_ONCE, count - len(opened)))))
    after = await watched.settled()
    await asyncio.sleep(IDLE_S)
    later = look(watched.pids[0])
    idle = (later.cpu_s - after[0].cpu_s) / (later.at_s - after[0].at_s) * 1000 / count
    for session in opened:
        session.close()
    return row(what, count, before, after), idle


async def on_three_nodes(measure: Callable[[Bench], Awaitable[T]]) -> T:
    with BenchCluster(3) as cluster:
        session = await connect_to_leader(cluster.addresses, cluster.token)
        leader = session.ready.result()
        assert leader is not None
        watched = Watched(cluster.nodes, leader)
        return await measure(Bench(cluster.token, leader, session, watched, await watched.settled()))


async def nothing(bench: Bench) -> str:
    empty = bench.empty[0]
    await asyncio.sleep(IDLE_S)
    calm = look(bench.watched.pids[0])
    share = (calm.cpu_s - empty.cpu_s) / (calm.at_s - empty.at_s)
    size = f"{empty.resident / MIB:.0f} MiB, {empty.descriptors} descriptors"
    return f"an empty node that leads: {size}, {share:.1%} of a core"


class SecuredNode(NamedTuple):
    """A standalone node with TLS."""

    address: str
    token: str
    pid: int
    context: ssl.SSLContext


@contextlib.contextmanager
def secured_node() -> Iterator[SecuredNode]:
    with tempfile.TemporaryDirectory() as folder:
        cluster = Path(folder) / "cluster"
        words = ("init", "--nodes", "1", "--tls", "--client-port", "26225", "--dir", str(cluster))
        subprocess.run([sys.executable, "-m", "ticketing", *words], check=True, capture_output=True)
        settings = tomllib.loads((cluster / "node-1" / "node.toml").read_text())
        command = [sys.executable, "-m", "ticketing", "node", "start", "--config", str(cluster / "node-1")]
        node = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            time.sleep(SETTLE_S)
            yield SecuredNode(
                settings["cluster"]["nodes"][0]["client"],
                settings["secrets"]["client_tokens"][0],
                node.pid,
                ssl.create_default_context(cafile=str(cluster / "ca" / "ca.pem")),
            )
        finally:
            node.send_signal(signal.SIGTERM)
            node.wait(timeout=30)


async def with_tls(node: SecuredNode, sessions: int) -> tuple[list[str], float]:
    watched = Watched([BenchNode("node-1", node.address, "", node.pid)], node.address)
    return await idle_sessions(watched, node.address, node.token, sessions, "session, TLS", node.context)


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Memory, CPU and descriptors for each lock, waiter and session."
    )
    # At 740,000 the dicts of the key table have just grown: so much memory a lock is the most.
    parser.add_argument("--locks", type=int, nargs="*", default=[740_000, 1_000_000])
    parser.add_argument("--waiters", type=int, default=80_000)
    parser.add_argument("--sessions", type=int, default=5_000)
    parser.add_argument("--only", choices=("locks", "waiters", "sessions"), help="nothing else")
    wanted = parser.parse_args()

    def sessions(bench: Bench) -> Awaitable[tuple[list[str], float]]:
        return idle_sessions(bench.watched, bench.leader, bench.token, wanted.sessions, "session")

    rows, notes = [], []
    if wanted.only in (None, "sessions"):
        notes.append(uvloop.run(on_three_nodes(nothing)))
        plain, idle = uvloop.run(on_three_nodes(sessions))
        notes.append(f"1,000 idle sessions: {idle:.1%} of a core")
        with secured_node() as node:
            secured, idle = uvloop.run(with_tls(node, wanted.sessions))
        notes.append(f"1,000 idle sessions with TLS: {idle:.1%} of a core")
        rows += [plain, secured]
    if wanted.only in (None, "locks"):
        for count in wanted.locks:
            rows.append(uvloop.run(on_three_nodes(lambda bench, count=count: locks(bench, count))))  # type: ignore[misc]
    if wanted.only in (None, "waiters"):
        rows.append(uvloop.run(on_three_nodes(lambda bench: waiters(bench, wanted.waiters, alone=False))))
        rows.append(uvloop.run(on_three_nodes(lambda bench: waiters(bench, wanted.waiters, alone=True))))
    print(table(("for each", "of", "leader bytes", "follower bytes", "CPU us", "descriptors"), rows))
    print("\n".join(notes))


if __name__ == "__main__":
    main()
