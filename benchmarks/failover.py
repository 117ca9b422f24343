"""Failover: a new acquire every 10 ms while the leader goes away; how long nobody is granted anything.

A fresh cluster of three a trial. The leader's process is killed; or told to stop (SIGTERM); or its host is cut off:
every node on a host of its own (network namespaces, TLS as `ticketing init --tls` makes it), and the cable of the
leader's is pulled, so that nothing is refused and nothing is answered. `--systems` names others whose leader is killed
as well, asked by their own client. The outage is the longest time between two grants around the strike.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks import plan
from benchmarks.figures import percentile, table
from benchmarks.load.outage import Outage
from benchmarks.load.process import LoadProcess
from benchmarks.published import published_client
from benchmarks.results import Results
from benchmarks.systems.ours import ThreeNodes, ThreeNodesTls
from benchmarks.systems.system import System
from tests.operations.namespaces import Network, network

CLIENTS = {
    "probe": "benchmarks.systems.probe:Probe",
    "ours": "benchmarks.systems.wire_clients:Ours",
    "published": "benchmarks.systems.wire_clients:Published",
}
SIGKILL, SIGTERM = "SIGKILL", "SIGTERM"
SIGNALS = {SIGKILL: signal.SIGKILL, SIGTERM: signal.SIGTERM}
CUT = "host cut off"
KINDS = (*SIGNALS, CUT)
PEERS = ("etcd-memory", "etcd-fsync", "zookeeper")
OPERATOR = "operator"
HOSTS = ("one", "two", "three")


def signalled(number: int, client: str) -> Outage:
    """One trial on loopback."""
    with ThreeNodes() as cluster, load(cluster, client) as callers:

        def strike(leader: str | None) -> None:
            assert leader is not None
            os.kill(cluster.processes[leader].pid, number)

        return callers.outage(strike)


def cut_off(wire: Network, client: str) -> Outage:
    """One trial on hosts of their own; the cable is put back afterwards."""
    prefix = tuple(wire.prefix(OPERATOR))
    with ThreeNodesTls(HOSTS, wire.prefix) as cluster, load(cluster, client, prefix) as callers:
        cut: list[str] = []

        def strike(leader: str | None) -> None:
            assert leader is not None
            cut.append(leader.rpartition(":")[0])
            wire.cut(cut[0])

        try:
            return callers.outage(strike)
        finally:
            for host in cut:
                wire.mend(host)


@contextlib.contextmanager
def load(cluster: System, client: str, before: tuple[str, ...] = ()) -> Iterator[LoadProcess]:
    more = {"published": str(published_client())} if client == "published" else {}
    process = LoadProcess(cluster, CLIENTS[client], more, before)
    try:
        process.ready()
        yield process
    finally:
        process.close()


def peer_killed(name: str) -> Outage:
    """One trial of another system: the leader's process is killed. Its own client asks."""
    with plan.SYSTEMS[name]() as system:
        (client,) = plan.CLIENTS[name].values()
        callers = LoadProcess(system, client)

        def strike(_leader: str | None) -> None:
            leader = system.leader()
            assert leader is not None, f"{name} has no leader"
            leader.signal(signal.SIGKILL)

        try:
            callers.ready()
            return callers.outage(strike)
        finally:
            callers.close()


def trials(kind: str, client: str, count: int) -> list[Outage]:
    if kind != CUT:
        return [signalled(SIGNALS[kind], client) for _ in range(count)]
    with network(OPERATOR, HOSTS) as wire:
        return [cut_off(wire, client) for _ in range(count)]


HEADER = ["system, asked by, the leader", "trials", "median ms", "p90", "min", "max", "answered grants lost"]


def row(system: str, client: str, kind: str, outages: Sequence[Outage]) -> list[str]:
    gaps = [outage["gap_s"] * 1000 for outage in outages]
    return [
        f"{system}, {client}, {kind}",
        str(len(gaps)),
        *(f"{cell:.0f}" for cell in (statistics.median(gaps), percentile(gaps, 0.9), min(gaps), max(gaps))),
        str(sum(outage["lost"] for outage in outages)),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--kinds", nargs="*", choices=KINDS, default=list(KINDS))
    parser.add_argument(
        "--client", choices=CLIENTS, default="probe", help="probe: by the wire alone, nothing is repeated"
    )
    parser.add_argument("--systems", nargs="*", choices=PEERS, default=[], help="others, SIGKILL alone")
    parser.add_argument("--peer-trials", type=int, default=5, help="of each of them")
    parser.add_argument("--results", type=Path, help="a file to add the trials to")
    arguments = parser.parse_args()
    if CUT in arguments.kinds and os.geteuid() != 0:
        parser.error(
            f"{CUT!r} makes network namespaces, which needs root: run it as root, or name other --kinds"
        )
    struck = [
        ("cluster", arguments.client, kind, trials(kind, arguments.client, arguments.trials))
        for kind in arguments.kinds
    ]
    for name in arguments.systems:
        (client,) = plan.CLIENTS[name]
        struck.append((name, client, SIGKILL, [peer_killed(name) for _ in range(arguments.peer_trials)]))
    if arguments.results:
        with Results.extend(arguments.results) as results:
            for system, client, kind, outages in struck:
                results.add_failovers(system, client, kind, outages)
    print(table(HEADER, [row(*one) for one in struck]))


if __name__ == "__main__":
    main()
