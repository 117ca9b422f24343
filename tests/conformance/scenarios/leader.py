"""Who is asked: `L`, `V`, `M`, `E`, connections and their back-off (sections 3, 4 and 10)."""

from __future__ import annotations

import asyncio

from tests.conformance import wire
from tests.conformance.play import Play, now, scenario
from tests.conformance.scenarios.tls import context
from tests.conformance.scenarios.waiting import NOBODY
from tests.conformance.server import Request, Server, Session

REASONS = (
    "auth_timeout",
    "bad_frame",
    "bad_key",
    "no_leader",
    "not_active",
    "shutting_down",
    "slow_consumer",
    "too_many_sessions",
)


@scenario("10: one standing connection per address, two where there is one")
async def one_address_has_two_connections_and_several_have_one_each(play: Play) -> None:
    alone = await play.server()
    await play.ready_broker(alone)
    several = [await play.server() for _ in range(3)]
    for server in several:
        server.leader = several[0].address
    await play.ready_broker(*several)
    await asyncio.sleep(0.3)
    assert len(alone.sessions) == 2
    assert [len(server.sessions) for server in several] == [1, 1, 1]


@scenario("10: leader first")
async def requests_go_where_the_latest_l_points(play: Play) -> None:
    first, second = await play.two_nodes()
    broker = await play.ready_broker(first, second)
    for here, there in ((first, second), (second, first), (first, second)):
        there.name_leader(here.address)
        await asyncio.sleep(0.1)
        acquire = broker.acquire()
        (await here.next("Q")).answer("B")
        assert await acquire.kind() == "busy"
        assert not there.unread


@scenario("3 Handshake: a session is the leader's when its banner's `+n` equals the `L`, byte for byte")
async def the_leader_is_told_by_the_name_in_its_banner(play: Play) -> None:
    name = "node-1.example:5225"

    def banner(session: Session) -> bytes:
        return session.usual_banner().replace(session.server.address.encode(), name.encode())

    leading = await play.server(leader=name, banner=banner)
    other = await play.server(leader=name)
    broker = await play.ready_broker(leading, other)
    for _ in range(4):
        acquire = broker.acquire()
        (await leading.next("Q")).answer("B")
        assert await acquire.kind() == "busy"
    assert not other.log


@scenario("10: then round robin: where nobody is known to lead, nodes are asked in turn")
async def nodes_that_know_no_leader_are_asked_in_turn(play: Play) -> None:
    servers = [await play.server(leader=None) for _ in range(3)]
    broker = await play.broker(*servers)
    assert not await broker.ready(0)
    for server in servers:
        await server.opened()
    await asyncio.sleep(0.1)
    acquires = [broker.acquire(f"key-{number}") for number in range(6)]
    for server in servers:
        for _ in range(2):
            (await server.next("Q")).answer("B")
    for acquire in acquires:
        assert await acquire.kind() == "busy"


@scenario("10: a session to a node that says it does not lead is not used for acquires until `L` names it")
async def a_node_that_names_another_is_not_asked(play: Play) -> None:
    server = await play.server(leader=NOBODY)
    broker = await play.broker(server)
    acquire = broker.acquire(wait=60)
    await server.opened(2)
    await server.nothing(0.7)
    server.name_leader(server.address)
    (await server.next("Q")).answer("B")
    assert await acquire.kind() == "busy"


@scenario("3: without membership no `+d`; such a node is not asked")
async def a_node_without_membership_is_not_asked(play: Play) -> None:
    server = await play.server(domain=None, leader=None)
    broker = await play.broker(server)
    acquire = broker.acquire(wait=60)
    await server.opened(2)
    await server.nothing(0.7)
    assert not acquire.done
    assert not await broker.ready(0)


@scenario(
    "10: after `V` asked again with a new owner, only on a session that an `L` names, within what is left"
)
async def a_v_is_asked_again_under_a_new_owner_where_an_l_points(play: Play) -> None:
    first, second = await play.two_nodes()
    broker = await play.ready_broker(first, second)
    acquire = broker.acquire(wait=20)
    asked = await first.next("Q")
    asked.answer("V")
    await asyncio.sleep(1.2)
    assert not first.unread
    assert not second.unread
    second.name_leader(second.address)
    again = await second.next("Q")
    assert again.frame.number != asked.frame.number
    assert again.frame.number & wire.TOP_BIT
    assert again.frame.key == asked.frame.key
    assert 20 - (again.at - asked.at) - 0.5 <= again.frame.wait <= 19
    again.grant(9)
    assert (await acquire.ticket()).token == 9
    assert len(first.open_sessions) == 1  # a V ends no session


