"""Three nodes with TLS on every port, as `init --tls` writes them (spec 3, 9)."""

from __future__ import annotations

import asyncio
import ssl

import pytest

from tests.e2e.cluster import Cluster
from tests.e2e.conftest import MakeCluster, OpenSession
from tests.e2e.wire import SessionOverError, WireSession, bytes_until_closed
from ticketing.protocol import frames


@pytest.fixture
def cluster(make_cluster: MakeCluster) -> Cluster:
    made = make_cluster(options=["--tls"])
    made.start()
    return made


async def test_they_form_grant_and_replace_a_dead_leader(cluster: Cluster, open_session: OpenSession) -> None:
    leader = await cluster.whole()
    session = await open_session(leader)
    held = await session.acquire(b"seat", 0, 250)
    assert held.what == "G"
    leader.kill()
    async with asyncio.timeout(5):
        await session.over
    session = await open_session(await cluster.leader())
    assert (await session.acquire(b"seat", 0, 5)).what == "T"
    assert (await session.release(held.token, b"seat")).what == "R"
    leader.start()
    await cluster.whole()


async def test_last_words_arrive_and_strangers_are_turned_away(
    cluster: Cluster, open_session: OpenSession
) -> None:
    leader = await cluster.whole()
    session = await open_session(leader)
    session.send(b"Z\n")
    async with asyncio.timeout(5):
        assert await session.over == "Ebad_frame"

    follower = await open_session(cluster.others(leader)[0])
    with pytest.raises(SessionOverError, match=f"^M{leader.client}$"):
        await follower.release(7, b"seat")

    with pytest.raises(SessionOverError, match="Eauth_failed"):
        await WireSession.open(leader.client, "wrong", tls=leader.tls())

    # Who does not speak TLS gets nothing but an end, on every port.
    hello = frames.encode_hello(b"no TLS")
    for address in (leader.client, leader.peer, leader.admin):
        assert b"TICKETING" not in await bytes_until_closed(address, hello)
    # Whoever trusts other authorities does not go on.
    with pytest.raises(ssl.SSLCertVerificationError):
        await WireSession.open(leader.client, cluster.token, tls=ssl.create_default_context())
    assert await cluster.whole() is leader
