"""A program that uses locks all the time: `python -m tests.chaos.workload NAME CLIENT_TOML DATABASE HISTORY SEED`.

Workers take, hold, extend, release, cancel, abandon and overstay locks over the library, and write under them. SIGTERM
has it give everything back and end. Being killed is part of its life.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
import time
import warnings
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any

import psycopg

from tests.chaos.ledger import sell
from tests.chaos.record import Recorder
from ticketing.client import Event, EventKind, IndeterminateCancelledError, Ticket, TicketBroker, TicketError
from ticketing.config.client_file import read_client_file
from ticketing.fencing import StaleTokenError

WORKERS = 16
HOT_KEYS = 8
COLD_KEYS = 300
HOT_SHARE = 0.45
CONNECTIONS = 3
PAUSE_S = 0.06
"""On average, between two turns of a worker."""
WRITE_SHARE = 0.35
S = 1e9


class WayWatcher(logging.Handler):
    """Counts what changes a program's way to the leader: sessions that end, and leaders that are named anew."""

    def __init__(self, record: Recorder) -> None:
        super().__init__(logging.INFO)
        self._record = record

    def emit(self, record: logging.LogRecord) -> None:
        if "as the leader" in record.msg:
            self._changed()

    def told(self, event: Event) -> None:
        if event.kind is EventKind.SESSION_ENDED:
            self._changed()

    def _changed(self) -> None:
        self._record.way += 1


