"""`GET /metrics`: the node's figures as Prometheus reads them.

Everything is read when it is asked for. What the way of a request pays is what it counts anyway, and two durations.
Labels are few and bounded: places, names of counters.
"""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from aiohttp import web

from ticketing.locks.durations import BOUNDS_S, Durations
from ticketing.server.admin.answers import query_of
from ticketing.server.node_api import NodeApi

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

BOUND_NAMES = tuple(f"{bound:.15g}" for bound in BOUNDS_S)
DAY_MS = 24 * 3600 * 1000
PAGE_SIZE = resource.getpagesize()


class MetricsPage:
    """Handler of `/metrics`."""

    def __init__(self, node: NodeApi, process_facts: Callable[[], dict[str, object]]) -> None:
        self._collector = NodeCollector(node, process_facts)
        self._registry: CollectorRegistry | None = None

    def add_to(self, router: web.UrlDispatcher) -> None:
        """The address served here."""
        router.add_get("/metrics", self._metrics)

    async def _metrics(self, request: web.Request) -> web.Response:
        query_of(request)
        if self._registry is None:
            # Only where it is asked for, and not on the loop: it takes a few times as long as a heartbeat.
            self._registry = await asyncio.get_running_loop().run_in_executor(None, _make_registry)
            self._registry.register(self._collector)
        from prometheus_client.exposition import choose_encoder

        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(
            body=encode(self._registry),
            headers={"Content-Type": content_type, "Cache-Control": "no-store"},
        )


def _make_registry() -> CollectorRegistry:
    from prometheus_client import CollectorRegistry

    return CollectorRegistry(auto_describe=False)


class NodeCollector:
    """One node's figures as metric families."""

    def __init__(self, node: NodeApi, process_facts: Callable[[], dict[str, object]]) -> None:
        self._node = node
        self._process_facts = process_facts

    def describe(self) -> list[Metric]:
        """Nothing: what there is is told when it is collected."""
        return []

    def collect(self) -> Iterator[Metric]:
        """All families, from one reading of the node."""
        facts: dict[str, Any] = self._node.status()
        figures = self._node.reports.figures()
        process: dict[str, Any] = self._process_facts()
        yield from _identity(facts)
        yield from _consensus(facts, figures)
        yield from _clocks(facts, figures)
        yield from _locks(facts, figures)
        yield from _process(facts, process)


def _gauge(name: str, text: str, value: float | None) -> Iterator[Metric]:
    """A gauge; none where the value is not known."""
    from prometheus_client.core import GaugeMetricFamily

    if value is not None:
        yield GaugeMetricFamily(f"ticketing_{name}", text, value=value)


def _counter(name: str, text: str, value: float) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily

    yield CounterMetricFamily(f"ticketing_{name}", text, value=value)


def _counters(name: str, text: str, label: str, values: dict[str, int]) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily

    family = CounterMetricFamily(f"ticketing_{name}", text, labels=(label,))
    for of, value in values.items():
        family.add_metric((of,), value)
    yield family


def _gauges(name: str, text: str, label: str, values: dict[str, Any]) -> Iterator[Metric]:
    from prometheus_client.core import GaugeMetricFamily

    family = GaugeMetricFamily(f"ticketing_{name}", text, labels=(label,))
    for of, value in values.items():
        if value is not None:
            family.add_metric((of,), float(value))
    if family.samples:
        yield family


def _histogram(name: str, text: str, durations: Durations) -> Iterator[Metric]:
    from prometheus_client.core import HistogramMetricFamily

    cumulative = durations.cumulative()
    buckets = list(zip((*BOUND_NAMES, "+Inf"), cumulative, strict=True))
    yield HistogramMetricFamily(
        f"ticketing_{name}", text, buckets=buckets, sum_value=durations.sum_ns / 1_000_000_000
    )


def _identity(facts: dict[str, Any]) -> Iterator[Metric]:
    from prometheus_client.core import InfoMetricFamily

    yield InfoMetricFamily(
        "ticketing_node",
        "What this process is",
        {"place": facts["place"], "version": facts["version"], "domain": facts["domain"] or ""},
    )
    yield from _gauge("serving", "1 on the leader that answers clients", float(facts["serving"]))
    yield from _gauge(
        "ready",
        "1 where this node serves or knows who serves",
        float(facts["serving"] or facts["leader_serves"]),
    )
    yield from _gauge("member", "1 with membership", float(facts["raft"] is not None))
    yield from _gauge("stopping", "1 once it was asked to stop", float(facts["stopping"]))


def _consensus(facts: dict[str, Any], figures: dict[str, Any]) -> Iterator[Metric]:
    yield from _counter("leads", "Leads that were seen to begin, whoever leads", figures["leader_changes"])
    yield from _counters(
        "peer_events",
        "Events on peer links",
        "event",
        {name: value for name, value in facts["links"].items() if isinstance(value, int)},
    )
    yield from _gauge("peer_links_missing", "Places without a link", len(facts["links"]["missing"]))
    raft = facts["raft"]
    if raft is None:
        return
    yield from _gauge("raft_term", "Term", int(raft["term"]))
    yield from _gauge("raft_commit_index", "Everything up to here is decided", int(raft["commit_index"]))
    yield from _gauge(
        "raft_applied_index", "Everything up to here is applied here", int(raft["applied_index"])
    )
    yield from _gauge("raft_last_index", "End of this node's log", int(raft["last_index"]))
    yield from _gauge("raft_joint", "1 while a voter is being swapped", float(raft["joint"]))
    yield from _gauge(
        "redundancy",
        "How many more voters may be lost; 0 is an alarm, below 0 no majority is seen",
        raft["redundancy"],
    )
    voters = [row for row in raft["members"] if row["role"] == "voter"]
    learners = [row for row in raft["members"] if row["role"] == "learner"]
    linked = {row["place"]: float(row["linked"]) for row in voters}
    yield from _gauges("member_linked", "1 while a link to the place's voter is up", "place", linked)
    heard = {row["place"]: row["heard_ms"] / 1000 for row in voters if row["heard_ms"] is not None}
    yield from _gauges("member_heard_seconds", "How long ago the place's voter was heard", "place", heard)
    for name, rows in (("member", voters), ("learner", learners)):
        lag = {row["place"]: row["lag"] for row in rows}
        yield from _gauges(f"{name}_lag_entries", "Entries not acknowledged (leader)", "place", lag)


