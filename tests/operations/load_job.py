"""A program that uses locks all the time: `python -m tests.operations.load_job CLIENT_TOML`, one JSON line an event.

Workers take turns on a few keys with short leases; besides, some tickets are held all along. SIGHUP has it read its
file anew, as a program that is rolled out with another token does; SIGTERM has it give everything back and end.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from pathlib import Path

from ticketing.client import Ticket, TicketBroker, TicketError
from ticketing.config.client_file import read_client_file

WORKERS = 4
KEYS = ("stock/1", "stock/2")
HELD = 10
HELD_LEASE_S = 240.0
LEASE_S = 5.0
PAUSE_S = 0.02


class Job:
    """The broker of the moment, and all that uses it."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._broker = self._open()
        self._over = asyncio.Event()

    def _open(self) -> TicketBroker:
        access = read_client_file(self._file)
        return TicketBroker(list(access.addrs), token=access.token or "", tls=access.tls, name="load")

    def tell(self, what: str, **facts: object) -> None:
        print(json.dumps({"what": what, "at": time.monotonic(), **facts}), flush=True)

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._over.set)
        reopened: list[asyncio.Task[None]] = []
        loop.add_signal_handler(signal.SIGHUP, lambda: reopened.append(loop.create_task(self._reopen())))
        await self._broker.wait_ready(60)
        held = [await self._broker.acquire(f"held/{n}", 10, HELD_LEASE_S, 0) for n in range(HELD)]
        for ticket in held:
            self.tell("held", key=ticket.key, token=ticket.token)
        workers = [asyncio.create_task(self._work(number)) for number in range(WORKERS)]
        await self._over.wait()
        await asyncio.gather(*workers)
        for ticket in held:
            await self._give_back(ticket)
        await self._broker.aclose()
        self.tell("ended")

    async def _reopen(self) -> None:
        fresh = self._open()
        if not await fresh.wait_ready(20):
            self.tell("not reopened")
        self._broker = fresh  # the former one stays until its tickets are back: until the end
        self.tell("reopened")

    async def _give_back(self, ticket: Ticket) -> None:
        left_s = ticket.conservative_remaining()
        try:
            for _ in range(3):
                try:
                    answered = await self._broker.release(ticket.key, ticket.token)
                except TicketError as error:
                    self.tell("release failed", key=ticket.key, kind=str(error.kind))
                else:
                    self.tell("given back", key=ticket.key, token=ticket.token, held=answered, left_s=left_s)
                    return
        finally:
            ticket.close()

    async def _work(self, number: int) -> None:
        key = KEYS[number % len(KEYS)]
        while not self._over.is_set():
            asked = time.monotonic()
            try:
                ticket = await self._broker.acquire(key, 10, LEASE_S, 0.5)
            except TicketError as error:
                self.tell("not acquired", key=key, asked=asked, kind=str(error.kind))
                await asyncio.sleep(0.2)
                continue
            granted = time.monotonic()
            await asyncio.sleep(PAUSE_S)
            left_s = ticket.conservative_remaining()
            released = time.monotonic()
            held: bool | None
            try:
                held = await ticket.release()
            except TicketError:
                held = None
            self.tell(
                "turn",
                key=key,
                token=ticket.token,
                asked=asked,
                granted=granted,
                released=released,
                left_s=left_s,
                lost=bool(ticket.lost),
                held=held,
            )
            await asyncio.sleep(PAUSE_S)


if __name__ == "__main__":
    asyncio.run(Job(Path(sys.argv[1])).run())
