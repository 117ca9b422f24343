"""What is told of one run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from benchmarks.figures import percentile

SHARES = {"p50_us": 0.5, "p90_us": 0.9, "p99_us": 0.99, "p999_us": 0.999}


class Figures(TypedDict):
    """One run: rates in pairs per second, latencies of acquires in µs, CPU time in µs a pair."""

    pairs: int
    rate: float
    p50_us: float
    p90_us: float
    p99_us: float
    p999_us: float
    max_us: float
    server_cpu_us: float
    client_cpu_us: float
    overtaken: int


def figures(
    latencies_s: Sequence[float], pairs: int, took_s: float, server_ns: int, client_ns: int, overtaken: int
) -> Figures:
    """Of the latencies of all acquires of the measured time, and of the pairs that were finished in it."""
    if not pairs or not latencies_s:
        raise RuntimeError(f"no pair was finished in {took_s:.1f} s")
    ordered = sorted(latencies_s)
    p50, p90, p99, p999 = (round(percentile(ordered, share) * 1e6, 1) for share in SHARES.values())
    return {
        "pairs": pairs,
        "rate": round(pairs / took_s, 1),
        "p50_us": p50,
        "p90_us": p90,
        "p99_us": p99,
        "p999_us": p999,
        "max_us": round(ordered[-1] * 1e6, 1),
        "server_cpu_us": round(server_ns / pairs / 1000, 2),
        "client_cpu_us": round(client_ns / pairs / 1000, 2),
        "overtaken": overtaken,
    }
