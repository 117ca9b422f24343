"""The server side of our wire without anything behind it: for the reference servers.

Same handshake, same decoder, keep-alives, one write a session and loop turn; no TLS, no bounds.
"""

from __future__ import annotations

import asyncio
import os
from typing import cast

from ticketing.protocol.decoder import Request, RequestDecoder
from ticketing.protocol.frames import KEEPALIVE
from ticketing.protocol.handshake import (
    AUTH_FAILED_LINE,
    NONCE_BYTES,
    OK,
    Banner,
    ServerHandshake,
    build_banner,
    first_line,
    new_nonce,
)

TOKEN = "bench"
"""The client token of the reference servers."""
KEEPALIVE_S = 3.0
DOMAIN = "1.0000000000000001"


class WireSession(asyncio.Protocol):
    """One client connection. `handle` gets its requests; what is in `out` leaves at the end of the turn."""

    __slots__ = ("_decoder", "_handle", "_handshake", "_server", "_transport", "out")

    def __init__(self, server: WireServer) -> None:
        self._server = server
        self._handle = server.handle
        self._decoder = RequestDecoder()
        self._handshake: ServerHandshake | None = None
        self._transport: asyncio.Transport | None = None
        self.out: list[bytes] = []
        """Frames for the client."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        nonce = new_nonce(os.urandom(NONCE_BYTES))
        banner = Banner(nonce, extended=True, domain=DOMAIN, node_address=self._server.address)
        self._handshake = ServerHandshake(build_banner(banner), nonce, (self._server.token,))
        self._transport.write(self._handshake.banner)

    def data_received(self, data: bytes) -> None:
        handshake = self._handshake
        if handshake is not None:
            assert self._transport is not None
            handshake.feed(data)
            if handshake.outcome is None:
                return
            if handshake.outcome != OK:
                self._transport.write(AUTH_FAILED_LINE)
                self._transport.close()
                return
            self._transport.write(first_line(self._server.address))
            data = handshake.rest
            self._handshake = None
            self._server.opened(self)
        self._handle(self, self._decoder.feed(data))
        if self._decoder.problem is not None and self._transport is not None:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._server.gone(self)

    def keep_alive(self) -> None:
        """Tells the client that its server lives; a server of ours does so only where it wrote nothing else."""
        if self._transport is not None:
            self._transport.write(KEEPALIVE)

    def flush(self) -> None:
        """One write with all of `out`."""
        if self._transport is not None:
            self._transport.write(b"".join(self.out))
        self.out.clear()


class WireServer:
    """A listener whose sessions hand their requests to `handle`."""

    def __init__(self, token: str = TOKEN) -> None:
        self.token = token
        self.address = ""
        """Where clients reach it."""
        self._sessions: set[WireSession] = set()

    def handle(self, session: WireSession, requests: list[Request]) -> None:
        """All that one read has brought."""
        raise NotImplementedError

    def opened(self, session: WireSession) -> None:
        """A session has begun."""
        self._sessions.add(session)

    def gone(self, session: WireSession) -> None:
        """A session has ended."""
        self._sessions.discard(session)

    async def _keep_alive(self) -> None:
        while True:
            await asyncio.sleep(KEEPALIVE_S)
            for session in self._sessions:
                session.keep_alive()

    async def serve(self, host: str, port: int) -> None:
        """Until it is cancelled."""
        self.address = f"{host}:{port}"
        server = await asyncio.get_running_loop().create_server(lambda: WireSession(self), host, port)
        async with server, asyncio.TaskGroup() as group:
            group.create_task(self._keep_alive())
            await server.serve_forever()
