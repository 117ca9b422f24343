"""A client process: `python -m benchmarks.load MODULE:CLIENT TARGET`, the target as JSON.

Each line of its input is a job as JSON, each line of its output the figures of that job, or `{"error": …}`. The first
line, `{}`, says that the client is connected.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import json
import sys
from collections.abc import Callable
from typing import Any, cast

import uvloop

from benchmarks.load import closed, open_loop
from benchmarks.load.burst import run_burst
from benchmarks.load.outage import Threaded, run_outage
from benchmarks.systems.system import AsyncClient, BlockingClient, CallbackClient


async def run_on_loop(client: Any, job: dict[str, Any]) -> Any:
    callback = client.style == "callback"
    match job.pop("job"):
        case "closed":
            run = closed.ClosedLoop(**job)
            return await (closed.run_callbacks(client, run) if callback else closed.run_async(client, run))
        case "open":
            arrivals = open_loop.OpenLoop(**job)
            if callback:
                return await open_loop.run_callbacks(client, arrivals)
            return await open_loop.run_async(client, arrivals)
        case "burst":
            return await run_burst(client, **job)
        case "outage":
            return await run_outage(client, tell)
        case other:
            raise ValueError(f"no such job: {other}")


def run_on_threads(client: BlockingClient, job: dict[str, Any]) -> Any:
    match job.pop("job"):
        case "closed":
            return closed.run_blocking(client, closed.ClosedLoop(**job))
        case "open":
            return open_loop.run_blocking(client, open_loop.OpenLoop(**job))
        case "outage":
            return asyncio.run(run_outage(Threaded(client), tell))
        case other:
            raise ValueError(f"no such job for threads: {other}")


def tell(line: object) -> None:
    print(json.dumps(line), flush=True)


async def serve_on_loop(client: AsyncClient | CallbackClient) -> None:
    loop = asyncio.get_running_loop()
    await client.open()
    tell({})
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        gc.collect()
        tell(await run_on_loop(client, json.loads(line)))
    await client.close()


def serve_on_threads(client: BlockingClient) -> None:
    client.open()
    tell({})
    # Not by iterating over lines, which would read ahead of a job that reads a line itself.
    while line := sys.stdin.readline():
        gc.collect()
        tell(run_on_threads(client, json.loads(line)))
    client.close()


def _innermost(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def main() -> None:
    place, target = sys.argv[1], json.loads(sys.argv[2])
    module, _, name = place.partition(":")
    kind: Callable[[dict[str, Any]], Any] = getattr(importlib.import_module(module), name)

    async def serve() -> None:
        await serve_on_loop(kind(target))

    try:
        if getattr(kind, "style", "") == "blocking":
            serve_on_threads(cast("BlockingClient", kind(target)))
        else:
            uvloop.run(serve())
    except Exception as error:
        tell({"error": f"{type(error).__name__}: {_innermost(error)}"})
        sys.exit(1)


if __name__ == "__main__":
    main()
