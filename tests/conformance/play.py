"""What a scenario is made of: servers, brokers of the library under test, their tickets; and the list of all."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.conformance.clusters import Clusters
from tests.conformance.library import Asked, CallError, Driver, Library
from tests.conformance.server import Request, Server
from tests.e2e.cluster import Cluster
from tests.server.certificates import Authority, make_authority


class Ticket:
    """One ticket of the library."""

    def __init__(self, driver: Driver, number: int, brought: dict[str, Any]) -> None:
        self._driver = driver
        self._number = number
        self.token = int(brought["token"])
        self.key: str = brought["key"]
        self.domain: str | None = brought["domain"]

    def begin(self, do: str, **arguments: Any) -> Asked:
        """A call about this ticket, not waited for."""
        return self._driver.begin(do, ticket=self._number, **arguments)

    async def released(self) -> bool:
        """Releases; whether it was held."""
        released: bool = (await self.begin("release").answer())["released"]
        return released

    async def extended(self, lease: float | None = None) -> bool:
        """Extends; whether it was held."""
        asked = self.begin("extend", lease_ms=None if lease is None else milliseconds(lease))
        extended: bool = (await asked.answer())["extended"]
        return extended

    async def remaining(self) -> float:
        """Seconds that are left at least."""
        left: float = (await self.begin("remaining").answer())["seconds"]
        return left

    async def lost(self) -> bool:
        """Whether it is lost now."""
        lost: bool = (await self.begin("lost").answer())["lost"]
        return lost

    async def abandon(self) -> None:
        """Forgets it without a release."""
        await self.begin("abandon").answer()


class Acquire:
    """An acquire under way."""

    def __init__(self, driver: Driver, asked: Asked) -> None:
        self._driver = driver
        self._asked = asked

    @property
    def done(self) -> bool:
        return self._asked.done

    async def ticket(self) -> Ticket:
        """What it brings."""
        return Ticket(self._driver, self._asked.number, await self._asked.answer())

    async def kind(self) -> str:
        """The kind of error that it ends with."""
        return (await self.failure()).kind

    async def failure(self) -> CallError:
        """The error that it ends with."""
        return await self._asked.failure()

    async def dropped_or_granted(self) -> bool:
        """Drops its future, which may have brought a ticket just before; whether it did."""
        await self._driver.begin("drop", call=self._asked.number).answer()
        try:
            await self._asked.answer()
        except CallError as error:
            if error.kind != "dropped":
                raise
            return False
        return True

    async def drop(self) -> None:
        """Drops its future; it ends as `dropped`."""
        await self._driver.begin("drop", call=self._asked.number).answer()
        assert await self.kind() == "dropped"


class Broker:
    """One broker of the library."""

    def __init__(self, driver: Driver, number: int) -> None:
        self.driver = driver
        self._number = number

    def acquire(self, key: str = "key", wait: float = 60, lease: float = 30, budget: float = 0) -> Acquire:
        """Begins an acquire; times in seconds."""
        asked = self.driver.begin(
            "acquire",
            broker=self._number,
            key=key,
            wait_ms=milliseconds(wait),
            lease_ms=milliseconds(lease),
            budget_ms=milliseconds(budget),
        )
        return Acquire(self.driver, asked)

    async def ticket(
        self, key: str = "key", wait: float = 60, lease: float = 30, budget: float = 0
    ) -> Ticket:
        """Acquires."""
        return await self.acquire(key, wait, lease, budget).ticket()

    async def ready(self, within_s: float = 15) -> bool:
        """`wait_ready`."""
        ready: bool = (await self.begin("wait_ready", timeout_ms=milliseconds(within_s)).answer())["ready"]
        return ready

    async def close(self) -> None:
        """Closes it."""
        await self.begin("close").answer()

    def begin(self, do: str, **arguments: Any) -> Asked:
        """A call about this broker, not waited for."""
        return self.driver.begin(do, broker=self._number, **arguments)


class Play:
    """One performance of a scenario with one library."""

    def __init__(self, driver: Driver, folder: Path, clusters: Clusters, number: int) -> None:
        self._driver = driver
        self._folder = folder
        self._clusters = clusters
        self._number = number
        self._term = 0
        """Of the lead under which a scenario with a calm cluster began."""
        self._servers: list[Server] = []
        self._brokers: list[Broker] = []
        self._own: list[Driver] = []

    @property
    def library(self) -> Library:
        return self._driver.library

    async def server(self, **options: Any) -> Server:
        """A scripted server that listens."""
        server = Server(**options)
        await server.start()
        self._servers.append(server)
        return server

    async def two_nodes(self) -> tuple[Server, Server]:
        """The first one leads and both say so."""
        first = await self.server()
        return first, await self.server(leader=first.address)

    async def broker(
        self,
        *servers: Server,
        addrs: Sequence[str] | None = None,
        token: str = "",
        tls: str = "off",
        name: str = "",
        driver: Driver | None = None,
        blocking: bool = False,
    ) -> Broker:
        """A broker of the library for these servers; with `blocking` it is used by blocking calls."""
        driver = driver or self._driver
        addresses = [server.address for server in servers] if addrs is None else list(addrs)
        way = {"blocking": True} if blocking else {}
        asked = driver.begin("connect", addrs=addresses, token=token, tls=tls, name=name, **way)
        await asked.answer()
        broker = Broker(driver, asked.number)
        self._brokers.append(broker)
        return broker

    async def ready_broker(self, *servers: Server, **options: Any) -> Broker:
        """A broker with a session to each of these servers."""
        broker = await self.broker(*servers, **options)
        assert await broker.ready()
        for server in servers:
            await server.opened(2 if len(servers) == 1 else 1)
        return broker

    async def held(
        self, server: Server, broker: Broker, *, token: int = 7, lease: float = 30, key: str = "key"
    ) -> Ticket:
        """A ticket that the server granted."""
        acquire = broker.acquire(key, lease=lease)
        request = await server.next("Q")
        request.grant(token)
        return await acquire.ticket()

    def left(self, broker: Broker) -> None:
        """It is not there to be closed any more."""
        self._brokers.remove(broker)

    async def own_driver(self) -> Driver:
        """A process for this scenario alone."""
        driver = Driver(self._driver.library, self.path(f"driver-{len(self._own)}.log"))
        self._own.append(driver)
        await driver.start()
        return driver

    def authority(self, name: str = "ca") -> Authority:
        """A certificate authority of this scenario's own."""
        return make_authority(self.path(name))

    def path(self, name: str) -> Path:
        """A file of this scenario's own."""
        self._folder.mkdir(exist_ok=True)
        return self._folder / name

    async def cluster(self) -> Cluster:
        """A real cluster, with TLS, that nobody harms; keys are to be this scenario's own, see `key`."""
        cluster = await self._clusters.calm()
        self._term = await self._clusters.term()
        return cluster

    def key(self, name: str) -> str:
        """A key of this performance's own."""
        return f"{name}-{self._number}"

    async def lead_changed(self) -> bool:
        """Whether the calm cluster had an election meanwhile, which ends much of what was under way."""
        return self._term != 0 and await self._clusters.term() != self._term

    @contextlib.asynccontextmanager
    async def cluster_to_harm(self) -> AsyncIterator[Cluster]:
        """A real cluster of which this scenario alone kills, stops and replaces nodes; whole at the beginning."""
        async with self._clusters.to_harm() as cluster:
            yield cluster

    async def end(self) -> None:
        """Ends what was begun. What is given back now is answered: closing must not take its whole time."""
        for server in self._servers:
            server.answers = answer_at_once
            server.refuses_connections = False
        await asyncio.gather(*(broker.close() for broker in self._brokers if not broker.driver.fault))
        for server in self._servers:
            await server.stop()
        for server in self._servers:
            assert not server.fault, server.fault
        for driver in self._own:
            assert await driver.end() == 0

    def said(self) -> str:
        """What the processes of this play alone wrote to their standard errors."""
        return "\n".join(driver.said() for driver in self._own)


def answer_at_once(request: Request) -> None:
    """Nothing is free, nothing is held."""
    request.answer("T" if request.frame.opcode in "AQ" else "N")


def milliseconds(seconds: float) -> int:
    """As calls carry it."""
    return round(seconds * 1000)


def now() -> float:
    """Seconds on a clock that only goes on."""
    return time.monotonic()


class Scenario(NamedTuple):
    """One statement, the section of the specification that it comes from, and how it is played."""

    subject: str
    name: str
    clause: str
    play: Callable[[Play], Awaitable[None]]

    @property
    def statement(self) -> str:
        """Its name as a sentence."""
        words = self.name.replace("_", " ")
        return words[0].upper() + words[1:]


SCENARIOS: list[Scenario] = []


def scenario(clause: str) -> Callable[[Callable[[Play], Awaitable[None]]], Callable[[Play], Awaitable[None]]]:
    """Puts a function on the list. `clause`: section and words that it stands on."""

    def add(play: Callable[[Play], Awaitable[None]]) -> Callable[[Play], Awaitable[None]]:
        name = play.__name__
        assert all(known.name != name for known in SCENARIOS), name
        SCENARIOS.append(Scenario(play.__module__.rpartition(".")[2], name, clause, play))
        return play

    return add
