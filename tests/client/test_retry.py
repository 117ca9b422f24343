"""Which requests are asked again, and which are not (spec 10): `V`, lost answers, no session."""

from __future__ import annotations

import asyncio

import pytest

from tests.client.conftest import MakeBroker, MakeServer
from tests.client.scripted import Server, Time, turns, until
from tests.client.test_acquire import acquiring
from ticketing.client import Ticket, TicketBroker, TicketError
from ticketing.client.acquire import retry_pause_ns
from ticketing.protocol import frames


async def failure(call: asyncio.Future[Ticket]) -> TicketError:
    # Not `asyncio.timeout`: a cancelled acquire may be a TicketError as well.
    await asyncio.wait([call], timeout=5)
    assert call.done()
    with pytest.raises(TicketError) as caught:
        await call
    return caught.value


async def two_nodes(new_server: MakeServer, new_broker: MakeBroker) -> tuple[Server, Server, TicketBroker]:
    """The first one leads and both say so."""
    first = await new_server()
    second = await new_server(leader=first.address)
    broker = new_broker(first, second)
    assert await broker.wait_ready(5)
    await until(lambda: bool(second.open_sessions))
    return first, second, broker


async def test_a_request_answered_v_is_asked_again_under_a_new_owner_where_an_l_names_the_leader(
    new_server: MakeServer, new_broker: MakeBroker, clock: Time
) -> None:
    first, second, broker = await two_nodes(new_server, new_broker)
    call = asyncio.ensure_future(acquiring(broker, wait=10))
    asked = await first.next(frames.Q)
    asked.not_leading()
    await clock.pass_by(3, first, second)
    assert first.quiet
    assert second.quiet
    second.tell(frames.encode_leader(second.address))
    again = await second.next(frames.Q)
    assert again.ident != asked.ident
    assert again.wait == 7
    again.grant(9)
    ticket = await call
    ticket.close()
    (await second.next(frames.RELEASE)).released()


async def test_after_a_v_a_node_that_knows_no_leader_is_not_asked(
    new_server: MakeServer, new_broker: MakeBroker
) -> None:
    first = await new_server()
    second = await new_server(leader=None)
    broker = new_broker(first, second)
    assert await broker.wait_ready(5)
    await until(lambda: bool(second.open_sessions))
    call = asyncio.ensure_future(acquiring(broker, wait=10))
    (await first.next(frames.Q)).not_leading()
    await turns()
    assert second.quiet
    # Another request, which nobody has refused yet, may try it.
    other = asyncio.ensure_future(broker.acquire("other", 10, 30, 0))
    (await second.next(frames.Q)).busy()
    assert (await failure(other)).kind == "busy"
    second.tell(frames.encode_leader(second.address))
    (await second.next(frames.Q)).busy()
    assert (await failure(call)).kind == "busy"


async def test_the_second_v_is_followed_by_a_pause_that_doubles_up_to_200_ms(
    new_server: MakeServer, new_broker: MakeBroker, clock: Time
) -> None:
    assert [retry_pause_ns(number) // 1_000_000 for number in range(1, 9)] == [
        0,
        10,
        20,
        40,
        80,
        160,
        200,
        200,
    ]
    server = await new_server()
    broker = new_broker(server)
    assert await broker.wait_ready(5)
    call = asyncio.ensure_future(acquiring(broker, wait=1))
    owners = []
    for _ in range(5):
        asked = await server.next(frames.Q)
        owners.append(asked.ident)
        asked.not_leading()
        server.tell(frames.encode_leader(server.address))
    assert len(set(owners)) == 5
    await turns()
    await clock.pass_by(1.1, server)
    error = await failure(call)
    assert error.kind == "timeout"


async def test_a_try_without_wait_needs_a_session_to_the_leader(
    new_server: MakeServer, new_broker: MakeBroker
) -> None:
    server = await new_server(leader=None)
    broker = new_broker(server)
    error = await failure(asyncio.ensure_future(acquiring(broker, wait=0)))
    assert error.kind == "not_connected"
    await until(lambda: bool(server.open_sessions))
    error = await failure(asyncio.ensure_future(acquiring(broker, wait=0)))
    assert error.kind == "not_connected"
    assert not server.log


async def test_a_try_without_wait_is_asked_a_second_time_at_most(
    new_server: MakeServer, new_broker: MakeBroker
) -> None:
    first, second, broker = await two_nodes(new_server, new_broker)
    call = asyncio.ensure_future(acquiring(broker, wait=0))
    asked = await first.next(frames.Q)
    assert asked.wait == 0
    second.tell(frames.encode_leader(second.address))
    await turns()
    asked.not_leading()
    asked = await second.next(frames.Q)
    asked.not_leading()
    assert (await failure(call)).kind == "not_connected"


