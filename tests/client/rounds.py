"""Random rounds of callers who come, leave at any moment and lose their sessions; in the end nothing may be left.

    python -m tests.client.rounds --rounds 20000 --seed 7

What is drawn comes from the seed; when things happen is up to the loop, so a seed is a kind of weather, not a
transcript.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import gc
import random
import threading
import time
import warnings
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from unittest import mock

from tests.client.locking import LockServer
from tests.client.scripted import Asked, Server, ServerSession, turns
from ticketing.client import Ticket, TicketBroker, TicketError, connection
from ticketing.protocol import frames

CALLERS = 24
LEASE_S = 200
FINE = ("timeout", "indeterminate", "not_connected", "insufficient_lease", "io", "busy")
"""What a round may end with when sessions break."""


class Rounds:
    """Callers on one broker, and what they have seen of one another."""

    def __init__(
        self, broker: TicketBroker, keys: Sequence[str], rng: random.Random, leave_s: float = 0.004
    ) -> None:
        self.outcomes: collections.Counter[str] = collections.Counter()
        self.faults: list[str] = []
        self._broker = broker
        self._keys = keys
        self._rng = rng
        self._leave_s = leave_s
        """The longest that a caller who leaves has stayed."""
        self._holders: dict[str, int] = {}
        self._tokens: dict[str, int] = {}
        self._lock = threading.Lock()

    # --- what is promised

    def begin(self, ticket: Ticket) -> None:
        """Somebody got a ticket: nobody else may hold the key, and tokens only grow."""
        with self._lock:
            if ticket.key in self._holders:
                self.faults.append(f"{ticket.key} is held by {self._holders[ticket.key]} and {ticket.token}")
            if ticket.token <= self._tokens.get(ticket.key, 0):
                self.faults.append(f"token {ticket.token} of {ticket.key} does not grow")
            self._tokens[ticket.key] = ticket.token
            self._holders[ticket.key] = ticket.token

    def end(self, ticket: Ticket) -> None:
        """Its release is about to be invoked."""
        with self._lock:
            if self._holders.pop(ticket.key, None) != ticket.token:
                self.faults.append(f"{ticket.key} was not held by {ticket.token}")

    # --- callers

    async def run(self, rounds: int, callers: int = CALLERS) -> None:
        """So many rounds, shared among the callers."""
        await asyncio.gather(*[self._caller(rounds // callers) for _ in range(callers)])

    async def _caller(self, rounds: int) -> None:
        kinds: Sequence[Callable[[], Awaitable[str]]] = (
            self._hold,
            self._hold,
            self._try,
            self._leave_by_cancel,
            self._leave_by_cancel,
            self._leave_by_wait_for,
            self._leave_by_timeout,
            self._leave_the_release,
            self._extend,
            self._close,
            self._drop,
        )
        for _ in range(rounds):
            kind = self._rng.choice(kinds)
            try:
                outcome = await kind()
            except TicketError as error:
                outcome = str(error.kind)
                if outcome not in FINE:
                    self.faults.append(f"{kind.__name__}: {error!r}")
            self.outcomes[outcome] += 1

    def _acquire(self, wait: float = 3, **options: Any) -> Awaitable[Ticket]:
        return self._broker.acquire(self._rng.choice(self._keys), wait, LEASE_S, 0, **options)

    async def _work(self) -> None:
        for _ in range(self._rng.randrange(4)):
            await asyncio.sleep(0)

    async def _give_back(self, ticket: Ticket) -> str:
        self.end(ticket)
        return "held" if await ticket.release() else "not held"

    async def _hold(self) -> str:
        ticket = await self._acquire()
        self.begin(ticket)
        await self._work()
        return await self._give_back(ticket)

    async def _try(self) -> str:
        ticket = await self._acquire(0)
        self.begin(ticket)
        return await self._give_back(ticket)

    async def _leave_by_cancel(self) -> str:
        task = asyncio.ensure_future(self._acquire())
        if self._rng.random() < 0.5:
            for _ in range(self._rng.randrange(12)):
                await asyncio.sleep(0)
        else:
            await asyncio.sleep(self._rng.uniform(0, self._leave_s))
        task.cancel()
        (result,) = await asyncio.gather(task, return_exceptions=True)
        if isinstance(result, Ticket):
            self.begin(result)
            return await self._give_back(result)
        if isinstance(result, asyncio.CancelledError):
            return "left"
        assert isinstance(result, TicketError), result
        raise result

    async def _leave_by_wait_for(self) -> str:
        try:
            ticket = await asyncio.wait_for(self._acquire(), self._rng.uniform(0, self._leave_s))
        except TimeoutError:
            return "left"
        self.begin(ticket)
        return await self._give_back(ticket)

    async def _leave_by_timeout(self) -> str:
        try:
            async with asyncio.timeout(self._rng.uniform(0, self._leave_s)):
                ticket = await self._acquire()
        except TimeoutError:
            return "left"
        except asyncio.CancelledError:
            # What `timeout()` before 3.13 makes of the class that is both.
            return "left"
        self.begin(ticket)
        return await self._give_back(ticket)

    async def _leave_the_release(self) -> str:
        ticket = await self._acquire()
        self.begin(ticket)
        self.end(ticket)
        task = asyncio.ensure_future(ticket.release())
        for _ in range(self._rng.randrange(6)):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        return "held" if await ticket.release() else "not held"

    async def _extend(self) -> str:
        ticket = await self._acquire(auto_extend=True)
        self.begin(ticket)
        try:
            async with ticket:
                try:
                    if not await asyncio.wait_for(ticket.extend(), self._rng.uniform(0, self._leave_s)):
                        self.faults.append(f"{ticket!r} could not be extended")
                except TimeoutError:
                    pass
                except TicketError as error:
                    self.outcomes[f"extension: {error.kind}"] += 1
                self.end(ticket)
        except TicketError as error:
            return str(error.kind)
        return "held"

    async def _close(self) -> str:
        ticket = await self._acquire()
        self.begin(ticket)
        self.end(ticket)
        ticket.close()
        return "held"

    async def _drop(self) -> str:
        ticket = await self._acquire()
        self.begin(ticket)
        self.end(ticket)
        with warnings.catch_warnings(record=True):
            warnings.simplefilter("always")
            del ticket
        return "held"

    def run_in_thread(self, rounds: int) -> None:
        """The same without a loop: to be run on another thread."""
        rng = random.Random(self._rng.random())
        for _ in range(rounds):
            try:
                ticket = self._broker.acquire_sync(rng.choice(self._keys), rng.choice((0, 3)), LEASE_S, 0)
            except TicketError as error:
                self.outcomes[str(error.kind)] += 1
                continue
            self.begin(ticket)
            self.end(ticket)
            try:
                ticket.release_sync()
            except TicketError as error:
                self.outcomes[str(error.kind)] += 1
            self.outcomes["held"] += 1


def left_behind(broker: TicketBroker) -> list[str]:
    """What a broker still has, once all that it gave back is settled."""
    cluster = broker._cluster
    assert cluster is not None
    found = {
        "errands": len(cluster.errands),
        "requests": sum(len(session.requests()) for session in cluster._sessions),
        "acquires without a session": cluster.waiting,
        "extensions": len(cluster.extending),
        "waiters for the end of a lease": len(cluster.lost_waiters),
    }
    return [f"{count} {name}" for name, count in found.items() if count]


class Weather:
    """Makes a lock server slow, moody and short of sessions."""

    def __init__(self, server: Server, rng: random.Random) -> None:
        self._server = server
        self._rng = rng
        self._cut_s = rng.choice((0.005, 0.02, 0.1))
        """The mean time between two cuts."""
        self._good = server.answer
        self.calm = False
        server.answer = self._answer

    def _answer(self, asked: Asked) -> None:
        assert self._good is not None
        luck = self._rng.random()
        if self.calm or luck > 0.1:
            self._good(asked)
        elif luck < 0.02 and asked.opcode == frames.Q:
            # Not the leader for this moment; it says so, and takes it back.
            asked.not_leading()
            asked.session.send(frames.encode_leader(self._server.address))
        elif luck < 0.023:
            self._end(asked.session)
        elif luck < 0.026:
            # Done, and the answer is lost with the session.
            asked.session.mute = True
            self._good(asked)
            asked.session.end()
        else:
            asyncio.get_running_loop().call_later(self._rng.uniform(0, 0.003), self._late, asked)

    def _late(self, asked: Asked) -> None:
        # What a session that is over had asked for is not read any more.
        if not asked.session.lost and self._good is not None:
            self._good(asked)

    def _end(self, session: ServerSession) -> None:
        if session.open and not session.lost:
            word = self._rng.choice(
                (frames.encode_error("shutting_down"), frames.encode_moved(self._server.address), b"")
            )
            session.send(word)
            session.end()

    async def blow(self) -> None:
        """Cuts sessions until it is calm."""
        while not self.calm:
            await asyncio.sleep(self._rng.uniform(0, 2 * self._cut_s))
            if self._server.open_sessions:
                self._end(self._rng.choice(self._server.open_sessions))


async def storm(rounds: int, seed: int, threads: int = 0) -> collections.Counter[str]:
    """All of it against a scripted server. AssertionError where anything was left."""
    loop = asyncio.get_running_loop()
    heard: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: heard.append(context))
    rng = random.Random(seed)
    before = asyncio.all_tasks()
    server = Server()
    await server.start()
    locks = LockServer(server)
    weather = Weather(server, rng)
    impatient = mock.patch.multiple(connection, BACKOFF_MIN_S=0.001, BACKOFF_MAX_S=0.005)
    impatient.start()  # or sessions that are cut every few milliseconds would mostly be waited for
    keys = [f"key-{number}" for number in range(5)]
    broker = TicketBroker([server.address])
    assert await broker.wait_ready(5)
    storming = Rounds(broker, keys, rng)
    blowing = asyncio.ensure_future(weather.blow())
    helpers = [
        loop.run_in_executor(None, storming.run_in_thread, rounds // (10 * threads)) for _ in range(threads)
    ]
    await storming.run(rounds)
    await asyncio.gather(*helpers)
    weather.calm = True
    await blowing
    assert await broker.settled(6)
    await turns()
    assert not storming.faults, storming.faults[:5]
    assert not left_behind(broker)
    assert [key for key in keys if locks.holder(key.encode()) is not None] == []
    assert [key for key in keys if locks.waiting(key.encode())] == []
    # The broker is as good as new.
    for key in keys:
        async with await broker.acquire(key, 5, LEASE_S, 0):
            pass
    await broker.aclose()
    impatient.stop()
    await server.stop()
    await turns()
    gc.collect()
    assert not heard, heard[:3]
    assert asyncio.all_tasks() == before
    return storming.outcomes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20_000, help="of each seed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=1, help="how many, from --seed on")
    parser.add_argument("--threads", type=int, default=2, help="that call without a loop")
    arguments = parser.parse_args()
    for seed in range(arguments.seed, arguments.seed + arguments.seeds):
        began = time.monotonic()
        outcomes = asyncio.run(storm(arguments.rounds, seed, arguments.threads))
        told = ", ".join(f"{name} {count}" for name, count in sorted(outcomes.items()))
        print(f"seed {seed}: {told}; {time.monotonic() - began:.1f} s")


if __name__ == "__main__":
    main()
