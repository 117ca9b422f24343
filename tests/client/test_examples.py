"""The examples of docs/client.md, and those of the published documents, run as they stand."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import pytest

from tests.client.conftest import MakeServer
from tests.client.locking import LockServer
from tests.client.test_bridge import Serving

PAGE = Path(__file__).parents[2] / "docs" / "client.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
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


@pytest.mark.parametrize("source", [block for block in BLOCKS if "await" in block] + [PUBLISHED])
async def test_asynchronous_examples_run(new_server: MakeServer, source: str) -> None:
    server = await new_server()
    locks = LockServer(server)
    names: dict[str, object] = {"print": lambda *_: None}
    running = eval(compiled(source, server.address), names)  # type: ignore[arg-type]
    assert inspect.iscoroutine(running)
    await running
    assert len(server.log) == 2
    assert locks.holder(server.log[0].key) is None


@pytest.mark.parametrize("source", [block for block in BLOCKS if "await" not in block] + [PUBLISHED_SYNC])
def test_blocking_examples_run(source: str) -> None:
    serving = Serving()
    try:
        exec(compiled(source, serving.address), {"print": lambda *_: None})  # type: ignore[arg-type]
        assert len(serving.server.log) == 2
    finally:
        serving.stop()


def test_an_example_that_only_names_addresses_connects_to_nothing() -> None:
    names: dict[str, object] = {}
    exec(compiled(PUBLISHED_OPTIONS, ""), names)  # type: ignore[arg-type]
    assert "10.0.0.3:5225" in repr(names["broker"])


def test_every_test_that_the_page_names_exists() -> None:
    text = PAGE.read_text(encoding="utf-8").split("## What is promised")[1]
    folder = Path(__file__).parent
    named = 0
    for line in text.splitlines():
        for part in line.split(";"):
            files = re.findall(r"`(test_\w+\.py)`", part)
            if not files:
                continue
            source = (folder / files[-1]).read_text(encoding="utf-8")
            tail = part.split(files[-1], 1)[1]
            for name in re.findall(r"`([\w*]+)`", tail):
                assert f"def test_{name.rstrip('*')}" in source, (files[-1], name)
                named += 1
    assert named > 40
