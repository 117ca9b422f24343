"""ZooKeeper, three servers, their data in memory: kazoo's Lock recipe, which runs on threads."""

from __future__ import annotations

import contextlib
import logging
import shutil
import socket
from collections import defaultdict
from typing import Any, ClassVar

from benchmarks.peers import ZOOKEEPER, package_version
from benchmarks.systems.peer import Peer
from benchmarks.systems.processes import HOST, ServerProcess, free_ports, wait_until

SERVERS = 3
HEAP = ("-Xmx512m", "-Xms128m")


class ZooKeeper(Peer):
    """Three servers whose data folder is in memory."""

    name = "zookeeper"
    title = "ZooKeeper, 3 nodes, in memory"
    promises = (
        "order of arrival, a session's life for a lease, zxids that can fence; Zab, here without a disk"
    )
    fifo = True
    warm_up_s = 10.0
    """Java compiles what runs often."""

    def __enter__(self) -> ZooKeeper:
        ports = free_ports(3 * SERVERS)
        self.ports = ports[:SERVERS]
        quorum = [
            f"server.{number + 1}={HOST}:{ports[SERVERS + number]}:{ports[2 * SERVERS + number]}"
            for number in range(SERVERS)
        ]
        java = shutil.which("java") or "java"
        for number, port in enumerate(self.ports):
            folder = self.folder / f"server-{number + 1}"
            folder.mkdir()
            (folder / "myid").write_text(f"{number + 1}\n")
            settings = [
                *("tickTime=2000", "initLimit=10", "syncLimit=5", f"dataDir={folder}", f"clientPort={port}"),
                *("clientPortAddress=" + HOST, "maxClientCnxns=0", "admin.enableServer=false"),
                *("4lw.commands.whitelist=srvr", *quorum),
            ]
            (folder / "zoo.cfg").write_text("\n".join(settings) + "\n")
            self.run(
                *(java, *HEAP, "-cp", f"/usr/share/java/*:{ZOOKEEPER}"),
                *("org.apache.zookeeper.server.quorum.QuorumPeerMain", str(folder / "zoo.cfg")),
            )
        wait_until(lambda: self.leader() is not None, self.title, self.processes)
        return self

    def target(self) -> dict[str, Any]:
        return {"ports": self.ports}

    def leader(self) -> ServerProcess | None:
        """The process that says of itself that it leads."""
        for port, process in zip(self.ports, self.processes, strict=True):
            if "Mode: leader" in _asked(port, "srvr"):
                return process
        return None

    def version(self) -> str:
        answer = _asked(self.ports[0], "srvr")
        server = answer.splitlines()[0].removeprefix("Zookeeper version: ").split("-")[0]
        return f"ZooKeeper {server}, kazoo {package_version('kazoo')}"


def _asked(port: int, word: str) -> str:
    """The answer to a four-letter word, nothing where none comes."""
    with contextlib.suppress(OSError), socket.create_connection((HOST, port), timeout=1) as connection:
        connection.sendall(word.encode())
        parts = []
        while part := connection.recv(4096):
            parts.append(part)
        return b"".join(parts).decode()
    return ""


class LockClient:
    """One session; a `Lock` for each worker and key, since a lock object has one waiter at a time."""

    style: ClassVar[str] = "blocking"

    def __init__(self, target: dict[str, Any]) -> None:
        from kazoo.client import KazooClient

        logging.getLogger("kazoo").setLevel(logging.CRITICAL)
        self._client: Any = KazooClient(hosts=",".join(f"{HOST}:{port}" for port in target["ports"]))
        self._locks: defaultdict[int, dict[str, Any]] = defaultdict(dict)

    def open(self) -> None:
        self._client.start(timeout=30)

    def acquire(self, worker: int, key: str) -> Any:
        locks = self._locks[worker]
        if key not in locks:
            locks[key] = self._client.Lock(f"/bench/{key}", str(worker))
        lock = locks[key]
        if not lock.acquire():
            raise RuntimeError(f"{key} was not acquired")
        return lock

    def release(self, grant: Any) -> None:
        grant.release()

    def close(self) -> None:
        self._client.stop()
        self._client.close()
