"""On real nodes: three processes, their leader killed, stopped and replaced; TLS; tokens."""

from __future__ import annotations

import asyncio
import random

from tests.conformance.library import CallError
from tests.conformance.play import Acquire, Broker, Play, Ticket, now, scenario
from tests.e2e.cluster import Cluster


async def connected(play: Play, cluster: Cluster) -> Broker:
    """A broker with a session to the leader, over TLS where the cluster has it."""
    authority = cluster.folder / "ca" / "ca.pem"
    tls = str(authority) if authority.exists() else "off"
    broker = await play.broker(addrs=cluster.addresses, token=cluster.token, tls=tls)
    assert await broker.ready(30)
    return broker


async def granted(broker: Broker, key: str, lease: float = 120) -> Ticket:
    """A ticket that somebody in need of it gets through elections: a request that they took is asked for anew."""
    deadline = now() + 60
    while True:
        try:
            return await broker.ticket(key, wait=30, lease=lease)
        except CallError as error:
            if error.kind != "indeterminate" or now() > deadline:
                raise


async def given_back(ticket: Ticket) -> None:
    """Releases through elections: what had no answer is asked again, by the same token."""
    deadline = now() + 60
    while True:
        try:
            await ticket.released()
        except CallError as error:
            if error.kind != "io" or now() > deadline:
                raise
        else:
            return


async def until_queued(cluster: Cluster, key: str, waiters: int) -> None:
    """The leader has so many waiters for the key."""
    leader = await cluster.leader()
    deadline = now() + 15
    while len((shown := await leader.ask_admin("GET", f"/v1/locks/{key}"))["waiters"]) < waiters:
        assert now() < deadline, shown
        await asyncio.sleep(0.02)


@scenario("1.2, 1.4: first come, first served; tokens only grow; a release hands the key straight on")
async def a_queue_is_served_in_order_with_growing_tokens(play: Play) -> None:
    cluster = await play.cluster()
    broker, other = await connected(play, cluster), await connected(play, cluster)
    ticket = await broker.ticket(play.key("queue"), wait=5)
    waiting: list[Acquire] = []
    for number in range(6):
        waiting.append((broker, other)[number % 2].acquire(play.key("queue"), wait=60))
        await until_queued(cluster, play.key("queue"), number + 1)
    token = ticket.token
    for acquire in waiting:
        assert not acquire.done
        assert await ticket.released()
        ticket = await acquire.ticket()
        assert ticket.token > token
        token = ticket.token
    assert await ticket.released()


@scenario("2: wait 0 = one immediate try; 3: `T`")
async def a_key_that_is_held_is_not_free(play: Play) -> None:
    cluster = await play.cluster()
    broker = await connected(play, cluster)
    ticket = await broker.ticket(play.key("held"))
    assert await broker.acquire(play.key("held"), wait=0).kind() == "timeout"
    began = now()
    assert await broker.acquire(play.key("held"), wait=1).kind() == "timeout"
    assert 0.9 < now() - began < 6
    assert await ticket.released()
    again = await broker.ticket(play.key("held"), wait=0)
    assert again.token > ticket.token
    assert again.domain == ticket.domain
    assert again.domain is not None
    assert await again.released()


@scenario("1.1, 1.5: a holder holds until its conservative end, and blocks the key no longer than its lease")
async def a_lease_that_ends_frees_the_key_and_never_too_early(play: Play) -> None:
    cluster = await play.cluster()
    broker = await connected(play, cluster)
    began = now()
    ticket = await broker.ticket(play.key("lease"), lease=2)
    after = await broker.ticket(play.key("lease"), wait=30)
    assert now() - began >= 2 * 0.998
    assert await ticket.lost()  # whoever holds knows before anybody else can have it
    assert after.token > ticket.token
    assert not await ticket.released()
    assert await after.released()


