"""Who runs what: systems, their clients, and the acts of a comparison.

The systems of an act all run at the same time, and their turns alternate within each round, so that what changes on
the machine changes for all. Ratios are taken within a round.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from benchmarks.systems.bare import Bare
from benchmarks.systems.bare_replicated import BareReplicated
from benchmarks.systems.dflockd import Dflockd
from benchmarks.systems.etcd import Etcd, EtcdFsync
from benchmarks.systems.null import Null
from benchmarks.systems.ours import (
    Standalone,
    StandaloneCompiled,
    ThreeNodes,
    ThreeNodesCompiled,
    ThreeNodesTls,
)
from benchmarks.systems.pysyncobj import PySyncObj
from benchmarks.systems.redis import Redis
from benchmarks.systems.system import System
from benchmarks.systems.zookeeper import ZooKeeper

SYSTEMS: dict[str, type[System]] = {
    system.name: system
    for system in (
        *(Null, Bare, BareReplicated, Standalone, ThreeNodes, ThreeNodesTls),
        *(StandaloneCompiled, ThreeNodesCompiled),
        *(Redis, Dflockd, Etcd, EtcdFsync, ZooKeeper, PySyncObj),
    )
}
WIRE = "benchmarks.systems.wire_clients"
OF_OUR_WIRE = {"published": f"{WIRE}:Published", "ours": f"{WIRE}:Ours", "raw": f"{WIRE}:Raw"}
_WITH_OUR_WIRE = (
    *("null", "bare", "bare-replicated", "standalone", "cluster", "cluster-tls"),
    *("standalone-compiled", "cluster-compiled"),
)
CLIENTS: dict[str, dict[str, str]] = {
    **dict.fromkeys(_WITH_OUR_WIRE, OF_OUR_WIRE),
    "redis": {
        "redis-py": "benchmarks.systems.redis:LockClient",
        "raw": "benchmarks.systems.redis:Raw",
        "raw, owner only": "benchmarks.systems.redis:RawOwnerOnly",
    },
    "dflockd": {"its own": "benchmarks.systems.dflockd:LockClient"},
    "etcd-memory": {"Lock RPC": "benchmarks.systems.etcd:LockClient"},
    "etcd-fsync": {"Lock RPC": "benchmarks.systems.etcd:LockClient"},
    "zookeeper": {"kazoo": "benchmarks.systems.zookeeper:LockClient"},
    "pysyncobj": {"line protocol": "benchmarks.systems.pysyncobj:LockClient"},
}
"""By system: clients and the classes that they are."""


class Entrant(NamedTuple):
    """A client on a system."""

    system: str
    client: str


class Workload(NamedTuple):
    """`keys` 0: the headline job, `workers` acquires at once on 4 keys."""

    name: str
    workers: int
    keys: int
    entrants: tuple[Entrant, ...]


class Act(NamedTuple):
    """Workloads that are run side by side."""

    name: str
    workloads: tuple[Workload, ...]

    def without(self, systems: Collection[str]) -> Act:
        """Some systems left out."""
        return self._replace(
            workloads=tuple(
                workload._replace(
                    entrants=tuple(one for one in workload.entrants if one.system not in systems)
                )
                for workload in self.workloads
            )
        )

    def entrants(self) -> list[Entrant]:
        """All of them, each once."""
        return list(dict.fromkeys(one for workload in self.workloads for one in workload.entrants))


OWN_1, OWN_16, OWN_64, HAND_OVER, HEADLINE = "own-1", "own-16", "own-64", "hand-over", "headline"
HEADLINE_REQUESTS, HEADLINE_KEYS = 40_000, 4

NULL = Entrant("null", "published")
BARE = Entrant("bare", "published")
BARE_REPLICATED = Entrant("bare-replicated", "published")
STANDALONE = Entrant("standalone", "published")
CLUSTER = Entrant("cluster", "published")
CLUSTER_TLS = Entrant("cluster-tls", "published")
CLUSTER_OURS = Entrant("cluster", "ours")
CLUSTER_TLS_OURS = Entrant("cluster-tls", "ours")
STANDALONE_OURS = Entrant("standalone", "ours")
NULL_RAW = Entrant("null", "raw")
BARE_RAW = Entrant("bare", "raw")
BARE_REPLICATED_RAW = Entrant("bare-replicated", "raw")
STANDALONE_RAW = Entrant("standalone", "raw")
CLUSTER_RAW = Entrant("cluster", "raw")
STANDALONE_COMPILED = Entrant("standalone-compiled", "published")
CLUSTER_COMPILED = Entrant("cluster-compiled", "published")
STANDALONE_COMPILED_RAW = Entrant("standalone-compiled", "raw")
CLUSTER_COMPILED_RAW = Entrant("cluster-compiled", "raw")
REDIS = Entrant("redis", "redis-py")
REDIS_RAW = Entrant("redis", "raw")
REDIS_RAW_OWNER = Entrant("redis", "raw, owner only")
DFLOCKD = Entrant("dflockd", "its own")
ETCD = Entrant("etcd-memory", "Lock RPC")
ETCD_FSYNC = Entrant("etcd-fsync", "Lock RPC")
ZOOKEEPER = Entrant("zookeeper", "kazoo")
PYSYNCOBJ = Entrant("pysyncobj", "line protocol")

_PUBLISHED = (NULL, BARE, BARE_REPLICATED, STANDALONE, CLUSTER, CLUSTER_TLS)
_OURS = (STANDALONE_OURS, CLUSTER_OURS, CLUSTER_TLS_OURS)
_RAW = (NULL_RAW, BARE_RAW, BARE_REPLICATED_RAW, STANDALONE_RAW, CLUSTER_RAW)

OURS = Act(
    "ours",
    (
        Workload(OWN_1, 1, 1, (*_PUBLISHED, CLUSTER_OURS, *_RAW)),
        Workload(OWN_16, 16, 16, _PUBLISHED),
        Workload(OWN_64, 64, 64, (*_PUBLISHED, *_OURS, *_RAW)),
        Workload(HAND_OVER, 64, 4, (*_PUBLISHED[1:], CLUSTER_OURS, BARE_REPLICATED_RAW, CLUSTER_RAW)),
        Workload(HEADLINE, HEADLINE_REQUESTS, 0, (BARE, BARE_REPLICATED, STANDALONE, CLUSTER)),
    ),
)
"""The product beside the reference servers: needs nothing but the project."""

_SINGLE = (REDIS, DFLOCKD)
SINGLE = Act(
    "single",
    tuple(
        workload._replace(
            entrants=(
                *workload.entrants,
                *(_SINGLE if workload.keys else ()),
                *((REDIS_RAW, REDIS_RAW_OWNER) if workload.name in (OWN_1, OWN_64) else ()),
            )
        )
        for workload in OURS.workloads
    ),
)
"""The same, with the systems of one node among them."""

_REPLICATED = (CLUSTER, BARE_REPLICATED, ETCD, ETCD_FSYNC, ZOOKEEPER, PYSYNCOBJ)
REPLICATED = Act(
    "replicated",
    (
        Workload(OWN_1, 1, 1, _REPLICATED),
        Workload(OWN_16, 16, 16, _REPLICATED),
        Workload(OWN_64, 64, 64, _REPLICATED),
        Workload(HAND_OVER, 64, 4, _REPLICATED),
    ),
)
"""The systems of three nodes."""

COMPILED = Act(
    "compiled",
    (
        Workload(
            OWN_1,
            1,
            1,
            (BARE_REPLICATED, STANDALONE, STANDALONE_COMPILED, CLUSTER, CLUSTER_COMPILED),
        ),
        Workload(
            OWN_64,
            64,
            64,
            (
                *(NULL, BARE_REPLICATED, STANDALONE, STANDALONE_COMPILED, CLUSTER, CLUSTER_COMPILED),
                *(NULL_RAW, STANDALONE_RAW, STANDALONE_COMPILED_RAW, CLUSTER_RAW, CLUSTER_COMPILED_RAW),
                REDIS_RAW,
            ),
        ),
        Workload(
            HAND_OVER, 64, 4, (BARE_REPLICATED, STANDALONE, STANDALONE_COMPILED, CLUSTER, CLUSTER_COMPILED)
        ),
    ),
)
"""The compiled build beside the sources: needs `make compiled`, and Redis."""

OPEN_SHARES = (25, 50, 75)
"""Arrivals of the open loop, in percent of the closed loop's rate at 64 workers."""
OPEN_ENTRANTS = (BARE_REPLICATED, STANDALONE, CLUSTER, CLUSTER_TLS, REDIS, DFLOCKD, ETCD, ZOOKEEPER)

ACTS = {act.name: act for act in (OURS, SINGLE, REPLICATED, COMPILED)}
