"""The dashboard on real node processes: a leader killed while it runs, a node replaced, a queue growing."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from tests.tui.watching import watch
from ticketing.cli.dev_cluster import DevCluster, DevNode
from ticketing.client import Ticket, TicketBroker, TicketError
from ticketing.config.client_file import read_client_file
from ticketing.tui.live.rows import Rows

pytestmark = pytest.mark.process
TRIES = 2_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[DevCluster]:
    with DevCluster(3) as running:
        running.wait_for(running.view, "the election of a leader", within_s=30)
        yield running


@asynccontextmanager
async def broker_of(cluster: DevCluster, name: str) -> AsyncIterator[TicketBroker]:
    access = read_client_file(cluster.config)
    broker = TicketBroker(list(access.addrs), token=access.token, name=name)
    try:
        yield broker
    finally:
        await broker.aclose()


def leader_of(cluster: DevCluster) -> DevNode:
    def serving() -> DevNode | None:
        for place, facts in cluster.statuses().items():
            if facts.get("serving"):
                return next(node for node in cluster.nodes if node.place.name == place)
        return None

    found = cluster.wait_for(serving, "a serving leader")
    assert isinstance(found, DevNode)
    return found


@contextlib.asynccontextmanager
async def waiting(broker: TicketBroker, key: str, count: int) -> AsyncIterator[list[asyncio.Task[Ticket]]]:
    """So many requests in the queue of a key."""
    asked = [asyncio.create_task(broker.acquire(key, 60, 30, 0)) for _ in range(count)]
    try:
        yield asked
    finally:
        for task in asked:
            task.cancel()
        for outcome in await asyncio.gather(*asked, return_exceptions=True):
            if isinstance(outcome, Ticket):
                with contextlib.suppress(TicketError):
                    await outcome.release()


async def test_a_queue_grows_is_opened_and_its_holder_revoked(cluster: DevCluster) -> None:
    async with broker_of(cluster, "shop") as broker, watch(cluster, admin=True) as watched:
        ticket = await broker.acquire("seat/A-12", 5, 60, 0)
        await watched.until_shown("seat/A-12", tries=TRIES)
        assert watched.shows(str(ticket.token))
        async with waiting(broker, "seat/A-12", 5):
            await watched.until_shown("5 waiting for 1 keys", tries=TRIES)
            await watched.press("enter")
            await watched.until(lambda: len(watched.app.screen.query_one("#waiters", Rows).rows) == 5)
            assert watched.shows("holder  shop")
            assert watched.shows(" from 127.0.0.1:")
            await watched.press("X")
            await watched.write("it hangs")
            await watched.press("enter")
            await watched.until(lambda: "revoked" in watched.notes(), tries=TRIES)
            await watched.until_shown("4 waiting", tries=TRIES)
        assert not await ticket.release(), "another holds it by now"


async def test_a_leader_killed_and_replaced_while_it_runs(cluster: DevCluster) -> None:
    async with watch(cluster) as watched:
        former = await asyncio.to_thread(leader_of, cluster)
        place = former.place.name
        await watched.until_shown(f"leader {place}")
        number = next(node.node_id for node in watched.app.board.reading.view.nodes if node.place == place)  # type: ignore[union-attr]
        former.send(signal.SIGKILL)
        assert former.process is not None
        former.process.wait()
        await watched.until_shown(f"{place} does not answer", tries=TRIES)
        await watched.until(lambda: watched.app.board.reading.view.served, tries=TRIES)  # type: ignore[union-attr]
        assert not watched.shows(f"leader {place}")
        await asyncio.to_thread(former.start)
        await watched.until_shown(f"{place} was replaced: NodeId {number} became", tries=TRIES)
        await watched.until_shown("1 may fail (3/3 answer)", tries=TRIES)


def test_once_and_json_are_for_files(cluster: DevCluster) -> None:
    def run(*words: str) -> subprocess.CompletedProcess[bytes]:
        command = [sys.executable, "-m", "ticketing", "top", *words, "--config", str(cluster.config)]
        environment = {**os.environ, "FORCE_COLOR": "1", "LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0"}
        return subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=30, check=False, env=environment
        )

    frame = run("--once")
    assert frame.returncode == 0, frame.stderr
    assert b"leader node-" in frame.stdout
    assert b"\x1b" not in frame.stdout
    told = run("-o", "json")
    assert told.returncode == 0
    found = msgspec.json.decode(told.stdout)
    assert found["cluster"]["served"] is True
    assert [node["place"] for node in found["nodes"]] == ["node-1", "node-2", "node-3"]
    live = run()
    assert live.returncode == 2
    assert b"needs a terminal" in live.stderr


class OnTerminal:
    """The dashboard as a process on a terminal of its own."""

    def __init__(
        self, *words: str | Path, ignores_hangup: bool = False, temporary: Path | None = None
    ) -> None:
        self.master, slave = pty.openpty()
        command = [sys.executable, "-m", "ticketing", *map(str, words)]

        def before() -> None:
            if ignores_hangup:
                signal.signal(signal.SIGHUP, signal.SIG_IGN)

        self.process = subprocess.Popen(
            command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=before,
            env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30"}
            | ({} if temporary is None else {"TMPDIR": str(temporary)}),
        )
        os.close(slave)
        self.seen = b""

    def until(self, text: bytes) -> None:
        deadline_s = time.monotonic() + 20
        while text not in self.seen:
            assert time.monotonic() < deadline_s, self.seen[-500:]
            with contextlib.suppress(OSError):
                self.seen += os.read(self.master, 65_536)

    def rest(self) -> bytes:
        """All that is written until its end."""
        with contextlib.suppress(OSError):
            while part := os.read(self.master, 65_536):
                self.seen += part
        return self.seen


@pytest.mark.parametrize("ignores_hangup", [False, True])
def test_it_ends_when_its_terminal_goes_away(cluster: DevCluster, ignores_hangup: bool) -> None:
    terminal = OnTerminal("top", "--config", cluster.config, ignores_hangup=ignores_hangup)
    try:
        terminal.until(b"node-3")
        os.close(terminal.master)
        terminal.process.wait(timeout=15)
    finally:
        terminal.process.kill()


def test_it_restores_the_terminal_when_it_is_told_to_end(cluster: DevCluster) -> None:
    terminal = OnTerminal("top", "--config", cluster.config)
    try:
        terminal.until(b"node-3")
        assert b"\x1b[?1049h" in terminal.seen
        terminal.process.terminate()
        seen = terminal.rest()
        assert terminal.process.wait(timeout=15) == 143
        assert b"\x1b[?1049l" in seen
        assert b"\x1b[?25h" in seen
        assert b"Traceback" not in seen
    finally:
        terminal.process.kill()
        os.close(terminal.master)


def test_dev_top_opens_it_on_a_lively_cluster_and_takes_all_of_it_down_again(tmp_path: Path) -> None:
    terminal = OnTerminal("dev", "--top", temporary=tmp_path)
    try:
        terminal.until(b"leader ")
        terminal.until(b"seat/A-")
        os.write(terminal.master, b"q")
        terminal.rest()
        assert terminal.process.wait(timeout=20) == 0
        assert list(tmp_path.iterdir()) == []
    finally:
        terminal.process.terminate()
        terminal.process.wait(timeout=20)
        os.close(terminal.master)
