"""Connections of the admin plane: TLS, who makes room for whom, and HTTP handed to aiohttp.

TLS is the shell's own (`ticketing.server.connection`), so that what a stranger can cost is bounded on this port as on
the others; what aiohttp sees is a transport of plain bytes. Whoever has shown the token once makes room for nobody:
strangers come and go among themselves.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Iterable
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from ticketing.server.connection import Connection, State, prepare_socket
from ticketing.server.listening import Acceptor
from ticketing.server.log import Log
from ticketing.server.tls import TlsStream, reason_of

CONNECTIONS_MAX = 64
ACCEPTS_PER_TURN = 4
FIRST_REQUEST_S = 10.0
"""From accept to the end of the first request's head, TLS included."""
USER_TIMEOUT_MS = 9_000
"""TCP_USER_TIMEOUT: a reader of the events whose machine is gone holds its place no longer."""
HIGH_WATER = 64 * 1024
DRAIN_S = 1.0


class AdminConnection(Connection):
    """One connection with an operator, or with whoever has dialled the port."""

    __slots__ = ("_http", "_timer", "authorized", "connections", "remote", "source_tls")

    def __init__(self, connections: AdminConnections, remote: str, context: ssl.SSLContext | None) -> None:
        tls = None if context is None else TlsStream(context)
        super().__init__(connections.loop, tls, high=HIGH_WATER, low=HIGH_WATER // 4, drain_s=DRAIN_S)
        self.connections = connections
        self.remote = remote
        self.source_tls = context
        """What the connection's TLS was made of, for aiohttp."""
        self.authorized = False
        """A request on it has shown the token."""
        self._http: web.RequestHandler | None = None
        self._timer: asyncio.TimerHandle | None = self._loop.call_later(FIRST_REQUEST_S, self._overdue)

    def asked(self, *, authorized: bool) -> None:
        """The head of a request has come."""
        self.authorized |= authorized
        self._cancel_timer()

    def _overdue(self) -> None:
        self._timer = None
        self.connections.log("info", "no admin request in time", remote=self.remote)
        self.abort()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def shake_failed(self, error: ssl.SSLError) -> None:  # noqa: D102
        log = self.connections.log
        log("warning", "TLS with an operator failed", remote=self.remote, reason=reason_of(error))

    tls_failed = shake_failed

    def opened(self) -> None:  # noqa: D102
        self._http = http = self.connections.server()
        http.connection_made(PlainTransport(self))

    def received(self, data: bytes) -> None:  # noqa: D102
        assert self._http is not None
        self._http.data_received(data)

    def pause_writing(self) -> None:  # noqa: D102
        if self._http is not None:
            self._http.pause_writing()

    def resume_writing(self) -> None:  # noqa: D102
        if self._http is not None:
            self._http.resume_writing()

    def lost(self, exc: Exception | None) -> None:  # noqa: D102
        self._cancel_timer()
        self.connections.gone(self)
        http, self._http = self._http, None
        if http is not None:
            # aiohttp's task has to get what it was told of before: it breaks where a request, or the connection
            # itself, is taken away again in the turn that brought it.
            self._loop.call_soon(http.connection_lost, exc)


class PlainTransport(asyncio.Transport):
    """What aiohttp is given in place of the connection's own transport."""

    def __init__(self, connection: AdminConnection) -> None:
        super().__init__()
        self.connection = connection

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:  # noqa: D102
        self.connection.write(bytes(data))

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview[Any]]) -> None:  # noqa: D102
        self.connection.write(b"".join(list_of_data))

    def close(self) -> None:  # noqa: D102
        if not self.is_closing():
            self.connection.finish(b"")

    def abort(self) -> None:  # noqa: D102
        self.connection.abort()

    def is_closing(self) -> bool:  # noqa: D102
        return self.connection.state >= State.FINISHING

    def get_extra_info(self, name: str, default: Any = None) -> Any:  # noqa: D102
        transport = self.connection.transport
        if name == "sslcontext":
            return self.connection.source_tls
        return default if transport is None else transport.get_extra_info(name, default)

    def pause_reading(self) -> None:  # noqa: D102
        if self.connection.transport is not None and not self.is_closing():
            self.connection.transport.pause_reading()

    def resume_reading(self) -> None:  # noqa: D102
        if self.connection.transport is not None and not self.is_closing():
            self.connection.transport.resume_reading()

    def get_write_buffer_size(self) -> int:  # noqa: D102
        return self.connection.pending()


