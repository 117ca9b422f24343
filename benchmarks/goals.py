"""What is aimed at, as ratios of figures of one run, and what the results say of it."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import NamedTuple

from benchmarks import plan
from benchmarks.failover import CUT, SIGKILL, SIGTERM
from benchmarks.plan import Entrant
from benchmarks.results import Results

Measure = Callable[[Results], float | None]


class Goal(NamedTuple):
    """One line of the table: `value` must be at least `bound`, or at most where `at_most`."""

    title: str
    value: Measure
    bound: float
    at_most: bool = False
    unit: str = ""
    """Nothing: a ratio."""

    def reached(self, results: Results) -> bool | None:
        """None where the results do not have it."""
        value = self.value(results)
        if value is None:
            return None
        return value <= self.bound if self.at_most else value >= self.bound


def ratio(act: str, workload: str, one: Entrant, other: Entrant, figure: str = "rate") -> Measure:
    """Within a round; `single` has all that `ours` has."""

    def value(results: Results) -> float | None:
        acts = ("single", "ours") if act == "ours" else (act,)
        found = (results.ratio(name, workload, one, other, figure) for name in acts)
        return next((each for each in found if each is not None), None)

    return value


def figure(workload: str, entrant: Entrant, name: str) -> Measure:
    return lambda results: results.median_of(("single", "ours"), workload, entrant, name)


def inverse(measure: Measure) -> Measure:
    def value(results: Results) -> float | None:
        found = measure(results)
        return None if found is None else 1 / found

    return value


def outage(kind: str) -> Measure:
    """The median, in seconds."""

    def value(results: Results) -> float | None:
        gaps = results.gaps_s("cluster", "probe", kind)
        return statistics.median(gaps) if gaps else None

    return value


def overtaken(*entrants: Entrant) -> Measure:
    """Grants out of order, in all acts and rounds of the contended workloads."""

    def value(results: Results) -> float | None:
        runs = [
            run["overtaken"]
            for act in plan.ACTS
            for workload in (plan.HAND_OVER, plan.HEADLINE)
            for one in entrants
            for run in results.runs(act, workload, one).values()
        ]
        return float(sum(runs)) if runs else None

    return value


GOALS = (
    Goal(
        "standalone, 64 workers, own keys, against the null server",
        ratio("ours", plan.OWN_64, plan.STANDALONE, plan.NULL),
        0.85,
    ),
    Goal(
        "standalone, raw client, 64 in flight, against Redis SET NX PX + DEL",
        ratio("single", plan.OWN_64, plan.STANDALONE_RAW, plan.REDIS_RAW),
        0.7,
    ),
    Goal(
        "3 nodes, 64 workers: our client against the published one, pairs/s",
        ratio("ours", plan.OWN_64, plan.CLUSTER_OURS, plan.CLUSTER),
        1.0,
    ),
    Goal(
        "the same, client CPU per pair",
        ratio("ours", plan.OWN_64, plan.CLUSTER_OURS, plan.CLUSTER, "client_cpu_us"),
        1.0,
        at_most=True,
    ),
    Goal(
        "3 nodes, 64 workers, own keys, against the bare replicated FIFO",
        ratio("ours", plan.OWN_64, plan.CLUSTER, plan.BARE_REPLICATED),
        0.65,
    ),
    Goal(
        "the same, against etcd with its data in memory",
        ratio("replicated", plan.OWN_64, plan.CLUSTER, plan.ETCD),
        10,
    ),
    Goal(
        "the same, against redis-py's lock on one Redis",
        ratio("single", plan.OWN_64, plan.CLUSTER, plan.REDIS),
        5,
    ),
    Goal(
        "3 nodes, 16 workers, against dflockd, one node",
        ratio("single", plan.OWN_16, plan.CLUSTER, plan.DFLOCKD),
        3,
    ),
    Goal(
        "3 nodes, 1 worker, p50 of an acquire, against the bare replicated FIFO",
        ratio("ours", plan.OWN_1, plan.CLUSTER, plan.BARE_REPLICATED, "p50_us"),
        2,
        at_most=True,
    ),
    Goal(
        "3 nodes, hand-overs on 4 keys with 16 workers each, against the bare replicated FIFO",
        ratio("ours", plan.HAND_OVER, plan.CLUSTER, plan.BARE_REPLICATED),
        0.65,
    ),
    Goal("the same, against etcd", ratio("replicated", plan.HAND_OVER, plan.CLUSTER, plan.ETCD), 15),
    Goal(
        "grants out of order, contended workloads, all clients on 1 and 3 nodes",
        overtaken(
            *(plan.STANDALONE, plan.CLUSTER, plan.CLUSTER_TLS, plan.CLUSTER_OURS, plan.CLUSTER_RAW),
        ),
        0,
        at_most=True,
    ),
    Goal(
        "headline job, 3 nodes: time against the bare replicated FIFO's",
        inverse(ratio("ours", plan.HEADLINE, plan.CLUSTER, plan.BARE_REPLICATED)),
        1.6,
        at_most=True,
    ),
    Goal(
        "3 nodes, 64 workers: TLS everywhere against plain",
        ratio("ours", plan.OWN_64, plan.CLUSTER_TLS, plan.CLUSTER),
        0.7,
    ),
    Goal(
        "3 nodes, 64 workers: server CPU per pair, all nodes together",
        figure(plan.OWN_64, plan.CLUSTER, "server_cpu_us"),
        40,
        at_most=True,
        unit="µs",
    ),
    Goal("failover, leader's process killed, median", outage(SIGKILL), 0.35, at_most=True, unit="s"),
    Goal("failover, leader's host cut off, TLS, median", outage(CUT), 0.9, at_most=True, unit="s"),
    Goal("failover, leader told to stop (SIGTERM), median", outage(SIGTERM), 0.05, at_most=True, unit="s"),
)
