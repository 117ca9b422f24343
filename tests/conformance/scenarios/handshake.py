"""Banner, response, first line (section 3)."""

from __future__ import annotations

import asyncio

from tests.conformance import wire
from tests.conformance.play import Play, now, scenario
from tests.conformance.scenarios.frames import in_single_bytes
from tests.conformance.server import DOMAIN, Session


@scenario("3 Handshake: base64url_nopad(SHA-256(token_utf8 || nonce_ascii))")
async def the_response_is_the_digest_of_token_and_nonce(play: Play) -> None:
    for token in ("", "secret", "비밀 ☂"):
        server = await play.server(tokens=(token,))
        await play.ready_broker(server, token=token)
        for session in server.sessions:
            assert session.response == wire.digest(token, session.nonce)


@scenario("3 Handshake: the server speaks first")
async def nothing_is_sent_before_the_banner(play: Play) -> None:
    server = await play.server(silent=True)
    broker = await play.broker(server)
    ready = broker.begin("wait_ready", timeout_ms=15_000)
    session = await server.session()
    await asyncio.sleep(0.5)
    assert not session.received
    assert not ready.done
    server.silent = False
    session.send(session.usual_banner())
    assert await ready.answer() == {"ready": True}


@scenario("3 Handshake: a client knows that it is in, and where the leader is, before it sends anything")
async def no_frame_is_sent_before_the_first_line(play: Play) -> None:
    server = await play.server(holds_first_line=True)
    broker = await play.broker(server)
    acquire = broker.acquire()
    session = await server.session()
    await server.until(lambda: session.response is not None, "the response")
    await server.nothing(0.5)
    assert bytes(session.received) == session.response
    assert not await broker.ready(0)
    session.first_line()
    (await server.next("Q")).answer("T")
    assert await acquire.kind() == "timeout"


@scenario("3 Handshake: refuse a banner that does not start with TICKETING/")
async def a_banner_of_another_protocol_is_refused(play: Play) -> None:
    for banner in (
        b"HTTP/1.1 400 Bad Request\r\n",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"ticketing/1 0123456789abcdef\n",
    ):
        server = await play.server(banner=banner)
        broker = await play.broker(server)
        assert await broker.acquire().kind() == "protocol"
        assert await (await server.session()).over()
        assert not any(session.received for session in server.sessions)


@scenario("3 Handshake: refuse a nonce under 16 characters")
async def a_nonce_of_fewer_than_sixteen_characters_is_refused(play: Play) -> None:
    server = await play.server(banner=b"TICKETING/1+x+d=%s 0123456789abcde\n" % DOMAIN.encode())
    broker = await play.broker(server)
    assert await broker.acquire().kind() == "protocol"
    assert not any(session.received for session in server.sessions)


@scenario("3 Handshake: a nonce of 16 characters is enough")
async def a_nonce_of_sixteen_characters_is_answered(play: Play) -> None:
    nonce = "0123456789abcdef"
    server = await play.server(banner=f"TICKETING/1 {nonce}\n".encode(), extended=False)
    broker = await play.broker(server, token="t")
    assert await broker.ready()
    assert server.sessions[0].response == wire.digest("t", nonce)


@scenario("3 Handshake: a banner has at most 256 bytes")
async def a_banner_without_end_is_refused(play: Play) -> None:
    server = await play.server(banner=b"TICKETING/1 " + b"x" * 300)
    broker = await play.broker(server)
    assert await broker.acquire().kind() == "protocol"
    assert not any(session.received for session in server.sessions)


@scenario("3 Handshake: fields of a banner that are not known are passed over")
async def a_later_version_of_the_banner_is_understood(play: Play) -> None:
    def banner(session: Session) -> bytes:
        return session.usual_banner().replace(b"TICKETING/1+x", b"TICKETING/2+y+z=1:2+x")

    server = await play.server(banner=banner)
    broker = await play.ready_broker(server)
    acquire = broker.acquire()
    (await server.next("Q")).answer("B")
    assert await acquire.kind() == "busy"


@scenario("3 Handshake: lines are read whatever way their bytes arrive")
async def a_handshake_in_single_bytes_is_understood(play: Play) -> None:
    server = await play.server(silent=True, holds_first_line=True)
    broker = await play.broker(server)
    acquire = broker.acquire()
    session = await server.session()

    await in_single_bytes(session, session.usual_banner())
    await server.until(lambda: session.response is not None, "the response")
    await in_single_bytes(session, wire.text("L", server.address))
    (await server.next("Q")).answer("B")
    assert await acquire.kind() == "busy"


