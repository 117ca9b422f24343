"""An upgrade on real processes: nodes of the previous link format and of this one in one cluster, either leading.

`test_formats` reads what the previous program wrote; here it runs, from the history of this repository.
"""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cluster import PROJECT, Cluster, NodeProcess, told_status
from tests.e2e.conftest import MakeCluster
from tests.e2e.load import Kept, Load, Sessions
from tests.e2e.waiting import until_told
from ticketing.node.handshake import FORMAT

pytestmark = [pytest.mark.process, pytest.mark.slow]

PREVIOUS = "4eab79b"
"""The last commit whose program speaks link format 1."""
PREVIOUS_FORMAT = 1


@pytest.fixture
def previous(tmp_path: Path) -> Path:
    """The program of the previous format."""
    assert PREVIOUS_FORMAT == FORMAT - 1, "name the last commit of the format before"
    if shutil.which("git") is None:
        pytest.skip("the previous program comes out of the history, by the command `git`")
    archived = subprocess.run(
        ["git", "-c", "safe.directory=*", "archive", PREVIOUS, "ticketing"],
        cwd=PROJECT,
        capture_output=True,
        timeout=30,
        check=False,
    )
    if archived.returncode != 0:
        pytest.skip(f"the history of this repository is not here: {archived.stderr.decode().strip()}")
    folder = tmp_path / "previous"
    with tarfile.open(fileobj=io.BytesIO(archived.stdout)) as tar:
        tar.extractall(folder, filter="data")
    assert "FORMAT = 1\n" in (folder / "ticketing/node/handshake.py").read_text()
    return folder


async def lead_to(cluster: Cluster, node: NodeProcess) -> None:
    leader = await cluster.leader()
    if leader is not node:
        await leader.ask_admin("POST", "/v1/transfer", {"to": node.place, "reason": "a test"})

    async def leads() -> bool:
        return await cluster.leader() is node

    await until_told(leads, f"{node.place} leads")


def logged(node: NodeProcess, event: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in node.log.read_text().splitlines()]
    return [line for line in lines if line["event"] == event]


def snapshot_went(leader: NodeProcess, learner: NodeProcess) -> None:
    """The learner was caught up by a snapshot of that leader's."""
    assert logged(leader, "sending a snapshot")[-1]["to"] == learner.place
    assert logged(learner, "snapshot installed")


async def test_nodes_are_upgraded_one_by_one_and_either_version_leads_the_other(
    make_cluster: MakeCluster, previous: Path
) -> None:
    cluster = make_cluster(program=previous)
    cluster.start()
    old_leader = await cluster.whole()
    first, second = cluster.others(old_leader)
    async with Sessions(cluster.addresses, cluster.token) as sessions, Load(sessions, workers=4) as load:
        kept = Kept(sessions)

        async def restart(node: NodeProcess, program: Path) -> NodeProcess:
            """Stopped in good order and started again, as in the runbook."""
            await kept.take(3)
            await load.more()
            node.terminate()
            assert await node.ended() == 0
            node.program = program
            node.start()
            leader = await cluster.whole()
            await load.more()
            await kept.still_held()
            return leader

        # A leader of the previous version takes a process of this one in.
        assert await restart(first, PROJECT) is old_leader
        snapshot_went(old_leader, first)
        assert (await told_status(first))["links"]["formats"] == {
            old_leader.place: PREVIOUS_FORMAT,
            second.place: PREVIOUS_FORMAT,
        }
        # And the other way about: this version leads, and takes a process in that goes back to the previous one.
        await restart(second, PROJECT)
        await lead_to(cluster, first)
        await load.more()
        assert await restart(second, previous) is first
        snapshot_went(first, second)
        # The rest of the way.
        await restart(second, PROJECT)
        await restart(old_leader, PROJECT)
        await kept.release_all()
    load.judge()
    for node in cluster.nodes:
        formats = (await told_status(node))["links"]["formats"]
        assert formats == {other.place: FORMAT for other in cluster.others(node)}
