"""The examples of docs/client.md, and those of the published documents, run as they stand."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from tests.client.conftest import MakeServer
from tests.client.locking import LockServer
from tests.client.scripted import turns
from tests.client.test_bridge import Serving

PAGE = Path(__file__).parents[2] / "docs" / "client.md"


def sections() -> dict[str, list[str]]:
    """The examples of the page by the heading that they stand under."""
    found: dict[str, list[str]] = {}
    for part in re.split(r"^#+ ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        heading, _, text = part.partition("\n")
        blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
        if blocks:
            found[heading] = blocks
    return found


EXAMPLES = sections()
ASYNCHRONOUS, BLOCKING = EXAMPLES.pop("The client library")
(SCRIPT,) = EXAMPLES.pop("In a script")
(THREAD_POOL,) = EXAMPLES.pop("In a thread pool")
NOTEBOOK = EXAMPLES.pop("In a notebook")
(AIOHTTP,) = EXAMPLES.pop("In an aiohttp application")
(FASTAPI,) = EXAMPLES.pop("In a FastAPI application")
(TELEMETRY,) = EXAMPLES.pop("Telemetry")
PUBLISHED = """
from saro_ticketing import TicketBroker

broker = TicketBroker.connect("127.0.0.1:5225")
await broker.wait_ready(5)

async with await broker.acquire("key", 5, 30, 2) as ticket:
    token = ticket.token
    ...

await broker.aclose()
"""
PUBLISHED_SYNC = """
from saro_ticketing import TicketBroker

broker = TicketBroker.connect("127.0.0.1:5225")
with broker.acquire_sync("key", 5, 30, 2) as ticket:
    ...
broker.close()
"""
PUBLISHED_OPTIONS = """
from saro_ticketing import TicketBroker

