"""A client of the wire alone, with none of the library's rules: what a test sends is what arrives."""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
import time
from collections import deque
from typing import NamedTuple, cast

from ticketing.protocol import frames
from ticketing.protocol.decoder import Reply, ReplyDecoder
from ticketing.protocol.fields import new_owner, split_address
from ticketing.protocol.handshake import Banner, ClientHandshake

_ABOUT_ACQUIRES = b"AGTBV"
_ECHOES = b"RNX"


class Answer(NamedTuple):
    """One answer to one request."""

    what: str
    """The letter of the frame."""
    token: int
    """Of the grant; for R, N, X: what they echo."""
    owner: int
    waited_ms: int
    key: bytes
    at: float
    """When it was read, on the monotonic clock."""


class SessionOverError(ConnectionError):
    """The session ended before the answer came; `last` is its `M` or `E`, or empty."""

    def __init__(self, last: str) -> None:
        super().__init__(last or "no last word")
        self.last = last


class WireSession(asyncio.Protocol):
    """One authenticated session."""

    def __init__(self, token: str) -> None:
        loop = asyncio.get_running_loop()
        self._handshake = ClientHandshake(token)
        self._decoder = ReplyDecoder()
        self._transport: asyncio.Transport | None = None
        self._asked: dict[tuple[bool, int, bytes], deque[asyncio.Future[Answer]]] = {}
        self._ready: asyncio.Future[None] = loop.create_future()
        self.over: asyncio.Future[str] = loop.create_future()
        """Done with the last word, `M` or `E` with its text, or with nothing, once the session has ended."""
        self.leader: str | None = None
        """As the first line or the last `L` named it."""
        self.last = ""
        self.unasked: list[Answer] = []
        """Answers to nothing that was asked here."""

    @classmethod
    async def open(
        cls, address: str, token: str, *, tls: ssl.SSLContext | None = None, within_s: float = 5.0
    ) -> WireSession:
        """A session to one node; SessionOverError where it is refused."""
        host, port = split_address(address)
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(within_s):
            _transport, session = await loop.create_connection(lambda: cls(token), host, port, ssl=tls)
            try:
                await session._ready
            except BaseException:
                await session.close()
                raise
        return session

    @property
    def banner(self) -> Banner:
        assert self._handshake.banner is not None
        return self._handshake.banner

    @property
    def is_open(self) -> bool:
        return not self.over.done()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        if not self._ready.done():
            response = self._handshake.feed(data)
            if response:
                self._transport.write(response)
            if self._handshake.outcome is None:
                return
            if self._handshake.outcome != "ready":
                self.last = f"E{self._handshake.outcome}"
                self._transport.close()
                return
            self.leader = self._handshake.leader
            self._ready.set_result(None)
            data = self._handshake.rest
        for reply in self._decoder.feed(data):
            self._take(reply)
        assert self._decoder.problem is None, self._decoder.detail

    def _take(self, reply: Reply) -> None:
        opcode, token, owner, waited_ms, key = reply
        letter = chr(opcode)
        if opcode == frames.LEADER:
            self.leader = key.decode()
        elif opcode in (frames.MOVED, frames.ERROR):
            self.last = letter + key.decode()
        else:
            answer = Answer(letter, token, owner, waited_ms, key, time.monotonic())
            about_acquire = opcode in _ABOUT_ACQUIRES
            asked = self._asked.get((about_acquire, owner if about_acquire else token, key))
            if asked:
                future = asked.popleft()
                if not future.done():
                    future.set_result(answer)
            else:
                self.unasked.append(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        over = SessionOverError(self.last)
        if not self._ready.done():
            self._ready.set_exception(over)
        for asked in self._asked.values():
            for future in asked:
                if not future.done():
                    future.set_exception(over)
                    future.exception()  # whoever does not wait for it any more does not miss it
        if not self.over.done():
            self.over.set_result(self.last)

    def send(self, data: bytes) -> None:
        """Bytes as they are."""
        assert self._transport is not None
        if not self._transport.is_closing():
            self._transport.write(data)

    def _ask(self, about_acquire: bool, ident: int, key: bytes, frame: bytes) -> asyncio.Future[Answer]:
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        if self.over.done():
            future.set_exception(SessionOverError(self.last))
            future.exception()
            return future
        self._asked.setdefault((about_acquire, ident, key), deque()).append(future)
        self.send(frame)
        return future

    def acquire(
        self, key: bytes, wait: int, lease: int, *, owner: int | None = None, published: bool = False
    ) -> asyncio.Future[Answer]:
        """Asks with `Q`, or with the `A` of published clients; the frame leaves at once."""
        owner = fresh_owner() if owner is None else owner
        encode = frames.encode_acquire if published else frames.encode_q
        return self._ask(True, owner, key, encode(wait, lease, owner, key))

    def release(self, token: int, key: bytes) -> asyncio.Future[Answer]:
        return self._ask(False, token, key, frames.encode_release(token, key))

    def extend(self, token: int, lease: int, key: bytes) -> asyncio.Future[Answer]:
        return self._ask(False, token, key, frames.encode_extend(token, lease, key))

    def cancel(self, owner: int, key: bytes) -> asyncio.Future[Answer]:
        return self._ask(False, owner, key, frames.encode_cancel(owner, key))

    async def close(self) -> None:
        """Ends the session at once."""
        if self._transport is not None:
            self._transport.abort()
            await asyncio.wait([self.over])


def fresh_owner() -> int:
    """An owner for one request."""
    return new_owner(os.urandom(8))


async def bytes_until_closed(address: str, sent: bytes, within_s: float = 10.0) -> bytes:
    """Connects, sends bytes as they are, and returns everything that came until the other side closed."""
    host, port = split_address(address)
    async with asyncio.timeout(within_s):
        reader, writer = await asyncio.open_connection(host, port)
        try:
            writer.write(sent)
            return await reader.read()
        except ConnectionResetError:
            return b""
        finally:
            writer.transport.abort()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
