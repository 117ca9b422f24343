"""Many idle sessions, held locks and waiters: what they cost the throughput of others, and how long a turn becomes.

Three nodes on this machine. Throughput is measured as `benchmarks.throughput` does it, in turn on the empty cluster
and on the loaded one: 10,000 idle sessions, 100,000 held locks, 20,000 waiters on one key, all on the leader. The idle
sessions never read, so that they cost this machine what they cost a server, and no client. Then one key is handed on
with 20 and with 20,000 in its queue.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import statistics
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import uvloop

from benchmarks.figures import table
from benchmarks.rawclient import RawSession, connect_to_leader, frames, owner
from benchmarks.sizing import HELD_S, WAIT_S, ask_many
from benchmarks.throughput import WARM_UP_S, Load
from benchmarks.turns import FORGOTTEN_S, TurnWatch
from ticketing.cli.dev_cluster import DevCluster
from ticketing.protocol.decoder import Reply
from ticketing.protocol.fields import split_address
from ticketing.protocol.handshake import ClientHandshake

WORKERS = 64
SHARED_KEYS = 4
SHALLOW = 20
RELEASED_AT_ONCE = 2_000
SETTLE_S = 0.5


class Size(NamedTuple):
    """How much is loaded."""

    sessions: int
    locks: int
    waiters: int


class Ballast:
    """Idle sessions, held locks and waiters on one key."""

    def __init__(self, addresses: list[str], token: str, size: Size) -> None:
        self._addresses = addresses
        self._token = token
        self._size = size
        self._idle: list[socket.socket] = []
        self._holder: RawSession | None = None
        self._waiting: RawSession | None = None
        self._tokens: list[tuple[int, bytes]] = []

    async def load(self) -> None:
        self._holder = holder = await connect_to_leader(self._addresses, self._token)
        leader = holder.ready.result()
        assert leader is not None
        await asyncio.to_thread(self._open_idle, leader)
        await self._hold(holder)
        self._waiting = waiting = await connect_to_leader(self._addresses, self._token)
        await ask_many(
            waiting,
            self._size.waiters,
            lambda _number: frames.encode_q(WAIT_S, HELD_S, owner(), b"ballast-0000000"),
            answered=False,
        )

    def _open_idle(self, leader: str) -> None:
        address = split_address(leader)
        for _ in range(self._size.sessions):
            idle = socket.create_connection(address)
            handshake = ClientHandshake(self._token)
            while handshake.outcome is None:
                idle.sendall(handshake.feed(idle.recv(4096)))
            assert handshake.outcome == "ready", handshake.detail
            self._idle.append(idle)

    async def _hold(self, holder: RawSession) -> None:
        def frame(number: int) -> bytes:
            return frames.encode_q(0, HELD_S, owner(), b"ballast-%07d" % number)

        def granted(reply: Reply) -> None:
            self._tokens.append((reply[1], reply[4]))

        await ask_many(holder, self._size.locks, frame, answered=True, granted=granted)

    async def unload(self) -> None:
        """Back to an empty cluster; the key that is waited for is released last, by then nobody waits."""
        assert self._holder is not None
        assert self._waiting is not None
        self._waiting.close()
        for idle in self._idle:
            idle.close()
        self._idle.clear()
        loop = asyncio.get_running_loop()
        while self._tokens:
            released = self._tokens[-RELEASED_AT_ONCE:]
            del self._tokens[-RELEASED_AT_ONCE:]
            left = len(released)
            done: asyncio.Future[None] = loop.create_future()

            def reply(reply: Reply, done: asyncio.Future[None] = done) -> None:
                nonlocal left
                if reply[0] != frames.RELEASED:
                    raise RuntimeError(f"the lead or a lease is over: {reply!r}")
                left -= 1
                if not left:
                    done.set_result(None)

            self._holder.on_reply = reply
            for token, key in released:
                self._holder.send(frames.encode_release(token, key))
            await asyncio.wait_for(done, 30)
        self._holder.close()
        await asyncio.sleep(SETTLE_S)


async def pairs_per_s(addresses: list[str], token: str, workers: int, keys: int, seconds: float) -> float:
    """Each run has keys of its own: it ends by closing its session, and what it holds by then it holds for a while."""
    session = await connect_to_leader(addresses, token)
    run = owner()
    load = Load(session, [b"bench-%d-%d" % (run, number % keys) for number in range(workers)])
    for worker in load.workers:
        worker.ask()
    await asyncio.sleep(WARM_UP_S)
    loop = asyncio.get_running_loop()
    pairs, began = load.pairs, loop.time()
    await asyncio.sleep(seconds)
    rate = (load.pairs - pairs) / (loop.time() - began)
    session.close()
    await asyncio.sleep(SETTLE_S)
    return rate


async def measure(cluster: DevCluster, size: Size, rounds: int, seconds: float) -> list[str]:
    addresses = [node.place.client for node in cluster.nodes]
    token = cluster.cluster.client_token
    ballast = Ballast(addresses, token, size)

    async def own_keys() -> float:
        return await pairs_per_s(addresses, token, WORKERS, WORKERS, seconds)

    async def hand_over() -> float:
        return await pairs_per_s(addresses, token, WORKERS, SHARED_KEYS, seconds)

    workloads: dict[str, Callable[[], Awaitable[float]]] = {
        f"own keys, {WORKERS} workers: pairs/s": own_keys,
        f"hand-over, {SHARED_KEYS} keys x {WORKERS // SHARED_KEYS}: pairs/s": hand_over,
    }
    rates: dict[tuple[str, bool], list[float]] = {}
    deep: dict[int, list[float]] = {}
    lines = []
    for _ in range(rounds):
        for name, run in workloads.items():
            rates.setdefault((name, False), []).append(await run())
        with TurnWatch(cluster) as watch:
            await ballast.load()
            for name, run in workloads.items():
                rates.setdefault((name, True), []).append(await run())
            await asyncio.to_thread(watch.look)
            lines.append(f"loading and loaded: {watch.told()}")
        with TurnWatch(cluster) as watch:
            await ballast.unload()
            await asyncio.to_thread(watch.look)
            lines.append(f"all of it closed and released at once: {watch.told()}")
        await asyncio.sleep(FORGOTTEN_S)
    with TurnWatch(cluster) as watch:
        for _ in range(rounds):
            for depth in (SHALLOW, size.waiters):
                deep.setdefault(depth, []).append(await pairs_per_s(addresses, token, depth, 1, seconds))
        await asyncio.to_thread(watch.look)
        lines.append(f"{size.waiters:,} in one queue: {watch.told()}")
    rows = []
    for name in workloads:
        empty, full = (statistics.median(rates[name, loaded]) for loaded in (False, True))
        rows.append([name, f"{empty:,.0f}", f"{full:,.0f}", f"{full / empty:.2f}"])
    shallow, full = (statistics.median(deep[depth]) for depth in (SHALLOW, size.waiters))
    rows.append(
        [
            f"one key, {SHALLOW} and {size.waiters:,} in its queue: hand-overs/s",
            f"{shallow:,.0f}",
            f"{full:,.0f}",
            f"{full / shallow:.2f}",
        ]
    )
    return [table(("workload", "empty", "loaded", "ratio"), rows), *lines]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--sessions", type=int, default=10_000)
    parser.add_argument("--locks", type=int, default=100_000)
    parser.add_argument("--waiters", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=2, help="empty and loaded, so often in turn")
    parser.add_argument("--seconds", type=float, default=2.0, help="measured time of each run")
    wanted = parser.parse_args()
    size = Size(wanted.sessions, wanted.locks, wanted.waiters)
    with DevCluster(3) as cluster:
        cluster.wait_for(cluster.view, "the election of a leader")
        print("\n".join(uvloop.run(measure(cluster, size, wanted.rounds, wanted.seconds))))


if __name__ == "__main__":
    main()
