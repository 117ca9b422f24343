"""An innocent client in a process of its own: acquires and releases over the library, and says how long it took.

    python -m tests.hostile.neighbour TOKEN CA|off ADDRESS...

One JSON line an acquire: `[began, milliseconds, error or null]`, `began` on the monotonic clock of the machine. It ends
when its standard input does.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

from ticketing.client import TicketBroker, TicketError

EVERY_S = 0.008
WAIT_S = 10
LEASE_S = 20


async def live(token: str, authority: str, addresses: list[str]) -> None:
    loop = asyncio.get_running_loop()
    over = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), over.set)
    broker = TicketBroker(addresses, token=token, tls=authority, name="neighbour")
    number = 0
    try:
        while not over.is_set():
            number += 1
            began, error = time.monotonic(), None
            try:
                ticket = await broker.acquire(f"neighbour/{number % 16}", WAIT_S, LEASE_S, 0)
                took_ms = (time.monotonic() - began) * 1000
                await ticket.release()
            except TicketError as failure:
                took_ms = (time.monotonic() - began) * 1000
                error = f"{failure.kind}: {failure}"
            print(json.dumps([began, took_ms, error]), flush=True)
            await asyncio.sleep(EVERY_S)
    finally:
        await broker.aclose()


if __name__ == "__main__":
    asyncio.run(live(sys.argv[1], sys.argv[2], sys.argv[3:]))
