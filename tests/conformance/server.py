"""A server that speaks the wire and does as a scenario tells it, misbehaviour included."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import secrets
import socket
import ssl
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from tests.conformance import wire
from tests.conformance.wire import Frame

FIRST_TOKEN = 1_700_000_000 << 20
DOMAIN = f"{FIRST_TOKEN}.00000000000000aa"
OWN = "own"
"""In place of an address: the server's own."""
NEXT_S = 30.0
"""What a client does at once is there by then, however busy the machine is."""
KEEP_ALIVE_S = 3.0


class Request(NamedTuple):
    """A frame of a client, the session that it came by, and when."""

    session: Session
    frame: Frame
    at: float

    def grant(self, token: int, waited_ms: int = 0) -> None:
        """`G`, or `A` where `A` was asked."""
        number, key = self.frame.number, self.frame.key
        if self.frame.opcode == "Q":
            self.session.send(wire.granted_waited(token, number, waited_ms, key))
        else:
            assert self.frame.opcode == "A", self.frame
            self.session.send(wire.granted(token, number, key))

    def answer(self, opcode: str) -> None:
        """`T`, `B`, `V` to an acquire; `R`, `N` to a release or a cancel; `X`, `N` to an extension.

        A release or a cancel that comes again, as its answer was slow on a busy machine, gets the same answer.
        """
        if self.frame.opcode in "RC":
            self.session.server.answered[self.frame.raw] = opcode
        self.session.send(wire.numbered(opcode, self.frame.number, self.frame.key))


