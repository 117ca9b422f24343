"""The leader dies, or stops in good order, under load (spec 1, 4, 9)."""

from __future__ import annotations

import time

import pytest

from tests.e2e.cluster import Cluster
from tests.e2e.load import Kept, Load, Sessions

NEXT_GRANT_S = 5.0
"""Well above what a quiet machine needs (benchmarks/failover.py measures that)."""


@pytest.mark.parametrize("trial", range(3))
async def test_a_killed_leader_takes_nothing_along_that_was_answered(cluster: Cluster, trial: int) -> None:
    leader = await cluster.leader()
    async with Sessions(cluster.addresses, cluster.token) as sessions, Load(sessions) as load:
        kept = Kept(sessions)
        await kept.take(5)
        await load.more(100)
        leader.kill()
        struck = time.monotonic()
        greatest = max(grant.token for grant in load.grants)

        grant = await load.granted_since(struck, NEXT_GRANT_S)
        assert grant.token > greatest
        await load.every_key_granted_since(struck, load.lease + NEXT_GRANT_S)
        await kept.still_held()
        await kept.release_all()
        assert await cluster.leader() is not leader
    load.judge()


@pytest.mark.parametrize("trial", range(3))
async def test_a_leader_that_is_told_to_stop_loses_no_answered_grant(cluster: Cluster, trial: int) -> None:
    leader = await cluster.whole()
    async with Sessions(cluster.addresses, cluster.token) as sessions, Load(sessions) as load:
        kept = Kept(sessions)
        await kept.take(5)
        await load.more(100)
        leader.terminate()
        struck = time.monotonic()
        greatest = max(grant.token for grant in load.grants)

        grant = await load.granted_since(struck, NEXT_GRANT_S)
        assert grant.token > greatest
        assert await leader.ended() == 0
        await load.more(50)
        await load.every_key_granted_since(struck, load.lease + NEXT_GRANT_S)
        await kept.still_held()
        await kept.release_all()
    load.judge()