@scenario("3: `X`: same token, lease counted anew")
async def a_lease_that_is_extended_goes_on(play: Play) -> None:
    cluster = await play.cluster()
    broker = await connected(play, cluster)
    ticket = await broker.ticket(play.key("extended"), lease=6)
    for _ in range(3):
        await asyncio.sleep(2.5)
        assert await ticket.extended()
    assert not await ticket.lost()
    assert await broker.acquire(play.key("extended"), wait=0).kind() == "timeout"
    assert await ticket.extended(60)
    assert await ticket.remaining() > 50
    assert await ticket.released()


@scenario("10: an unreleased ticket that is dropped is released; a dropped waiter leaves the queue")
async def dropped_tickets_and_waiters_do_not_block_a_key(play: Play) -> None:
    cluster = await play.cluster()
    broker = await connected(play, cluster)
    ticket = await broker.ticket(play.key("dropped"), lease=250)
    ghost = broker.acquire(play.key("dropped"), wait=200, lease=250)
    await until_queued(cluster, play.key("dropped"), 1)
    await ghost.drop()
    await ticket.abandon()
    following = await broker.ticket(play.key("dropped"), wait=20)
    assert await following.released()


@scenario("10: cancelled at any moment nothing stays held, no session is lost")
async def thousands_of_drops_leave_no_key_held(play: Play) -> None:
    cluster = await play.cluster()
    rng = random.Random(3)
    broker = await connected(play, cluster)
    keys = [play.key(f"drops/{number}") for number in range(4)]

    async def caller() -> None:
        for _ in range(50):
            acquire = broker.acquire(rng.choice(keys), wait=60, lease=250)
            await asyncio.sleep(rng.choice((0, 0.001, 0.004, 0.02)))
            if await acquire.dropped_or_granted():
                ticket = await acquire.ticket()
                await (ticket.released() if rng.random() < 0.5 else ticket.abandon())

    await asyncio.gather(*(caller() for _ in range(20)))
    judge = await connected(play, cluster)
    for key in keys:
        ticket = await judge.ticket(key, wait=20)
        assert await ticket.released()


@scenario("3 Handshake; 10: `auth`")
async def a_wrong_token_is_auth_on_real_nodes(play: Play) -> None:
    cluster = await play.cluster()
    authority = str(cluster.folder / "ca" / "ca.pem")
    broker = await play.broker(addrs=cluster.addresses, token="wrong", tls=authority)
    assert (await broker.begin("wait_ready", timeout_ms=15_000).failure()).kind == "auth"
    assert await broker.acquire("auth").kind() == "auth"


@scenario("10: tls = CA path, token")
async def tls_and_token_work_on_real_nodes(play: Play) -> None:
    cluster = await play.cluster()
    authority = str(cluster.folder / "ca" / "ca.pem")
    broker = await play.broker(addrs=cluster.addresses, token=cluster.token, tls=authority)
    assert await broker.ready()
    tickets = [await broker.ticket(play.key(f"tls/{number}")) for number in range(10)]
    assert [ticket.token for ticket in tickets] == sorted(ticket.token for ticket in tickets)
    for ticket in tickets:
        assert await ticket.extended(100)
        assert await ticket.released()


@scenario("3 Handshake: never fall back from TLS")
async def the_wrong_authority_or_no_tls_gets_nowhere_on_real_nodes(play: Play) -> None:
    cluster = await play.cluster()
    strange = await play.broker(addrs=cluster.addresses, token=cluster.token, tls=str(play.authority().ca))
    assert await strange.acquire("strange").kind() == "io"
    plain = await play.broker(addrs=cluster.addresses, token=cluster.token)
    assert await plain.acquire("plain", wait=1).kind() == "timeout"


@scenario("1.1, 1.2: through leader changes; 10: a release over another session")
async def a_ticket_survives_the_death_of_the_leader(play: Play) -> None:
    async with play.cluster_to_harm() as cluster:
        broker = await connected(play, cluster)
        ticket = await granted(broker, "survives")
        free = await granted(broker, "freed")
        leader = await cluster.leader()
        leader.kill()
        new = await cluster.leader(cluster.others(leader))
        assert new is not leader
        assert await broker.ready(30)
        assert await ticket.extended()
        await given_back(free)
        following = await granted(broker, "freed")
        assert following.token > free.token
        await given_back(following)
        assert not await ticket.lost()
        assert await ticket.remaining() > 60
        await given_back(ticket)