class Session(asyncio.Protocol):
    """One connection as the server has it."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.nonce = base64.urlsafe_b64encode(secrets.token_bytes(32)).rstrip(b"=").decode()
        self.response: bytes | None = None
        self.hello = b""
        self.received = bytearray()
        """Every byte that the client sent."""
        self.connected_at = time.monotonic()
        self.ended_at = 0.0
        self.ended = asyncio.Event()
        self.opened = asyncio.Event()
        """The first line was sent."""
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None

    @property
    def open(self) -> bool:
        """Between the first line and the end."""
        return self.opened.is_set() and not self.ended.is_set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        server = self.server
        server.sessions.append(self)
        server.changed.set()
        if server.refuses_connections:
            transport.abort()
        elif not server.silent:
            self.send(
                server.banner(self) if callable(server.banner) else server.banner or self.usual_banner()
            )

    def usual_banner(self) -> bytes:
        """As section 3 has it."""
        server = self.server
        head = "TICKETING/1"
        if server.extended:
            head += "+x"
            head += "+s" if server.standalone else ""
            head += f"+d={server.domain}" if server.domain else ""
            head += f"+n={server.address}"
        return f"{head} {self.nonce}\n".encode()

    def data_received(self, data: bytes) -> None:
        self.received += data
        self.server.changed.set()
        if self.server.deaf:
            return
        self._buffer += data
        if self.response is None:
            line, newline, rest = bytes(self._buffer).partition(b"\n")
            if not newline:
                return
            self.response = line + newline
            self._buffer = bytearray(rest)
            if self.server.tokens and not any(
                wire.digest(token, self.nonce) == self.response for token in self.server.tokens
            ):
                self.send(wire.text("E", "auth_failed"))
                self.end()
                return
            if not self.server.holds_first_line:
                self.first_line()
        try:
            frames = wire.frames(self._buffer)
        except ValueError as error:
            self.server.fault = str(error)
            self.end()
            return
        for frame in frames:
            if frame.opcode == "H":
                self.hello = frame.raw
            elif frame.opcode != "\n":
                self.server.take(Request(self, frame, time.monotonic()))

    def first_line(self) -> None:
        """The client is in. Published servers say nothing."""
        server = self.server
        if server.extended:
            leader = server.address if server.leader == OWN else server.leader
            self.send((wire.text("L", leader) if leader else b"\n") + server.behind_first_line)
            server.behind_first_line = b""
        self.opened.set()
        server.changed.set()

    def eof_received(self) -> None:
        # Under TLS the transport would wait for a farewell that not every client sends.
        self._over()

    def connection_lost(self, exc: Exception | None) -> None:
        self._over()

    def _over(self) -> None:
        if not self.ended.is_set():
            self.ended_at = time.monotonic()
            self.ended.set()
            self.server.changed.set()

    def send(self, data: bytes) -> None:
        """Writes these bytes; nothing where the connection is gone."""
        assert self._transport is not None
        if not self.ended.is_set():
            self._transport.write(data)

    def end(self) -> None:
        """Closes the connection."""
        assert self._transport is not None
        self._transport.close()

    async def over(self, within_s: float = NEXT_S) -> float:
        """Waits for the end of the connection; when that was."""
        async with asyncio.timeout(within_s):
            await self.ended.wait()
        return self.ended_at


class Server:
    """Listens on a free port of loopback. By default it leads, accepts anybody, and answers what it is told to."""

    def __init__(self, **options: Any) -> None:
        self.address = ""
        self.extended = True
        """`+x`"""
        self.standalone = False
        self.domain: str | None = DOMAIN
        self.leader: str | None = OWN
        self.tokens: tuple[str, ...] = ()
        self.tls: ssl.SSLContext | None = None
        self.banner: bytes | Callable[[Session], bytes] | None = None
        self.silent = False
        """Sends no banner."""
        self.deaf = False
        """Keeps what it hears and understands none of it."""
        self.holds_first_line = False
        self.behind_first_line = b""
        """Goes out in one piece with the next first line."""
        self.refuses_connections = False
        self.keeps_alive = True
        self.answers: Callable[[Request], None] | None = None
        """Where it is set, requests go there and not to `next`."""
        for name, value in options.items():
            assert hasattr(self, name), name
            setattr(self, name, value)
        self.sessions: list[Session] = []
        self.log: list[Request] = []
        self.answered: dict[bytes, str] = {}
        """Releases and cancels that were answered."""
        self.fault = ""
        """What a client sent that no client may send."""
        self._inbox: asyncio.Queue[Request] = asyncio.Queue()
        self._listening: asyncio.Server | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self.changed = asyncio.Event()
        """Set whenever a connection comes, says something, or ends."""

    async def start(self) -> None:
        """Listens."""
        sock = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{sock.getsockname()[1]}"
        loop = asyncio.get_running_loop()
        self._listening = await loop.create_server(
            lambda: Session(self), sock=sock, ssl=self.tls, ssl_shutdown_timeout=1 if self.tls else None
        )
        self._tasks.append(asyncio.create_task(self._keep_alive()))

    async def stop(self) -> None:
        """Stops listening and ends all connections."""
        for task in self._tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        self._tasks.clear()
        if self._listening is not None:
            self._listening.close()
            self._listening = None
        for session in self.sessions:
            session.end()

    async def _keep_alive(self) -> None:
        while True:
            await asyncio.sleep(KEEP_ALIVE_S)
            if self.keeps_alive:  # never in the middle of what a scenario writes byte by byte
                self.tell(wire.KEEP_ALIVE)

    def take(self, request: Request) -> None:
        """A request was read."""
        self.log.append(request)
        if request.frame.raw in self.answered:
            request.answer(self.answered[request.frame.raw])
            return
        if self.answers is not None:
            self.answers(request)
        else:
            self._inbox.put_nowait(request)

    async def next(self, opcode: str, within_s: float = NEXT_S) -> Request:
        """The next request, which must be of this kind."""
        async with asyncio.timeout(within_s):
            request = await self._unanswered()
        assert request.frame.opcode == opcode, f"{opcode} was expected: {request.frame}"
        return request

    async def _unanswered(self) -> Request:
        request = await self._inbox.get()
        while request.frame.raw in self.answered:  # it came twice before it was answered
            request.answer(self.answered[request.frame.raw])
            request = await self._inbox.get()
        return request

    @property
    def unread(self) -> list[Frame]:
        """What was asked and not taken by `next` yet."""
        return [request.frame for request in self._inbox._queue]  # type: ignore[attr-defined]

    async def nothing(self, for_s: float) -> None:
        """Nothing is asked for so long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(for_s):
                request = await self._unanswered()
                raise AssertionError(f"nothing was expected: {request.frame}")

    def tell(self, data: bytes) -> None:
        """To all open sessions."""
        for session in self.open_sessions:
            session.send(data)

    def name_leader(self, address: str) -> None:
        """`L`, on all open sessions and in first lines from now on."""
        self.leader = address
        self.tell(wire.text("L", address))

    @property
    def open_sessions(self) -> list[Session]:
        return [session for session in self.sessions if session.open]

    async def session(self, number: int = 0) -> Session:
        """The `number`th connection, once it is there."""
        await self.until(lambda: len(self.sessions) > number, f"connection {number}")
        return self.sessions[number]

    async def opened(self, count: int = 1) -> list[Session]:
        """Waits until so many sessions are open."""
        await self.until(lambda: len(self.open_sessions) >= count, f"{count} open sessions")
        return self.open_sessions

    async def until(self, condition: Callable[[], bool], what: str, within_s: float = NEXT_S) -> None:
        """Waits for what a client does."""
        deadline = time.monotonic() + within_s
        while not condition():
            left = deadline - time.monotonic()
            assert left > 0, f"not within {within_s:g} s: {what}"
            self.changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(left, 0.25)):
                    await self.changed.wait()
