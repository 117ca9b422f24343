"""A snapshot of a million held locks under load: how long it takes, and how long the nodes' loops stand still.

Three nodes on this machine. `rejoin`: a follower is killed, started again, taken in anew and given the state by a
snapshot. `lag`: a follower with all of that state stands still until the log has moved past it; the snapshot that it
then gets takes the place of what it has, which is freed. Meanwhile somebody acquires and releases every 10 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import uvloop

from benchmarks.figures import percentile
from benchmarks.rawclient import RawSession, connect_to_leader, frames, owner
from benchmarks.sizing import HELD_S, ask_many
from benchmarks.throughput import Load
from benchmarks.turns import FORGOTTEN_S, TurnWatch
from ticketing.cli.dev_cluster import DevCluster, DevNode
from ticketing.protocol.decoder import Reply

KEYS_FREE = 100
"""Below the bound on keys, for those who acquire meanwhile."""
INTERVAL_S = 0.01
LOOK_S = 0.2
WITHIN_S = 120.0
LAG_BYTES = 40 * 1024 * 1024
"""Of log, written while the follower stands still: more than twice what is kept for it."""
PAIR_BYTES = 130
"""What a pair adds to the log at least, shares of entries included."""
LAG_WORKERS = 64


class Probe:
    """One client that acquires and releases all the time, at a calm pace."""

    def __init__(self, session: RawSession) -> None:
        self.latencies: list[float] = []
        self._session = session
        self._asked: dict[int, float] = {}
        session.on_reply = self._reply

    async def run(self) -> None:
        number = 0
        while True:
            number += 1
            asked = owner()
            self._asked[asked] = time.perf_counter()
            self._session.send(frames.encode_q(200, 30, asked, b"probe-%d" % (number % KEYS_FREE)))
            await asyncio.sleep(INTERVAL_S)

    async def finish(self) -> None:
        """Until nothing is asked for any more, so that no key stays held for the next one."""
        async with asyncio.timeout(WITHIN_S):
            while self._asked:
                await asyncio.sleep(INTERVAL_S)

    def _reply(self, reply: Reply) -> None:
        op, token, ident, _waited, key = reply
        if op == frames.GRANTED_WAITED:
            self.latencies.append(time.perf_counter() - self._asked.pop(ident))
            self._session.send(frames.encode_release(token, key))


class Scene:
    """A cluster with its locks."""

    def __init__(self, cluster: DevCluster, count: int) -> None:
        self.cluster = cluster
        self.count = count
        self.addresses = [node.place.client for node in cluster.nodes]
        self.token = cluster.cluster.client_token
        self.session: RawSession

    async def fill(self) -> None:
        self.session = await connect_to_leader(self.addresses, self.token)
        await ask_many(
            self.session,
            self.count,
            lambda number: frames.encode_q(0, HELD_S, owner(), b"stock/event-2026/item-%07d" % number),
            answered=True,
        )

    def follower(self) -> DevNode:
        """Some node that does not lead."""
        return next(node for node in self.cluster.nodes if node.place.client != self.session.ready.result())

    async def until(self, node: DevNode, ready: Callable[[dict[str, Any]], bool]) -> float:
        """Seconds until the node's status is as wanted."""
        began = time.perf_counter()
        async with asyncio.timeout(WITHIN_S):
            while True:
                facts = (await asyncio.to_thread(self.cluster.statuses)).get(node.place.name)
                if facts is not None and ready(facts):
                    return time.perf_counter() - began
                await asyncio.sleep(LOOK_S)

    def has_all(self, facts: dict[str, Any]) -> bool:
        """Whether a voter has the whole state."""
        return (
            facts["locks"] is not None
            and facts["locks"]["held"] >= self.count
            and facts["role"] == "follower"
        )


@contextlib.asynccontextmanager
async def probing(scene: Scene) -> AsyncIterator[Probe]:
    session = await connect_to_leader(scene.addresses, scene.token)
    probe = Probe(session)
    running = asyncio.create_task(probe.run())
    try:
        yield probe
        running.cancel()
        await probe.finish()
    finally:
        running.cancel()
        session.close()


async def rejoin(scene: Scene) -> str:
    node = scene.follower()
    node.send(signal.SIGKILL)
    assert node.process is not None
    await asyncio.to_thread(node.process.wait)
    node.start()
    return (
        f"{await scene.until(node, scene.has_all):.1f} s from its start until it votes with the whole state"
    )


async def lag(scene: Scene) -> str:
    node = scene.follower()
    node.send(signal.SIGSTOP)
    try:
        session = await connect_to_leader(scene.addresses, scene.token)
        load = Load(session, [b"lag-%d" % number for number in range(LAG_WORKERS)])
        for worker in load.workers:
            worker.ask()
        while load.pairs * PAIR_BYTES < LAG_BYTES:
            await asyncio.sleep(LOOK_S)
        load.stopping = True
        await asyncio.wait_for(load.idle, 10)
        session.close()
        statuses = await asyncio.to_thread(scene.cluster.statuses)
        written = max(int(facts["raft"]["last_index"]) for facts in statuses.values())
    finally:
        node.send(signal.SIGCONT)

    def caught_up(facts: dict[str, Any]) -> bool:
        return scene.has_all(facts) and int(facts["raft"]["applied_index"]) >= written

    took = await scene.until(node, caught_up)
    installed = node.log.read_text(errors="replace").count("snapshot installed")
    return f"{took:.1f} s from its waking until it has caught up, {installed} snapshot(s) installed there"


async def measure(cluster: DevCluster, count: int) -> list[str]:
    scene = Scene(cluster, count)
    lines = []
    began = time.perf_counter()
    with TurnWatch(cluster) as watch:
        await scene.fill()
        await asyncio.to_thread(watch.look)
        lines.append(f"filled: {count:,} locks in {time.perf_counter() - began:.1f} s; {watch.told()}")
    for name, act in (("rejoin", rejoin), ("lag", lag)):
        await asyncio.sleep(FORGOTTEN_S)
        with TurnWatch(cluster) as watch:
            async with probing(scene) as probe:
                what = await act(scene)
                # Whatever is freed afterwards counts as well.
                await asyncio.sleep(5)
            await asyncio.to_thread(watch.look)
            lines.append(f"{name}: {what}; {watch.told()}")
            lines.append(
                f"{name}: terms seen: {len(watch.terms)}; a calm client's acquire takes at most"
                f" {max(probe.latencies) * 1e3:.1f} ms, p99 {percentile(probe.latencies, 0.99) * 1e3:.1f} ms"
            )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--locks", type=int, default=1_000_000 - KEYS_FREE - LAG_WORKERS)
    wanted = parser.parse_args()
    with DevCluster(3) as cluster:
        cluster.wait_for(cluster.view, "the election of a leader")
        print("\n".join(uvloop.run(measure(cluster, wanted.locks))))


if __name__ == "__main__":
    main()
