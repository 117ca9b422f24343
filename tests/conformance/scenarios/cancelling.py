"""A caller that leaves: dropped futures, cancelled tasks (section 10)."""

from __future__ import annotations

import asyncio
import random

from tests.conformance import wire
from tests.conformance.play import Play, now, scenario
from tests.conformance.scenarios.waiting import NOBODY
from tests.conformance.server import Request, Server


@scenario("10: cancelling before any byte may have left: nothing sent")
async def dropped_before_it_was_sent_it_never_is(play: Play) -> None:
    server = await play.server(leader=NOBODY)
    broker = await play.broker(server)
    acquire = broker.acquire(wait=60)
    kept = broker.acquire("kept", wait=60)
    await server.opened(2)
    await acquire.drop()
    server.name_leader(server.address)
    request = await server.next("Q")
    assert request.frame.key == b"kept"
    request.answer("T")
    assert await kept.kind() == "timeout"
    await server.nothing(0.5)


@scenario(
    "10: cancelling after the first byte: `C` goes on the same session, which stays when it is answered"
)
async def dropped_after_it_was_sent_it_is_cancelled_on_its_session(play: Play) -> None:
    for answer in ("R", "N"):
        server = await play.server()
        broker = await play.ready_broker(server)
        other = broker.acquire("other", wait=60)
        unrelated = await server.next("Q")
        acquire = broker.acquire(wait=60)
        asked = await server.next("Q")
        await acquire.drop()
        cancel = await server.next("C")
        assert cancel.session is asked.session
        assert (cancel.frame.number, cancel.frame.key) == (asked.frame.number, b"key")
        cancel.answer(answer)
        await server.nothing(0.3)
        assert asked.session.open
        unrelated.answer("T")
        assert await other.kind() == "timeout"
        assert len(server.sessions) == 2


@scenario("10: that exact session generation is closed only if `C` is not answered within 3 s")
async def a_cancel_unanswered_for_three_seconds_closes_its_session(play: Play) -> None:
    server = await play.server()
    broker = await play.ready_broker(server)
    other = broker.acquire("other", wait=200)
    await server.next("Q")
    acquire = broker.acquire(wait=200)
    asked = await server.next("Q")
    dropped = now()
    await acquire.drop()
    await server.next("C")
    assert 2.8 < await asked.session.over() - dropped < 18
    assert await other.kind() == "indeterminate"


@scenario("10: a grant read meanwhile is released by its exact token")
async def a_grant_that_crosses_the_cancel_is_released_by_its_token(play: Play) -> None:
    server = await play.server()
    broker = await play.ready_broker(server)
    acquire = broker.acquire(wait=60)
    asked = await server.next("Q")
    await acquire.drop()
    cancel = await server.next("C")
    asked.grant(71)
    release = await server.next("R")
    assert release.frame.raw == wire.numbered("R", 71, b"key")
    cancel.answer("R")
    release.answer("N")
    await server.nothing(0.3)
    assert asked.session.open


@scenario("10: a grant that comes after the cancel was answered is given back as well")
async def a_grant_after_the_answer_to_the_cancel_is_released(play: Play) -> None:
    server = await play.server()
    broker = await play.ready_broker(server)
    acquire = broker.acquire(wait=60)
    asked = await server.next("Q")
    await acquire.drop()
    (await server.next("C")).answer("R")
    asked.grant(72)
    release = await server.next("R")
    assert release.frame.raw == wire.numbered("R", 72, b"key")
    release.answer("R")
    assert asked.session.open


@scenario("10: a reply to an owner that this session sent and gave up is no fault: dropped")
async def late_answers_to_a_cancelled_request_are_dropped(play: Play) -> None:
    for late in ("T", "B", "V"):
        server = await play.server()
        broker = await play.ready_broker(server)
        acquire = broker.acquire(wait=60)
        asked = await server.next("Q")
        await acquire.drop()
        cancel = await server.next("C")
        asked.answer(late)
        cancel.answer("N")
        await asyncio.sleep(0.2)
        assert asked.session.open, late
        if late == "V":
            server.name_leader(server.address)
        again = broker.acquire(wait=60)
        (await server.next("Q")).answer("B")
        assert await again.kind() == "busy"


@scenario(
    "5: `C` while it waits is answered `R` at once; an answer to the request itself after that is dropped"
)
async def an_answer_after_the_cancels_own_is_dropped(play: Play) -> None:
    server = await play.server()
    broker = await play.ready_broker(server)
    acquire = broker.acquire(wait=60)
    asked = await server.next("Q")
    await acquire.drop()
    (await server.next("C")).answer("R")
    asked.answer("T")
    await asyncio.sleep(0.2)
    assert asked.session.open


@scenario("rust-library: with a server that knows no cancel a possibly sent request closes its session")
async def at_a_published_server_the_session_is_closed(play: Play) -> None:
    server = await play.server(extended=False)
    broker = await play.ready_broker(server)
    acquire = broker.acquire(wait=60)
    asked = await server.next("A")
    await acquire.drop()
    await asked.session.over()
    await server.nothing(0.3)


@scenario("10: in the background `C` goes on, however often")
async def a_hundred_dropped_at_once_are_all_cancelled(play: Play) -> None:
    server = await play.server()
    broker = await play.ready_broker(server)
    acquires = [broker.acquire(f"key-{number}", wait=60) for number in range(100)]
    requests = [await server.next("Q") for _ in range(100)]
    await asyncio.gather(*(acquire.drop() for acquire in acquires))
    cancels = [await server.next("C") for _ in range(100)]
    assert {cancel.frame.number for cancel in cancels} == {request.frame.number for request in requests}
    for cancel in cancels:
        cancel.answer("R")
    await server.nothing(0.3)
    assert len(server.sessions) == 2


@scenario(
    "10: a grant read, or read and not yet returned, when its caller leaves is released by its exact token"
)
async def whenever_a_caller_leaves_nothing_stays_held(play: Play) -> None:
    rng = random.Random(7)
    held: dict[int, Request] = {}
    cancelled: set[int] = set()
    tokens = iter(range(1, 10_000))

    def serve(server: Server) -> None:
        def on(request: Request) -> None:
            number = request.frame.number
            if request.frame.opcode == "Q":
                if number in cancelled:
                    request.answer("T")
                    return
                token = next(tokens)
                held[token] = request
                request.grant(token)
            elif request.frame.opcode == "R":
                request.answer("R" if held.pop(number, None) else "N")
            else:
                assert request.frame.opcode == "C"
                cancelled.add(number)
                found = [token for token, owner in held.items() if owner.frame.number == number]
                for token in found:
                    del held[token]
                request.answer("R" if found else "N")

        server.answers = on

    server = await play.server()
    serve(server)
    broker = await play.ready_broker(server)

    async def caller(number: int) -> None:
        for _ in range(10):
            acquire = broker.acquire(f"key-{number}", wait=60)
            for _ in range(rng.randrange(4)):
                await asyncio.sleep(rng.choice((0, 0.0005, 0.002)))
            if await acquire.dropped_or_granted():
                await (await acquire.ticket()).abandon()

    await asyncio.gather(*map(caller, range(20)))
    await server.until(lambda: not held, "everything given back")
    assert len(server.sessions) == 2