broker = TicketBroker(
    ["10.0.0.1:5225", "10.0.0.2:5225", "10.0.0.3:5225"],
    token="123",
    tls="system-roots",
)
"""


def compiled(source: str, address: str) -> object:
    source = source.replace("127.0.0.1:5225", address)
    return compile(source, "<example>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.mark.parametrize("source", [ASYNCHRONOUS, PUBLISHED])
async def test_asynchronous_examples_run(new_server: MakeServer, source: str) -> None:
    server = await new_server()
    locks = LockServer(server)
    names: dict[str, object] = {"print": lambda *_: None}
    running = eval(compiled(source, server.address), names)  # type: ignore[arg-type]
    assert inspect.iscoroutine(running)
    await running
    assert len(server.log) == 2
    assert locks.holder(server.log[0].key) is None


@pytest.mark.parametrize("source", [BLOCKING, PUBLISHED_SYNC])
def test_blocking_examples_run(source: str) -> None:
    serving = Serving()
    try:
        exec(compiled(source, serving.address), {"print": lambda *_: None})  # type: ignore[arg-type]
        assert len(serving.server.log) == 2
    finally:
        serving.stop()


def run(source: str) -> tuple[list[str], Serving]:
    """Runs a program against a lock server; what it printed, and what the server saw."""
    serving = Serving()
    said: list[str] = []
    try:
        names = {"print": lambda *words: said.append(" ".join(map(str, words)))}
        exec(compiled(source, serving.address), names)  # type: ignore[arg-type]
        serving.wait_until(lambda: not serving.server.sessions)
    finally:
        serving.stop()
    return said, serving


def test_every_example_of_the_page_is_run() -> None:
    assert not EXAMPLES


def test_the_example_works_in_a_script() -> None:
    said, serving = run(SCRIPT)
    assert said == ["1"]
    assert serving.locks.holder(b"report") is None


def test_the_example_works_in_a_thread_pool() -> None:
    said, serving = run(THREAD_POOL)
    assert sorted(ast.literal_eval(said[0])) == list(range(1, 21))
    assert not any(serving.locks.holder(b"seat/%d" % number) for number in range(20))


def test_the_example_of_telemetry_counts() -> None:
    said, _ = run(TELEMETRY)
    assert said[0] == "0 1 1"
    timeouts, waited_s, held_s = map(float, said[1].split())
    assert timeouts == 0
    assert waited_s > 0
    assert held_s > 0


async def test_the_example_works_in_the_cells_of_a_notebook_whose_loop_runs_on(
    new_server: MakeServer,
) -> None:
    server = await new_server()
    locks = LockServer(server)
    said: list[object] = []
    names: dict[str, object] = {"print": said.append}
    for cell in (NOTEBOOK[0], NOTEBOOK[1], NOTEBOOK[1], NOTEBOOK[2]):
        running = eval(compiled(cell, server.address), names)  # type: ignore[arg-type]
        if inspect.iscoroutine(running):
            # Each cell is a task of its own, and the loop goes on between them.
            await asyncio.create_task(running)
        await turns()
    assert said == [1, 2]
    assert locks.holder(b"cell") is None


async def test_the_example_works_in_an_aiohttp_handler(new_server: MakeServer) -> None:
    server = await new_server()
    locks = LockServer(server)
    names: dict[str, object] = {"__name__": "example"}
    exec(compiled(AIOHTTP, server.address), names)  # type: ignore[arg-type]
    app = names["app"]
    assert isinstance(app, web.Application)
    async with TestClient(TestServer(app)) as client:
        answers = await asyncio.gather(*[client.post("/seats/7") for _ in range(10)])
        assert [answer.status for answer in answers] == [200] * 10
        assert sorted([(await answer.json())["token"] for answer in answers]) == list(range(1, 11))
        assert locks.holder(b"seat/7") is None
        server.answer = lambda asked: asked.busy()
        refused = await client.post("/seats/7")
        assert refused.status == 503
        assert (await refused.text()).startswith("busy: ")
    await turns()
    assert not server.open_sessions


async def test_the_example_works_in_a_fastapi_handler(new_server: MakeServer) -> None:
    fastapi = pytest.importorskip("fastapi", reason="of the extra `test`: install it anew")
    httpx = pytest.importorskip("httpx", reason="of the extra `test`: install it anew")
    server = await new_server()
    locks = LockServer(server)
    names: dict[str, Any] = {"__name__": "example"}
    exec(compiled(FASTAPI, server.address), names)  # type: ignore[arg-type]
    app = names["app"]
    assert isinstance(app, fastapi.FastAPI)
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://seats")
    async with app.router.lifespan_context(app), client:
        answers = await asyncio.gather(*[client.post("/seats/7") for _ in range(10)])
        assert [answer.status_code for answer in answers] == [200] * 10
        assert sorted(answer.json()["token"] for answer in answers) == list(range(1, 11))
        assert locks.holder(b"seat/7") is None
        server.answer = lambda asked: asked.busy()
        refused = await client.post("/seats/7")
        assert refused.status_code == 503
        assert refused.json()["detail"].startswith("busy: ")
    await turns()
    assert not server.open_sessions


def test_an_example_that_only_names_addresses_connects_to_nothing() -> None:
    names: dict[str, object] = {}
    exec(compiled(PUBLISHED_OPTIONS, ""), names)  # type: ignore[arg-type]
    assert "10.0.0.3:5225" in repr(names["broker"])


def test_every_test_that_the_page_names_exists() -> None:
    text = PAGE.read_text(encoding="utf-8").split("## What is promised")[1]
    tests = Path(__file__).parents[1]
    files: set[Path] = set()
    named = 0
    for line in text.splitlines():
        for part in line.split(";"):
            found = re.search(r"`((?:\w+/)?test_\w+\.py)`", part)
            if found is None:
                continue
            name = found[1]
            path = tests / name if "/" in name else tests / "client" / name
            source = path.read_text(encoding="utf-8")
            files.add(path)
            for start in re.findall(r"`([\w*]+)`", part[found.end() :]):
                assert f"def test_{start.rstrip('*')}" in source, (name, start)
                named += 1
    assert named > 120
    # And whatever else is tested stands for a promise as well.
    assert set((tests / "client").glob("test_*.py")) <= files
