"""Whom requests go to: leader tracking, domains, connections (spec 9 and 10)."""

from __future__ import annotations

import asyncio
import random
import time

import pytest

from tests.client.conftest import MakeBroker, MakeServer
from tests.client.scripted import DOMAIN, FIRST_TOKEN, Server, Time, turns, until
from tests.client.test_acquire import acquiring
from tests.client.test_release import held
from tests.client.test_retry import failure, two_nodes
from ticketing.client import TicketError
from ticketing.client.connection import Backoff
from ticketing.protocol import frames


async def test_one_address_has_two_connections_and_several_have_one_each(
    new_server: MakeServer, new_broker: MakeBroker
) -> None:
    alone = await new_server()
    assert await new_broker(alone).wait_ready(5)
    await until(lambda: len(alone.open_sessions) == 2)
    first, second, _ = await two_nodes(new_server, new_broker)
    await turns()
    assert (first.connections, second.connections) == (1, 1)


async def test_a_second_session_takes_over_without_a_pause(
    new_server: MakeServer, new_broker: MakeBroker
) -> None:
    server = await new_server()
    broker = new_broker(server)
    ticket = await held(server, broker)
    await until(lambda: len(server.open_sessions) == 2)
    server.refuse_connections = True
    server.log[0].session.end()
    await turns()
    call = asyncio.ensure_future(ticket.release())
    (await server.next(frames.RELEASE)).released()
    assert await call is True


async def test_a_broken_connection_is_made_anew(new_server: MakeServer, new_broker: MakeBroker) -> None:
    server = await new_server()
    broker = new_broker(server)
    assert await broker.wait_ready(5)
    await until(lambda: len(server.open_sessions) == 2)
    for session in server.open_sessions:
        session.end()
    await turns()
    call = asyncio.ensure_future(acquiring(broker))
    (await server.next(frames.Q)).busy()
    assert (await failure(call)).kind == "busy"
    assert server.connections >= 3


def test_pauses_double_to_a_cap_and_keep_their_jitter_there() -> None:
    rng = random.Random(5)
    pauses = [[backoff.pause_s() for _ in range(12)] for backoff in [Backoff(rng) for _ in range(200)]]
    for number in range(12):
        cap = min(0.1 * 2**number, 3.2)
        column = [row[number] for row in pauses]
        assert all(cap / 2 <= pause <= cap for pause in column)
        assert max(column) - min(column) > cap * 0.4
    backoff = Backoff(rng)
    for _ in range(9):
        backoff.pause_s()
    backoff.reset()
    assert backoff.pause_s() <= 0.1


async def test_requests_follow_the_leader_that_is_named_last(
    new_server: MakeServer, new_broker: MakeBroker
) -> None:
    first, second, broker = await two_nodes(new_server, new_broker)
    for server, other in ((first, second), (second, first), (first, second)):
        other.tell(frames.encode_leader(server.address))
        await turns()
        call = asyncio.ensure_future(acquiring(broker))
        (await server.next(frames.Q)).busy()
        assert (await failure(call)).kind == "busy"
        assert other.quiet


async def test_a_node_that_says_it_does_not_lead_is_not_asked(
    new_server: MakeServer, new_broker: MakeBroker, clock: Time
) -> None:
    server = await new_server(leader="127.0.0.1:1")
    broker = new_broker(server)
    assert not await broker.wait_ready(0.2)
    await until(lambda: len(server.open_sessions) == 2)
    call = asyncio.ensure_future(acquiring(broker, wait=1))
    await turns()
    assert server.quiet
    await clock.pass_by(1.1, server)
    assert (await failure(call)).kind == "timeout"


async def test_nodes_that_know_no_leader_are_asked_in_turn(
    new_server: MakeServer, new_broker: MakeBroker
) -> None:
    servers = [await new_server(leader=None) for _ in range(3)]
    broker = new_broker(*servers)
    ready = asyncio.ensure_future(broker.wait_ready(60))
    await until(lambda: all(server.open_sessions for server in servers))
    assert not ready.done()
    calls = [asyncio.ensure_future(broker.acquire(f"k{n}", 5, 5, 0)) for n in range(6)]
    await turns()
    assert [len(server.log) for server in servers] == [2, 2, 2]
    for server in servers:
        for asked in server.log:
            asked.timeout()
    for call in calls:
        assert (await failure(call)).kind == "timeout"
    servers[1].tell(frames.encode_leader(servers[1].address))
    assert await ready is True


