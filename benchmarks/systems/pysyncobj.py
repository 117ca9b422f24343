"""PySyncObj, three processes: its replicated lock manager, behind a socket in each process.

PySyncObj is a library: its locks are taken by the processes that are the nodes. For callers of another process each
node here listens for lines, one request at a time on a connection. (An observer, its own way to ask from outside,
learns an outcome only with the next heartbeat, 0.2 s later.)

`python -m benchmarks.systems.pysyncobj PORT OWN OTHER OTHER` is one node: where callers reach it, and the addresses.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from typing import Any, ClassVar, NamedTuple

from benchmarks.peers import PYTHON, package_version
from benchmarks.systems.peer import Peer
from benchmarks.systems.processes import HOST, free_ports, port_answers, wait_until

NODES = 3
LEASE_S = 60
POLL_S = 0.01
"""Between two tries of a waiter: it has no queue."""
READY_S = 20.0


class PySyncObj(Peer):
    """Three nodes."""

    name = "pysyncobj"
    title = "PySyncObj, 3 nodes"
    promises = "a lease by the caller's clock; no order, no fencing token; Raft in memory"

    def __enter__(self) -> PySyncObj:
        ports = free_ports(2 * NODES)
        self.ports = ports[:NODES]
        addresses = [f"{HOST}:{port}" for port in ports[NODES:]]
        for port, address in zip(self.ports, addresses, strict=True):
            others = [other for other in addresses if other != address]
            self.run(str(PYTHON), "-m", "benchmarks.systems.pysyncobj", str(port), address, *others)
        wait_until(lambda: all(map(port_answers, self.ports)), self.title, self.processes)
        return self

    def target(self) -> dict[str, Any]:
        return {"ports": self.ports}

    def version(self) -> str:
        return f"PySyncObj {package_version('pysyncobj')}"


Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Grant(NamedTuple):
    """A lock, whose it is, and the connection that asked for it."""

    key: str
    holder: str
    connection: Connection


class LockClient:
    """Connections to the leader, kept and used again.

    Each request has a holder of its own, since a holder takes its lock again at once; a waiter asks again and again.
    """

    style: ClassVar[str] = "async"

    def __init__(self, target: dict[str, Any]) -> None:
        self._ports: list[int] = target["ports"]
        self._leader = 0
        self._idle: list[Connection] = []
        self._numbers = itertools.count()

    async def open(self) -> None:
        async with asyncio.timeout(READY_S):
            while not self._leader:
                for port in self._ports:
                    connection = await asyncio.open_connection(HOST, port)
                    if await _ask(connection, "leading"):
                        self._leader = port
                        self._idle.append(connection)
                        break
                    connection[1].close()
                await asyncio.sleep(0.05)

    async def acquire(self, key: str) -> Grant:
        connection = self._idle.pop() if self._idle else await asyncio.open_connection(HOST, self._leader)
        holder = str(next(self._numbers))
        while not await _ask(connection, f"acquire {key} {holder}"):
            await asyncio.sleep(POLL_S)
        return Grant(key, holder, connection)

    async def release(self, grant: Grant) -> None:
        await _ask(grant.connection, f"release {grant.key} {grant.holder}")
        self._idle.append(grant.connection)

    async def close(self) -> None:
        for _reader, writer in self._idle:
            writer.close()


async def _ask(connection: Connection, request: str) -> bool:
    reader, writer = connection
    writer.write(f"{request}\n".encode())
    answer = await reader.readline()
    if not answer:
        raise ConnectionError("a node has closed the connection")
    return answer == b"True\n"


class Node:
    """One node: the replicated lock manager and the listener in front of it."""

    def __init__(self, own: str, others: list[str]) -> None:
        from pysyncobj import SyncObj, SyncObjConf
        from pysyncobj.batteries import ReplLockManager

        manager = ReplLockManager(autoUnlockTime=LEASE_S)
        self._locks = manager._consumer()
        # As it comes it gathers entries for a heartbeat's 0.1 s before it sends them.
        settings = SyncObjConf(appendEntriesUseBatch=False)
        self._object = SyncObj(own, others, settings, consumers=[manager])

    async def serve(self, port: int) -> None:
        server = await asyncio.start_server(self._answer, HOST, port)
        async with server:
            await server.serve_forever()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            match line.decode().split():
                case ["leading"]:
                    outcome = self._object.isReady() and self._object._isLeader()
                case ["acquire", key, holder]:
                    outcome = await self._call(self._locks.acquire, key, holder, time.time())
                case ["release", key, holder]:
                    outcome = await self._call(self._locks.release, key, holder)
                case other:
                    raise ValueError(f"unknown request {other}")
            writer.write(f"{outcome}\n".encode())
        writer.close()

    async def _call(self, method: Any, *words: Any) -> Any:
        """A replicated method; its outcome comes on PySyncObj's own thread."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()

        def settle(outcome: Any, error: int) -> None:
            if error:
                answer.set_exception(RuntimeError(f"PySyncObj gave reason {error}"))
            else:
                answer.set_result(outcome)

        method(*words, callback=lambda outcome, error: loop.call_soon_threadsafe(settle, outcome, error))
        return await answer


def main() -> None:
    import uvloop

    port, own, *others = sys.argv[1:]
    uvloop.run(Node(own, others).serve(int(port)))


if __name__ == "__main__":
    main()