def _clocks(facts: dict[str, Any], figures: dict[str, Any]) -> Iterator[Metric]:
    clock = facts["clock"]
    gate = {"open": 1.0, "closed": 0.0}.get(clock["gate"])
    yield from _gauge(
        "clock_gate_open", "1 while the clocks of a majority allow grants, 0 while they do not", gate
    )
    yield from _counter("clock_gate_closings", "How often the gate closed", figures["gate_closings"])
    yield from _counter(
        "clock_steps", "How often this machine's wall clock was seen to be set", clock["steps"]
    )
    yield from _gauge(
        "clock_delta_seconds", "The greatest difference with which is granted", clock["delta_ms"] / 1000
    )
    peers = clock["peers"]

    def of(key: str) -> dict[str, Any]:
        return {row["place"]: row[key] / 1000 for row in peers if row[key] is not None}

    yield from _gauges(
        "clock_difference_seconds", "Wall clock of the place less this one's", "place", of("difference_ms")
    )
    yield from _gauges(
        "clock_error_seconds", "Half the width of that figure's interval", "place", of("error_ms")
    )
    yield from _gauges("clock_round_trip_seconds", "Round trip to the place", "place", of("round_trip_ms"))


def _locks(facts: dict[str, Any], figures: dict[str, Any]) -> Iterator[Metric]:
    counters = {
        name.removeprefix("lock_"): value
        for name, value in facts["counters"].items()
        if name.startswith("lock_")
    }
    others = {name: value for name, value in facts["counters"].items() if not name.startswith("lock_")}
    yield from _counters("lock_events", "What became of requests, while this node led", "event", counters)
    yield from _counters("client_events", "Events of client sessions", "event", others)
    yield from _histogram("wait_seconds", "From a request to the proposal of its grant", figures["waits"])
    yield from _histogram("hold_seconds", "From a grant to the proposal of its end", figures["holds"])
    locks = facts["locks"]
    if locks is not None:
        yield from _gauge("locks_held", "Held keys", locks["held"])
    yield from _gauge("waiting", "Requests that wait (leader)", figures["waiting"])
    yield from _gauge("keys_waited_for", "Keys with a queue (leader)", figures["keys_waited_for"])
    yield from _gauge("longest_queue", "The most that wait for one key (leader)", figures["longest_queue"])
    yield from _gauge(
        "longest_wait_seconds", "How long the oldest request has waited (leader)", figures["longest_wait_s"]
    )
    yield from _gauges(
        "sessions",
        "Client sessions",
        "state",
        {"open": facts["sessions"]["open"], "unauthenticated": facts["sessions"]["unauthenticated"]},
    )


def _process(facts: dict[str, Any], process: dict[str, Any]) -> Iterator[Metric]:
    yield from _gauge(
        "loop_busy_ratio",
        "Share of one core that the loop used in the last ten seconds",
        process["loop_busy"],
    )
    yield from _counter("loop_cpu_seconds", "CPU time of the loop's thread", time.thread_time())
    yield from _counter("process_cpu_seconds", "CPU time of the process", time.process_time())
    yield from _counter(
        "loop_gaps", "How often the loop stood still for longer than a tick", facts["loop"]["gaps"]
    )
    yield from _gauge(
        "loop_longest_turn_seconds",
        "The longest turn of the loop in the last 10 to 20 seconds",
        process["longest_turn_ms"] / 1_000,
    )
    yield from _gauge(
        "loop_longest_turn_cpu_seconds",
        "The most CPU time of one turn in the last 10 to 20 seconds",
        process["longest_turn_cpu_ms"] / 1_000,
    )
    yield from _gauge("resident_bytes", "Memory of the process", _resident_bytes())
    yield from _gauge(
        "client_connections", "Client connections, authenticated or not", process["client_connections"]
    )
    yield from _gauge(
        "client_connections_max", "What the descriptors allow", process["client_connections_max"]
    )
    yield from _counter(
        "clients_turned_away", "Connections closed at the door", process["clients_turned_away"]
    )
    ends_ms = process["certificate_ends_ms"]
    if ends_ms is not None:
        yield from _gauge(
            "certificate_days_left",
            "Until the node's certificate ends",
            (ends_ms - facts["wall_ms"]) / DAY_MS,
        )
    yield from _gauge(
        "certificate_fault",
        "1 while the certificate would not pass at peers",
        float(process["certificate_fault"] is not None),
    )
    yield from _gauge("reload_fault", "1 since a reload failed", float(process["reload_fault"] is not None))


def _resident_bytes() -> float | None:
    try:
        with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123
            return float(file.read().split()[1]) * PAGE_SIZE
    except OSError:
        return None
