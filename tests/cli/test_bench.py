from __future__ import annotations

import asyncio
import json
from array import array
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cli.conftest import Tell
from tests.cli.planes import Planes
from ticketing.cli.bench_load import Load, Result, histogram, percentiles, report, run_load
from ticketing.client import TicketError

MS = 1_000_000


class Clock:
    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


class Broker:
    """One key each at a time; a lock takes 10 ms to be had, and a release 1 ms."""

    def __init__(self, clock: Clock, failures: int = 0) -> None:
        self._clock = clock
        self._failures = failures
        self.keys: dict[str, int] = {}

    async def acquire(self, key: str, *_: float) -> Any:
        await asyncio.sleep(0)
        self._clock.now_ns += 10 * MS
        if self._failures:
            self._failures -= 1
            raise TicketError("busy", "no")
        self.keys[key] = self.keys.get(key, 0) + 1
        return self

    async def release(self) -> bool:
        self._clock.now_ns += MS
        return True


async def test_clients_take_and_give_back_until_the_time_is_over() -> None:
    clock = Clock()
    broker = Broker(clock, failures=2)
    load = Load(clients=4, keys=2, seconds=1, hold_s=0)
    told = report(load, await run_load(broker, load, clock))  # type: ignore[arg-type]
    assert len(broker.keys) == 2
    assert all(key.startswith("bench/") for key in broker.keys)
    assert told["pairs"] == sum(broker.keys.values())
    assert told["failures"] == {"busy": 2}
    assert told["release_ms"]["p50"] == 1.0
    assert told["pairs_per_s"] == pytest.approx(told["pairs"] / told["seconds"], rel=0.01)


def test_percentiles_are_values_that_were_measured() -> None:
    assert percentiles([]) is None
    assert percentiles([n * MS for n in range(1, 101)]) == {
        "p50": 50.0,
        "p90": 90.0,
        "p99": 99.0,
        "p999": 100.0,
        "max": 100.0,
    }


@settings(max_examples=60, deadline=None)
@given(values=st.lists(st.integers(0, 10**11), min_size=1, max_size=40))
def test_every_value_is_in_exactly_the_bar_that_its_bound_says(values: list[int]) -> None:
    bars = histogram(values)
    assert sum(bar["count"] for bar in bars) == len(values)
    bounds = [bar["below_ms"] for bar in bars]
    assert bounds == sorted(set(bounds))
    for bar in bars:
        low = bar["below_ms"] / 2 if bar["below_ms"] > 0.125 else 0
        assert bar["count"] == sum(low * MS <= value < bar["below_ms"] * MS for value in values)


def fake(monkeypatch: pytest.MonkeyPatch, result: Result) -> None:
    async def run(*_: object, **__: object) -> Result:
        return result

    monkeypatch.setattr("ticketing.cli.bench._run", run)


def test_the_figures_for_people_and_programs(
    planes: Planes, tell: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = Result()
    result.acquire_ns = array("q", [MS // 2, MS, 3 * MS])
    result.release_ns = array("q", [MS, MS, MS])
    result.took_ns = 2_000_000_000
    result.failed("busy")
    fake(monkeypatch, result)
    code, out, _ = tell("bench", "--time", "2")
    assert code == 0
    assert out == (
        "3 locks taken and given back, 2 a second\n"
        "acquire  p50 1.00 ms  p90 3.00 ms  p99 3.00 ms  p999 3.00 ms  max 3.00 ms\n"
        "release  p50 1.00 ms  p90 1.00 ms  p99 1.00 ms  p999 1.00 ms  max 1.00 ms\n"
        "acquire\n"
        f"  below        1 ms         1  {'#' * 40}\n"
        f"  below        2 ms         1  {'#' * 40}\n"
        f"  below        4 ms         1  {'#' * 40}\n"
        "failed: busy 1\n"
    )
    code, out, _ = tell("bench", "-o", "json")
    told = json.loads(out)
    assert (code, told["pairs"], told["pairs_per_s"], told["failures"]) == (0, 3, 1.5, {"busy": 1})


def test_not_one_lock_is_a_failure(planes: Planes, tell: Tell, monkeypatch: pytest.MonkeyPatch) -> None:
    result = Result()
    result.took_ns = 1
    result.failed("busy")
    fake(monkeypatch, result)
    code, _, err = tell("bench")
    assert code == 1
    assert "not one lock was had (busy: 1)" in err


def test_nobody_there_is_unreachable(planes: Planes, tell: Tell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ticketing.cli.bench.REACH_S", 0.05)
    assert tell("bench")[0] == 7


@pytest.mark.parametrize("words", [["--clients", "0"], ["--keys", "x"], ["--time", "301"], ["--hold", "-1"]])
def test_mistakes_are_told(planes: Planes, tell: Tell, words: list[str]) -> None:
    assert tell("bench", *words)[0] == 2