@scenario("3 Handshake: bytes after the answer in the same segment are frames")
async def frames_in_the_segment_of_the_first_line_count(play: Play) -> None:
    server = await play.server(behind_first_line=wire.KEEP_ALIVE + wire.text("E", "shutting_down"))
    broker = await play.broker(server)
    await broker.ready(0)
    await server.until(lambda: not server.behind_first_line, "a first line")
    await server.until(lambda: any(session.ended.is_set() for session in server.sessions), "its end")
    await server.opened(2)
    acquire = broker.acquire()
    (await server.next("Q")).answer("B")
    assert await acquire.kind() == "busy"


@scenario("10: `auth` if every address refused")
async def a_token_that_every_address_refuses_is_auth(play: Play) -> None:
    servers = [await play.server(tokens=("right",)) for _ in range(2)]
    broker = await play.broker(*servers, token="wrong")
    assert (await broker.begin("wait_ready", timeout_ms=15_000).failure()).kind == "auth"
    assert await broker.acquire().kind() == "auth"
    assert await broker.acquire(wait=0).kind() == "auth"
    assert not any(server.log for server in servers)


@scenario("10: `auth` if every address refused")
async def one_address_that_takes_the_token_is_enough(play: Play) -> None:
    refusing = await play.server(tokens=("other",))
    accepting = await play.server(tokens=("this",))
    broker = await play.broker(refusing, accepting, token="this")
    assert await broker.ready()
    acquire = broker.acquire()
    (await accepting.next("Q")).answer("B")
    assert await acquire.kind() == "busy"
    assert not refusing.log


@scenario("10: a token that is accepted later is used without a new broker")
async def a_token_that_is_taken_later_ends_the_refusal(play: Play) -> None:
    server = await play.server(tokens=("new",))
    broker = await play.broker(server, token="old")
    assert await broker.acquire().kind() == "auth"
    server.tokens = ("new", "old")
    sessions = await server.opened(2)
    # The hello comes after the first line was read; until then the refusal stands.
    await server.until(lambda: any(session.hello for session in sessions), "a hello")
    assert await broker.ready()


@scenario("10 Deadlines: the banner has 3 s")
async def a_silent_server_is_left_after_three_seconds(play: Play) -> None:
    server = await play.server(silent=True)
    broker = await play.broker(server)
    began = now()
    await broker.ready(0)
    assert 2.9 < await (await server.session()).over() - began < 15


@scenario("10 Deadlines: the first line has 3 s")
async def a_server_without_first_line_is_left_after_three_seconds(play: Play) -> None:
    server = await play.server(holds_first_line=True)
    broker = await play.broker(server)
    began = now()
    await broker.ready(0)
    session = await server.session()
    assert 2.9 < await session.over() - began < 15
    assert session.response is not None


@scenario("3 Client to server: H tells who I am, in at most 64 bytes")
async def the_program_tells_its_name(play: Play) -> None:
    server = await play.server()
    await play.ready_broker(server, name="shop-A")
    session = server.sessions[0]
    await server.until(lambda: bool(session.hello), "a hello")
    assert session.hello.startswith(b"Hshop-A")
    assert len(session.hello) <= 1 + 64 + 1
    long_server = await play.server()
    await play.ready_broker(long_server, name="긴" * 100)
    session = long_server.sessions[0]
    await server.until(lambda: bool(session.hello), "a hello")
    assert len(session.hello) <= 1 + 64 + 1
    assert session.hello[1:-1].decode()


@scenario("3: `Q C X H G V` only where the banner says `+x`")
async def a_published_server_is_told_nothing_that_it_does_not_know(play: Play) -> None:
    server = await play.server(extended=False)
    broker = await play.ready_broker(server)
    acquire = broker.acquire()
    request = await server.next("A")
    request.grant(5)
    ticket = await acquire.ticket()
    assert ticket.domain is None
    release = ticket.begin("release")
    (await server.next("R")).answer("R")
    assert await release.answer() == {"released": True}
    for session in server.sessions:
        assert not session.hello
