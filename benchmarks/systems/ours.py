"""The product: one standalone node, or three, plain or with TLS everywhere as `ticketing init --tls` makes it."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

from benchmarks.systems.processes import (
    HOST,
    PROJECT,
    ServerProcess,
    free_ports,
    port_answers,
    python_module,
    wait_until,
)
from benchmarks.systems.system import System
from ticketing.config.cluster_folder import make_cluster, write_cluster
from ticketing.config.layout import CLUSTER_FOLDER, NODE_FILE
from ticketing.node.settings import Place
from ticketing.protocol.fields import split_address

PEER_PORT, ADMIN_PORT, CLIENT_PORT = 6225, 7225, 5225
"""On hosts of their own."""


COMPILED = PROJECT / ".compiled"
"""What `make compiled` makes."""


class OurNodes(System):
    """A cluster's folder and the node processes in it."""

    nodes: ClassVar[int] = 3
    tls: ClassVar[bool] = False
    sources: ClassVar[Path] = PROJECT
    """Where its nodes find their modules."""
    fifo = True

    def __init__(
        self, hosts: Sequence[str] = (), before: Callable[[str], Sequence[str]] = lambda _host: ()
    ) -> None:
        """`hosts`: names of the machines, none for loopback; `before`: what stands before a command there."""
        self._folder = Path(tempfile.mkdtemp(prefix="ticketing-bench-"))
        self._home = self._folder / CLUSTER_FOLDER
        self._hosts = list(hosts)
        self._before = before
        places = _on_hosts(hosts) if hosts else _on_loopback(self.nodes)
        self._cluster = make_cluster(
            places, tls=self.tls, permit=self.nodes > 1, now_ms=time.time_ns() // 1_000_000
        )
        self.processes: dict[str, ServerProcess] = {}
        """By client address."""

    def __enter__(self) -> Self:
        write_cluster(self._cluster, self._home)
        for number, place in enumerate(self._cluster.places):
            prefix = self._before(self._hosts[number]) if self._hosts else ()
            config = self._home / place.name / NODE_FILE
            command = [*prefix, *python_module("ticketing", "node", "start", "--config", str(config))]
            # The folder that a process runs in comes before all others where it looks for modules.
            self.processes[place.client] = ServerProcess(
                command, self._folder / f"{place.name}.log", folder=self._folder, sources=self.sources
            )
        if not self._hosts:
            ports = [split_address(address)[1] for address in self.processes]
            wait_until(lambda: all(map(port_answers, ports)), self.title, list(self.processes.values()))
        return self

    def __exit__(self, *_error: object) -> None:
        for process in self.processes.values():
            process.kill()
        shutil.rmtree(self._folder)

    def target(self) -> dict[str, Any]:
        return {
            "addresses": list(self.processes),
            "token": self._cluster.client_token,
            "authority": str(self._home / "ca" / "ca.pem") if self.tls else None,
        }

    def pids(self) -> list[int]:
        return [process.pid for process in self.processes.values()]


class Standalone(OurNodes):
    """One node, plain TCP."""

    name = "standalone"
    title = "ticketing standalone"
    promises = "order of arrival, leases, fencing tokens; one node"
    nodes = 1


class ThreeNodes(OurNodes):
    """Three nodes, plain TCP."""

    name = "cluster"
    title = "ticketing, 3 nodes"
    promises = "order of arrival, leases, fencing tokens; Raft in memory: survives any one node"


class ThreeNodesTls(OurNodes):
    """Three nodes, TLS to clients and mutual TLS between nodes."""

    name = "cluster-tls"
    title = "ticketing, 3 nodes, TLS"
    promises = "as ticketing, 3 nodes; TLS to clients, mutual TLS between nodes"
    tls = True


class StandaloneCompiled(Standalone):
    """One node of the compiled build."""

    name = "standalone-compiled"
    title = "ticketing standalone, compiled"
    sources = COMPILED


class ThreeNodesCompiled(ThreeNodes):
    """Three nodes of the compiled build."""

    name = "cluster-compiled"
    title = "ticketing, 3 nodes, compiled"
    sources = COMPILED


def _on_loopback(nodes: int) -> list[Place]:
    ports = free_ports(3 * nodes)
    return [
        Place(
            name=f"node-{number + 1}",
            client=f"{HOST}:{ports[3 * number]}",
            peer=f"{HOST}:{ports[3 * number + 1]}" if nodes > 1 else "",
            admin=f"{HOST}:{ports[3 * number + 2]}",
        )
        for number in range(nodes)
    ]


def _on_hosts(hosts: Sequence[str]) -> list[Place]:
    return [
        Place(
            name=f"node-{number}",
            client=f"{host}:{CLIENT_PORT}",
            peer=f"{host}:{PEER_PORT}",
            admin=f"{host}:{ADMIN_PORT}",
        )
        for number, host in enumerate(hosts, start=1)
    ]
