"""A server that says what a test tells it to, over real sockets; and a clock that a test moves."""

from __future__ import annotations

import asyncio
import itertools
import socket
import ssl
import time
from collections.abc import Callable
from typing import NamedTuple

from ticketing.protocol import frames
from ticketing.protocol.decoder import RequestDecoder
from ticketing.protocol.handshake import OK, Banner, ServerHandshake, build_banner, first_line, new_nonce

FIRST_TOKEN = 1_700_000_000 << 20
DOMAIN = f"{FIRST_TOKEN}.00000000000000aa"
OWN = "own"
"""In place of an address: the server's own."""


class Time:
    """Elapsed clock and loop clock in one, both real plus what the test adds."""

    def __init__(self) -> None:
        self._added_ns = 0
        self._loop = asyncio.get_running_loop()
        real = self._loop.time
        self._loop.time = lambda: real() + self._added_ns / 1e9  # type: ignore[method-assign]

    def now_ns(self) -> int:
        return time.monotonic_ns() + self._added_ns

    async def jump(self, seconds: float) -> None:
        """Moves on at once: nobody hears anything meanwhile."""
        self._added_ns += round(seconds * 1e9)
        await turns()

    async def pass_by(self, seconds: float, *servers: Server) -> None:
        """Moves on in steps, between which the servers send their keep-alives."""
        left = seconds
        while left > 0:
            step = min(left, 2.0)
            for server in servers:
                server.keep_alive()
            await turns()
            await self.jump(step)
            left -= step


async def turns(count: int = 12) -> None:
    """Lets everybody do what can be done now, sockets included."""
    for _ in range(count):
        await asyncio.sleep(0)
    await asyncio.sleep(0.002)
    for _ in range(count):
        await asyncio.sleep(0)


async def until(condition: Callable[[], bool]) -> None:
    """Waits, in real time, for what others do; fails after ten seconds."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.001)


class Asked(NamedTuple):
    """A request, and the session that it came by."""

    session: ServerSession
    opcode: int
    wait: int
    lease: int
    ident: int
    key: bytes

    def grant(self, token: int, waited_ms: int = 0) -> None:
        if self.opcode == frames.Q:
            self.session.send(frames.encode_granted_waited(token, self.ident, waited_ms, self.key))
        else:
            assert self.opcode == frames.ACQUIRE
            self.session.send(frames.encode_granted(token, self.ident, self.key))

    def timeout(self) -> None:
        self.session.send(frames.encode_timeout(self.ident, self.key))

    def busy(self) -> None:
        self.session.send(frames.encode_busy(self.ident, self.key))

    def not_leading(self) -> None:
        self.session.send(frames.encode_not_leading(self.ident, self.key))

    def released(self) -> None:
        self.session.send(frames.encode_released(self.ident, self.key))

    def not_held(self) -> None:
        self.session.send(frames.encode_not_held(self.ident, self.key))

    def extended(self) -> None:
        self.session.send(frames.encode_extended(self.ident, self.key))


class ServerSession(asyncio.Protocol):
    """One connection as the server has it."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.open = False
        self.lost = False
        self.mute = False
        """What it says is lost on the way."""
        self.hello = b""
        self._decoder = RequestDecoder()
        self._transport: asyncio.Transport | None = None
        self._handshake: ServerHandshake | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        server = self.server
        server.sessions.append(self)
        server.connections += 1
        if server.refuse_connections:
            transport.abort()
            return
        nonce = new_nonce(next(server.nonces).to_bytes(32, "big"))
        banner = server.banner or build_banner(
            Banner(
                nonce,
                extended=server.extended,
                standalone=server.standalone,
                domain=server.domain if server.extended else None,
                node_address=server.address if server.extended else None,
            )
        )
        self._handshake = ServerHandshake(banner, nonce, server.tokens)
        if not server.silent:
            transport.write(banner)

    def data_received(self, data: bytes) -> None:
        if not self.open:
            assert self._handshake is not None
            self._handshake.feed(data)
            if self._handshake.outcome is None:
                return
            if self._handshake.outcome != OK:
                self.send(frames.encode_error(frames.AUTH_FAILED))
                self.end()
                return
            self.open = True
            if self.server.extended and not self.server.hold_first_line:
                leader = self.server.leader
                self.send(first_line(self.server.address if leader == OWN else leader))
            data = self._handshake.rest
        assert self._transport is not None
        for opcode, wait, lease, ident, key in self._decoder.feed(data):
            if self._transport.is_closing():
                return  # what stood behind the request that ended the session is not looked at
            if opcode == frames.HELLO:
                self.hello = key
                continue
            self.server.asked(Asked(self, opcode, wait, lease, ident, key))
        assert self._decoder.problem is None, self._decoder.detail

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        self.open = False
        self.server.sessions.remove(self)

    def send(self, data: bytes) -> None:
        assert self._transport is not None
        if not self.mute:
            self._transport.write(data)

    def end(self) -> None:
        assert self._transport is not None
        self._transport.close()

    def pause_reading(self) -> None:
        assert self._transport is not None
        self._transport.pause_reading()


class Server:
    """Listens on a free port of loopback. By default it leads, accepts anybody and answers nothing."""

    def __init__(self) -> None:
        self.address = ""
        self.extended = True
        self.standalone = False
        self.domain: str | None = DOMAIN
        self.leader: str | None = OWN
        self.tokens: tuple[str, ...] = ()
        self.tls: ssl.SSLContext | None = None
        self.banner: bytes | None = None
        self.silent = False
        self.hold_first_line = False
        self.refuse_connections = False
        self.sessions: list[ServerSession] = []
        self.connections = 0
        self.nonces = itertools.count(1)
        self.log: list[Asked] = []
        self.answer: Callable[[Asked], None] | None = None
        self._inbox: asyncio.Queue[Asked] = asyncio.Queue()
        self._server: asyncio.Server | None = None

    async def start(self, port: int = 0) -> None:
        loop = asyncio.get_running_loop()
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("127.0.0.1", port))
        # Inherited by what is accepted: a client soon feels that nothing is read.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
        self._server = await loop.create_server(lambda: ServerSession(self), sock=sock, ssl=self.tls)
        host, bound = sock.getsockname()
        self.address = f"{host}:{bound}"

    async def stop(self) -> None:
        """Stops listening and ends all sessions."""
        assert self._server is not None
        self._server.close()
        for session in list(self.sessions):
            session.end()
        await turns()

    def asked(self, asked: Asked) -> None:
        self.log.append(asked)
        if self.answer is not None:
            self.answer(asked)
        else:
            self._inbox.put_nowait(asked)

    async def next(self, opcode: int | None = None) -> Asked:
        """The next request; of that kind, or the test fails."""
        async with asyncio.timeout(10):
            asked = await self._inbox.get()
        assert opcode in (None, asked.opcode), asked
        return asked

    @property
    def quiet(self) -> bool:
        return self._inbox.empty()

    def tell(self, data: bytes) -> None:
        """To all open sessions."""
        for session in list(self.sessions):
            if session.open:
                session.send(data)

    def keep_alive(self) -> None:
        self.tell(frames.KEEPALIVE)

    @property
    def open_sessions(self) -> list[ServerSession]:
        return [session for session in self.sessions if session.open]
