"""Blows against a living cluster, drawn from a seed, while a load runs and its history is judged.

`python -m tests.e2e.chaos --seconds 120 --seed 7` strikes for longer than the test does. What the machine does
between the blows is no part of the seed: a run does not replay, its verdict holds all the same.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random

from tests.e2e.cluster import Cluster, NodeProcess
from tests.e2e.load import Kept, Load, Sessions

BETWEEN_S = 0.2
"""The load runs undisturbed for about this long between two blows."""

Blow = Callable[["Chaos", NodeProcess], Awaitable[None]]


class Chaos:
    """No blow takes a majority of the states: what is killed is back in its place before the next blow."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self.cluster = cluster
        self.rng = Random(seed)
        self.told: list[str] = []

    async def strike(self) -> None:
        """One blow, and the cluster is whole again."""
        blow = self.rng.choice(BLOWS)
        node = self.rng.choice(self.cluster.nodes)
        self.told.append(f"{blow.__name__} {node.place}")
        await blow(self, node)
        await self.cluster.whole()

    async def pass_time(self, least_s: float, most_s: float) -> None:
        await asyncio.sleep(self.rng.uniform(least_s, most_s))


async def killed(chaos: Chaos, node: NodeProcess) -> None:
    node.kill()
    await chaos.pass_time(0, 1.5)
    node.start()


async def killed_twice(chaos: Chaos, node: NodeProcess) -> None:
    """The second process is killed somewhere between its start and its being a voter."""
    await killed(chaos, node)
    await chaos.pass_time(0, 2.5)
    await killed(chaos, node)


async def leader_killed(chaos: Chaos, node: NodeProcess) -> None:
    await killed(chaos, await chaos.cluster.leader())


async def told_to_stop(chaos: Chaos, node: NodeProcess) -> None:
    node.terminate()
    assert await node.ended(30) == 0
    node.start()


async def leader_told_to_stop(chaos: Chaos, node: NodeProcess) -> None:
    await told_to_stop(chaos, await chaos.cluster.leader())


async def paused(chaos: Chaos, node: NodeProcess) -> None:
    await node.pause()
    await chaos.pass_time(0.1, 2)
    node.resume()


async def leader_paused(chaos: Chaos, node: NodeProcess) -> None:
    await paused(chaos, await chaos.cluster.leader())


async def two_paused(chaos: Chaos, node: NodeProcess) -> None:
    """Nobody leads for a while; they wake one after the other."""
    both = chaos.cluster.others(node)
    chaos.rng.shuffle(both)
    for one in both:
        await one.pause()
    await chaos.pass_time(0.5, 2)
    for one in both:
        one.resume()
        await chaos.pass_time(0, 0.5)


async def paused_while_another_rejoins(chaos: Chaos, node: NodeProcess) -> None:
    other = chaos.rng.choice(chaos.cluster.others(node))
    await killed(chaos, other)
    await chaos.pass_time(0, 1.5)
    await paused(chaos, node)


BLOWS: tuple[Blow, ...] = (
    killed,
    killed_twice,
    leader_killed,
    told_to_stop,
    leader_told_to_stop,
    paused,
    leader_paused,
    two_paused,
    paused_while_another_rejoins,
)


async def torment(cluster: Cluster, seed: int, seconds: float) -> list[str]:
    """Strikes for so long (below the lease of what is kept), then judges; what was done."""
    chaos = Chaos(cluster, seed)
    await cluster.whole()
    until_s = time.monotonic() + seconds
    async with Sessions(cluster.addresses, cluster.token) as sessions:
        async with Load(sessions, wait=2) as load:
            kept = Kept(sessions)
            await kept.take(5)
            while time.monotonic() < until_s:
                await chaos.strike()
                recovered = time.monotonic()
                await load.every_key_granted_since(recovered, load.lease + load.wait + 5)
                await chaos.pass_time(0, 2 * BETWEEN_S)
            await kept.still_held()
            await kept.release_all()
        load.judge()
    return [*chaos.told, f"{len(load.grants)} grants, {load.indeterminate} requests without an answer"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ticketing-chaos-") as folder:
        cluster = Cluster(Path(folder) / "cluster")
        cluster.start()
        try:
            print(*asyncio.run(torment(cluster, arguments.seed, arguments.seconds)), sep="\n")
        except BaseException:
            print(cluster.logs())
            raise
        finally:
            cluster.end()


if __name__ == "__main__":
    main()
