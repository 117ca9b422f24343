"""Clients of our wire: the published package, ours, and one of callbacks alone.

Their target is `{"addresses", "token", "authority"}`, `authority` being the path of a CA file or null without TLS.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import ssl
import sys
from collections.abc import Callable
from typing import Any, ClassVar, cast

from benchmarks.rawclient import connect_to_leader
from ticketing.protocol import frames
from ticketing.protocol.fields import OWNER_BYTES, WAIT_MAX, split_address
from ticketing.protocol.handshake import READY, ClientHandshake

LEASE_S = 60
READY_S = 20.0


class Ours:
    """`ticketing.TicketBroker`."""

    style: ClassVar[str] = "async"
    package: ClassVar[str] = "ticketing"
    budget: ClassVar[tuple[int, ...]] = (0,)

    def __init__(self, target: dict[str, Any]) -> None:
        self._target = target
        self._broker: Any = None

    def load_package(self) -> Any:
        return importlib.import_module(self.package)

    async def open(self) -> None:
        target = self._target
        tls = target["authority"] or "off"
        self._broker = self.load_package().TicketBroker(target["addresses"], token=target["token"], tls=tls)
        if not await self._broker.wait_ready(READY_S):
            raise RuntimeError(f"no session within {READY_S:.0f} s to {target['addresses']}")
        # A client that knows no first line learns who leads by being told so; a pair makes sure that it has been.
        await self.release(await self.acquire("first"))

    async def leader(self) -> str | None:
        """The address of the node that serves, whatever the library may know of it."""
        target = self._target
        tls = ssl.create_default_context(cafile=target["authority"]) if target["authority"] else None
        session = await connect_to_leader(target["addresses"], target["token"], READY_S, tls)
        session.close()
        return session.ready.result()

    async def acquire(self, key: str) -> Any:
        return await self._broker.acquire(key, WAIT_MAX, LEASE_S, *self.budget)

    async def release(self, grant: Any) -> None:
        if not await grant.release():
            raise RuntimeError(f"{grant.key} was not held any more")

    async def close(self) -> None:
        await self._broker.aclose()


class Published(Ours):
    """`saro_ticketing` 0.3.0 from the package index, in the folder that the target names as `published`."""

    package = "saro_ticketing"
    budget = ()

    def load_package(self) -> Any:
        folder = self._target["published"]
        sys.path.insert(0, folder)
        package = importlib.import_module(self.package)
        if not str(package.__file__).startswith(folder):
            raise RuntimeError(f"{package.__file__} is not the published client: it is not in {folder}")
        return package

    async def close(self) -> None:
        """It has no close; its tasks end with the loop."""


class Raw(asyncio.Protocol):
    """One session to the leader. Owners and tokens stay the bytes that they are on the wire."""

    style: ClassVar[str] = "callback"

    def __init__(self, target: dict[str, Any]) -> None:
        self._target = target
        self._handshake: ClientHandshake | None = None
        self._verdict: asyncio.Future[str | None] | None = None
        self._transport: asyncio.Transport | None = None
        self._closed = asyncio.Event()
        self._head = frames.ACQUIRE_HEADER.pack(frames.Q, WAIT_MAX, LEASE_S, 0)[:-OWNER_BYTES]
        self._owners: list[bytes] = []
        self._out: list[bytes] = []
        self._reading = False
        self._tail = b""
        self._waiting: dict[bytes, Callable[[tuple[bytes, bytes]], None]] = {}
        self._releasing: dict[bytes, Callable[[], None]] = {}

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        authority = self._target["authority"]
        context = ssl.create_default_context(cafile=authority) if authority else None
        async with asyncio.timeout(READY_S):
            while True:
                for address in self._target["addresses"]:
                    self._handshake = ClientHandshake(self._target["token"])
                    self._verdict = loop.create_future()
                    host, port = split_address(address)
                    await loop.create_connection(lambda: self, host, port, ssl=context)
                    if await self._verdict == address:
                        return
                    await self.close()
                await asyncio.sleep(0.05)

    async def close(self) -> None:
        """Returns once the connection is closed."""
        if self._transport is not None:
            self._transport.abort()
            await self._closed.wait()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._closed.clear()
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._closed.set()

    def acquire(self, key: bytes, granted: Callable[[tuple[bytes, bytes]], None]) -> None:
        if not self._owners:
            self._owners = _owners(256)
        owner = self._owners.pop()
        self._waiting[owner] = granted
        self._write(b"%b%b%b\n" % (self._head, owner, key))

    def release(self, grant: tuple[bytes, bytes], released: Callable[[], None]) -> None:
        token, key = grant
        self._releasing[token] = released
        self._write(b"R%b%b\n" % (token, key))

    def _write(self, frame: bytes) -> None:
        if not self._out and not self._reading:
            asyncio.get_running_loop().call_soon(self._flush)
        self._out.append(frame)

    def _flush(self) -> None:
        if self._out and self._transport is not None:
            self._transport.write(b"".join(self._out))
            self._out.clear()

    def data_received(self, data: bytes) -> None:
        if self._handshake is not None:
            data = self._shake(self._handshake, data)
        if self._tail:
            data = self._tail + data
        find = data.find
        position, size = 0, len(data)
        self._reading = True
        while position < size:
            op = data[position]
            if op == frames.GRANTED_WAITED:
                end = find(b"\n", position + 21)
                if end < 0:
                    break
                granted = self._waiting.pop(data[position + 9 : position + 17])
                granted((data[position + 1 : position + 9], data[position + 21 : end]))
            elif op == frames.RELEASED:
                end = find(b"\n", position + 9)
                if end < 0:
                    break
                self._releasing.pop(data[position + 1 : position + 9])()
            elif op == frames.NEWLINE:
                end = position
            elif op == frames.LEADER:
                end = find(b"\n", position)
                if end < 0:
                    break
            else:
                raise RuntimeError(f"unexpected reply {data[position : position + 200]!r}")
            position = end + 1
        self._tail = data[position:]
        self._reading = False
        self._flush()

    def _shake(self, handshake: ClientHandshake, data: bytes) -> bytes:
        assert self._transport is not None
        assert self._verdict is not None
        answer = handshake.feed(data)
        if answer:
            self._transport.write(answer)
        if handshake.outcome is None:
            return b""
        if handshake.outcome != READY:
            self._verdict.set_exception(ConnectionError(f"{handshake.outcome}: {handshake.detail}"))
            return b""
        self._verdict.set_result(handshake.leader)
        self._handshake = None
        return handshake.rest


def _owners(count: int) -> list[bytes]:
    """Fresh owners as they stand on the wire, the top bit set."""
    pool = bytearray(os.urandom(OWNER_BYTES * count))
    for start in range(0, len(pool), OWNER_BYTES):
        pool[start] |= 0x80
    return [bytes(pool[start : start + OWNER_BYTES]) for start in range(0, len(pool), OWNER_BYTES)]
