"""Which domain is followed (section 9)."""

from __future__ import annotations

import asyncio
import time

from tests.conformance.play import Play, scenario
from tests.conformance.server import DOMAIN, FIRST_TOKEN

DAY = 86_400


def domain(first_token: int, ident: int = 0xBB) -> str:
    """As it is shown."""
    return f"{first_token}.{ident:016x}"


NEWER = domain(FIRST_TOKEN + 1)


@scenario("9: clients follow the domain with the highest first token; a change makes its tickets `lost`")
async def a_newer_domain_that_serves_is_followed_and_tickets_are_lost(play: Play) -> None:
    old = await play.server()
    new = await play.server(domain=NEWER, leader=None)
    broker = await play.ready_broker(old)
    both = await play.broker(old, new)
    assert await both.ready()
    ticket = await play.held(old, both)
    assert ticket.domain == DOMAIN
    await new.opened()
    await asyncio.sleep(0.3)
    assert not await ticket.lost()  # a banner alone changes nothing
    lost = ticket.begin("wait_lost")
    waiting = both.acquire("other", wait=200)
    await old.next("Q")
    new.name_leader(new.address)
    assert await lost.answer() == {"lost": True}
    assert await ticket.remaining() == 0
    assert await waiting.kind() == "indeterminate"
    # Its release is answered N without being sent; so is the cancel of what waited there.
    assert not await ticket.released()
    await old.nothing(0.3)
    assert not new.unread
    fresh = await play.held(new, both, token=FIRST_TOKEN + 5)
    assert fresh.domain == NEWER
    assert await broker.ready(0)


@scenario("9: an older domain is not followed, whatever it says")
async def an_older_domain_is_never_gone_back_to(play: Play) -> None:
    new = await play.server(domain=NEWER)
    old = await play.server(leader=None)
    broker = await play.ready_broker(new, old)
    old.name_leader(old.address)
    await asyncio.sleep(0.3)
    acquire = broker.acquire()
    (await new.next("Q")).answer("B")
    assert await acquire.kind() == "busy"
    assert not old.log


@scenario("9: equal first token with another id closes that session with `protocol`")
async def a_domain_of_the_same_first_token_is_refused(play: Play) -> None:
    first = await play.server()
    strange = await play.server(domain=domain(FIRST_TOKEN), leader=None)
    broker = await play.ready_broker(first, strange)
    session = strange.open_sessions[0]
    strange.name_leader(strange.address)
    await session.over()
    for _ in range(3):
        acquire = broker.acquire()
        (await first.next("Q")).answer("B")
        assert await acquire.kind() == "busy"
    assert not strange.log


@scenario("9: a domain dated over 60 days ahead of the client's clock closes that session with `protocol`")
async def a_domain_dated_far_ahead_is_refused(play: Play) -> None:
    ahead = await play.server(domain=domain((int(time.time()) + 61 * DAY) << 20))
    broker = await play.broker(ahead)
    assert await broker.acquire().kind() == "protocol"
    assert not ahead.log
    near = await play.server(domain=domain((int(time.time()) + 58 * DAY) << 20))
    await play.ready_broker(near)


@scenario("9: only sessions whose node serves or has named a serving leader count")
async def the_banner_of_a_node_that_does_not_serve_changes_nothing(play: Play) -> None:
    old = await play.server()
    new = await play.server(domain=NEWER, leader=None)
    broker = await play.ready_broker(old, new)
    for _ in range(3):
        acquire = broker.acquire()
        (await old.next("Q")).answer("B")
        assert await acquire.kind() == "busy"
    assert not new.log


@scenario("9: standalone is never preferred to a cluster")
async def a_cluster_is_preferred_to_a_standalone_node(play: Play) -> None:
    alone = await play.server(standalone=True, domain=domain(FIRST_TOKEN + 1000))
    cluster = await play.server(leader=None)
    broker = await play.ready_broker(alone, cluster)
    ticket = await play.held(alone, broker)
    cluster.name_leader(cluster.address)
    assert await ticket.begin("wait_lost").answer() == {"lost": True}
    acquire = broker.acquire()
    (await cluster.next("Q")).answer("B")
    assert await acquire.kind() == "busy"
    # It stays so when the standalone node is heard again.
    await alone.opened()
    await asyncio.sleep(0.3)
    acquire = broker.acquire()
    (await cluster.next("Q")).answer("B")
    assert await acquire.kind() == "busy"


@scenario("3: standalone says `+s`; it is used where there is nothing else")
async def a_standalone_node_is_used_alone(play: Play) -> None:
    server = await play.server(standalone=True)
    broker = await play.ready_broker(server)
    ticket = await play.held(server, broker)
    assert ticket.domain == DOMAIN


@scenario("9: a node that joins a domain has its banner read anew")
async def a_node_that_joins_a_domain_is_used_from_then_on(play: Play) -> None:
    server = await play.server(domain=None, leader=None)
    broker = await play.broker(server)
    acquire = broker.acquire(wait=60)
    await server.opened(2)
    server.domain = DOMAIN
    server.name_leader(server.address)
    (await server.next("Q")).grant(7)
    assert (await acquire.ticket()).domain == DOMAIN
