"""Answers that do not come, or cannot be (section 10)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tests.conformance import wire
from tests.conformance.play import Play, now, scenario

OWNER = wire.TOP_BIT | 5
"""Of a request that nobody sent."""


@scenario(
    "10: after the first byte may have left, no reply = `indeterminate`; never re-sent; `C` for it is sent"
)
async def a_request_whose_session_ends_is_indeterminate_and_cancelled_elsewhere(play: Play) -> None:
    first, second = await play.two_nodes()
    broker = await play.ready_broker(first, second)
    acquire = broker.acquire()
    asked = await first.next("Q")
    first.refuses_connections = True
    asked.session.end()
    assert await acquire.kind() == "indeterminate"
    second.name_leader(second.address)
    cancel = await second.next("C")
    assert cancel.frame.raw == wire.numbered("C", asked.frame.number, b"key")
    cancel.answer("R")
    await second.nothing(0.5)


@scenario("10: the owner is dead from then on")
async def a_request_without_an_answer_is_never_sent_again(play: Play) -> None:
    server = await play.server()
    broker = await play.ready_broker(server)
    acquire = broker.acquire(wait=60)
    asked = await server.next("Q")
    asked.session.end()
    assert await acquire.kind() == "indeterminate"
    cancel = await server.next("C")
    assert cancel.frame.number == asked.frame.number
    cancel.answer("N")
    await server.nothing(0.7)
    again = broker.acquire(wait=60)
    request = await server.next("Q")
    assert request.frame.number != asked.frame.number
    request.answer("T")
    assert await again.kind() == "timeout"


@scenario("10: all requests of a session that ends without an answer are `indeterminate`, each cancelled")
async def every_request_of_a_lost_session_is_cancelled(play: Play) -> None:
    server = await play.server()
    broker = await play.ready_broker(server)
    acquires = [broker.acquire(f"key-{number}") for number in range(50)]
    requests = [await server.next("Q") for _ in range(50)]
    requests[0].session.end()
    for acquire in acquires:
        assert await acquire.kind() == "indeterminate"
    cancels = [await server.next("C") for _ in range(50)]
    assert {(c.frame.number, c.frame.key) for c in cancels} == {
        (r.frame.number, r.frame.key) for r in requests
    }
    for cancel in cancels:
        cancel.answer("N")


@scenario("10: an acquire unanswered 5 s after its wait is a lost reply: session closed, `indeterminate`")
async def an_acquire_unanswered_five_seconds_after_its_wait_is_indeterminate(play: Play) -> None:
    server = await play.server()
    broker = await play.ready_broker(server)
    began = now()
    acquire = broker.acquire(wait=1)
    asked = await server.next("Q")
    assert await acquire.kind() == "indeterminate"
    assert 5.9 < now() - began < 21
    await asked.session.over()
    assert (await server.next("C")).frame.number == asked.frame.number


@scenario("10: an acquire unanswered 2 s after an `L` named another node is a lost reply")
async def an_acquire_unanswered_two_seconds_after_another_leader_is_indeterminate(play: Play) -> None:
    first, second = await play.two_nodes()
    broker = await play.ready_broker(first, second)
    acquire = broker.acquire(wait=200)
    asked = await first.next("Q")
    named = now()
    first.name_leader(second.address)
    second.name_leader(second.address)
    assert await acquire.kind() == "indeterminate"
    assert 1.9 < now() - named < 18
    await asked.session.over()
    cancel = await second.next("C")
    assert cancel.frame.number == asked.frame.number
    cancel.answer("N")


@scenario("10: 2 s after an `L` named another node, said by that node alone as well")
async def the_claim_of_the_new_leader_itself_is_enough(play: Play) -> None:
    first, second = await play.two_nodes()
    broker = await play.ready_broker(first, second)
    acquire = broker.acquire(wait=200)
    asked = await first.next("Q")
    named = now()
    second.name_leader(second.address)
    assert await acquire.kind() == "indeterminate"
    assert 1.9 < now() - named < 18
    await asked.session.over()


@scenario("10: an `L` that names the node again ends the two seconds")
async def a_leader_that_is_named_again_keeps_its_requests(play: Play) -> None:
    first, second = await play.two_nodes()
    broker = await play.ready_broker(first, second)
    acquire = broker.acquire(wait=200)
    asked = await first.next("Q")
    second.name_leader(second.address)
    await asyncio.sleep(0.7)
    second.name_leader(first.address)
    first.name_leader(first.address)
    await asyncio.sleep(3)
    assert not acquire.done
    asked.answer("T")
    assert await acquire.kind() == "timeout"


@scenario("10: a session silent for 10 s is lost")
async def a_session_silent_for_ten_seconds_is_lost(play: Play) -> None:
    server = await play.server(keeps_alive=False)
    broker = await play.ready_broker(server)
    acquire = broker.acquire(wait=200)
    asked = await server.next("Q")
    assert await acquire.kind() == "indeterminate"
    # From the last byte of the server on, which was its first line.
    assert 9.8 < await asked.session.over() - asked.session.connected_at < 26


@scenario("3 Server to client: keep-alive where nothing was written for 3 s")
async def keep_alives_keep_a_session(play: Play) -> None:
    server = await play.server()
    broker = await play.ready_broker(server)
    acquire = broker.acquire(wait=200)
    asked = await server.next("Q")
    await asyncio.sleep(12.5)
    assert not acquire.done
    assert asked.session.open
    asked.answer("T")
    assert await acquire.kind() == "timeout"
    assert len(server.sessions) == 2


MALFORMED: dict[str, Callable[[int], bytes]] = {
    "an opcode that is none": lambda owner: b"Z\n",
    "a request of a client": lambda owner: wire.numbered("C", owner, b"key"),
    "a key of 129 bytes": lambda owner: wire.numbered("T", owner, b"k" * 129),
    "no key": lambda owner: wire.numbered("T", owner, b""),
    "no end": lambda owner: wire.numbered("T", owner, b"k" * 400),
    "the token 0, which stands for nobody": lambda owner: wire.granted_waited(0, owner, 0, b"key"),
    "a token out of range": lambda owner: wire.granted_waited(1 << 62, owner, 0, b"key"),
    "no address": lambda owner: b"L\n",
    "an address with a space": lambda owner: b"L127.0.0.1 5225\n",
}
"""By what is wrong with it: an answer to the request of that owner."""


@scenario("10: malformed replies end the session")
async def a_malformed_answer_ends_the_session(play: Play) -> None:
    async def malformed(what: str, answer: Callable[[int], bytes]) -> None:
        server = await play.server()
        broker = await play.ready_broker(server)
        acquire = broker.acquire()
        asked = await server.next("Q")
        asked.session.send(answer(asked.frame.number))
        assert await acquire.kind() == "indeterminate", what
        await asked.session.over()

    await asyncio.gather(*(malformed(what, answer) for what, answer in MALFORMED.items()))


UNCORRELATABLE = {
    "G": wire.granted_waited(5, OWNER, 0, b"key"),
    "A": wire.granted(5, OWNER, b"key"),
    "T": wire.numbered("T", OWNER, b"key"),
    "B": wire.numbered("B", OWNER, b"key"),
    "V": wire.numbered("V", OWNER, b"key"),
    "R of a token": wire.numbered("R", 12345, b"key"),
    "N of a token": wire.numbered("N", 12345, b"key"),
    "X": wire.numbered("X", 12345, b"key"),
    "R of an owner": wire.numbered("R", OWNER, b"key"),
    "N of an owner": wire.numbered("N", OWNER, b"key"),
}


@scenario("10: uncorrelatable replies (to what was never sent) end the session")
async def an_answer_to_nothing_that_was_sent_ends_the_session(play: Play) -> None:
    async def uncorrelatable(what: str, answer: bytes) -> None:
        server = await play.server()
        broker = await play.ready_broker(server)
        acquire = broker.acquire()
        asked = await server.next("Q")
        asked.session.send(answer)
        assert await acquire.kind() == "indeterminate", what
        await asked.session.over()

    await asyncio.gather(*(uncorrelatable(what, answer) for what, answer in UNCORRELATABLE.items()))


@scenario("3: replies are matched by echoed id and key")
async def an_answer_with_the_right_owner_and_another_key_ends_the_session(play: Play) -> None:
    server = await play.server()
    broker = await play.ready_broker(server)
    for opcode in ("G", "T", "B"):
        acquire = broker.acquire()
        asked = await server.next("Q")
        number = asked.frame.number
        wrong = b"other"
        asked.session.send(
            wire.granted_waited(5, number, 0, wrong)
            if opcode == "G"
            else wire.numbered(opcode, number, wrong)
        )
        assert await acquire.kind() == "indeterminate", opcode
        await asked.session.over()
        (await server.next("C")).answer("N")


@scenario("3: `Q` is answered by `G` where `A` would be answered by `A`")
async def a_published_grant_is_no_answer_to_a_q(play: Play) -> None:
    server = await play.server()
    broker = await play.ready_broker(server)
    acquire = broker.acquire()
    asked = await server.next("Q")
    asked.session.send(wire.granted(5, asked.frame.number, b"key"))
    assert await acquire.kind() == "indeterminate"
    await asked.session.over()


@scenario("10: a `waited` longer than 1.003 * the time since the first byte plus 2 ms is malformed")
async def a_grant_that_waited_longer_than_it_can_have_ends_the_session(play: Play) -> None:
    server = await play.server()
    broker = await play.ready_broker(server)
    acquire = broker.acquire(wait=60)
    asked = await server.next("Q")
    asked.grant(5, waited_ms=20_000)
    assert await acquire.kind() == "indeterminate"
    await asked.session.over()
    cancel = await server.next("C")
    assert cancel.frame.number == asked.frame.number
    cancel.answer("R")


@scenario("10: `waited` up to the time since the first byte is in order")
async def a_grant_that_waited_all_the_time_is_in_order(play: Play) -> None:
    server = await play.server()
    broker = await play.ready_broker(server)
    acquire = broker.acquire(wait=60)
    asked = await server.next("Q")
    await asyncio.sleep(1)
    asked.grant(5, waited_ms=1000)
    assert (await acquire.ticket()).token == 5
