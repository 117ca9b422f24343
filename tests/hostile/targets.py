"""The clusters that the cases are carried out against."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from tests.e2e.cluster import Cluster
from tests.hostile.cases import STANDALONE, STANDALONE_TLS, TLS, Target


@contextlib.asynccontextmanager
async def started(flavour: str, folder: Path) -> AsyncIterator[Target]:
    """A cluster of this flavour; the target is the node that leads it."""
    nodes = 1 if flavour in (STANDALONE, STANDALONE_TLS) else 3
    cluster = Cluster(folder / "cluster", nodes, ["--tls"] if flavour in TLS else [])
    cluster.start()
    try:
        leader = await cluster.leader()
        yield Target(flavour, cluster, leader)
    finally:
        cluster.end()
