"""A node that does what the test's client tells it, and remembers what the shell told it."""

from __future__ import annotations

import asyncio
import contextlib
import io
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from ticketing.node.asked import CannotError
from ticketing.node.events import EventLog
from ticketing.node.session import ClientSession
from ticketing.node.settings import NodeSettings, Place
from ticketing.node.shell import Link, Shell
from ticketing.protocol.handshake import ServerHandshake
from ticketing.server.log import Log
from ticketing.server.service import Listeners, Service
from ticketing.server.settings import ServerSettings, ShellLimits, TlsFiles

BANNER = b"TICKETING/1 scripted\n"


class ScriptedNode:
    """Client bytes are commands: `in`, `wrong`, `bye`, `flood`; anything else is echoed as the turn ends."""

    def __init__(self, settings: NodeSettings, shell: Shell) -> None:
        self.settings = settings
        self.shell = shell
        self.deadline_ns = 1 << 62
        self.log: list[str] = []
        """Order of the calls."""
        self.calls: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
        self.data: dict[ClientSession, bytearray] = {}
        self.rest_of: dict[ClientSession, bytearray] = {}
        """What came of a session that was over."""
        self.link_data_of: dict[Link, bytearray] = {}
        self._echo: dict[ClientSession, bytearray] = {}
        self.events = EventLog(shell.wall_ns)
        self.reports: Any = None
        self.operations: Any = ScriptedOperations(self)

    def saw(self, name: str, what: Any = None) -> None:
        self.log.append(name)
        self.calls.put_nowait((name, what))

    async def next(self, name: str) -> Any:
        """Waits for an event of this name; what comes before it is passed over."""
        while True:
            seen, what = await self.calls.get()
            if seen == name:
                return what

    def start(self) -> None:
        self.log.append("start")

    def flush(self) -> None:
        self.saw("flush")
        for session, data in self._echo.items():
            self.shell.write(session, bytes(data))
        self._echo.clear()

    def next_deadline_ns(self) -> int:
        return self.deadline_ns

    def tick(self) -> None:
        self.deadline_ns = 1 << 62
        self.saw("tick", self.shell.elapsed_ns())

    def session_opened(self, source: str, remote: str) -> ClientSession:
        session = ClientSession(source, remote, ServerHandshake(BANNER, "nonce", ()), 0)
        self.data[session] = bytearray()
        self.shell.write(session, BANNER)
        self.saw("opened", session)
        return session

    def session_data(self, session: ClientSession, data: bytes) -> None:
        self.data[session] += data
        self.saw("data", session)
        self.shell.request_flush()
        if data.startswith(b"in\n"):
            self.shell.admitted(session)
            data = data[3:]
        if data == b"wrong\n":
            self.shell.refuse(session, b"Eauth_failed\n")
        elif data == b"bye\n":
            self.shell.finish(session, b"Mfarewell\n")
        elif data == b"flood\n":
            for _ in range(1024):
                self.shell.write(session, bytes(16 * 1024))
        elif data:
            self._echo.setdefault(session, bytearray()).extend(data)

    def session_rest(self, session: ClientSession, data: bytes) -> None:
        self.shell.request_flush()
        self.rest_of[session] += data
        self.saw("rest", session)

    def session_overdue(self, session: ClientSession) -> None:
        self.saw("overdue", session)
        self.shell.finish(session, b"Eauth_timeout\n")

    def session_slow(self, session: ClientSession) -> None:
        self.saw("slow", session)
        self.shell.finish(session, b"Eslow_consumer\n")

    def session_ended(self, session: ClientSession, *, by_timeout: bool) -> None:
        self.shell.request_flush()
        assert session in self.data, "a session ends once"
        del self.data[session]
        self.rest_of[session] = bytearray()
        self.saw("ended", (session, by_timeout))

    def link_up(self, link: Link) -> None:
        self.link_data_of[link] = bytearray()
        self.saw("up", link)

    def link_data(self, link: Link, data: bytes) -> None:
        self.link_data_of[link] += data
        self.saw("link data", link)

    def link_down(self, link: Link, *, refused: bool) -> None:
        self.saw("down", (link, refused))

    def link_writable(self, link: Link) -> None:
        self.saw("writable", link)

    def begin_stop(self, *, force: bool = False) -> None:
        self.saw("stop", force)
        self.shell.stop(0, "forced" if force else "asked")

    def form(self, *, first: bool, first_token: int) -> str | None:
        self.saw("form", (first, first_token))
        return None if first_token < 2**61 else "too late"

    def clock_source(self, *, synchronised: bool, detail: str) -> None:
        self.saw("clock", (synchronised, detail))

    def reload(self, settings: NodeSettings) -> None:
        self.saw("reload", settings)

    def status(self) -> dict[str, object]:
        return {"place": self.settings.place, "live": True, "ready": False, "term": "7"}


class ScriptedOperations:
    """The commands that a scripted node knows."""

    def __init__(self, node: ScriptedNode) -> None:
        self._node = node

    def transfer(self, place: str | None) -> None:
        self._node.saw("transfer", place)
        if place not in (None, "node-2"):
            raise CannotError("no_transfer", f"{place} is no voter")


class Door:
    """A running service and its scripted node."""

    def __init__(self, service: Service, output: io.StringIO) -> None:
        assert isinstance(service.node, ScriptedNode)
        self.service = service
        self.shell = service.shell
        self.node = service.node
        self.log = service.log
        self._output = output

    @property
    def client_port(self) -> int:
        return int(self.service.place.client.rpartition(":")[2])

    def logged(self) -> str:
        self.log.flush()
        return self._output.getvalue()


def settings_for(folder: Path, *, tls: TlsFiles | None = None, **fields: Any) -> ServerSettings:
    place = Place("node-1", "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0")
    other = Place("node-2", "127.0.0.1:1", "127.0.0.1:1", "127.0.0.1:1")
    return ServerSettings(
        node=NodeSettings(place="node-1", places=(place, other), client_tokens=("t",), peer_secrets=(b"s",)),
        listen_client="127.0.0.1:0",
        listen_peer="127.0.0.1:0",
        state_dir=folder,
        tls=tls,
        **fields,
    )


@contextlib.asynccontextmanager
async def open_door(
    folder: Path,
    *,
    tls: TlsFiles | None = None,
    limits: ShellLimits | None = None,
    descriptors: int = 1024,
    **fields: Any,
) -> AsyncIterator[Door]:
    settings = settings_for(folder, tls=tls, limits=limits or ShellLimits(drain_s=0.3), **fields)
    output = io.StringIO()
    log = Log(output, form="text")
    listeners = Listeners(settings)
    service = Service(settings, listeners, log, ScriptedNode, descriptors=descriptors)
    service.start()
    try:
        yield Door(service, output)
    finally:
        service.shell.stop(0, "test over")
        await service.run()
        log.close()


async def dial_client(door: Door, *, tls: Any = None) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", door.client_port, ssl=tls)
