"""The nodes of `benchmarks.turn` answer every worker of every workload."""

from __future__ import annotations

import pytest

from benchmarks.turn import FOLLOWING, OURS, Nodes

pytestmark = pytest.mark.process


@pytest.mark.parametrize("nodes", [1, 3])
def test_every_part_of_a_turn_is_told(nodes: int) -> None:
    with Nodes(OURS, nodes) as running:
        for workload in ("one", "queue", "many", "queue"):
            parts = running.turn(workload, rounds=3)
            assert {"request", "flush after request"} <= parts.keys()
            assert (parts["followers"] > 0) == (nodes == 3) == all(part in parts for part in FOLLOWING)
            assert parts["leader"] > 0
