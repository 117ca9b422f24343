"""Whatever befalls single nodes, no promise of spec 1 is broken and no key is stuck."""

from __future__ import annotations

from tests.e2e.chaos import torment
from tests.e2e.cluster import Cluster


async def test_blows_against_single_nodes_break_no_promise(cluster: Cluster) -> None:
    told = await torment(cluster, seed=1, seconds=10)
    assert len(told) > 1
