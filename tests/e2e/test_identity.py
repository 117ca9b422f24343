"""A folder, a place and the lives of processes in it (spec 9, Identity, Forming, Rejoin, Stopping)."""

from __future__ import annotations

import asyncio
import json
import signal
from typing import Any

import pytest

from tests.e2e.cluster import Cluster, NodeProcess, run_ticketing, told_status
from tests.e2e.conftest import MakeCluster, OpenSession
from tests.e2e.waiting import until_told
from tests.e2e.wire import SessionOverError


def record(node: NodeProcess) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads((node.folder / "state" / "record.json").read_text())
    return facts


async def test_a_second_process_in_a_nodes_folder_is_refused_by_its_lock(cluster: Cluster) -> None:
    leader = await cluster.whole()
    before = record(leader)
    second = await asyncio.to_thread(
        run_ticketing, "node", "start", "--config", leader.config, folder=leader.folder
    )
    assert second.status == 1, second  # a later start may well succeed: it is no matter of the configuration
    assert str(leader.folder / "state") in second.error
    assert str(leader.pid) in second.error
    assert "Traceback" not in second.error
    unnamed = await asyncio.to_thread(run_ticketing, "node", "start", folder=cluster.folder)
    assert unnamed.status == 2, unnamed
    assert "node-1, node-2, node-3" in unnamed.error
    assert await cluster.whole() is leader
    assert record(leader) == before


@pytest.mark.parametrize("end_it", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "stopped"])
async def test_a_process_that_starts_where_another_ended_takes_the_place_under_a_new_node_id(
    cluster: Cluster, end_it: signal.Signals
) -> None:
    leader = await cluster.whole()
    node = cluster.others(leader)[0]
    before = await told_status(node)
    node.signal(end_it)
    status = await node.ended()
    assert status == (0 if end_it == signal.SIGTERM else -signal.SIGKILL)

    node.start()
    # Until it is taken in it is nobody.
    seen = await told_status(node)
    assert seen["node_id"] != before["node_id"]
    await cluster.whole()
    after = await told_status(node)
    assert int(after["node_id"]) > max(int(member["node_id"]) for member in before["raft"]["members"])
    assert after["incarnation"] != before["incarnation"]
    assert after["domain"] == before["domain"]
    assert record(node)["node_id"] == after["node_id"]
    assert record(node)["domain"] == record(leader)["domain"]


async def test_told_not_to_rejoin_it_refuses_and_says_what_to_do(cluster: Cluster) -> None:
    leader = await cluster.whole()
    node = cluster.others(leader)[0]
    before = record(node)
    node.kill()
    started = await asyncio.to_thread(
        run_ticketing, "node", "start", "--no-rejoin", "--config", node.config, folder=node.folder
    )
    assert started.status == 2, started
    assert "ticketing node start" in started.error
    assert "ticketing node replace" in started.error
    assert record(node) == before
    assert (await told_status(leader))["serving"]


async def test_nodes_that_were_all_stopped_do_not_form_by_themselves_and_say_so(
    cluster: Cluster, open_session: OpenSession
) -> None:
    leader = await cluster.whole()
    session = await open_session(leader)
    assert (await session.acquire(b"seat", 0, 250)).what == "G"
    records = {node.place: record(node) for node in cluster.nodes}
    for node in cluster.nodes:
        node.kill()
    cluster.start()

    async def all_linked() -> bool:
        statuses = await asyncio.gather(*(node.status() for node in cluster.nodes))
        return all(status is not None and not status["links"]["missing"] for status in statuses)

    await until_told(all_linked, "the new processes are linked")
    for node in cluster.nodes:
        session = await open_session(node)
        assert session.leader is None
        assert session.banner.domain is None
        with pytest.raises(SessionOverError, match="Enot_active"):
            await session.acquire(b"seat", 5, 5)

    async def all_say_so() -> bool:
        statuses = await asyncio.gather(*(node.status() for node in cluster.nodes))
        return all(
            status is not None
            and (status["role"], status["node_id"], status["domain"]) == ("waiting", None, None)
            and "ticketing form" in status["membership"]["state"]
            for status in statuses
        )

    await until_told(all_say_so, "status says what to do")
    assert {node.place: record(node) for node in cluster.nodes} == records


async def test_a_node_without_permit_waits_for_the_operator(
    make_cluster: MakeCluster, open_session: OpenSession
) -> None:
    cluster = make_cluster(options=["--no-permit"])
    cluster.start()
    session = await until_told(lambda: _try_open(open_session, cluster.nodes[0]), "the node listens")
    with pytest.raises(SessionOverError, match="Enot_active"):
        await session.acquire(b"seat", 5, 5)
    status = await told_status(cluster.nodes[0])
    assert status["role"] == "waiting"
    assert "ticketing form" in status["membership"]["state"]


async def _try_open(open_session: OpenSession, node: NodeProcess) -> Any:
    try:
        return await open_session(node)
    except OSError:
        return None


async def test_a_domain_that_was_lost_is_followed_by_one_with_larger_tokens_at_the_operators_word(
    cluster: Cluster, open_session: OpenSession
) -> None:
    leader = await cluster.whole()
    session = await open_session(leader)
    held = await session.acquire(b"seat", 0, 250)
    lost = await told_status(leader)
    for node in cluster.nodes:
        node.kill()
    cluster.start()
    lowest = cluster.nodes[0]
    await told_status(lowest)
    assert await lowest.ask_admin("POST", "/v1/form", {"first": False}) == {"accepted": True}

    async def all_members() -> bool:
        statuses = await asyncio.gather(*(node.status() for node in cluster.nodes))
        return all(
            status is not None and status["domain"] not in (None, lost["domain"]) for status in statuses
        )

    await until_told(all_members, "all are members of the new domain")
    status = await told_status(lowest)
    assert int(status["domain"].partition(".")[0]) >= int(lost["domain"].partition(".")[0]) + (1 << 40)
    assert int(status["locks"]["next_token"]) > held.token
    # Whoever held a lock in the lost domain may still work: nothing is granted before every lease is over.
    assert 240 < status["serves_in_s"] <= 250
    session = await open_session(lowest)
    assert (await session.acquire(b"seat", 0, 5)).what == "V"
