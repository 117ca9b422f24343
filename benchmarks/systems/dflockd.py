"""dflockd, one process: a FIFO lock server in Python, by its own asyncio client functions."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from benchmarks.peers import ENVIRONMENT, package_version
from benchmarks.systems.peer import Peer
from benchmarks.systems.processes import HOST, free_ports, port_answers, wait_until

LEASE_S = 60
WAIT_S = 255


class Dflockd(Peer):
    """One process."""

    name = "dflockd"
    title = "dflockd, one node"
    promises = "order of arrival, a lease; no fencing token, no copy: a restart forgets every lock"
    fifo = True

    def __enter__(self) -> Dflockd:
        (self.port,) = free_ports(1)
        command = [str(ENVIRONMENT / "bin" / "dflockd"), "--host", HOST, "--port", str(self.port)]
        # A connection that waits its turn is silent; keys of all workloads are kept.
        self.run(*command, "--read-timeout", "600", "--max-locks", "100000")
        wait_until(lambda: port_answers(self.port), self.title, self.processes)
        return self

    def target(self) -> dict[str, Any]:
        return {"port": self.port}

    def version(self) -> str:
        return f"dflockd {package_version('dflockd')}"


class LockClient:
    """Its protocol has one request at a time on a connection: connections are kept and used again."""

    style: ClassVar[str] = "async"

    def __init__(self, target: dict[str, Any]) -> None:
        from dflockd import client

        self._port: int = target["port"]
        self._client: Any = client
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def open(self) -> None:
        self._idle.append(await asyncio.open_connection(HOST, self._port))

    async def acquire(self, key: str) -> Any:
        connection = self._idle.pop() if self._idle else await asyncio.open_connection(HOST, self._port)
        token, _lease = await self._client.acquire(*connection, key, WAIT_S, LEASE_S)
        return connection, key, token

    async def release(self, grant: Any) -> None:
        connection, key, token = grant
        await self._client.release(*connection, key, token)
        self._idle.append(connection)

    async def close(self) -> None:
        for _reader, writer in self._idle:
            writer.close()