async def test_a_node_without_membership_is_not_asked(new_server: MakeServer, new_broker: MakeBroker) -> None:
    server = await new_server(domain=None, leader=None)
    broker = new_broker(server)
    assert not await broker.wait_ready(0)
    await until(lambda: len(server.open_sessions) == 2)
    call = asyncio.ensure_future(acquiring(broker))
    await turns()
    assert not server.log
    # It joins a domain: its banner has to be read anew.
    server.domain = DOMAIN
    server.tell(frames.encode_leader(server.address))
    server.leader = server.address
    asked = await server.next(frames.Q)
    asked.grant(9)
    ticket = await call
    assert ticket.domain == DOMAIN
    ticket.close()
    (await server.next(frames.RELEASE)).released()


def later(by: int, ident: int = 0xBB) -> str:
    return f"{FIRST_TOKEN + by}.{ident:016x}"


async def test_a_newer_domain_that_serves_is_followed_and_the_older_is_over(
    new_server: MakeServer, new_broker: MakeBroker
) -> None:
    old = await new_server()
    new = await new_server(domain=later(1), leader=None)
    broker = new_broker(old, new)
    ticket = await held(old, broker)
    await until(lambda: bool(new.open_sessions))
    assert broker.domain == DOMAIN  # a banner alone changes nothing
    told = asyncio.ensure_future(ticket.lost.wait())
    await turns()
    assert not ticket.lost
    waiting = asyncio.ensure_future(acquiring(broker, wait=100))
    await old.next(frames.Q)
    new.tell(frames.encode_leader(new.address))
    assert await told is True
    assert (await failure(waiting)).kind == "indeterminate"
    assert ticket.lost
    assert broker.domain == later(1)
    # Its release is answered without being sent.
    assert await ticket.release() is False
    assert old.quiet
    assert new.quiet
    call = asyncio.ensure_future(acquiring(broker))
    (await new.next(frames.Q)).busy()
    assert (await failure(call)).kind == "busy"
    # The old one may go on as long as it likes.
    await until(lambda: bool(old.open_sessions))
    old.tell(frames.encode_leader(old.address))
    await turns()
    assert broker.domain == later(1)


@pytest.mark.parametrize(
    "domain", [later(0), f"{(int(time.time()) + 61 * 86_400) << 20}.00000000000000cc"], ids=["same", "ahead"]
)
async def test_a_domain_that_cannot_be_closes_the_session(
    new_server: MakeServer, new_broker: MakeBroker, domain: str
) -> None:
    first = await new_server()
    strange = await new_server(domain=domain)
    broker = new_broker(first, strange)
    assert await broker.wait_ready(5)
    await until(lambda: strange.connections > 0 and not strange.sessions and broker.domain is not None)
    if broker.domain == DOMAIN:
        call = asyncio.ensure_future(acquiring(broker))
        (await first.next(frames.Q)).busy()
        assert (await failure(call)).kind == "busy"
    assert strange.quiet


async def test_a_date_ahead_can_be_allowed(new_server: MakeServer, new_broker: MakeBroker) -> None:
    domain = f"{(int(time.time()) + 61 * 86_400) << 20}.00000000000000cc"
    server = await new_server(domain=domain)
    broker = new_broker(server, allow_future_domain=True)
    assert await broker.wait_ready(5)
    assert broker.domain == domain


async def test_standalone_is_never_preferred_to_a_cluster(
    new_server: MakeServer, new_broker: MakeBroker
) -> None:
    alone = await new_server(standalone=True, domain=later(1000))
    cluster = await new_server(leader=None)
    broker = new_broker(alone, cluster)
    assert await broker.wait_ready(5)
    assert broker.domain == later(1000)
    await until(lambda: bool(cluster.open_sessions))
    cluster.tell(frames.encode_leader(cluster.address))
    await until(lambda: broker.domain == DOMAIN)
    await until(lambda: bool(alone.open_sessions))
    await turns()
    assert broker.domain == DOMAIN


@pytest.mark.parametrize(
    ("banner", "kind"),
    [
        (b"HTTP/1.1 400 Bad Request\n", "protocol"),
        (b"TICKETING/1 short\n", "protocol"),
        (b"x" * 300, "protocol"),
        (frames.encode_error(frames.AUTH_FAILED), "auth"),
    ],
)
async def test_a_server_that_cannot_be_ours_is_told_at_once(
    new_server: MakeServer, new_broker: MakeBroker, banner: bytes, kind: str
) -> None:
    server = await new_server(banner=banner)
    broker = new_broker(server)
    call = asyncio.ensure_future(acquiring(broker))
    assert (await failure(call)).kind == kind
    assert not server.open_sessions


