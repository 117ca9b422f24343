"""What callers were told elsewhere: success without a lock, the wrong reason, nothing.

Field reports F011, F012, F014, F053.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.e2e.cluster import NodeProcess
from tests.field_reports.queueing import until_waiting
from ticketing.client import TicketBroker, TicketError


def kinds(ends: list[object]) -> list[str]:
    return [str(end.kind) if isinstance(end, TicketError) else repr(end) for end in ends]


async def test_the_end_of_a_wait_is_never_a_ticket(node: NodeProcess, broker: TicketBroker) -> None:
    async with await broker.acquire("F011", 0, 60, 0):
        calls = [asyncio.ensure_future(broker.acquire("F011", 60, 30, 0)) for _ in range(20)]
        await until_waiting(node, "F011", 20)
        for call in calls:
            call.cancel()
        await asyncio.wait(calls)
        assert all(call.cancelled() for call in calls)
        ends = await asyncio.gather(
            *(broker.acquire("F011", 1, 30, 0) for _ in range(20)), return_exceptions=True
        )
        assert kinds(list(ends)) == ["timeout"] * 20
        with TicketBroker([node.client], token=node.client_token) as blocking:
            assert await asyncio.to_thread(blocking.wait_ready_sync, 15)
            for wait in (0, 1):
                with pytest.raises(TicketError) as caught:
                    await asyncio.to_thread(blocking.acquire_sync, "F011", wait, 30, 0)
                assert caught.value.kind == "timeout"
        await until_waiting(node, "F011", 0)
    async with await broker.acquire("F011", 0, 30, 0):
        pass


async def test_a_block_runs_with_the_lock_or_not_at_all(node: NodeProcess, broker: TicketBroker) -> None:
    ran = []

    def blocking(wait: float) -> None:
        with (
            TicketBroker([node.client], token=node.client_token) as own,
            own.acquire_sync("F012", wait, 30, 0) as ticket,
        ):
            ran.append(ticket.token)

    held = await broker.acquire("F012", 0, 60, 0)
    with pytest.raises(TicketError, match="did not become free within 1 s"):
        async with await broker.acquire("F012", 1, 30, 0):
            ran.append(0)
    with pytest.raises(TicketError, match="did not become free within 1 s"):
        await asyncio.to_thread(blocking, 1)
    assert not ran
    waiting = asyncio.ensure_future(asyncio.to_thread(blocking, 60))
    await until_waiting(node, "F012", 1)
    assert not ran
    await held.release()
    await waiting
    assert ran[0] > held.token


async def test_a_token_that_does_not_hold_the_key_releases_nothing(
    broker: TicketBroker, other: TicketBroker
) -> None:
    former = await other.acquire("F014", 0, 30, 0)
    assert await former.release() is True
    assert await other.release("F014", former.token) is False  # nobody holds it
    held = await broker.acquire("F014", 0, 30, 0)
    for token in (0, 12345, held.token + 1, former.token):
        assert await other.release("F014", token) is False
    with pytest.raises(TicketError, match="'F014' is not free"):
        await other.acquire("F014", 0, 30, 0)
    assert await held.release() is True


async def test_a_key_of_ones_own_is_not_free_and_the_first_hold_is_unharmed(broker: TicketBroker) -> None:
    async with await broker.acquire("F053", 0, 30, 0) as first:
        for wait in (0, 1):
            with pytest.raises(TicketError) as caught:
                await broker.acquire("F053", wait, 30, 0)
            assert caught.value.kind == "timeout"
        assert not first.lost
        assert first.conservative_remaining() > 20
