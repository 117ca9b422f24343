"""One standalone node for a module's tests: a real process, whose keys each test names after itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.cluster import Cluster, NodeProcess
from tests.e2e.wire import WireSession
from ticketing.client import TicketBroker

OpenSession = Callable[[], Awaitable[WireSession]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.process)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    cluster = Cluster(tmp_path_factory.mktemp("standalone") / "cluster", 1)
    config = cluster.nodes[0].config
    # Little of the log is kept, so that it is compacted all the time.
    written = config.read_text()
    assert "\n[raft]\n" in written
    config.write_text(written.replace("\n[raft]\n", "\n[raft]\nlog_keep_bytes = 1_048_576\n"))
    try:
        cluster.start()
        yield asyncio.run(cluster.leader())
        said = cluster.nodes[0].log.read_text(errors="replace")
        assert "Traceback" not in said, cluster.logs()
    finally:
        cluster.end()


@pytest.fixture
async def broker(node: NodeProcess) -> AsyncIterator[TicketBroker]:
    async with TicketBroker([node.client], token=node.client_token) as broker:
        assert await broker.wait_ready(15)
        yield broker


@pytest.fixture
async def other(node: NodeProcess) -> AsyncIterator[TicketBroker]:
    """Another program's."""
    async with TicketBroker([node.client], token=node.client_token) as broker:
        assert await broker.wait_ready(15)
        yield broker


@pytest.fixture
async def open_session(node: NodeProcess) -> AsyncIterator[OpenSession]:
    """Opens sessions that speak the wire alone; they end with the test."""
    opened: list[WireSession] = []

    async def open_one() -> WireSession:
        session = await WireSession.open(node.client, node.client_token)
        opened.append(session)
        return session

    yield open_one
    for session in opened:
        await session.close()