@pytest.mark.parametrize("options", [{"silent": True}, {"hold_first_line": True}])
async def test_banner_and_first_line_have_three_seconds(
    new_server: MakeServer, new_broker: MakeBroker, clock: Time, options: dict[str, bool]
) -> None:
    server = await new_server(**options)
    broker = new_broker(server)
    ready = asyncio.ensure_future(broker.wait_ready(60))
    await until(lambda: len(server.sessions) == 2)
    await turns()
    await clock.jump(2.9)
    assert len(server.sessions) == 2
    await clock.jump(0.2)
    await until(lambda: not server.sessions)
    server.silent = server.hold_first_line = False
    await clock.jump(0.2)
    assert await ready


async def test_a_server_that_nobody_listens_for_is_no_error_until_the_wait_is_over(
    new_server: MakeServer, new_broker: MakeBroker, clock: Time
) -> None:
    server = await new_server()
    broker = new_broker(server)
    await server.stop()
    assert not await broker.wait_ready(0.05)
    call = asyncio.ensure_future(acquiring(broker, wait=2))
    await turns()
    assert not call.done()
    await clock.pass_by(2.1)
    assert (await failure(call)).kind == "timeout"


async def test_operators_are_told_who_we_are(new_server: MakeServer, new_broker: MakeBroker) -> None:
    server = await new_server()
    assert await new_broker(server, name="shop\nA").wait_ready(5)
    await turns()
    assert server.open_sessions[0].hello.startswith(b"shop?A ")


async def test_an_address_that_was_not_configured_is_not_dialled_without_verified_tls(
    new_server: MakeServer, new_broker: MakeBroker
) -> None:
    other = await new_server()
    server = await new_server(leader=other.address)
    broker = new_broker(server)
    assert not await broker.wait_ready(0.2)
    assert other.connections == 0
    assert server.connections == 2


async def test_leader_changes_under_load_leave_nobody_without_an_outcome(
    new_server: MakeServer, new_broker: MakeBroker
) -> None:
    first, second, broker = await two_nodes(new_server, new_broker)
    leader: list[Server] = [first]
    token = 0

    def answer(server: Server) -> None:
        def on(asked: object) -> None:
            nonlocal token
            if asked.opcode != frames.Q:  # type: ignore[attr-defined]
                asked.released()  # type: ignore[attr-defined]
            elif server is leader[0]:
                token += 1
                asked.grant(token)  # type: ignore[attr-defined]
            else:
                asked.not_leading()  # type: ignore[attr-defined]
                asked.session.send(frames.encode_leader(leader[0].address))  # type: ignore[attr-defined]

        server.answer = on

    answer(first)
    answer(second)
    granted: list[int] = []

    async def caller(number: int) -> None:
        for _ in range(20):
            async with await broker.acquire(f"key-{number}", 5, 5, 0) as ticket:
                granted.append(ticket.token)
            await asyncio.sleep(0.001)

    async def changes() -> None:
        for _ in range(10):
            await asyncio.sleep(0.004)
            leader[0] = second if leader[0] is first else first

    await asyncio.gather(changes(), *(caller(number) for number in range(10)))
    assert len(granted) == len(set(granted)) == 200
    assert any(asked.opcode == frames.Q for asked in second.log)


async def test_when_its_tasks_were_cancelled_it_binds_anew(
    new_server: MakeServer, new_broker: MakeBroker
) -> None:
    server = await new_server()
    broker = new_broker(server)
    assert await broker.wait_ready(5)
    waiting = asyncio.ensure_future(acquiring(broker))
    await server.next(frames.Q)
    for task in asyncio.all_tasks():
        if task.get_name().startswith("ticketing"):
            task.cancel()
    assert (await failure(waiting)).kind == "indeterminate"
    server.answer = lambda asked: asked.busy() if asked.opcode == frames.Q else asked.not_held()
    assert await broker.wait_ready(5)
    call = asyncio.ensure_future(acquiring(broker))
    assert (await failure(call)).kind == "busy"


async def test_a_closed_broker_can_be_closed_again(new_server: MakeServer, new_broker: MakeBroker) -> None:
    server = await new_server()
    broker = new_broker(server)
    await broker.aclose()
    await broker.aclose()
    with pytest.raises(TicketError):
        await broker.wait_ready(1)
    assert server.connections == 0