@scenario("10: asked again only on a session that an `L` names")
async def after_a_v_a_node_that_knows_no_leader_is_not_asked(play: Play) -> None:
    first = await play.server()
    second = await play.server(leader=None)
    broker = await play.ready_broker(first, second)
    acquire = broker.acquire(wait=60)
    (await first.next("Q")).answer("V")
    await second.nothing(0.7)
    assert not acquire.done
    second.name_leader(second.address)
    (await second.next("Q")).answer("B")
    assert await acquire.kind() == "busy"


@scenario("10: the second time at once, from the third on after 10 ms doubling to 200 ms with jitter")
async def further_vs_are_asked_again_after_growing_pauses(play: Play) -> None:
    def refuse(request: Request) -> None:
        request.answer("V")
        request.session.send(wire.text("L", server.address))

    server = await play.server(answers=refuse)
    broker = await play.ready_broker(server)
    began = now()
    acquire = broker.acquire(wait=3)
    assert await acquire.kind() == "timeout"
    assert 2.8 < now() - began < 15
    owners = [request.frame.number for request in server.log]
    assert len(set(owners)) == len(owners)
    # 0, 10, 20, 40, 80, 160, then 200 ms at most: about 20, where the machine is not busy; with a quarter of each
    # pause it were 70.
    assert 4 <= len(owners) <= 70, len(owners)
    waits = [request.frame.wait for request in server.log]
    assert waits == sorted(waits, reverse=True)


@scenario("10: a try without wait is asked a second time at most")
async def a_try_without_wait_answered_v_twice_is_not_connected(play: Play) -> None:
    first, second = await play.two_nodes()
    broker = await play.ready_broker(first, second)
    acquire = broker.acquire(wait=0)
    asked = await first.next("Q")
    second.name_leader(second.address)
    await asyncio.sleep(0.3)
    asked.answer("V")
    again = await second.next("Q")
    assert (asked.frame.wait, again.frame.wait) == (0, 0)
    first.name_leader(first.address)
    await asyncio.sleep(0.3)
    again.answer("V")
    assert await acquire.kind() == "not_connected"
    await first.nothing(0.3)


@scenario("3: `M`: not me, go there; session ends. 10: no reply after the first byte = `indeterminate`")
async def an_m_ends_the_session_and_its_requests_are_not_sent_again(play: Play) -> None:
    first, second = await play.two_nodes()
    broker = await play.ready_broker(first, second)
    acquire = broker.acquire()
    asked = await first.next("Q")
    first.leader = second.address
    asked.session.send(wire.text("M", second.address))
    assert await acquire.kind() == "indeterminate"
    await asked.session.over()
    # Where it pointed is asked from now on: first of all to cancel the lost one.
    cancel = await second.next("C")
    assert cancel.frame.raw == wire.numbered("C", asked.frame.number, b"key")
    cancel.answer("N")
    acquire = broker.acquire()
    (await second.next("Q")).answer("B")
    assert await acquire.kind() == "busy"


@scenario("10: every `E` ends the session; a request without a reply is `indeterminate`")
async def every_e_ends_the_session(play: Play) -> None:
    async def reason(word: str) -> None:
        server = await play.server()
        broker = await play.ready_broker(server)
        acquire = broker.acquire()
        asked = await server.next("Q")
        asked.session.send(wire.text("E", word))
        assert await acquire.kind() == "indeterminate", word
        await asked.session.over()
        assert not any(frame.opcode == "Q" for frame in server.unread), word

    await asyncio.gather(*map(reason, REASONS))


@scenario("rust-library: `auth_failed` is `TicketError::Auth`")
async def a_late_auth_failed_is_auth(play: Play) -> None:
    server = await play.server(extended=False)
    broker = await play.ready_broker(server)
    acquire = broker.acquire()
    asked = await server.next("A")
    server.tokens = ("other",)
    asked.session.send(wire.text("E", "auth_failed"))
    assert await acquire.kind() == "auth"
    await asked.session.over()


@scenario("10: an address that was not configured is used only over verified TLS")
async def a_leader_that_was_not_configured_is_not_dialled_without_tls(play: Play) -> None:
    other = await play.server()
    server = await play.server(leader=other.address)
    broker = await play.broker(server)
    assert not await broker.ready(1)
    assert not other.sessions


