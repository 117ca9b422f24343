"""A client of callbacks alone: the wire without a library, so that the server is what is measured."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable
from typing import cast

from ticketing.protocol import frames
from ticketing.protocol.decoder import Reply, ReplyDecoder
from ticketing.protocol.fields import new_owner, split_address
from ticketing.protocol.handshake import ClientHandshake

ReplyHandler = Callable[[Reply], None]


class RawSession(asyncio.Protocol):
    """One authenticated session; frames of one loop turn leave in one write."""

    def __init__(self, token: str) -> None:
        self._handshake: ClientHandshake | None = ClientHandshake(token)
        self._decoder = ReplyDecoder()
        self._out: list[bytes] = []
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[str | None] = self._loop.create_future()
        """Done with the leader's address once the session stands."""
        self.lost: asyncio.Future[None] = self._loop.create_future()
        self.on_reply: ReplyHandler = lambda _reply: None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by inheritance

    def data_received(self, data: bytes) -> None:
        handshake = self._handshake
        assert self._transport is not None
        if handshake is not None:
            answer = handshake.feed(data)
            if answer:
                self._transport.write(answer)
            if handshake.outcome is None:
                return
            if handshake.outcome != "ready":
                self.ready.set_exception(ConnectionError(f"{handshake.outcome}: {handshake.detail}"))
                return
            self._handshake = None
            self.ready.set_result(handshake.leader)
            data = handshake.rest
        for reply in self._decoder.feed(data):
            self.on_reply(reply)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ready.done():
            self.ready.set_exception(ConnectionError("closed in the handshake"))
        if not self.lost.done():
            self.lost.set_result(None)

    def send(self, frame: bytes) -> None:
        """Queues a frame for this turn's write."""
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(frame)

    def _flush(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(b"".join(self._out))
        self._out.clear()

    def close(self) -> None:
        """Ends the session."""
        if self._transport is not None:
            self._transport.abort()


async def connect(address: str, token: str, tls: ssl.SSLContext | None = None) -> RawSession:
    """A session to one node."""
    host, port = split_address(address)
    loop = asyncio.get_running_loop()
    _transport, session = await loop.create_connection(lambda: RawSession(token), host, port, ssl=tls)
    await session.ready
    return session


async def connect_to_leader(
    addresses: list[str], token: str, within_s: float = 10.0, tls: ssl.SSLContext | None = None
) -> RawSession:
    """A session to the node that serves."""
    async with asyncio.timeout(within_s):
        while True:
            for address in addresses:
                try:
                    session = await connect(address, token, tls)
                except OSError:
                    continue
                leader = session.ready.result()
                if leader == address:
                    return session
                session.close()
            await asyncio.sleep(0.02)


def owner() -> int:
    """A fresh owner for one request."""
    return new_owner(os.urandom(8))


__all__ = ["RawSession", "connect", "connect_to_leader", "frames", "owner"]