async def test_nothing_is_sent_once_the_wait_is_over(
    new_server: MakeServer, new_broker: MakeBroker, clock: Time
) -> None:
    server = await new_server(leader="127.0.0.1:1")
    broker = new_broker(server)
    call = asyncio.ensure_future(acquiring(broker, wait=2))
    await clock.pass_by(2.1, server)
    error = await failure(call)
    assert error.kind == "timeout"
    assert not server.log


async def test_what_was_not_sent_goes_to_the_next_session_as_the_same_request(
    new_server: MakeServer, new_broker: MakeBroker, clock: Time
) -> None:
    first, second, broker = await two_nodes(new_server, new_broker)
    sent = [asyncio.ensure_future(broker.acquire(f"sent-{n}", 60, 30, 0)) for n in range(10)]
    await turns()
    assert len(first.log) == 10
    cluster = broker._cluster
    assert cluster is not None
    (session,) = [session for session in cluster._sessions if session.requests()]
    session.pause_writing()  # as its transport does when it is full
    unsent = [asyncio.ensure_future(broker.acquire(f"unsent-{n}", 60, 30, 0)) for n in range(10)]
    await turns()
    requests = session.requests()[:10]
    first.refuse_connections = True
    first.open_sessions[0].end()
    await turns()
    for call in sent:
        assert (await failure(call)).kind == "indeterminate"
    assert not any(call.done() for call in unsent)
    second.tell(frames.encode_leader(second.address))
    asked = [await second.next() for _ in range(20)]
    assert [one.key for one in asked if one.opcode == frames.Q] == [b"unsent-%d" % n for n in range(10)]
    assert [one.ident for one in asked if one.opcode == frames.Q] == [one.owner for one in requests]
    assert len(first.log) == 10
    for one in asked:
        if one.opcode == frames.Q:
            one.timeout()
        else:
            one.not_held()
    for call in unsent:
        assert (await failure(call)).kind == "timeout"


async def test_no_answer_after_the_session_ended_is_indeterminate_and_cancelled_elsewhere(
    new_server: MakeServer, new_broker: MakeBroker
) -> None:
    first, second, broker = await two_nodes(new_server, new_broker)
    call = asyncio.ensure_future(acquiring(broker))
    asked = await first.next(frames.Q)
    asked.session.end()
    assert (await failure(call)).kind == "indeterminate"
    first.refuse_connections = True
    second.tell(frames.encode_leader(second.address))
    cancel = await second.next(frames.CANCEL)
    assert (cancel.ident, cancel.key) == (asked.ident, asked.key)
    cancel.released()
    await turns()
    assert second.quiet


@pytest.mark.parametrize("reason", sorted(frames.ERROR_REASONS))
async def test_every_e_ends_the_session(new_server: MakeServer, new_broker: MakeBroker, reason: str) -> None:
    server = await new_server()
    broker = new_broker(server)
    call = asyncio.ensure_future(acquiring(broker))
    asked = await server.next(frames.Q)
    asked.session.send(frames.encode_error(reason))
    error = await failure(call)
    assert error.kind == ("auth" if reason == "auth_failed" else "indeterminate")
    await turns()
    assert asked.session.lost


async def test_m_ends_the_session_and_its_requests_are_not_sent_again(
    new_server: MakeServer, new_broker: MakeBroker
) -> None:
    first, second, broker = await two_nodes(new_server, new_broker)
    call = asyncio.ensure_future(acquiring(broker))
    asked = await first.next(frames.Q)
    asked.session.send(frames.encode_moved(second.address))
    assert (await failure(call)).kind == "indeterminate"
    await turns()
    assert asked.session.lost
    # It is the hint for the next one, and the lost one is cancelled there.
    (await second.next(frames.CANCEL)).not_held()
    call = asyncio.ensure_future(acquiring(broker))
    (await second.next(frames.Q)).busy()
    assert (await failure(call)).kind == "busy"


async def test_an_acquire_unanswered_five_seconds_after_its_wait_has_lost_its_answer(
    new_server: MakeServer, new_broker: MakeBroker, clock: Time
) -> None:
    server = await new_server()
    broker = new_broker(server)
    call = asyncio.ensure_future(acquiring(broker, wait=3))
    asked = await server.next(frames.Q)
    await clock.pass_by(7.8, server)
    assert not call.done()
    await clock.pass_by(0.4, server)
    assert (await failure(call)).kind == "indeterminate"
    await turns()
    assert asked.session.lost


