"""Nodes that are told to stop: one at a time, never below a majority unasked (spec 9, Stopping)."""

from __future__ import annotations

import time

from tests.e2e.cluster import Cluster, NodeProcess, told_status
from tests.e2e.conftest import MakeCluster
from tests.e2e.load import Kept, Load, Sessions
from tests.e2e.waiting import until_told


async def test_all_nodes_restarted_one_by_one_lose_no_answered_grant(cluster: Cluster) -> None:
    await cluster.whole()
    async with Sessions(cluster.addresses, cluster.token) as sessions, Load(sessions, workers=4) as load:
        kept = Kept(sessions)
        for node in cluster.nodes:
            await kept.take(3)
            await load.more()
            node.terminate()
            assert await node.ended() == 0
            node.start()
            await cluster.whole()
        greatest = max(grant.token for grant in load.grants)
        await load.more()
        assert max(grant.token for grant in load.grants) > greatest
        await kept.still_held()
        await kept.release_all()
    load.judge()
    node_ids = {(await told_status(node))["node_id"] for node in cluster.nodes}
    assert node_ids.isdisjoint({"1", "2", "3"})


async def serves_no_more(node: NodeProcess) -> bool:
    status = await node.status()
    return status is not None and not status["serving"]


async def refused_leave(node: NodeProcess) -> bool:
    status = await node.status()
    return status is not None and "would be left living" in status["membership"]["state"]


async def test_a_node_whose_leave_would_end_the_domain_stays_until_its_wait_is_over(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster()
    stop_wait_s = 3
    for node in cluster.nodes:
        settings = node.config.read_text()
        assert "# stop_wait_s = 25" in settings
        node.config.write_text(settings.replace("# stop_wait_s = 25", f"stop_wait_s = {stop_wait_s}"))
    cluster.start()
    leader = await cluster.whole()
    dead, asked = cluster.others(leader)
    async with Sessions(cluster.addresses, cluster.token) as sessions:
        dead.kill()
        asked.terminate()
        told = time.monotonic()
        await until_told(lambda: refused_leave(asked), "its leave is refused")
        # It was told to stop, and grants go on because it did not.
        async with Load(sessions, workers=2, wait=1) as load:
            await load.more(5)
        load.judge()
    assert await asked.ended(stop_wait_s + 5) == 0
    assert time.monotonic() - told >= stop_wait_s
    assert "may have ended the domain" in asked.log_end()
    await until_told(lambda: serves_no_more(leader), "the survivor serves no more")


async def test_a_second_signal_stops_it_at_once(cluster: Cluster) -> None:
    leader = await cluster.whole()
    dead, asked = cluster.others(leader)
    dead.kill()
    asked.terminate()
    await until_told(lambda: refused_leave(asked), "its leave is refused")
    asked.terminate()
    assert await asked.ended(3) == 0


async def test_of_two_that_are_told_to_stop_the_second_waits_for_the_first_ones_place_to_be_filled(
    cluster: Cluster,
) -> None:
    leader = await cluster.whole()
    first, second = cluster.others(leader)
    first.terminate()
    assert await first.ended() == 0
    second.terminate()
    await until_told(lambda: refused_leave(second), "its leave is refused")
    first.start()
    assert await second.ended(20) == 0
    assert (await told_status(leader))["serving"]
    second.start()
    await cluster.whole()


async def test_a_node_that_is_to_be_started_again_says_so_by_its_status(cluster: Cluster) -> None:
    """`node restart --supervised`: what supervises the node starts it again, and after `node stop` does not."""
    leader = await cluster.whole()
    for node, body, status in (
        (cluster.others(leader)[0], {"again": True}, 13),
        (cluster.others(leader)[1], {}, 0),
    ):
        answer = await node.ask_admin("POST", "/v1/leave", body)
        assert answer == {"leave": True, "stopping": True}
        assert await node.ended() == status
        node.start()
        await cluster.whole()
