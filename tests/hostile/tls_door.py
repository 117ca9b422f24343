"""Hostile TLS on the client port."""

from __future__ import annotations

import asyncio
import ctypes
import ssl

from tests.hostile.cases import STANDALONE_TLS, THREE_TLS, TLS, Case, Target
from tests.hostile.client_port import close
from tests.hostile.strangers import SOURCES, Stranger, TlsStranger, dial_all, for_seconds
from ticketing.protocol.fields import split_address
from ticketing.server.tls import TlsStream


def client_hello(target: Target) -> bytes:
    context = target.tls
    assert context is not None
    stream = TlsStream(context, dialled_host=split_address(target.node.client)[0])
    stream.advance(b"")
    return stream.outgoing()


async def stalled_handshakes(target: Target, _seconds: float) -> str:
    """Half of them begin and never go on, half send half a record."""
    hello = client_hello(target)
    strangers = await dial_all(target.node.client, 300, SOURCES[4:6])
    for number, stranger in enumerate(strangers):
        await stranger.send(hello if number % 2 else hello[:100])
    session = await target.session()
    session.close()
    await asyncio.gather(*(stranger.ended() for stranger in strangers))
    close(strangers)
    return f"{len(strangers)} handshakes; a client came in meanwhile"


async def hellos(target: Target, address: str, at_once: int, seconds: float) -> str:
    """TLS handshakes that are begun and left, so many at once."""
    hello = client_hello(target)

    async def once(number: int) -> None:
        with await Stranger.dial(address, source=SOURCES[number % len(SOURCES)]) as stranger:
            await stranger.send(hello)
            await stranger.read(2)
            stranger.reset()

    return f"{await for_seconds(seconds, at_once, once)} handshakes in {seconds:g} s"


async def handshake_flood(target: Target, seconds: float) -> str:
    return await hellos(target, target.node.client, 64, seconds)


async def endless_first_record(target: Target, _seconds: float) -> str:
    strangers = await dial_all(target.node.client, 200, SOURCES[:2])
    said = b"\x16\x03\x01\x40\x00" + bytes(250_000)
    await asyncio.gather(*(stranger.send(said, 2) for stranger in strangers))
    close(strangers)
    return f"{len(strangers)} times 250 kB"


async def key_updates(target: Target, _seconds: float) -> str:
    """TLS 1.3 lets either side renew its keys at any time; each time costs the other one tens of microseconds."""
    context = target.tls
    assert context is not None

    async def one(number: int) -> None:
        stranger = await TlsStranger.dial(target.node.client, context, source=SOURCES[number % 4])
        try:
            await stranger.line()
            await stranger.plain.send(many_key_updates(stranger.stream, 4_000), 3)
            await stranger.ended()
        finally:
            stranger.close()

    for _ in range(5):
        await asyncio.gather(*(one(number) for number in range(4)))
    return "20 connections with 4,000 key updates each"


def many_key_updates(stream: TlsStream, count: int) -> bytes:
    """The ciphertext of as many key updates that ask for an answer (Python's `ssl` has no call for them)."""
    library = _openssl()
    inner: object = stream._object._sslobj  # type: ignore[attr-defined]
    # CPython's PySSLSocket: the object's head of two words, a weak reference, and the SSL.
    pointer = ctypes.c_void_p.from_address(id(inner) + 3 * ctypes.sizeof(ctypes.c_void_p)).value
    for _ in range(count):
        assert library.SSL_key_update(ctypes.c_void_p(pointer), 1) == 1
        library.SSL_do_handshake(ctypes.c_void_p(pointer))
    return stream.outgoing()


def _openssl() -> ctypes.CDLL:
    import _ssl

    return ctypes.CDLL(_ssl.__file__)


def can_update_keys() -> bool:
    """Whether OpenSSL can be reached beside Python's `ssl`: a shared one that knows TLS 1.3."""
    try:
        return ssl.HAS_TLSv1_3 and hasattr(_openssl(), "SSL_key_update")
    except (ImportError, OSError, AttributeError):
        return False


CASES = (
    Case("tls: handshakes that stall", stalled_handshakes, TLS, log="handshake took too long", waits=True),
    Case("tls: a flood of handshakes", handshake_flood, (THREE_TLS,)),
    Case("tls: a first record without end", endless_first_record, (STANDALONE_TLS,), log="not a TLS client"),
    *(
        (Case("tls: key updates", key_updates, (STANDALONE_TLS,), log="TLS with a client failed"),)
        if can_update_keys()
        else ()
    ),
)
