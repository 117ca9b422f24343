"""What callers see while a server goes away: a new acquire every few ms, each on a key of its own, come what may.

The outage is the longest time without a grant around the strike: from the last grant before to the first one after.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar, TypedDict

from benchmarks.systems.system import AsyncClient, BlockingClient

INTERVAL_S = 0.01
SETTLED = 50
"""Grants before the strike."""
RECOVERED = 50
"""Grants, of requests made after the strike, that end the trial."""
SETTLE_S = 30.0
RECOVER_S = 30.0
THREADS = 300
"""Of a blocking client: all that come in three seconds may wait at once."""
BEFORE_S = 0.05
"""How far before the strike the last grant is looked for."""


class Outage(TypedDict):
    """One trial."""

    gap_s: float
    failed: int
    """Requests that ended without a grant."""
    lost: int
    """Grants that were answered before the strike and whose release says that they are not held."""


def longest_gap(granted: Sequence[float], struck: float) -> float:
    """The longest time between two grants that follow each other, from shortly before the strike on."""
    seen = sorted(at for at in granted if at > struck - BEFORE_S)
    return max(after - before for before, after in itertools.pairwise(seen))


class _Callers:
    """Asks every INTERVAL_S until it is told to stop."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self.granted: list[tuple[float, float, Any]] = []
        """Asked at, granted at, the grant."""
        self.failed = 0
        self._under_way: set[asyncio.Task[None]] = set()

    async def ask_on(self) -> None:
        due = time.perf_counter()
        number = 0
        while True:
            task = asyncio.ensure_future(self._ask(f"outage-{number}"))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)
            number += 1
            due += INTERVAL_S
            await asyncio.sleep(max(0.0, due - time.perf_counter()))

    async def _ask(self, key: str) -> None:
        asked = time.perf_counter()
        try:
            grant = await self._client.acquire(key)
        except Exception:  # whatever the client says of a request that was lost: it is counted
            self.failed += 1
            return
        self.granted.append((asked, time.perf_counter(), grant))

    async def until(self, what: str, count: int, asked_after: float, within_s: float) -> None:
        """Waits for so many grants of requests made after that moment."""
        deadline = time.perf_counter() + within_s
        while sum(asked > asked_after for asked, _, _ in self.granted) < count:
            if time.perf_counter() > deadline:
                raise TimeoutError(f"{what}: not within {within_s:.0f} s")
            await asyncio.sleep(INTERVAL_S)

    def drop(self) -> None:
        for task in self._under_way:
            task.cancel()


class Threaded:
    """A blocking client for callers on a loop, as many at a time as there are threads."""

    style: ClassVar[str] = "async"

    def __init__(self, client: BlockingClient) -> None:
        self._client = client
        self._threads = ThreadPoolExecutor(THREADS)
        self._numbers = itertools.count()

    async def open(self) -> None:
        """It is."""

    async def acquire(self, key: str) -> Any:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._client.acquire, next(self._numbers), key)

    async def release(self, grant: Any) -> None:
        await asyncio.get_running_loop().run_in_executor(self._threads, self._client.release, grant)

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


async def run_outage(client: AsyncClient, tell: Any) -> Outage:
    """Tells `{"leader": …}` once callers are served; then waits for a line with the moment of the strike."""
    callers = _Callers(client)
    asking = asyncio.ensure_future(callers.ask_on())
    try:
        await callers.until("service before the strike", SETTLED, 0.0, SETTLE_S)
        leader = getattr(client, "leader", None)
        tell({"leader": await leader() if leader is not None else None})
        struck = float(await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline))
        await callers.until("service after the strike", RECOVERED, struck, RECOVER_S)
    finally:
        asking.cancel()
        callers.drop()
    lost = 0
    for _, at, grant in list(callers.granted):
        if at < struck:
            try:
                await client.release(grant)
            except RuntimeError:
                lost += 1
    gap_s = longest_gap([at for _, at, _ in callers.granted], struck)
    return {"gap_s": round(gap_s, 4), "failed": callers.failed, "lost": lost}
