"""The real clusters of one performance: made when they are first wanted, shared, ended together."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from tests.e2e.cluster import Cluster, told_status

SERVES_S = 60.0


class Clusters:
    """One with TLS that nobody harms; one for those who kill and stop nodes, one at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: dict[str, Cluster] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._folders = 0

    async def calm(self) -> Cluster:
        """Serves when it is returned."""
        return await self._cluster("calm", ("--tls",))

    async def term(self) -> int:
        """Of the calm cluster's lead."""
        leader = await self._made["calm"].leader(within_s=SERVES_S)
        term: int = (await told_status(leader))["raft"]["term"]
        return term

    @contextlib.asynccontextmanager
    async def to_harm(self) -> AsyncIterator[Cluster]:
        """Whole when it is given; for one at a time."""
        async with self._locks.setdefault("turn", asyncio.Lock()):
            cluster = await self._cluster("harmed", ())
            await cluster.whole(within_s=SERVES_S)
            try:
                yield cluster
            finally:
                for node in cluster.nodes:
                    if node.paused:
                        node.resume()
                    elif not node.running:
                        node.start()

    async def _cluster(self, name: str, options: tuple[str, ...]) -> Cluster:
        async with self._locks.setdefault(name, asyncio.Lock()):
            cluster = self._made.get(name)
            if cluster is None:
                self._folders += 1
                cluster = Cluster(self._folder / f"{name}-{self._folders}", 3, options)
                try:
                    cluster.start()
                    await cluster.leader(within_s=SERVES_S)
                except BaseException:
                    # Whoever wants one next begins anew, or one fault would be told as many.
                    cluster.end()
                    raise
                self._made[name] = cluster
            return cluster

    def logs(self) -> str:
        """What the nodes said last."""
        return "\n".join(cluster.logs() for cluster in self._made.values())

    def end(self) -> None:
        """Ends all nodes."""
        for cluster in self._made.values():
            cluster.end()
