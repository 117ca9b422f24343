"""Hostile operators: the admin plane without and with its token."""

from __future__ import annotations

import asyncio
import time

from tests.hostile.cases import STANDALONE, STANDALONE_TLS, THREE_TLS, Case, Target
from tests.hostile.client_port import close
from tests.hostile.strangers import SOURCES, Stranger, TlsStranger, dial_all, dribble, for_seconds
from tests.hostile.tls_door import client_hello

OPERATOR_S = 10.0
"""An operator is answered within this time whatever strangers do."""
REFUSED_S = 1.0
"""A wrong token is answered after this time."""
TRICKS = (
    "/v1/status",
    "//livez",
    "/livez/",
    "/livez%2f",
    "/livez/../v1/status",
    "/livez/..%2fv1/status",
    "/LIVEZ",
    "/livez;/v1/status",
    "/%2e/livez",
    "/v1/locks/..%2f..%2flivez",
    "/v1/locks/%00",
    "/v1/%ff%fe",
    "/metrics",
)


async def dial(target: Target, source: str = "127.0.0.1") -> Stranger | TlsStranger:
    context = target.tls
    if context is None:
        return await Stranger.dial(target.node.admin, source=source)
    return await TlsStranger.dial(target.node.admin, context, source=source)


async def ask(target: Target, head: bytes, source: str = "127.0.0.1") -> bytes:
    """The beginning of the answer to raw bytes; nothing where the connection was ended without one."""
    stranger = await dial(target, source)
    try:
        await stranger.send(head)
        return await stranger.read()
    finally:
        stranger.close()


async def operator_is_served(target: Target) -> float:
    """How long a real request takes, in seconds."""
    began = time.monotonic()
    async with asyncio.timeout(OPERATOR_S):
        await target.node.ask_admin("GET", "/v1/status")
    return time.monotonic() - began


async def without_token(target: Target, seconds: float) -> str:
    def head(path: str, more: str = "") -> bytes:
        return f"GET {path} HTTP/1.1\r\nHost: x\r\n{more}Connection: close\r\n\r\n".encode()

    answers = await asyncio.gather(*(ask(target, head(path)) for path in TRICKS))
    assert all(answer.split()[1:2] == [b"401"] for answer in answers), list(zip(TRICKS, answers, strict=True))
    odd = b"GET /v1/status HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer \xff\xfe\r\nConnection: close\r\n\r\n"
    assert (await ask(target, odd)).split()[1:2] == [b"401"]

    async def once(number: int) -> None:
        token = f"Authorization: Bearer {number:064x}\r\n"
        answer = await ask(target, head("/v1/status", token), SOURCES[number % len(SOURCES)])
        assert answer.split()[1:2] in ([b"401"], []), answer

    began = time.monotonic()
    tries = await for_seconds(seconds, 40, once)
    assert tries <= 40 * (int((time.monotonic() - began) / REFUSED_S) + 1), "a wrong token is answered late"
    took = await operator_is_served(target)
    return f"{len(TRICKS)} paths, {tries} wrong tokens in {seconds:g} s, an operator was answered in {took:.2f} s"


async def no_http(target: Target, _seconds: float) -> str:
    told = (
        b"\x00\x01garbage\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /" + b"a" * 100_000,
        b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 100_000,
        b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 20_000,
        b"POST /v1/form HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
        b"POST /v1/form HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999\r\n\r\n" + b"x" * 200_000,
        b"POST /v1/form HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFF\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    )
    answers = await asyncio.gather(*(ask(target, said) for said in told * 3))
    assert not any(answer.startswith(b"HTTP/1.1 200") for answer in answers), answers
    return f"{len(answers)} requests that are none"


async def with_token(target: Target, _seconds: float) -> str:
    """Bodies that are too large, too deep, or hold numbers without end."""
    token = target.node.admin_token
    bearer = f"POST /v1/form HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n"
    bodies = (
        b"x" * 65_537,
        b"[" * 60_000,
        b'{"first_token":' + b"[" * 60_000,
        b'{"first_token": ' + b"9" * 60_000 + b"}",
        b'{"first_token": 1e999}',
        b'{"first_token": -1}',
        b'{"reason": "\\ud800"}',
        b'{"reason": "\\u001b[2J"}',
        b"\xff\xfe",
    )
    for body in bodies:
        head = f"{bearer}Content-Length: {len(body)}\r\n\r\n".encode()
        answer = await ask(target, head + body)
        assert answer.split()[1:2] in ([b"400"], [b"413"]), (body[:40], answer)
    return f"{len(bodies)} bodies"


async def slow_requests(target: Target, _seconds: float) -> str:
    """More connections than there is room for, each with a byte now and then."""
    strangers = await dial_all(target.node.admin, 100, SOURCES)
    said = client_hello(target) if target.tls is not None else b"GET /livez HTTP/1.1\r\nX: " + b"a" * 80
    tasks = [asyncio.create_task(dribble(stranger, said, 0.4)) for stranger in strangers]
    await asyncio.sleep(1)
    took = await operator_is_served(target)
    await asyncio.gather(*(stranger.ended(15) for stranger in strangers))
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    close(strangers)
    return f"{len(strangers)} connections, an operator was answered in {took:.2f} s"


async def stalled_tls(target: Target, _seconds: float) -> str:
    hello = client_hello(target)
    strangers = await dial_all(target.node.admin, 100, SOURCES)
    for stranger in strangers:
        await stranger.send(hello)
    took = await operator_is_served(target)
    close(strangers)
    return f"{len(strangers)} handshakes, an operator was answered in {took:.2f} s"


async def health_flood(target: Target, seconds: float) -> str:
    """What needs no token, asked for on 32 connections as fast as it is answered."""
    asked = b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n"
    connections = await asyncio.gather(*(dial(target) for _ in range(32)))

    async def once(number: int) -> None:
        await connections[number].send(asked)
        assert await connections[number].read(), "ended"

    times = await for_seconds(seconds, len(connections), once)
    for connection in connections:
        connection.close()
    return f"{times} requests in {seconds:g} s"


async def events_never_read(target: Target, _seconds: float) -> str:
    head = f"GET /v1/events?after=0 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {target.node.admin_token}\r\n\r\n"
    readers = await asyncio.gather(*(dial(target) for _ in range(20)))
    for reader in readers:
        await reader.send(head.encode())
    await asyncio.sleep(2)
    took = await operator_is_served(target)
    for reader in readers:
        reader.close()
    return f"20 readers that read nothing, an operator was answered in {took:.2f} s"


CASES = (
    Case("admin: without token", without_token, (STANDALONE, THREE_TLS), log="admin token refused"),
    Case("admin: no HTTP", no_http, (STANDALONE, STANDALONE_TLS), log="no HTTP request"),
    Case("admin: wrong bodies", with_token, (STANDALONE_TLS,)),
    Case("admin: slow requests", slow_requests, log="no admin request in time", waits=True),
    Case("admin: TLS that stalls", stalled_tls, (STANDALONE_TLS,), log="admin connection turned away"),
    Case("admin: health without end", health_flood, (STANDALONE_TLS,)),
    Case("admin: events that are never read", events_never_read, (STANDALONE,)),
)
