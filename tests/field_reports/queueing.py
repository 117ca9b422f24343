"""What a node says of the queue of a key."""

from __future__ import annotations

from tests.e2e.cluster import NodeProcess
from tests.e2e.waiting import until_told


async def waiters(node: NodeProcess, key: str) -> int:
    """How many wait for the key."""
    shown = await node.ask_admin("GET", f"/v1/locks/{key}")
    return len(shown["waiters"])


async def until_waiting(node: NodeProcess, key: str, count: int) -> None:
    """Returns once exactly so many wait for the key."""

    async def counted() -> bool:
        return await waiters(node, key) == count

    await until_told(counted, f"{count} waiters for {key}", 30)
