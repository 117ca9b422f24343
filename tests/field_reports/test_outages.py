"""What an outage did to leases elsewhere: all over at once, or none of them (field report F085)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.cluster import Cluster
from ticketing.client import TicketBroker, TicketError


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path / "cluster")
    try:
        made.start()
        yield made
    finally:
        made.end()


async def test_an_outage_ends_the_leases_that_end_in_it_and_no_other(cluster: Cluster) -> None:
    leader = await cluster.whole()
    async with TicketBroker(cluster.addresses, token=cluster.token) as broker:
        assert await broker.wait_ready(15)
        long = [await broker.acquire(f"long/{number}", 0, 120, 0) for number in range(30)]
        short = [await broker.acquire(f"short/{number}", 0, 2, 0) for number in range(3)]
        others = cluster.others(leader)
        for node in others:
            await node.pause()
        await asyncio.sleep(3)
        # Nobody leads. What each holder can know by itself is right.
        assert all(ticket.lost for ticket in short)
        assert not any(ticket.lost for ticket in long)
        for node in others:
            node.resume()
        await cluster.leader()
        assert await broker.wait_ready(15)
        for ticket in long:
            assert await ticket.extend() is True
        for ticket in short:
            following = await broker.acquire(ticket.key, 15, 30, 0)
            assert following.token > ticket.token
            assert await ticket.release() is False
            await following.release()
        with pytest.raises(TicketError):
            await broker.acquire("long/0", 0, 30, 0)
        for ticket in long:
            # False only where an election on a busy machine made it a second try, which found nothing any more.
            await ticket.release()
            async with await broker.acquire(ticket.key, 15, 30, 0) as following:
                assert following.token > ticket.token
