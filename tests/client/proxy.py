"""A TCP proxy whose connections a test cuts: with bytes on the way, in both directions."""

from __future__ import annotations

import asyncio
import random


class _End(asyncio.Protocol):
    """One end of one connection; what it reads goes to the other."""

    def __init__(self, pair: _Pair) -> None:
        self.pair = pair
        self.transport: asyncio.Transport | None = None
        self.other: _End | None = None
        self._early: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.pair.made(self)

    def data_received(self, data: bytes) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.write(data)
        else:
            self._early.append(data)

    def joined(self, other: _End) -> None:
        self.other = other
        assert other.transport is not None
        for data in self._early:
            other.transport.write(data)
        self._early.clear()

    def connection_lost(self, exc: Exception | None) -> None:
        self.pair.cut()


class _Pair:
    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self._ends: list[_End] = []
        self._over = False

    def made(self, end: _End) -> None:
        self._ends.append(end)
        if self._over:
            self._abort()
        elif len(self._ends) == 1:
            self._proxy.pairs.append(self)
            self._proxy.dial(self)
        else:
            first, second = self._ends
            first.joined(second)
            second.joined(first)

    def cut(self) -> None:
        """Ends it at once, whatever is still on the way."""
        if not self._over:
            self._over = True
            self._proxy.pairs.remove(self)
        self._abort()

    def _abort(self) -> None:
        for end in self._ends:
            if end.transport is not None and not end.transport.is_closing():
                end.transport.abort()


class Proxy:
    """In front of one address."""

    def __init__(self, target: str) -> None:
        self._host, _, port = target.rpartition(":")
        self._port = int(port)
        self._server: asyncio.Server | None = None
        self._dialling: set[asyncio.Task[None]] = set()
        self.pairs: list[_Pair] = []
        self.address = ""

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _End(_Pair(self)), "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def dial(self, pair: _Pair) -> None:
        task = asyncio.ensure_future(self._dial(pair))
        self._dialling.add(task)
        task.add_done_callback(self._dialling.discard)

    async def _dial(self, pair: _Pair) -> None:
        try:
            loop = asyncio.get_running_loop()
            await loop.create_connection(lambda: _End(pair), self._host, self._port)
        except OSError:
            pair.cut()

    def cut_one(self, rng: random.Random) -> None:
        if self.pairs:
            rng.choice(self.pairs).cut()

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for pair in list(self.pairs):
            pair.cut()
        if self._dialling:
            await asyncio.wait(self._dialling)
