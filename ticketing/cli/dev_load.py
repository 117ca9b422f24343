"""A little load for a throw-away cluster, so that there is something to see: buyers of seats, and slow jobs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from random import Random
from types import TracebackType

from ticketing.client import TicketBroker, TicketError
from ticketing.config.client_file import Access

SHOPS = 3
BUYERS = 12
"""Of each shop; most of them want the same few seats."""
SEATS = 8
JOBS = 4
STOP_S = 3.0


class Load:
    """Programs that acquire, work and release, in a thread of their own until the context is left."""

    def __init__(self, access: Access, *, seed: int = 1) -> None:
        self._access = access
        self._random = Random(seed)  # noqa: S311 - of a demonstration
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)
        self._logger = logging.getLogger("ticketing.load")
        self._logger.addHandler(logging.NullHandler())
        self._logger.propagate = False
        self._main: asyncio.Task[None] | None = None

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop)
        self._thread.join(STOP_S)

    def _run(self) -> None:
        try:
            self._main = self._loop.create_task(self._work())
            with contextlib.suppress(asyncio.CancelledError):
                self._loop.run_until_complete(self._main)
        finally:
            self._loop.close()

    def _stop(self) -> None:
        if self._main is not None:
            self._main.cancel()

    async def _work(self) -> None:
        brokers = [self._broker(f"shop-{n}") for n in range(1, SHOPS + 1)]
        jobs = self._broker("night-job")
        try:
            async with asyncio.TaskGroup() as group:
                for broker in brokers:
                    for _ in range(BUYERS):
                        group.create_task(self._buy(broker))
                for n in range(1, JOBS + 1):
                    group.create_task(self._hold_long(jobs, f"job/report-{n}"))
        finally:
            for broker in (*brokers, jobs):
                await broker.aclose()

    def _broker(self, name: str) -> TicketBroker:
        access = self._access
        return TicketBroker(
            list(access.addrs), token=access.token, tls=access.tls, name=name, logger=self._logger
        )

    async def _buy(self, broker: TicketBroker) -> None:
        """Wants a seat, the first ones most of all; some give up before it is their turn."""
        draw = self._random
        while True:
            seat = int(SEATS * draw.random() ** 2)
            wait_s = draw.choice((1, 2, 5, 20))
            await self._once(broker, f"event/7/seat/A-{seat + 1}", wait_s, 10, draw.uniform(0.05, 0.6))
            await asyncio.sleep(draw.uniform(0.0, 0.5))

    async def _hold_long(self, broker: TicketBroker, key: str) -> None:
        """A job whose lock is held for most of its lease."""
        while True:
            await self._once(broker, key, 5, 30, self._random.uniform(10, 28))

    async def _once(
        self, broker: TicketBroker, key: str, wait_s: float, lease_s: float, work_s: float
    ) -> None:
        try:
            async with await broker.acquire(key, wait_s, lease_s, 0):
                await asyncio.sleep(work_s)
        except TicketError:
            # An election, or the wait was over: the next one is asked for a moment later.
            await asyncio.sleep(0.1)
