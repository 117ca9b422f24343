"""What a program of the published client (PyPI `ticketing` 0.3.0) does, run as a process of its own.

Usage: python published_client_job.py ADDRESSES PAIRS, with the client on the path and its token in the environment.
Prints a line now and then while it goes on, and one JSON object at the end. It imports nothing of this project:
`saro_ticketing` is the published package here.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import random
import sys
import time
from typing import Any

# Not an import statement: type checkers would find our alias package, whose `acquire` asks for more.
published: Any = importlib.import_module("saro_ticketing")

WORKERS = 4
KEYS = [f"좌석/{number}" for number in range(4)]
WAIT_S = 60
LEASE_S = 30
TELL_EVERY = 100
"""Pairs a line: whoever watches it sees whether it goes on, however slow the machine is."""


class Job:
    """Workers that raise a counter under its lock, in two steps that others could come between."""

    def __init__(self, broker: Any, pairs: int) -> None:
        self.broker = broker
        self.pairs = pairs
        self.counters = dict.fromkeys(KEYS, 0)
        self.done = dict.fromkeys(KEYS, 0)
        self.inside = dict.fromkeys(KEYS, 0)
        self.overlaps = 0
        self.contended = 0
        self.not_released = 0
        self.asked: dict[str, list[int]] = {key: [] for key in KEYS}
        self.granted: dict[str, list[int]] = {key: [] for key in KEYS}
        self.tokens: dict[str, list[int]] = {key: [] for key in KEYS}
        self.requests = 0
        self.pairs_done = 0

    async def work(self, number: int) -> None:
        rng = random.Random(number)
        for _ in range(self.pairs):
            key = rng.choice(KEYS)
            request = self.requests
            self.requests += 1
            # The request is written in the order of these calls: nothing is awaited before it.
            self.asked[key].append(request)
            if self.inside[key]:
                self.contended += 1
            ticket = await self.broker.acquire(key, WAIT_S, LEASE_S)
            self.granted[key].append(request)
            self.tokens[key].append(ticket.token)
            self.overlaps += self.inside[key]
            self.inside[key] += 1
            seen = self.counters[key]
            await asyncio.sleep(0)
            self.counters[key] = seen + 1
            self.done[key] += 1
            self.inside[key] -= 1
            if not await ticket.release():
                self.not_released += 1
            self.pairs_done += 1
            if self.pairs_done % TELL_EVERY == 0:
                print(self.pairs_done, flush=True)

    def told(self, seconds: float) -> dict[str, Any]:
        tokens = [token for held in self.tokens.values() for token in held]
        return {
            "client": published.__file__,
            "pairs": len(tokens),
            "seconds": round(seconds, 2),
            "counters_right": self.counters == self.done and sum(self.done.values()) == WORKERS * self.pairs,
            "overlaps": self.overlaps,
            "contended": self.contended,
            "not_released": self.not_released,
            "tokens_unique": len(set(tokens)) == len(tokens),
            "tokens_rising": all(held == sorted(held) for held in self.tokens.values()),
            "in_order": self.asked == self.granted,
        }


async def main() -> None:
    addresses, pairs = sys.argv[1].split(","), int(sys.argv[2])
    broker = published.TicketBroker(addresses, token=os.environ["JOB_TOKEN"])
    assert await broker.wait_ready(WAIT_S), "no session"
    # From here on the client knows the leader, and all its requests take the same session.
    ticket = await broker.acquire("first", WAIT_S, LEASE_S)
    await ticket.release()
    job = Job(broker, pairs)
    began = time.perf_counter()
    await asyncio.gather(*(job.work(number) for number in range(WORKERS)))
    print(json.dumps(job.told(time.perf_counter() - began)))


asyncio.run(main())
