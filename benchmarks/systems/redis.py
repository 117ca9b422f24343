"""Redis, one server, nothing written to disk: redis-py's asyncio Lock, and SET NX PX with DEL pipelined by hand."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar, cast

from benchmarks.peers import package_version
from benchmarks.systems.peer import Peer, first_line
from benchmarks.systems.processes import HOST, free_ports, port_answers, wait_until

LEASE_S = 60
PAIRS_MAX = 64
"""At a time, so as not to make connections without end under an open loop."""


class Redis(Peer):
    """One process, no persistence."""

    name = "redis"
    title = "Redis, one node"
    promises = "a lease; no order, no fencing token, no copy: a restart forgets every lock"

    def __enter__(self) -> Redis:
        (self.port,) = free_ports(1)
        self.run(
            *("redis-server", "--bind", HOST, "--port", str(self.port)),
            *("--save", "", "--appendonly", "no", "--dir", str(self.folder)),
        )
        wait_until(lambda: port_answers(self.port), self.title, self.processes)
        return self

    def target(self) -> dict[str, Any]:
        return {"port": self.port}

    def version(self) -> str:
        server = first_line(["redis-server", "--version"]).split("v=")[1].split()[0]
        return f"Redis {server}, redis-py {package_version('redis')}"


class LockClient:
    """redis-py's `Lock`, as its documentation uses it: a script releases, a waiter asks again every 0.1 s."""

    style: ClassVar[str] = "async"

    def __init__(self, target: dict[str, Any]) -> None:
        from redis.asyncio import Redis as AsyncRedis

        self._redis = AsyncRedis(host=HOST, port=target["port"])
        # Its pool makes a connection for each call at a time, and an error of more than 100.
        self._places = asyncio.Semaphore(PAIRS_MAX)

    async def open(self) -> None:
        await self._redis.ping()

    async def acquire(self, key: str) -> Any:
        await self._places.acquire()
        lock = self._redis.lock(key, timeout=LEASE_S)
        await lock.acquire()
        return lock

    async def release(self, grant: Any) -> None:
        await grant.release()
        self._places.release()

    async def close(self) -> None:
        await self._redis.aclose()


Grant = tuple[bytes, bytes]
"""Key and value."""


class Raw(asyncio.Protocol):
    """SET key value NX PX lease, then DEL key, pipelined on one connection: no more than a lock on a free key takes."""

    style: ClassVar[str] = "callback"

    def __init__(self, target: dict[str, Any]) -> None:
        self._port: int = target["port"]
        self._transport: asyncio.Transport | None = None
        self._lease = b"NX\r\n$2\r\nPX\r\n$5\r\n%d\r\n" % (LEASE_S * 1000)
        self._answers: deque[tuple[Callable[..., None], Grant | None]] = deque()
        """In the order of the requests: whom to call, and with which grant after a SET."""
        self._out: list[bytes] = []
        self._reading = False
        self._tail = b""
        self._values: list[bytes] = []

    async def open(self) -> None:
        await asyncio.get_running_loop().create_connection(lambda: self, HOST, self._port)

    async def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def acquire(self, key: bytes, granted: Callable[[Grant], None]) -> None:
        if not self._values:
            pool = os.urandom(8 * 256).hex().encode()
            self._values = [pool[start : start + 16] for start in range(0, len(pool), 16)]
        value = self._values.pop()
        self._answers.append((granted, (key, value)))
        self._write(
            b"*6\r\n$3\r\nSET\r\n$%d\r\n%b\r\n$16\r\n%b\r\n$2\r\n%b" % (len(key), key, value, self._lease)
        )

    def release(self, grant: Grant, released: Callable[[], None]) -> None:
        self._answers.append((released, None))
        self._write(self.release_request(*grant))

    def release_request(self, key: bytes, value: bytes) -> bytes:
        """What releases the lock."""
        return b"*2\r\n$3\r\nDEL\r\n$%d\r\n%b\r\n" % (len(key), key)

    def _write(self, request: bytes) -> None:
        if not self._out and not self._reading:
            asyncio.get_running_loop().call_soon(self._flush)
        self._out.append(request)

    def _flush(self) -> None:
        if self._out and self._transport is not None:
            self._transport.write(b"".join(self._out))
            self._out.clear()

    def data_received(self, data: bytes) -> None:
        *lines, self._tail = (self._tail + data).split(b"\r\n")
        self._reading = True
        for line in lines:
            call, grant = self._answers.popleft()
            if grant is None:
                if line != b":1":
                    raise RuntimeError(f"a release was answered {line!r}")
                call()
            elif line == b"+OK":
                call(grant)
            else:
                raise RuntimeError(f"SET NX on a free key was answered {line!r}")
        self._reading = False
        self._flush()


class RawOwnerOnly(Raw):
    """As `Raw`, released by a script that deletes the key only where it still has the caller's value.

    That is what a lock that can expire needs: DEL alone would release the next holder's.
    """

    _script = b"if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end"

    async def open(self) -> None:
        await super().open()
        reader, writer = await asyncio.open_connection(HOST, self._port)
        size = len(self._script)
        writer.write(b"*3\r\n$6\r\nSCRIPT\r\n$4\r\nLOAD\r\n$%d\r\n%b\r\n" % (size, self._script))
        await reader.readuntil(b"\r\n")
        self._digest = (await reader.readuntil(b"\r\n")).strip()
        writer.close()

    def release_request(self, key: bytes, value: bytes) -> bytes:
        head = b"*5\r\n$7\r\nEVALSHA\r\n$40\r\n%b\r\n$1\r\n1\r\n" % self._digest
        return b"%b$%d\r\n%b\r\n$16\r\n%b\r\n" % (head, len(key), key, value)
