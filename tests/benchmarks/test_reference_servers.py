"""The reference servers speak our wire and keep what they stand for; real processes, real clients."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import Any, ClassVar

import pytest

from benchmarks.load.closed import ClosedLoop, run_async, run_callbacks
from benchmarks.load.open_loop import OpenLoop
from benchmarks.load.open_loop import run_async as run_open
from benchmarks.load.process import LoadProcess
from benchmarks.systems.bare import Bare
from benchmarks.systems.bare_replicated import BareReplicated
from benchmarks.systems.null import Null
from benchmarks.systems.system import System
from benchmarks.systems.wire_clients import Ours, Raw

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def running() -> Iterator[dict[str, System]]:
    """All of them at once; tests leave nothing held on the keys that they share."""
    with Null() as null, Bare() as bare, BareReplicated() as replicated:
        yield {one.name: one for one in (null, bare, replicated)}


@pytest.fixture(params=["null", "bare", "bare-replicated"])
def system(request: pytest.FixtureRequest, running: dict[str, System]) -> System:
    return running[request.param]


@pytest.fixture(params=["bare", "bare-replicated"])
def fifo(request: pytest.FixtureRequest, running: dict[str, System]) -> System:
    return running[request.param]


async def test_our_client_takes_and_releases(system: System) -> None:
    client = Ours(system.target())
    await client.open()
    first = await client.acquire("a")
    await client.release(first)
    second = await client.acquire("a")
    assert second.token > first.token
    await client.release(second)
    await client.close()


async def test_a_wrong_token_is_refused(system: System) -> None:
    client = Raw({**system.target(), "token": "wrong"})
    with pytest.raises(ConnectionError, match="auth_failed"):
        await client.open()
    await client.close()


async def test_waiters_are_served_in_the_order_of_asking_and_one_at_a_time(fifo: System) -> None:
    client = Raw(fifo.target())
    await client.open()
    holding = await taken(client, b"k")
    served: list[int] = []
    all_served = asyncio.get_running_loop().create_future()

    def granted(number: int, grant: Any) -> None:
        served.append(number)
        if number == 19:
            all_served.set_result(grant)
        else:
            client.release(grant, lambda: None)

    for number in range(20):
        client.acquire(b"k", partial(granted, number))
    # Another key is free, and its answer comes after all those requests were read.
    await released(client, await taken(client, b"other"))
    assert served == []
    await released(client, holding)
    await released(client, await asyncio.wait_for(all_served, 20))
    assert served == list(range(20))
    await client.close()


async def test_a_waiter_whose_session_ends_is_passed_over(fifo: System) -> None:
    staying, leaving = Raw(fifo.target()), Raw(fifo.target())
    await staying.open()
    await leaving.open()
    holding = await taken(staying, b"k")
    leaving.acquire(b"k", lambda _grant: pytest.fail("nobody is there to be granted anything"))
    await released(leaving, await taken(leaving, b"after-it"))
    await leaving.close()
    # Sockets that are ready at once are read in any order: after a second answer the end has been seen.
    for _ in range(2):
        await released(staying, await taken(staying, b"other"))
    mine = asyncio.ensure_future(taken(staying, b"k"))
    await asyncio.sleep(0)  # it is asked for before the release
    await released(staying, holding)
    await released(staying, await asyncio.wait_for(mine, 20))
    await staying.close()


async def taken(client: Raw, key: bytes) -> Any:
    granted = asyncio.get_running_loop().create_future()
    client.acquire(key, granted.set_result)
    return await asyncio.wait_for(granted, 20)


async def released(client: Raw, grant: Any) -> None:
    done = asyncio.get_running_loop().create_future()
    client.release(grant, lambda: done.set_result(None))
    await asyncio.wait_for(done, 20)


async def test_a_closed_loop_counts_pairs_and_finds_the_order_kept(fifo: System) -> None:
    run = ClosedLoop(workers=8, keys=2, seconds=0.1, warm_up_s=0.05, pids=fifo.pids())
    ours, raw = Ours(fifo.target()), Raw(fifo.target())
    await ours.open()
    await raw.open()
    for told in (await run_async(ours, run), await run_callbacks(raw, run)):
        assert told["pairs"] > 0
        assert told["overtaken"] == 0
        assert told["p50_us"] <= told["p99_us"] <= told["max_us"]
        assert told["server_cpu_us"] > 0
    await ours.close()
    await raw.close()


async def test_an_open_loop_charges_a_stall_to_all_who_would_have_asked() -> None:
    stall_s, rate = 0.2, 500.0

    class Stalled:
        """Grants nothing to anybody for a while, everything at once afterwards."""

        style: ClassVar[str] = "async"
        until = 0.0

        async def open(self) -> None: ...

        async def acquire(self, key: str) -> str:
            loop = asyncio.get_running_loop()
            self.until = self.until or loop.time() + stall_s
            await asyncio.sleep(max(0.0, self.until - loop.time()))
            return key

        async def release(self, grant: str) -> None: ...

        async def close(self) -> None: ...

    told = await run_open(Stalled(), OpenLoop(rate=rate, seconds=0.3, warm_up_s=0.0, pids=[]))
    # Two thirds of all arrivals fall into the stall, and wait for half of it on average.
    assert told["p50_us"] > stall_s / 8 * 1e6
    assert told["max_us"] > stall_s * 0.9 * 1e6


def test_a_client_process_does_one_job_after_the_other(running: dict[str, System]) -> None:
    load = LoadProcess(running["null"], "benchmarks.systems.wire_clients:Raw")
    try:
        load.ready()
        assert load.closed(workers=2, keys=2, seconds=0.05, warm_up_s=0.0)["pairs"] > 0
        assert load.open(rate=200, seconds=0.2, warm_up_s=0.0)["pairs"] > 0
    finally:
        load.close()


def test_a_client_process_tells_why_it_failed(running: dict[str, System]) -> None:
    load = LoadProcess(running["null"], "benchmarks.systems.wire_clients:Raw", {"token": "wrong"})
    try:
        with pytest.raises(RuntimeError, match="auth_failed"):
            load.ready()
    finally:
        load.close()
