"""Sockets of somebody who keeps to no rule: bytes as they are, from any address of loopback."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable, Iterable
from types import TracebackType

from ticketing.protocol.fields import split_address
from ticketing.server.tls import TlsStream

SOURCES = tuple(f"127.0.0.{number}" for number in range(2, 9))
"""Sources beside 127.0.0.1, which the neighbours have."""


async def _line(read: Callable[[float], Awaitable[bytes]], within_s: float) -> bytes:
    """What comes up to the next line's end, and what came with it; less at the end of all."""
    found = b""
    while b"\n" not in found and (more := await read(within_s)):
        found += more
    return found


class Stranger:
    """One connection. A reset by the other side is an end like any other."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._loop = asyncio.get_running_loop()
        self.was_reset = False
        """The other side took no more since it has ended the connection."""

    @classmethod
    async def dial(cls, address: str, *, source: str = "127.0.0.1", window: int = 0) -> Stranger:
        """ConnectionError where the other side will not have it. `window`: what the kernel keeps unread."""
        sock = socket.socket()
        try:
            if window:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
            sock.setblocking(False)
            sock.bind((source, 0))
            await asyncio.get_running_loop().sock_connect(sock, split_address(address))
        except BaseException:
            sock.close()
            raise
        return cls(sock)

    async def send(self, data: bytes, within_s: float = 5.0) -> bool:
        """False where the other side takes no more: it has ended the connection, or does not read."""
        try:
            async with asyncio.timeout(within_s):
                await self._loop.sock_sendall(self._sock, data)
        except TimeoutError:
            return False
        except OSError:
            self.was_reset = True
            return False
        return True

    async def read(self, within_s: float = 12.0) -> bytes:
        """The next bytes; none at the end."""
        try:
            async with asyncio.timeout(within_s):
                return await self._loop.sock_recv(self._sock, 65_536)
        except ConnectionError:
            return b""

    async def some(self) -> bytes:
        """The next bytes; ConnectionError at the end."""
        data = await self.read()
        if not data:
            raise ConnectionError("the other side has ended it")
        return data

    async def line(self, within_s: float = 15.0) -> bytes:
        """Bytes up to the next line's end, and what came with it."""
        return await _line(self.read, within_s)

    async def ended(self, within_s: float = 12.0) -> bytes:
        """Everything until the other side ends the connection; TimeoutError where it does not."""
        found = b""
        async with asyncio.timeout(within_s):
            while more := await self.read(within_s):
                found += more
        return found

    def reset(self) -> None:
        """Ends with RST."""
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._sock.close()

    def close(self) -> None:
        self._sock.close()

    def __enter__(self) -> Stranger:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()


class TlsStranger:
    """A stranger behind a TLS handshake that it has done in full."""

    def __init__(self, plain: Stranger, stream: TlsStream) -> None:
        self.plain = plain
        self.stream = stream

    @classmethod
    async def dial(
        cls, address: str, context: ssl.SSLContext, *, source: str = "127.0.0.1", window: int = 0
    ) -> TlsStranger:
        """ssl.SSLError or ConnectionError where it does not come about."""
        plain = await Stranger.dial(address, source=source, window=window)
        stream = TlsStream(context, dialled_host=split_address(address)[0])
        done = stream.advance(b"")
        try:
            while True:
                await plain.send(stream.outgoing())
                if done:
                    return cls(plain, stream)
                done = stream.advance(await plain.some())
        except BaseException:
            plain.close()
            raise

    async def send(self, data: bytes, within_s: float = 5.0) -> bool:
        return await self.plain.send(self.stream.encrypt(data), within_s)

    async def read(self, within_s: float = 12.0) -> bytes:
        """The next plaintext; none at the end."""
        while data := await self.plain.read(within_s):
            chunks, _ended = self.stream.decrypt(data[:], 0.0)
            if chunks:
                return b"".join(chunks)
        return b""

    async def line(self, within_s: float = 15.0) -> bytes:
        return await _line(self.read, within_s)

    async def ended(self, within_s: float = 12.0) -> bytes:
        return await self.plain.ended(within_s)

    def close(self) -> None:
        self.plain.close()


async def dial_all(address: str, count: int, sources: Iterable[str] = ("127.0.0.1",)) -> list[Stranger]:
    """As many of `count` connections as the other side has taken."""
    named = tuple(sources)
    found = await asyncio.gather(
        *(Stranger.dial(address, source=named[number % len(named)]) for number in range(count)),
        return_exceptions=True,
    )
    for failure in found:
        if isinstance(failure, BaseException) and not isinstance(failure, OSError):
            raise failure
    return [stranger for stranger in found if isinstance(stranger, Stranger)]


async def dribble(stranger: Stranger, data: bytes, every_s: float = 0.5) -> None:
    """One byte at a time, until the other side has had enough."""
    for number in range(len(data)):
        if not await stranger.send(data[number : number + 1]):
            return
        await asyncio.sleep(every_s)


async def for_seconds(seconds: float, workers: int, once: Callable[[int], Awaitable[object]]) -> int:
    """`once` again and again by so many at a time; how often. What the network refuses counts as well."""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    done = 0

    async def work(number: int) -> None:
        nonlocal done
        while loop.time() < until:
            with contextlib.suppress(OSError):  # resets, timeouts and TLS errors are
                await once(number)
            done += 1

    async with asyncio.TaskGroup() as group:
        for number in range(workers):
            group.create_task(work(number))
    return done