@scenario("10: a waiter of a leader that died ends as `indeterminate`, never silently")
async def a_waiter_of_a_leader_that_dies_is_told(play: Play) -> None:
    async with play.cluster_to_harm() as cluster:
        broker = await connected(play, cluster)
        ticket = await granted(broker, "waited")
        waiting = [broker.acquire("waited", wait=100) for _ in range(5)]
        await until_queued(cluster, "waited", 5)
        leader = await cluster.leader()
        leader.kill()
        for acquire in waiting:
            assert await acquire.kind() == "indeterminate"
        # Their cancels went to the new leader: nobody of them stands in the way.
        await given_back(ticket)
        await given_back(await granted(broker, "waited"))


@scenario(
    "4: when the lead is given away, every acquire that was never proposed is answered `V`, and asked again"
)
async def waiters_go_over_to_the_new_leader_when_the_old_one_stops(play: Play) -> None:
    async with play.cluster_to_harm() as cluster:
        broker = await connected(play, cluster)
        ticket = await granted(broker, "handed")
        waiting = [broker.acquire("handed", wait=100) for _ in range(3)]
        await until_queued(cluster, "handed", 3)
        leader = await cluster.leader()
        leader.terminate()
        new = await cluster.leader(cluster.others(leader))
        assert new is not leader
        await until_queued(cluster, "handed", 3)
        await given_back(ticket)
        tokens = []
        for granting in asyncio.as_completed([acquire.ticket() for acquire in waiting]):
            next_one = await granting
            tokens.append(next_one.token)
            await given_back(next_one)
        assert tokens == sorted(tokens)
        assert tokens[0] > ticket.token
        await leader.ended(60)


@scenario("1.1: through pauses: a leader that stands still is left for another")
async def a_leader_that_stands_still_is_left(play: Play) -> None:
    async with play.cluster_to_harm() as cluster:
        broker = await connected(play, cluster)
        ticket = await granted(broker, "frozen")
        leader = await cluster.leader()
        await leader.pause()
        await cluster.leader(cluster.others(leader))
        other = await granted(broker, "moving")
        assert other.token > ticket.token
        await given_back(other)
        leader.resume()
        await cluster.whole(60)
        assert await ticket.extended()
        await given_back(ticket)


@scenario("1.1, 10: drops and leader kills together leave no key held")
async def drops_and_leader_kills_leave_no_key_held(play: Play) -> None:
    async with play.cluster_to_harm() as cluster:
        rng = random.Random(5)
        broker = await connected(play, cluster)
        keys = [f"kills/{number}" for number in range(3)]
        over = False
        tokens: dict[str, list[int]] = {key: [] for key in keys}

        async def caller() -> None:
            while not over:
                key = rng.choice(keys)
                acquire = broker.acquire(key, wait=10, lease=250)
                try:
                    if rng.random() < 0.5:
                        await asyncio.sleep(rng.choice((0, 0.002, 0.02)))
                        if not await acquire.dropped_or_granted():
                            continue
                    ticket = await acquire.ticket()
                except CallError as error:
                    if error.kind not in ("indeterminate", "timeout"):
                        raise
                    continue
                tokens[key].append(ticket.token)
                await (given_back(ticket) if rng.random() < 0.5 else ticket.abandon())

        callers = [asyncio.ensure_future(caller()) for _ in range(12)]
        for _ in range(2):
            leader = await cluster.leader()
            await asyncio.sleep(1)
            leader.kill()
            await cluster.leader(cluster.others(leader))
            leader.start()
            await cluster.whole(60)
        over = True
        await asyncio.gather(*callers)
        judge = await connected(play, cluster)
        for key in keys:
            ticket = await granted(judge, key)
            assert ticket.token > max(tokens[key])
            await given_back(ticket)
