"""Standalone: one node without peers, the same client protocol (spec 1, 3, 9)."""

from __future__ import annotations

from itertools import pairwise

from tests.e2e.conftest import MakeCluster, OpenSession


async def test_it_speaks_the_clients_protocol_and_names_itself(
    make_cluster: MakeCluster, open_session: OpenSession
) -> None:
    cluster = make_cluster(1)
    cluster.start()
    node = await cluster.leader()
    session = await open_session(node)
    banner = session.banner
    assert (banner.standalone, banner.extended) == (True, True)
    assert banner.node_address == session.leader == node.client

    held = await session.acquire(b"seat", 0, 30)
    assert held.what == "G"
    assert (await session.acquire(b"seat", 0, 30)).what == "T"
    queued = session.acquire(b"seat", 10, 30, published=True)
    assert (await session.extend(held.token, 60, b"seat")).what == "X"
    assert (await session.release(held.token, b"seat")).what == "R"
    granted = await queued
    assert granted.what == "A"
    assert granted.token > held.token
    assert (await session.release(held.token, b"seat")).what == "N"
    assert (await session.cancel(granted.owner, b"seat")).what == "R"


async def test_a_restart_hands_out_larger_tokens_only(
    make_cluster: MakeCluster, open_session: OpenSession
) -> None:
    cluster = make_cluster(1)
    tokens = []
    for _ in range(3):
        cluster.start()
        node = await cluster.leader()
        session = await open_session(node)
        granted = await session.acquire(b"seat", 0, 250)
        assert granted.what == "G"
        tokens.append(granted.token)
        node.kill()
    assert tokens == sorted(set(tokens))
    assert all(later - earlier >= 1 << 20 for earlier, later in pairwise(tokens))
