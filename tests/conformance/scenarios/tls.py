"""The four TLS modes, and no way back from any of them (sections 3 and 10)."""

from __future__ import annotations

import ssl

import pytest

from tests.conformance.library import CallError
from tests.conformance.play import Play, now, scenario
from tests.conformance.server import Server
from tests.server.certificates import Authority


def context(authority: Authority, name: str = "127.0.0.1") -> ssl.SSLContext:
    """What a server shows."""
    files = authority.issue(f"server-{name}", name)
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(files.certificate, files.key)
    return made


def heard_nothing(server: Server) -> bool:
    """Not one byte of the protocol reached the server."""
    return not any(session.received for session in server.sessions)


@scenario("10: tls = CA path")
async def a_ca_file_is_what_is_trusted(play: Play) -> None:
    authority = play.authority()
    server = await play.server(tls=context(authority), tokens=("secret",))
    broker = await play.ready_broker(server, tls=str(authority.ca), token="secret")
    ticket = await play.held(server, broker)
    release = ticket.begin("release")
    (await server.next("R")).answer("R")
    assert await release.answer() == {"released": True}


@scenario("10: tls = CA path; 3: never fall back from TLS")
async def a_certificate_of_another_authority_is_refused(play: Play) -> None:
    authority, other = play.authority(), play.authority("other")
    server = await play.server(tls=context(other))
    broker = await play.broker(server, tls=str(authority.ca))
    assert await broker.acquire().kind() == "io"
    assert not await broker.ready(0.2)
    assert heard_nothing(server)


@scenario("10: tls = CA path: the name is verified as well")
async def a_certificate_for_another_name_is_refused(play: Play) -> None:
    authority = play.authority()
    server = await play.server(tls=context(authority, "127.0.0.9"))
    broker = await play.broker(server, tls=str(authority.ca))
    assert await broker.acquire().kind() == "io"
    assert heard_nothing(server)


@scenario("10: tls = system-roots")
async def the_systems_roots_do_not_trust_a_private_authority(play: Play) -> None:
    server = await play.server(tls=context(play.authority()))
    broker = await play.broker(server, tls="system-roots")
    assert await broker.acquire().kind() == "io"
    assert heard_nothing(server)


@scenario("10: tls = insecure-skip-verify")
async def without_verification_any_certificate_will_do(play: Play) -> None:
    server = await play.server(tls=context(play.authority(), "elsewhere.example"))
    broker = await play.ready_broker(server, tls="insecure-skip-verify")
    acquire = broker.acquire()
    (await server.next("Q")).answer("B")
    assert await acquire.kind() == "busy"


@scenario("3 Handshake: never fall back from TLS")
async def a_client_with_tls_never_speaks_plainly(play: Play) -> None:
    authority = play.authority()
    for mode in (str(authority.ca), "insecure-skip-verify"):
        server = await play.server(deaf=True)
        broker = await play.broker(server, tls=mode)
        assert await broker.acquire(wait=1).kind() == "timeout"
        await server.session(3)
        for session in server.sessions:
            # A TLS record, or nothing.
            assert not session.received or session.received[0] == 0x16, session.received


@scenario("3 Handshake: a client without TLS sends nothing to a server with it")
async def a_client_without_tls_says_nothing_to_a_server_with_it(play: Play) -> None:
    server = await play.server(tls=context(play.authority()))
    broker = await play.broker(server)
    assert await broker.acquire(wait=1).kind() == "timeout"
    assert heard_nothing(server)


@scenario("10: TLS that cannot be set up is `io`")
async def a_ca_file_that_cannot_be_used_is_io_when_the_broker_is_made(play: Play) -> None:
    empty = play.path("empty.pem")
    empty.write_text("nothing")
    for path in (play.path("missing.pem"), empty):
        with pytest.raises(CallError) as caught:
            await play.broker(addrs=["127.0.0.1:1"], tls=str(path))
        assert caught.value.kind == "io"


@scenario("10 Deadlines: TLS has 3 s")
async def a_tls_handshake_that_stands_still_is_left_after_three_seconds(play: Play) -> None:
    # It accepts, and says nothing: no ServerHello ever comes.
    server = await play.server(silent=True, deaf=True)
    broker = await play.broker(server, tls="insecure-skip-verify")
    began = now()
    assert not await broker.ready(0)
    assert 2.9 < await (await server.session()).over() - began < 15
