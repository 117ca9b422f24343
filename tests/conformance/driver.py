"""The driver of the Python library: `python -m tests.conformance.driver`. See README.md for the line protocol."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import sys
import threading
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from ticketing.client import InvalidInputError, Ticket, TicketBroker, TicketError

LINE_BYTES = 1024 * 1024
SERVING = "call"
"""The tasks that serve calls are named so, to be told from the library's."""

Call = dict[str, Any]


class UnknownError(Exception):
    """The driver does not understand the call."""


def seconds(milliseconds: int) -> int | float:
    """As a program would write them: whole seconds as int."""
    whole, rest = divmod(milliseconds, 1000)
    return milliseconds / 1000 if rest else whole


class Driver:
    """The brokers, tickets and calls of one process."""

    def __init__(self, write: Callable[[dict[str, Any]], None]) -> None:
        self._write = write
        self._brokers: dict[int, TicketBroker] = {}
        self._blocking: set[int] = set()
        """Those of the brokers that are used by blocking calls."""
        self.returning = False
        """The program is at its end, and its tasks are cancelled by their loop."""
        self._tickets: dict[int, Ticket] = {}
        self._calls: dict[int, asyncio.Task[None]] = {}
        self._dropped: set[int] = set()
        self._does: dict[str, Callable[[Call], Awaitable[dict[str, Any]]]] = {
            "connect": self._connect,
            "wait_ready": self._wait_ready,
            "acquire": self._acquire,
            "drop": self._drop,
            "release": self._release,
            "extend": self._extend,
            "abandon": self._abandon,
            "remaining": self._remaining,
            "lost": self._lost,
            "wait_lost": self._wait_lost,
            "close": self._close,
            "leave": self._leave,
            "tasks": self._tasks,
        }

    @property
    def brokers(self) -> Iterable[TicketBroker]:
        """Those that are open, or were closed."""
        return self._brokers.values()

    def begin(self, call: Call) -> None:
        """Starts a call; its answer is written when it is there."""
        number = call["id"]
        task = asyncio.get_running_loop().create_task(self._serve(number, call), name=SERVING)
        self._calls[number] = task
        task.add_done_callback(lambda _: self._calls.pop(number, None))

    async def _serve(self, number: int, call: Call) -> None:
        answer: dict[str, Any]
        try:
            answer = {"ok": await self._does.get(call["do"], self._unknown)(call)}
        except asyncio.CancelledError:
            if self.returning:
                raise
            # What the library says of a dropped call differs by language: a future that is dropped says nothing.
            assert number in self._dropped, f"call {number} was cancelled by the library"
            answer = {"error": "dropped", "message": ""}
        except InvalidInputError as error:
            given = {"field": error.field, "value": str(error.value), "range": error.range}
            answer = {"error": str(error.kind), "message": str(error), **given}
        except TicketError as error:
            answer = {"error": str(error.kind), "message": str(error)}
        except UnknownError as error:
            answer = {"error": "driver", "message": str(error)}
        self._write({"id": number, **answer})

    def _broker(self, call: Call) -> TicketBroker:
        broker = self._brokers.get(call["broker"])
        if broker is None:
            raise UnknownError(f"no such broker: {call['broker']}")
        return broker

    def _ticket(self, call: Call) -> Ticket:
        ticket = self._tickets.get(call["ticket"])
        if ticket is None:
            raise UnknownError(f"no such ticket: {call['ticket']}")
        return ticket

    async def _unknown(self, call: Call) -> dict[str, Any]:
        raise UnknownError(f"no such call: {call['do']!r}")

    async def _connect(self, call: Call) -> dict[str, Any]:
        broker = TicketBroker(call["addrs"], token=call["token"], tls=call["tls"], name=call["name"])
        self._brokers[call["id"]] = broker
        if call.get("blocking"):
            self._blocking.add(call["id"])
        return {}

    async def _wait_ready(self, call: Call) -> dict[str, Any]:
        broker, timeout_s = self._broker(call), seconds(call["timeout_ms"])
        if call["broker"] in self._blocking:
            return {"ready": await asyncio.to_thread(broker.wait_ready_sync, timeout_s)}
        return {"ready": await broker.wait_ready(timeout_s)}

    async def _acquire(self, call: Call) -> dict[str, Any]:
        broker, key = self._broker(call), call["key"]
        wait, lease, budget = (seconds(call[name]) for name in ("wait_ms", "lease_ms", "budget_ms"))
        if call["broker"] in self._blocking:
            ticket = await asyncio.to_thread(broker.acquire_sync, key, wait, lease, budget)
        else:
            ticket = await broker.acquire(key, wait, lease, budget)
        self._tickets[call["id"]] = ticket
        return {"token": str(ticket.token), "key": ticket.key, "domain": ticket.domain}

    async def _drop(self, call: Call) -> dict[str, Any]:
        task = self._calls.get(call["call"])
        if task is not None:
            self._dropped.add(call["call"])
            task.cancel()
            await asyncio.wait([task])
        return {}

    async def _release(self, call: Call) -> dict[str, Any]:
        return {"released": await self._ticket(call).release()}

    async def _extend(self, call: Call) -> dict[str, Any]:
        lease_ms = call.get("lease_ms")
        lease = None if lease_ms is None else seconds(lease_ms)
        return {"extended": await self._ticket(call).extend(lease)}

    async def _abandon(self, call: Call) -> dict[str, Any]:
        self._ticket(call)
        del self._tickets[call["ticket"]]
        return {}

    async def _remaining(self, call: Call) -> dict[str, Any]:
        return {"seconds": self._ticket(call).conservative_remaining()}

    async def _lost(self, call: Call) -> dict[str, Any]:
        return {"lost": bool(self._ticket(call).lost)}

    async def _wait_lost(self, call: Call) -> dict[str, Any]:
        return {"lost": await self._ticket(call).lost.wait()}

    async def _close(self, call: Call) -> dict[str, Any]:
        broker = self._broker(call)
        if call["broker"] in self._blocking:
            await asyncio.to_thread(broker.close)
        else:
            await broker.aclose()
        return {}

    async def _leave(self, call: Call) -> dict[str, Any]:
        self._broker(call)
        del self._brokers[call["broker"]]
        gc.collect()
        return {}

    async def _tasks(self, call: Call) -> dict[str, Any]:
        tasks = [task for task in asyncio.all_tasks() if task.get_name() != SERVING]
        return {"tasks": len(tasks) + threading.active_count()}

    async def end(self) -> None:
        """Closes what is open."""
        await asyncio.gather(*(broker.aclose() for broker in self._brokers.values()))
        calls = list(self._calls.values())
        if calls:
            await asyncio.wait(calls, timeout=1)


def write(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer, ensure_ascii=False) + "\n")
    sys.stdout.flush()


async def drive() -> None:
    """Serves standard input until its end."""
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(unheard)
    reader = asyncio.StreamReader(limit=LINE_BYTES)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    driver = Driver(write)
    write({"ready": True, "library": "python"})
    while line := await reader.readline():
        call = json.loads(line)
        if call["do"] == "return":
            await asyncio.sleep(0)  # the calls read before have begun
            driver.returning = True
            write({"id": call["id"], "ok": {}})
            return
        driver.begin(call)
    await driver.end()


def unheard(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What nobody handles is a fault of the library: the driver must not go on as if nothing were."""
    sys.stderr.write(f"unheard: {context}\n")
    sys.stderr.flush()
    write({"fault": f"{context.get('message')}: {context.get('exception')!r}"})


def main() -> None:
    """Runs the driver."""
    logging.basicConfig(level=logging.INFO, format="%(relativeCreated)d %(message)s", stream=sys.stderr)
    asyncio.run(drive())


if __name__ == "__main__":
    main()