class AdminConnections:
    """All connections of one node's admin plane, at most `CONNECTIONS_MAX`."""

    def __init__(self, log: Log) -> None:
        self.loop = asyncio.get_running_loop()
        self.log = log
        self.server: Callable[[], web.RequestHandler]
        """Makes aiohttp's end of a connection."""
        self._connections: dict[AdminConnection, None] = {}
        """In order of arrival."""
        self._attaching: set[asyncio.Task[None]] = set()
        self._tls: Callable[[], ssl.SSLContext | None] = lambda: None
        self._acceptor: Acceptor | None = None

    def listen(
        self,
        sockets: list[socket.socket],
        server: Callable[[], web.RequestHandler],
        tls: Callable[[], ssl.SSLContext | None],
    ) -> None:
        """Begins to accept; `tls` is asked anew for each connection."""
        self.server = server
        self._tls = tls
        self._acceptor = Acceptor(
            self.loop,
            sockets,
            per_turn=ACCEPTS_PER_TURN,
            accepted=self._accepted,
            room=lambda: CONNECTIONS_MAX,
            turned_away=self._turned_away,
        )
        self._acceptor.start()

    def close_listener(self) -> None:
        """Accepts nobody any more."""
        if self._acceptor is not None:
            self._acceptor.close()
            self._acceptor = None

    def abort_all(self) -> None:
        """Ends every connection at once."""
        for connection in list(self._connections):
            connection.abort()

    def _accepted(self, sock: socket.socket, _source: str, remote: str) -> None:
        if len(self._connections) >= CONNECTIONS_MAX:
            # The oldest stranger makes room, so that silent connections lock no operator out.
            stranger = next((held for held in self._connections if not held.authorized), None)
            if stranger is None:
                sock.close()
                self._turned_away("as many operators as there is room for", remote=remote)
                return
            self._turned_away("others came, and it has not shown the token", remote=stranger.remote)
            self.gone(stranger)
            stranger.abort()
        try:
            prepare_socket(sock, USER_TIMEOUT_MS)
        except OSError:  # reset already
            sock.close()
            return
        connection = AdminConnection(self, remote, self._tls())
        self._connections[connection] = None
        task = self.loop.create_task(self._attach(connection, sock))
        self._attaching.add(task)
        task.add_done_callback(self._attaching.discard)

    async def _attach(self, connection: AdminConnection, sock: socket.socket) -> None:
        try:
            await self.loop.connect_accepted_socket(lambda: connection, sock)
        except OSError:
            sock.close()
            connection.abort()

    def _turned_away(self, reason: str, *, remote: str = "") -> None:
        self.log("warning", "admin connection turned away", reason=reason, remote=remote)

    def gone(self, connection: AdminConnection) -> None:
        """A connection is over."""
        self._connections.pop(connection, None)


def connection_of(request: web.BaseRequest) -> AdminConnection | None:
    """The connection that a request came on, while it stands."""
    transport = request.transport
    return transport.connection if isinstance(transport, PlainTransport) else None


def http_log(log: Log) -> logging.Logger:
    """What aiohttp has to say, as lines of ours: bounded, and without a traceback where a stranger is at fault."""
    logger = logging.Logger("ticketing.admin", logging.WARNING)  # noqa: LOG001 - each node its own, none global
    logger.addHandler(_HttpLog(log))
    return logger


class _HttpLog(logging.Handler):
    def __init__(self, log: Log) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, HttpProcessingError):
            remote = record.args[0] if isinstance(record.args, tuple) and record.args else ""
            lines = str(error.message).split("\n")
            self._log("warning", "no HTTP request", remote=str(remote), reason=lines[0][:80])
        else:
            self._log("warning", "admin plane", message=self.format(record))