async def test_an_acquire_unanswered_two_seconds_after_another_was_named_has_lost_its_answer(
    new_server: MakeServer, new_broker: MakeBroker, clock: Time
) -> None:
    for who in ("the session itself", "the new leader"):
        first, second, broker = await two_nodes(new_server, new_broker)
        call = asyncio.ensure_future(acquiring(broker, wait=100))
        asked = await first.next(frames.Q)
        teller = first if who == "the session itself" else second
        teller.tell(frames.encode_leader(second.address))
        await turns()
        await clock.pass_by(1.8, first, second)
        assert not call.done(), who
        await clock.pass_by(0.4, first, second)
        assert (await failure(call)).kind == "indeterminate", who
        await turns()
        assert asked.session.lost
        (await second.next(frames.CANCEL)).not_held()


async def test_an_l_that_names_this_node_again_ends_the_two_seconds(
    new_server: MakeServer, new_broker: MakeBroker, clock: Time
) -> None:
    first, second, broker = await two_nodes(new_server, new_broker)
    call = asyncio.ensure_future(acquiring(broker, wait=100))
    asked = await first.next(frames.Q)
    second.tell(frames.encode_leader(second.address))
    await clock.pass_by(1, first, second)
    second.tell(frames.encode_leader(first.address))
    await clock.pass_by(3, first, second)
    asked.timeout()
    assert (await failure(call)).kind == "timeout"


async def test_a_session_silent_for_ten_seconds_is_lost(
    new_server: MakeServer, new_broker: MakeBroker, clock: Time
) -> None:
    server = await new_server()
    broker = new_broker(server)
    call = asyncio.ensure_future(acquiring(broker, wait=100))
    await server.next(frames.Q)
    await clock.pass_by(30, server)
    assert not call.done()
    await clock.jump(7.5)
    assert not call.done()
    await clock.jump(1)
    assert (await failure(call)).kind == "indeterminate"


@pytest.mark.parametrize(
    "answer",
    [
        b"Z\n",
        b"G" + bytes(20) + b"key\n",
        frames.encode_timeout(1 << 63 | 5, b"key"),
        frames.encode_released(12345, b"key"),
        frames.encode_extended(12345, b"key"),
        frames.encode_not_held(1 << 63 | 5, b"key"),
        frames.encode_granted_waited(5, 1 << 63 | 5, 0, b"key"),
    ],
)
async def test_a_malformed_or_uncorrelatable_answer_ends_the_session(
    new_server: MakeServer, new_broker: MakeBroker, answer: bytes
) -> None:
    server = await new_server()
    broker = new_broker(server)
    call = asyncio.ensure_future(acquiring(broker))
    asked = await server.next(frames.Q)
    asked.session.send(answer)
    assert (await failure(call)).kind == "indeterminate"
    await turns()
    assert asked.session.lost


async def test_an_answer_for_the_right_owner_and_another_key_is_malformed(
    new_server: MakeServer, new_broker: MakeBroker
) -> None:
    server = await new_server()
    broker = new_broker(server)
    call = asyncio.ensure_future(acquiring(broker))
    asked = await server.next(frames.Q)
    asked.session.send(frames.encode_granted_waited(5, asked.ident, 0, b"other"))
    assert (await failure(call)).kind == "indeterminate"


async def test_a_grant_that_waited_longer_than_it_can_have_is_malformed(
    new_server: MakeServer, new_broker: MakeBroker
) -> None:
    server = await new_server()
    broker = new_broker(server)
    call = asyncio.ensure_future(acquiring(broker))
    asked = await server.next(frames.Q)
    asked.grant(5, waited_ms=2000)
    assert (await failure(call)).kind == "indeterminate"
    await turns()
    assert asked.session.lost


async def test_a_published_server_is_asked_with_a_and_never_with_what_it_does_not_know(
    new_server: MakeServer, new_broker: MakeBroker
) -> None:
    server = await new_server(extended=False)
    broker = new_broker(server)
    assert await broker.wait_ready(5)
    call = asyncio.ensure_future(acquiring(broker, wait=0))
    asked = await server.next(frames.ACQUIRE)
    asked.grant(5)
    ticket = await call
    assert ticket.domain is None
    release = asyncio.ensure_future(ticket.release())
    (await server.next(frames.RELEASE)).released()
    assert await release
    assert all(not session.hello for session in server.open_sessions)


async def test_a_wrong_token_is_told_as_such_everywhere(
    new_server: MakeServer, new_broker: MakeBroker
) -> None:
    server = await new_server(tokens=("right",))
    broker = new_broker(server, token="wrong")
    with pytest.raises(TicketError) as caught:
        await broker.wait_ready(5)
    assert caught.value.kind == "auth"
    error = await failure(asyncio.ensure_future(acquiring(broker)))
    assert error.kind == "auth"
    server.tokens = ("right", "wrong")
    cluster = broker._cluster
    assert cluster is not None
    await until(lambda: cluster.refusal is None)
    assert await broker.wait_ready(5)
