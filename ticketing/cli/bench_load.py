"""The load of `ticketing bench`, and its figures."""

from __future__ import annotations

import asyncio
import math
import secrets
from array import array
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ticketing.client import TicketBroker, TicketError

LEASE_S = 60
WAIT_S = 30
_MS = 1_000_000
_LEAST_NS = 125_000
"""The first bound of the histogram; each next one is the double."""


class Load(NamedTuple):
    """What to do."""

    clients: int
    keys: int
    seconds: float
    hold_s: float


class Result:
    """What came of it, in nanoseconds."""

    def __init__(self) -> None:
        self.acquire_ns = array("q")
        self.release_ns = array("q")
        self.failures: dict[str, int] = {}
        self.took_ns = 0

    def failed(self, kind: str) -> None:
        """One call failed."""
        self.failures[kind] = self.failures.get(kind, 0) + 1


async def run_load(broker: TicketBroker, load: Load, clock_ns: Callable[[], int]) -> Result:
    """Runs it to its end: then every client has given its lock back."""
    result = Result()
    word = secrets.token_hex(4)
    started_ns = clock_ns()
    end_ns = started_ns + int(load.seconds * 1e9)
    await asyncio.gather(
        *(
            _client(broker, f"bench/{word}/{number % load.keys}", load, result, clock_ns, end_ns)
            for number in range(load.clients)
        )
    )
    result.took_ns = clock_ns() - started_ns
    return result


async def _client(
    broker: TicketBroker, key: str, load: Load, result: Result, clock_ns: Callable[[], int], end_ns: int
) -> None:
    while (before_ns := clock_ns()) < end_ns:
        left_s = math.ceil((end_ns - before_ns) / 1e9)
        try:
            ticket = await broker.acquire(key, min(WAIT_S, left_s), LEASE_S, 0)
        except TicketError as error:
            if error.kind != "timeout" or clock_ns() < end_ns:
                result.failed(str(error.kind))
            await asyncio.sleep(0.01)  # whatever is wrong, it is not asked in a tight circle
            continue
        held_ns = clock_ns()
        result.acquire_ns.append(held_ns - before_ns)
        try:
            if load.hold_s:
                await asyncio.sleep(load.hold_s)
        finally:
            released_ns = clock_ns()
            await _release(ticket.release, result)
        result.release_ns.append(clock_ns() - released_ns)


async def _release(release: Callable[[], Any], result: Result) -> None:
    try:
        await release()
    except TicketError as error:
        result.failed(f"release {error.kind}")


def report(load: Load, result: Result) -> dict[str, Any]:
    """As `bench -o json` tells it."""
    took_s = result.took_ns / 1e9
    pairs = len(result.release_ns)
    return {
        "clients": load.clients,
        "keys": load.keys,
        "hold_s": load.hold_s,
        "seconds": round(took_s, 3),
        "pairs": pairs,
        "pairs_per_s": round(pairs / took_s, 1) if took_s else 0.0,
        "acquire_ms": percentiles(result.acquire_ns),
        "release_ms": percentiles(result.release_ns),
        "histogram": histogram(result.acquire_ns),
        "failures": dict(sorted(result.failures.items())),
    }


def percentiles(values: Sequence[int]) -> dict[str, float] | None:
    """Nearest-rank percentiles in ms; None without a value."""
    if not values:
        return None
    ordered = sorted(values)

    def at(share: float) -> float:
        return round(ordered[max(0, math.ceil(share * len(ordered)) - 1)] / _MS, 3)

    return {"p50": at(0.5), "p90": at(0.9), "p99": at(0.99), "p999": at(0.999), "max": at(1)}


def histogram(values: Sequence[int]) -> list[dict[str, float]]:
    """How many lie below each bound and not below the one before; bounds double, from the first that is needed."""
    if not values:
        return []
    counts: dict[int, int] = {}
    for value in values:
        step = max(0, (value // _LEAST_NS).bit_length())
        counts[step] = counts.get(step, 0) + 1
    return [
        {"below_ms": (_LEAST_NS << step) / _MS, "count": counts.get(step, 0)}
        for step in range(min(counts), max(counts) + 1)
    ]