@scenario("10: an address that was not configured is used only over verified TLS")
async def a_leader_that_was_not_configured_is_dialled_over_verified_tls(play: Play) -> None:
    authority = play.authority()
    leader = await play.server(tls=context(authority))
    server = await play.server(tls=context(authority), leader=leader.address)
    broker = await play.broker(server, tls=str(authority.ca))
    assert await broker.ready()
    acquire = broker.acquire()
    (await leader.next("Q")).answer("B")
    assert await acquire.kind() == "busy"


@scenario("10: an address that was not configured is used only over verified TLS")
async def a_leader_that_was_not_configured_is_not_dialled_without_verification(play: Play) -> None:
    authority = play.authority()
    leader = await play.server(tls=context(authority))
    server = await play.server(tls=context(authority), leader=leader.address)
    broker = await play.broker(server, tls="insecure-skip-verify")
    assert not await broker.ready(1)
    assert not leader.sessions


@scenario("10: of addresses that were not configured at most 8")
async def of_addresses_that_were_not_configured_eight_are_dialled(play: Play) -> None:
    authority = play.authority()
    strangers = [await play.server(tls=context(authority), leader=None) for _ in range(12)]
    server = await play.server(tls=context(authority))
    broker = await play.ready_broker(server, tls=str(authority.ca))
    for stranger in strangers:
        server.open_sessions[0].send(wire.text("L", stranger.address))
        await asyncio.sleep(0.05)
    # The oldest make room for the newest, which is the one to be asked.
    await strangers[-1].opened()

    def dialled() -> int:
        return sum(not session.ended.is_set() for stranger in strangers for session in stranger.sessions)

    await server.until(lambda: dialled() <= 8, "eight connections at most")
    assert strangers[-1].open_sessions
    server.name_leader(server.address)
    assert await broker.ready()


@scenario("10: a broken connection never breaks the broker")
async def a_broken_connection_is_made_anew(play: Play) -> None:
    server = await play.server()
    broker = await play.ready_broker(server)
    for session in server.open_sessions:
        session.end()
        await session.over()
    await server.opened(2)
    acquire = broker.acquire()
    (await server.next("Q")).answer("B")
    assert await acquire.kind() == "busy"


@scenario("10: two connections where there is one address: the second takes over")
async def the_second_session_takes_over_at_once(play: Play) -> None:
    server = await play.server()
    broker = await play.ready_broker(server)
    ticket = await play.held(server, broker)
    server.refuses_connections = True
    server.log[0].session.end()
    await server.log[0].session.over()
    release = ticket.begin("release")
    (await server.next("R")).answer("R")
    assert await release.answer() == {"released": True}


@scenario("10: back-off 0.1 s doubling to 3.2 s with jitter, also after sessions shorter than 1 s")
async def a_server_that_ends_every_session_is_not_hammered(play: Play) -> None:
    async def dialled(server: Server) -> int:
        broker = await play.broker(server)
        assert not await broker.ready(0)
        await server.session()
        await asyncio.sleep(4)
        return len(server.sessions)

    def end(server: Server) -> None:
        for session in server.open_sessions:
            session.end()

    async def ending(server: Server) -> None:
        while True:
            await asyncio.sleep(0.01)
            end(server)

    refusing = await play.server(refuses_connections=True)
    short = await play.server(leader=None)
    task = asyncio.create_task(ending(short))
    counts = await asyncio.gather(dialled(refusing), dialled(short))
    task.cancel()
    # Two connections; 0, 0.1, 0.3, 0.7, 1.5, 3.1 s at the most regular; with half pauses 7 in 4 s each.
    assert all(4 <= count <= 20 for count in counts), counts


@scenario("4: only what provably was not sent is retried as the same request; the rest is `indeterminate`")
async def leader_changes_under_load_leave_nobody_without_an_outcome(play: Play) -> None:
    first, second = await play.two_nodes()
    leading = [first]
    tokens = iter(range(1, 10_000))

    def answers(server: Server) -> None:
        def on(request: Request) -> None:
            if request.frame.opcode != "Q":
                request.answer("R")
            elif server is leading[0]:
                request.grant(next(tokens))
            else:
                request.answer("V")
                request.session.send(wire.text("L", leading[0].address))

        server.answers = on

    answers(first)
    answers(second)
    broker = await play.ready_broker(first, second)
    granted: list[int] = []

    async def caller(number: int) -> None:
        for _ in range(10):
            ticket = await broker.ticket(f"key-{number}", wait=30)
            granted.append(ticket.token)
            assert await ticket.released()

    async def changes() -> None:
        for _ in range(15):
            await asyncio.sleep(0.02)
            leading[0] = second if leading[0] is first else first

    await asyncio.gather(changes(), *map(caller, range(10)))
    assert len(granted) == len(set(granted)) == 100
