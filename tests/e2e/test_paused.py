"""Nodes that stand still: nothing is granted without a majority, and nothing stale is said afterwards (spec 1, 9)."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.e2e.cluster import Cluster, NodeProcess
from tests.e2e.conftest import OpenSession
from tests.e2e.load import Kept, Load, Sessions
from tests.e2e.waiting import until, until_told
from tests.e2e.wire import SessionOverError, WireSession
from ticketing.client import TicketBroker, TicketError

WHO = pytest.mark.parametrize("leader_survives", [True, False], ids=["leader survives", "follower survives"])


async def pause_two(cluster: Cluster, *, leader_survives: bool) -> tuple[NodeProcess, list[NodeProcess]]:
    """The survivor, and the two that stand still now."""
    leader = await cluster.leader()
    followers = cluster.others(leader)
    survivor = leader if leader_survives else followers[0]
    paused = cluster.others(survivor)
    for node in paused:
        await node.pause()
    return survivor, paused


async def does_not_serve(node: NodeProcess) -> bool:
    status = await node.status()
    return status is not None and not status["serving"] and status["leader"] is None


async def answer_or_end(session: WireSession, key: bytes, wait: int, *, published: bool = False) -> str:
    """The letter of the answer, or of the session's last word; fails where neither comes in time."""
    try:
        async with asyncio.timeout(wait + 6):
            return (await session.acquire(key, wait, 5, published=published)).what
    except SessionOverError as over:
        return over.last[:1] or "no word"


@WHO
async def test_a_minority_grants_nothing_and_answers_at_once_what_it_can(
    cluster: Cluster, open_session: OpenSession, leader_survives: bool
) -> None:
    async with Sessions(cluster.addresses, cluster.token) as sessions, Load(sessions, wait=1) as load:
        kept = Kept(sessions)
        await kept.take(3)
        await load.more()
        survivor, paused = await pause_two(cluster, leader_survives=leader_survives)
        asked = [
            await open_session(survivor),
            await open_session(survivor),
        ]
        in_time = asyncio.gather(answer_or_end(asked[0], b"free", 0), answer_or_end(asked[1], b"free", 2))
        await until_told(lambda: does_not_serve(survivor), "the survivor serves no more")
        alone = time.monotonic()
        assert set(await in_time) <= {"V", "E", "M", "T"}

        session = await open_session(survivor)
        assert await answer_or_end(session, b"free", 0) == "V"
        assert await answer_or_end(session, b"free", 2) == "V"
        assert await answer_or_end(session, b"free", 2, published=True) == "B"
        key, token = next(iter(kept.grants.items()))
        with pytest.raises(SessionOverError, match=r"^(Eno_leader|M)"):
            await session.release(token, key)
        assert not [grant for grant in load.grants if grant.granted_at > alone]

        paused[0].resume()
        resumed = time.monotonic()
        await load.granted_since(resumed, 10)
        await kept.still_held()
        paused[1].resume()
        await cluster.whole()
        await load.every_key_granted_since(resumed, load.lease + 10)
        await kept.release_all()
    load.judge()


@WHO
async def test_the_library_gives_up_in_time_without_a_majority(
    cluster: Cluster, leader_survives: bool
) -> None:
    await cluster.whole()
    wait_s = 1
    async with TicketBroker(cluster.addresses, token=cluster.token) as broker:
        assert await broker.wait_ready(10)
        ticket = await broker.acquire("seat", wait_s, 5, 0)
        await ticket.release()
        _survivor, paused = await pause_two(cluster, leader_survives=leader_survives)

        async def refused(number: int) -> str:
            began = time.monotonic()
            with pytest.raises(TicketError) as caught:
                await broker.acquire(f"seat-{number}", wait_s, 5, 0)
            assert time.monotonic() - began <= wait_s + 6
            return caught.value.kind

        kinds = await asyncio.gather(*(refused(number) for number in range(10)))
        assert set(kinds) <= {"timeout", "indeterminate", "not_connected", "busy"}

        paused[0].resume()
        deadline = time.monotonic() + 15
        while True:
            try:
                ticket = await broker.acquire("after", 5, 5, 0)
                break
            except TicketError:
                assert time.monotonic() < deadline, "no grant although a majority runs again"
        assert await ticket.release()


async def test_a_leader_that_stood_still_answers_nothing_from_its_stale_state(
    cluster: Cluster, open_session: OpenSession
) -> None:
    old = await cluster.whole()
    at_old = {
        name: await open_session(old)
        for name in ("try freed", "try taken", "release", "release other", "extend", "cancel", "silent")
    }
    held = await at_old["silent"].acquire(b"freed", 0, 250)
    assert held.what == "G"
    await old.pause()

    new = await cluster.leader(cluster.others(old))
    at_new = await open_session(new)
    assert (await at_new.release(held.token, b"freed")).what == "R"
    assert (await at_new.acquire(b"taken", 0, 250)).what == "G"

    # The old leader will find these in its sockets when it wakes, together with the news that it leads no more.
    tries = [
        at_old["try freed"].acquire(b"freed", 0, 5),
        at_old["try taken"].acquire(b"taken", 0, 5),
    ]
    unanswerable = [
        at_old["release"].release(held.token, b"freed"),
        at_old["release other"].release(held.token + 10**6, b"freed"),
        at_old["extend"].extend(held.token, 250, b"freed"),
        at_old["cancel"].cancel(held.owner, b"freed"),
    ]
    old.resume()
    async with asyncio.timeout(10):
        answers = await asyncio.gather(*tries)
        ends = await asyncio.gather(*unanswerable, return_exceptions=True)
    assert [answer.what for answer in answers] == ["V", "V"]
    for end in ends:
        assert isinstance(end, SessionOverError), end
        assert end.last in (f"M{new.client}", "Eno_leader"), end
    # Whoever asked nothing keeps the session and is told who leads.
    assert at_old["silent"].is_open
    await until(lambda: at_old["silent"].leader == new.client, "the old leader names the new one")
    await cluster.whole()
