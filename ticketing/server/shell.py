"""asyncio as the node's outside: turns, the one timer, connections, disk, and the end of the process."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ticketing.node.session import ClientSession
from ticketing.node.shell import Link
from ticketing.server import files
from ticketing.server.clients import ClientConnection, ClientConnections
from ticketing.server.clock import elapsed_ns
from ticketing.server.log import Log
from ticketing.server.node_api import NodeApi
from ticketing.server.peers import PeerLinks
from ticketing.server.settings import ShellLimits
from ticketing.server.tls import TlsContexts
from ticketing.server.turns import LongestTurn

if TYPE_CHECKING:
    from ticketing.node.shell import Shell

NEVER_NS = 1 << 63
MS = 1_000_000
TIMER_MAX_MS = 60_000
"""A tick that comes early is harmless; a timer for ever is not to be had on every loop."""


class Outcome(NamedTuple):
    """How a node's life ended."""

    status: int
    reason: str


class AsyncioShell:
    """The outside of one node. `attach` gives it the node; nothing else may come before."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        folder: Path,
        log: Log,
        *,
        clock: Callable[[], int] = elapsed_ns,
    ) -> None:
        self.elapsed_ns = clock
        self.loop = loop
        self.tls: TlsContexts | None = None
        """What new connections use; swapped by a reload."""
        self.outcome: asyncio.Future[Outcome] = loop.create_future()
        self.clients: ClientConnections
        self.peers: PeerLinks
        self._node: NodeApi
        self._folder = folder
        self._log = log
        self._disk = ThreadPoolExecutor(1, "disk")
        """One thread, so that files change in the order in which that was asked for."""
        self.turns = LongestTurn()
        self._flush_asked = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ns = NEVER_NS
        self._stopped = False

    def attach(self, node: NodeApi, limits: ShellLimits, *, connections_max: int) -> None:
        """Joins the node to this shell."""
        self._node = node
        self.clients = ClientConnections(
            self.loop,
            node,
            limits,
            self._log,
            tls=lambda: None if self.tls is None else self.tls.client,
            connections_max=connections_max,
        )
        self.peers = PeerLinks(self.loop, node, limits, self._log, tls=lambda: self.tls)

    # --- clocks and chance

    def wall_ns(self) -> int:  # noqa: D102
        return time.time_ns()

    def random_bytes(self, count: int) -> bytes:  # noqa: D102
        return os.urandom(count)

    # --- turns and time

    def request_flush(self) -> None:
        """A flush behind everything that the loop has read already: its next round of callbacks."""
        if not self._flush_asked:
            self._flush_asked = True
            self.turns.began()
            self.loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_asked = False
        if self._stopped:
            return
        self._node.flush()
        self._arm()
        self.turns.ended()
        self.peers.next_turn()
        self.clients.intake.next_turn()

    def _arm(self) -> None:
        due_ns = self._node.next_deadline_ns()
        if due_ns < self._timer_ns:
            if self._timer is not None:
                self._timer.cancel()
            # Whole milliseconds, rounded up: uvloop knows no finer ones, and a timer that fires early fires
            # again.
            left_ms = min(max(0, -((self.elapsed_ns() - due_ns) // MS)), TIMER_MAX_MS)
            self._timer = self.loop.call_later(left_ms / 1_000, self._due)
            self._timer_ns = due_ns

    def _due(self) -> None:
        # After a gap (pause, suspend) the sockets hold what came meanwhile, and it has to be read before time
        # is judged (spec 9). Two rounds of callbacks: on uvloop the first one still precedes the next poll.
        self._timer = None
        self.loop.call_soon(self.loop.call_soon, self._tick)

    def _tick(self) -> None:
        self._timer_ns = NEVER_NS
        if self._stopped:
            return
        self._node.tick()
        if not self._flush_asked:
            self._arm()

    # --- client sessions: hot

    def write(self, session: ClientSession, data: bytes) -> None:  # noqa: D102
        io = session.io
        if io is None:
            io = self._adopt(session)
        io.write(data)

    def finish(self, session: ClientSession, last: bytes) -> None:  # noqa: D102
        io = session.io
        if io is None:
            io = self._adopt(session)
        io.finish(last)

    def refuse(self, session: ClientSession, last: bytes) -> None:  # noqa: D102
        session.io.refuse(last)

    def admitted(self, session: ClientSession) -> None:  # noqa: D102
        session.io.admit()

    def _adopt(self, session: ClientSession) -> ClientConnection:
        """The banner is written from within `session_opened`, when the session does not know its connection
        yet.
        """
        connection = self.clients.opening
        assert connection is not None, "a session that no connection belongs to"
        session.io = connection
        return connection

    # --- peer links

    def dial(self, address: str, purpose: str) -> Link:  # noqa: D102
        return self.peers.dial(address, purpose)

    def send(self, link: Link, frame: bytes) -> None:  # noqa: D102
        self.peers.send(link, frame)

    def buffered(self, link: Link) -> int:  # noqa: D102
        return self.peers.buffered(link)

    def hang_up(self, link: Link) -> None:  # noqa: D102
        self.peers.hang_up(link)

    # --- disk and life

    def store(self, name: str, content: bytes, done: Callable[[], None]) -> None:  # noqa: D102
        future = self._disk.submit(files.store, self._folder, name, content)
        future.add_done_callback(lambda ended: self._from_disk(ended, name, done))

    def remove(self, name: str) -> None:  # noqa: D102
        future = self._disk.submit(files.remove, self._folder, name)
        future.add_done_callback(lambda ended: self._from_disk(ended, name, None))

    def _from_disk(self, ended: Future[None], name: str, done: Callable[[], None] | None) -> None:
        self.loop.call_soon_threadsafe(self._disk_done, ended, name, done)

    def _disk_done(self, ended: Future[None], name: str, done: Callable[[], None] | None) -> None:
        error = ended.exception()
        if error is not None:
            self.stop(1, f"{self._folder / name} cannot be kept: {error}")
        elif done is not None and not self._stopped:
            done()

    def stop(self, status: int, reason: str) -> None:  # noqa: D102
        if self._stopped:
            return
        self._leave_node()
        if not self.outcome.done():
            self.outcome.set_result(Outcome(status, reason))

    def _leave_node(self) -> None:
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def log(self, level: str, event: str, **facts: object) -> None:  # noqa: D102
        self._log(level, event, **facts)

    async def close(self, within_s: float) -> None:
        """Gives what was written `within_s` seconds to reach the kernel and the other sides, then ends
        everything.
        """
        self._leave_node()
        self.clients.close_listener()
        self.peers.close_listener()
        self.clients.finish_all()
        until = self.loop.time() + within_s
        while (len(self.clients) or self.peers.unwritten()) and self.loop.time() < until:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        self.clients.abort_all()
        self.peers.abort_all()
        while (len(self.clients) or len(self.peers)) and self.loop.time() < until + 1:  # noqa: ASYNC110
            await asyncio.sleep(0)
        await self.loop.run_in_executor(None, self._disk.shutdown)


if TYPE_CHECKING:

    def _is_shell(shell: AsyncioShell) -> Shell:
        return shell
