"""Whatever befalls single nodes, no promise of spec 1 is broken and no key is stuck."""

from __future__ import annotations

import pytest

from tests.e2e.chaos import torment
from tests.e2e.cluster import Cluster


@pytest.mark.parametrize("seed", [1, 2])
async def test_blows_against_single_nodes_break_no_promise(cluster: Cluster, seed: int) -> None:
    told = await torment(cluster, seed, seconds=8)
    assert len(told) > 1
