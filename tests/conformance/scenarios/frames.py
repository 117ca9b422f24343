"""What is on the wire, byte by byte (sections 2 and 3)."""

from __future__ import annotations

import asyncio

from tests.conformance import wire
from tests.conformance.play import Play, scenario
from tests.conformance.server import Session

GREATEST_TOKEN = (1 << 62) - 1
LINE_BREAKS = 0x0A0A0A0A0A0A0A0A
"""A token whose every byte is a line break."""


async def in_single_bytes(session: Session, data: bytes) -> None:
    """Mostly a segment each; a few with a pause behind them, as the whole must not take long."""
    for at, byte in enumerate(data):
        session.send(bytes([byte]))
        if at in (0, 5, len(data) - 2):
            await asyncio.sleep(0.01)


@scenario("3: `Q` wait:u16 lease:u16 owner:u64 key `\\n`")
async def an_acquire_is_a_q_frame(play: Play) -> None:
    server = await play.server()
    broker = await play.ready_broker(server)
    for key in ("k", "event:7/seat:12", "좌석:A-12", "tab\tnul\0end", "x" * 128, "é" * 64):
        acquire = broker.acquire(key, wait=255, lease=250)
        frame = (await server.next("Q")).frame
        assert frame.raw == wire.acquire("Q", 255, 250, frame.number, key.encode())
        server.log[-1].answer("T")
        assert await acquire.kind() == "timeout"


@scenario("3: to a server without `+x`: `A` wait:u16 lease:u16 owner:u64 key `\\n`")
async def an_acquire_at_a_published_server_is_an_a_frame(play: Play) -> None:
    server = await play.server(extended=False)
    broker = await play.ready_broker(server)
    acquire = broker.acquire("좌석", wait=0, lease=1)
    request = await server.next("A")
    assert request.frame.raw == wire.acquire("A", 0, 1, request.frame.number, "좌석".encode())
    request.answer("B")
    assert await acquire.kind() == "busy"


@scenario("2: owner: 63 bits from the system's random source for every request, top bit set, never re-used")
async def every_request_has_an_owner_of_its_own_with_the_top_bit_set(play: Play) -> None:
    server = await play.server(answers=lambda request: request.answer("T"))
    broker = await play.ready_broker(server)
    acquires = [broker.acquire("key") for _ in range(300)]
    for acquire in acquires:
        assert await acquire.kind() == "timeout"
    owners = [request.frame.number for request in server.log]
    assert len(set(owners)) == 300
    assert all(owner & wire.TOP_BIT for owner in owners)
    # No counter, no clock: every bit below is set about every other time.
    for bit in range(63):
        assert 75 < sum(owner >> bit & 1 for owner in owners) < 225, bit


@scenario("3: `R` token:u64 key `\\n`")
async def a_release_carries_the_exact_token(play: Play) -> None:
    server = await play.server()
    broker = await play.ready_broker(server)
    for token in (1, GREATEST_TOKEN, LINE_BREAKS, (1 << 53) + 1):
        ticket = await play.held(server, broker, token=token, key="좌석")
        assert ticket.token == token
        release = ticket.begin("release")
        request = await server.next("R")
        assert request.frame.raw == wire.numbered("R", token, "좌석".encode())
        request.answer("R")
        assert await release.answer() == {"released": True}


@scenario("3: `X` token:u64 lease:u16 key `\\n`")
async def an_extension_carries_token_and_lease(play: Play) -> None:
    server = await play.server()
    broker = await play.ready_broker(server)
    ticket = await play.held(server, broker, token=LINE_BREAKS, lease=30)
    for lease, sent in ((None, 30), (250, 250), (59.2, 60)):
        extend = ticket.begin("extend", lease_ms=None if lease is None else round(lease * 1000))
        request = await server.next("X")
        assert request.frame.raw == wire.extend(LINE_BREAKS, max(sent, request.frame.lease), b"key")
        assert request.frame.lease == sent
        request.answer("X")
        assert await extend.answer() == {"extended": True}


