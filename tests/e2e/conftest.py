"""Clusters of real processes: ended with the test that made them, their logs in the message of one that failed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator, Sequence
from pathlib import Path

import pytest

from tests.e2e.cluster import PROJECT, Cluster, NodeProcess
from tests.e2e.wire import WireSession

CLUSTERS: pytest.StashKey[list[Cluster]] = pytest.StashKey()

MakeCluster = Callable[..., Cluster]
OpenSession = Callable[[NodeProcess], Awaitable[WireSession]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.process)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        for cluster in item.stash.get(CLUSTERS, []):
            report.sections.append(("nodes' logs", cluster.logs()))
    return report


@pytest.fixture
def make_cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeCluster]:
    """Makes clusters whose processes do not run yet."""
    made: list[Cluster] = []
    request.node.stash[CLUSTERS] = made

    def make(nodes: int = 3, options: Sequence[str] = (), program: Path = PROJECT) -> Cluster:
        cluster = Cluster(tmp_path / f"cluster-{len(made) + 1}", nodes, options, program)
        made.append(cluster)
        return cluster

    yield make
    for cluster in made:
        cluster.end()
    for node in (node for cluster in made for node in cluster.nodes):
        said = node.log.read_text(errors="replace") if node.log.exists() else ""
        assert "internal fault" not in said, node.log_end()
        assert "Traceback" not in said, node.log_end()


@pytest.fixture
def cluster(make_cluster: MakeCluster) -> Cluster:
    """Three nodes, started."""
    made = make_cluster()
    made.start()
    return made


@pytest.fixture
async def open_session() -> AsyncIterator[OpenSession]:
    """Opens sessions to nodes with their right token; they end with the test."""
    opened: list[WireSession] = []

    async def open_one(node: NodeProcess) -> WireSession:
        session = await WireSession.open(node.client, node.client_token, tls=node.tls())
        opened.append(session)
        return session

    yield open_one
    for session in opened:
        await session.close()
