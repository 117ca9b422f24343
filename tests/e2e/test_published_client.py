"""The published client, unmodified, against our nodes."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cluster import Cluster, environment, told_status
from tests.e2e.conftest import MakeCluster

PUBLISHED = "ticketing==0.3.0"
JOB = Path(__file__).with_name("published_client_job.py")
INSTALL_S = 120
STANDS_STILL_S = 60
"""The job has failed once it says nothing for so long. How long all of it takes is the machine's business."""


@pytest.fixture(scope="session")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The published client in a folder of its own: its module has the name of our alias package."""
    folder = tmp_path_factory.mktemp("published")
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--target",
        str(folder),
        PUBLISHED,
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_S, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip(f"pip could not get {PUBLISHED} within {INSTALL_S} s")
    if done.returncode != 0:
        pytest.skip(f"pip could not get {PUBLISHED}: {done.stderr.strip()[-300:]}")
    assert (folder / "saro_ticketing" / "__init__.py").exists()
    return folder


async def run_job(published: Path, cluster: Cluster, pairs: int) -> dict[str, Any]:
    """Runs the job with the published client alone on its path. `leads`: how often the lead moved meanwhile."""
    before = await term(cluster)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(JOB), ",".join(cluster.addresses), str(pairs)),
        cwd=published,
        env=environment(PYTHONPATH=str(published), PYTHONSAFEPATH="1", JOB_TOKEN=cluster.token),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert process.stdout is not None
    said: list[bytes] = []
    try:
        while True:
            async with asyncio.timeout(STANDS_STILL_S):
                line = await process.stdout.readline()
            if not line:
                break
            said.append(line)
        await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, b"".join(said[-40:]).decode()
    told: dict[str, Any] = json.loads(said[-1])
    assert Path(told["client"]).is_relative_to(published), told
    return told | {"leads": await term(cluster) - before}


async def term(cluster: Cluster) -> int:
    return int((await told_status(await cluster.leader()))["raft"]["term"])


def check(told: dict[str, Any], pairs: int) -> None:
    assert told["pairs"] == 4 * pairs
    assert told["contended"] > pairs // 10, told
    assert told["overlaps"] == 0, told
    for fact in ("counters_right", "tokens_unique", "tokens_rising"):
        assert told[fact], told
    # The order is each leader's, and a release asked again on the next one finds that the first try released. Nothing
    # here ends a lead, but a machine that stops a leader for longer than an election does.
    if not told["leads"]:
        assert told["not_released"] == 0, told
        assert told["in_order"], told


async def test_its_counters_tokens_and_order_are_right_on_three_nodes(
    published: Path, cluster: Cluster
) -> None:
    await cluster.whole()
    told = await run_job(published, cluster, 10_000)
    check(told, 10_000)


async def test_its_counters_tokens_and_order_are_right_on_a_standalone_node(
    published: Path, make_cluster: MakeCluster
) -> None:
    cluster = make_cluster(1)
    cluster.start()
    await cluster.leader()
    check(await run_job(published, cluster, 1_000), 1_000)