@scenario("3: `C` owner:u64 key `\\n`")
async def a_cancel_carries_the_owner_of_the_request(play: Play) -> None:
    server = await play.server()
    broker = await play.ready_broker(server)
    acquire = broker.acquire("좌석")
    asked = await server.next("Q")
    await acquire.drop()
    request = await server.next("C")
    assert request.frame.raw == wire.numbered("C", asked.frame.number, "좌석".encode())
    request.answer("R")


@scenario("3: headers are consumed by count (they may contain 0x0a)")
async def line_breaks_inside_headers_end_no_frame(play: Play) -> None:
    server = await play.server()
    broker = await play.ready_broker(server)
    acquire = broker.acquire(wait=60)
    request = await server.next("Q")
    # 10 ms waited: the last field of the header ends in a line break, too.
    await asyncio.sleep(0.05)
    request.grant(LINE_BREAKS, waited_ms=10)
    ticket = await acquire.ticket()
    assert ticket.token == LINE_BREAKS
    release = ticket.begin("release")
    (await server.next("R")).answer("N")
    assert await release.answer() == {"released": False}


@scenario("3: text runs to `\\n`; frames are read whatever way their bytes arrive")
async def answers_in_single_bytes_are_understood(play: Play) -> None:
    server = await play.server(keeps_alive=False)
    broker = await play.ready_broker(server)
    acquire = broker.acquire("좌석")
    request = await server.next("Q")
    await in_single_bytes(
        request.session,
        wire.KEEP_ALIVE + wire.granted_waited(LINE_BREAKS, request.frame.number, 0, "좌석".encode()),
    )
    ticket = await acquire.ticket()
    release = ticket.begin("release")
    request = await server.next("R")
    await in_single_bytes(request.session, wire.numbered("R", LINE_BREAKS, "좌석".encode()))
    assert await release.answer() == {"released": True}


@scenario("3: replies are matched by echoed id and key, never by order; requests are pipelined")
async def answers_in_any_order_find_their_requests(play: Play) -> None:
    server = await play.server()
    broker = await play.ready_broker(server)
    acquires = {f"key-{number}": broker.acquire(f"key-{number}") for number in range(200)}
    requests = [await server.next("Q") for _ in range(200)]
    session = requests[0].session
    assert all(request.session is session for request in requests)
    expected = {}
    answers = []
    for number, request in enumerate(reversed(requests)):
        key = request.frame.key
        if number % 3 == 0:
            answers.append(wire.granted_waited(1000 + number, request.frame.number, 0, key))
            expected[key.decode()] = str(1000 + number)
        else:
            opcode, kind = (("T", "timeout"), ("B", "busy"))[number % 2]
            answers.append(wire.numbered(opcode, request.frame.number, key))
            expected[key.decode()] = kind
    session.send(b"\n".join(answers))  # keep-alives between them
    for name, acquire in acquires.items():
        if expected[name].isdigit():
            ticket = await acquire.ticket()
            assert (str(ticket.token), ticket.key) == (expected[name], name)
        else:
            assert await acquire.kind() == expected[name]


@scenario("3: requests of one key under way together are told apart by their owners")
async def many_acquires_of_one_key_are_told_apart(play: Play) -> None:
    server = await play.server()
    broker = await play.ready_broker(server)
    acquires = []
    requests = []
    for _ in range(5):
        acquires.append(broker.acquire("one"))
        requests.append(await server.next("Q"))
    requests[3].grant(33)
    requests[0].answer("T")
    requests[4].answer("B")
    requests[1].grant(34)
    assert (await acquires[3].ticket()).token == 33
    assert (await acquires[1].ticket()).token == 34
    assert await acquires[0].kind() == "timeout"
    assert await acquires[4].kind() == "busy"
    assert not acquires[2].done
    requests[2].answer("T")
    assert await acquires[2].kind() == "timeout"
