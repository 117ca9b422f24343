"""Leases run on whatever becomes of the client, the leader and the voters (spec 1, 4, 7)."""

from __future__ import annotations

import asyncio
import time

from tests.e2e.cluster import Cluster
from tests.e2e.conftest import OpenSession
from tests.e2e.load import Kept, Sessions
from tests.e2e.wire import Answer, WireSession

LATE_S = 2.0
"""What an expiry may be late here: 0.2 % of the lease, an election where there is one, and a busy machine."""


async def queue_behind(session: WireSession, key: bytes, wait: int) -> asyncio.Future[Answer]:
    """Asks for a key that must be held."""
    assert (await session.acquire(key, 0, 5)).what == "T"
    return session.acquire(key, wait, 5)


async def test_a_dead_client_leaves_the_queue_at_once_and_its_grants_at_their_leases_end(
    cluster: Cluster, open_session: OpenSession
) -> None:
    leader = await cluster.whole()
    dying, living = await open_session(leader), await open_session(leader)
    asked_at = time.monotonic()
    held = await dying.acquire(b"seat", 0, 2)
    dying.acquire(b"seat", 60, 250)
    await queue_behind(dying, b"seat", 60)
    granted = await queue_behind(living, b"seat", 60)
    await dying.close()
    answer = await granted
    assert answer.what == "G"
    assert answer.token == held.token + 1, "nobody was granted in between"
    assert asked_at + 2 <= answer.at <= held.at + 2 + LATE_S


async def test_a_new_leader_ends_a_lease_when_the_old_one_would_have(
    cluster: Cluster, open_session: OpenSession
) -> None:
    leader = await cluster.whole()
    lease = 5
    session = await open_session(leader)
    asked_at = time.monotonic()
    held = await session.acquire(b"seat", 0, lease)
    await asyncio.sleep(lease / 2)  # the lease has to be half over: time passing is what the test is about
    leader.kill()
    new = await cluster.leader()
    granted = await queue_behind(await open_session(new), b"seat", 60)
    answer = await granted
    assert answer.what == "G"
    assert answer.token > held.token
    assert asked_at + lease <= answer.at <= held.at + lease + LATE_S


async def test_a_leader_built_from_a_snapshot_has_every_lock_and_neither_shortens_nor_restarts_its_lease(
    cluster: Cluster, open_session: OpenSession
) -> None:
    leader = await cluster.whole()
    lease = 16
    async with Sessions(cluster.addresses, cluster.token) as sessions:
        kept = Kept(sessions)
        await kept.take(5_000)
        session = await open_session(leader)
        asked_at = time.monotonic()
        held = await session.acquire(b"seat", 0, lease)
        for node in [*cluster.others(leader), leader]:
            node.kill()
            node.start()
            await cluster.whole()
        # Nobody is left who saw a grant in the log.
        replaced_s = time.monotonic() - asked_at
        assert replaced_s < lease, "the machine is too slow for this test"
        await kept.still_held()
        granted = await queue_behind(await open_session(await cluster.leader()), b"seat", 60)
        await kept.release_all()
        answer = await granted
    assert answer.what == "G"
    assert answer.token > held.token
    assert asked_at + lease <= answer.at <= held.at + lease + LATE_S + replaced_s * 0.002
