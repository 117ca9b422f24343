"""Open files: the limit is raised at the start, bounds the sessions, and running into it ends nothing (F097)."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import time
from pathlib import Path

import pytest

from tests.e2e.cluster import NodeProcess, run_ticketing, told_status
from tests.e2e.conftest import MakeCluster, OpenSession
from tests.e2e.waiting import until, until_told
from tests.e2e.wire import SessionOverError, WireSession
from ticketing.server.run import DESCRIPTORS_WANTED
from ticketing.server.service import DESCRIPTORS_RESERVED

pytestmark = [pytest.mark.process, pytest.mark.slow]

FEW = 128
ROOM = 96
"""Client connections with so few descriptors: a quarter is kept for peers, files and admins."""
KNOCKING = 200
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def limited(node: NodeProcess, soft: int, hard: int) -> None:
    if shutil.which("prlimit") is None:
        pytest.skip("limits are set by the command `prlimit` (util-linux)")
    node.before = ("prlimit", f"--nofile={soft}:{hard}", "--")


def soft_limit(node: NodeProcess) -> int:
    lines = Path(f"/proc/{node.pid}/limits").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("Max open files")).split()[3])


def cpu_s(node: NodeProcess) -> float:
    fields = Path(f"/proc/{node.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


async def knock(node: NodeProcess) -> WireSession | None:
    """A session, or None where the node has no room for it."""
    try:
        return await WireSession.open(node.client, node.client_token)
    except (SessionOverError, ConnectionResetError, TimeoutError):
        return None


async def test_the_limit_is_raised_as_far_as_it_goes_and_bounds_the_sessions(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster(1)
    (node,) = cluster.nodes
    limited(node, 256, 4096)
    node.start()
    process = (await told_status(node))["process"]
    assert soft_limit(node) == 4096 < DESCRIPTORS_WANTED
    assert process["client_connections_max"] == 4096 - DESCRIPTORS_RESERVED


async def test_a_node_out_of_descriptors_keeps_its_peers_and_its_calm_and_serves_again(
    make_cluster: MakeCluster, open_session: OpenSession
) -> None:
    cluster = make_cluster()
    for node in cluster.nodes:
        limited(node, FEW, FEW)
    cluster.start()
    leader = await cluster.whole()
    before = await told_status(leader)
    assert before["process"]["client_connections_max"] == ROOM
    session = await open_session(leader)
    held = await session.acquire(b"held", 0, 60)

    knocked = await asyncio.gather(*(knock(leader) for _ in range(KNOCKING)))
    inside = [one for one in knocked if one is not None and one.is_open]
    try:
        assert len(inside) == ROOM - 1
        spent_s, since = cpu_s(leader), time.monotonic()
        pressing = 0
        while time.monotonic() < since + 3:
            assert await knock(leader) is None
            pressing += 1
        assert pressing > 5
        assert (cpu_s(leader) - spent_s) / (time.monotonic() - since) < 0.5
        turned_away = [line for line in leader.log.read_text().splitlines() if "descriptors" in line]
        assert 0 < len(turned_away) < 35, "a line each for the first ones, then one a second"
        assert "held_back" in turned_away[-1]

        status = await told_status(leader)
        assert status["raft"]["term"] == before["raft"]["term"]
        assert status["links"]["missing"] == []
        assert (await session.extend(held.token, 60, b"held")).what == "X"
        ended = await asyncio.to_thread(
            run_ticketing, "doctor", "--config", cluster.folder, "-o", "json", folder=cluster.folder
        )
        found = [one for one in json.loads(ended.out)["findings"] if one["check"] == "limits"]
        assert all(one["verdict"] == "warn" and str(ROOM) in one["detail"] for one in found), found
    finally:
        for one in inside:
            await one.close()
    freed = time.monotonic()
    fresh = await until_told(lambda: knock(leader), "there is room again", within_s=5)
    assert time.monotonic() - freed < 2
    assert (await fresh.release(held.token, b"held")).what == "R"
    await fresh.close()
    # A peer that starts anew gets its links: some descriptors are nobody else's.
    other = cluster.others(leader)[0]
    other.kill()
    await until(lambda: not other.running, "it is gone")
    other.start()
    await cluster.whole()