class Program:
    """The broker, the database, and the workers."""

    def __init__(self, name: str, client_file: Path, dsn: str, record: Recorder, seed: str) -> None:
        self.name = name
        self.record = record
        self._dsn = dsn
        self._rng = Random(seed)
        self._number = 0
        self._over = asyncio.Event()
        self._connections: asyncio.Queue[psycopg.AsyncConnection[Any]] = asyncio.Queue()
        self._deeds: dict[Callable[[Random], Awaitable[None]], int] = {
            self._turn: 66,
            self._try: 12,
            self._cancel: 7,
            self._extend: 6,
            self._long: 4,
            self._abandon: 2,
            self._overstay: 3,
        }
        """What a worker does next, and how often."""
        watcher = WayWatcher(record)
        logger = logging.getLogger(f"tests.chaos.{name}")
        logger.setLevel(logging.INFO)
        logger.propagate = False
        logger.addHandler(watcher)
        found = read_client_file(client_file)
        self._broker = TicketBroker(
            list(found.addrs),
            token=found.token or "",
            tls=found.tls,
            name=name,
            logger=logger,
            on_event=watcher.told,
        )

    async def run(self) -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._over.set)
        opened = [
            await psycopg.AsyncConnection.connect(self._dsn, autocommit=True) for _ in range(CONNECTIONS)
        ]
        for connection in opened:
            self._connections.put_nowait(connection)
        workers = [asyncio.create_task(self._work(Random(self._rng.random()))) for _ in range(WORKERS)]
        await asyncio.gather(*workers)
        await self._broker.aclose()
        for connection in opened:
            await connection.close()

    async def _work(self, rng: Random) -> None:
        while not self._over.is_set():
            deed = rng.choices(list(self._deeds), list(self._deeds.values()))[0]
            try:
                await deed(rng)
            except Exception as error:
                self.record.write("fault", kind=f"{deed.__name__}: {error!r}")
                raise
            await asyncio.sleep(rng.expovariate(1 / PAUSE_S))

    # --- what workers do

    async def _turn(self, rng: Random) -> None:
        ticket = await self._acquire(_key(rng), rng.randint(2, 12), rng.choice((2, 3, 5, 10)))
        if ticket is not None:
            if rng.random() < WRITE_SHARE:
                await self._write(*ticket)
            await asyncio.sleep(rng.choice((0, rng.uniform(0, 0.05))))
            await self._release(*ticket)

    async def _try(self, rng: Random) -> None:
        ticket = await self._acquire(_key(rng), 0, rng.choice((1, 3, 10)))
        if ticket is not None:
            await asyncio.sleep(rng.uniform(0, 0.02))
            await self._release(*ticket)

    async def _cancel(self, rng: Random) -> None:
        """An acquire that is left somewhere between its beginning and its end."""
        task = asyncio.ensure_future(self._acquire(_hot(rng), rng.randint(1, 10), 3))
        await asyncio.sleep(rng.choice((0, rng.uniform(0, 0.01), rng.uniform(0, 0.5))))
        task.cancel()
        try:
            ticket = await task
        except asyncio.CancelledError:
            return
        if ticket is not None:
            await self._release(*ticket)

    async def _extend(self, rng: Random) -> None:
        lease = rng.randint(2, 4)
        ticket = await self._acquire(_key(rng), rng.randint(2, 8), lease)
        if ticket is None:
            return
        for _ in range(rng.randint(1, 3)):
            await asyncio.sleep(rng.uniform(0, lease * 0.4))
            await self._extend_once(*ticket, rng.randint(1, 5))
        await self._write(*ticket)
        await self._release(*ticket)

    async def _long(self, rng: Random) -> None:
        """Held for most of its lease."""
        lease = rng.randint(1, 5)
        ticket = await self._acquire(_key(rng), rng.randint(2, 8), lease)
        if ticket is not None:
            await asyncio.sleep(max(0.0, ticket[1].conservative_remaining() - rng.uniform(0, 0.3)))
            await self._write(*ticket)
            await self._release(*ticket)

    async def _abandon(self, rng: Random) -> None:
        """Never released: its lease is the net."""
        ticket = await self._acquire(_key(rng), rng.randint(2, 8), rng.randint(1, 3))
        if ticket is not None:
            await ticket[1].lost

    async def _overstay(self, rng: Random) -> None:
        """Writes after its end, as one who froze: only the fence can stop it."""
        ticket = await self._acquire(_hot(rng), rng.randint(2, 8), 1)
        if ticket is not None:
            await asyncio.sleep(ticket[1].conservative_remaining() + rng.uniform(0, 1.0))
            await self._write(*ticket)
            await self._release(*ticket)

    # --- single calls, written down

    async def _acquire(self, key: str, wait: int, lease: int) -> tuple[int, Ticket] | None:
        self._number += 1
        number = self._number
        write = self.record.write
        write("asked", n=number, key=key, wait=wait, lease=lease)
        try:
            ticket = await self._broker.acquire(key, wait, lease, 0.05)
        except IndeterminateCancelledError as error:
            write("refused", n=number, kind=str(error.kind))
            raise
        except TicketError as error:
            write("refused", n=number, kind=str(error.kind))
            return None
        except asyncio.CancelledError:
            write("refused", n=number, kind="cancelled")
            raise
        write("granted", n=number, key=key, token=ticket.token, until=_end(ticket))
        return number, ticket

    async def _release(self, number: int, ticket: Ticket) -> None:
        for _ in range(2):
            self.record.write("releasing", n=number)
            try:
                held = await ticket.release()
            except TicketError as error:
                self.record.write("released", n=number, held=None, kind=str(error.kind))
                continue
            self.record.write("released", n=number, held=held)
            return

    async def _extend_once(self, number: int, ticket: Ticket, lease: int) -> None:
        self.record.write("extending", n=number, lease=lease)
        try:
            held = await ticket.extend(lease)
        except TicketError as error:
            self.record.write("extended", n=number, held=None, kind=str(error.kind))
        else:
            self.record.write("extended", n=number, held=held, until=_end(ticket) if held else 0)

    async def _write(self, number: int, ticket: Ticket) -> None:
        connection = await self._connections.get()
        try:
            await sell(connection, ticket.key, ticket.token, self.name)
        except StaleTokenError:
            # Read after the refusal: what is still left now was left then.
            self.record.write("stale", n=number, left=ticket.conservative_remaining())
        else:
            self.record.write("wrote", n=number)
        finally:
            self._connections.put_nowait(connection)


def _end(ticket: Ticket) -> int:
    """The conservative end by CLOCK_MONOTONIC, or a little before: the clock is read first."""
    now = time.monotonic_ns()
    return now + int(ticket.conservative_remaining() * S)


def _hot(rng: Random) -> str:
    return f"hot-{rng.randrange(HOT_KEYS)}"


def _key(rng: Random) -> str:
    return _hot(rng) if rng.random() < HOT_SHARE else f"cold-{rng.randrange(COLD_KEYS)}"


def main(arguments: list[str]) -> None:
    name, client_file, dsn, history, seed = arguments
    warnings.simplefilter("ignore", ResourceWarning)  # who abandons tickets is told so
    record = Recorder(Path(history))
    asyncio.run(Program(name, Path(client_file), dsn, record, seed).run())
    record.close()


if __name__ == "__main__":
    main(sys.argv[1:])
