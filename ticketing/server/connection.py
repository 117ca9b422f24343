"""One TCP connection, with or without TLS: the same states, bounds and ends on every event loop.

TLS is done here, over memory buffers, and not by the loop: a peer that is silent in its handshake is then
an object that can be counted and closed, the write side can be shut down behind the closing alert, and
asyncio and uvloop behave alike. (The loops' own TLS transports offer neither, and differ in how they
close.)
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from enum import IntEnum
from typing import cast

from ticketing.server.tls import PIECE, TlsStream

_DEAD_ERRNOS = frozenset((errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH))
"""How TCP reports a peer that stopped answering: its own time-out, or what the network said meanwhile."""


class State(IntEnum):
    """Where a connection stands; it only ever moves down this list."""

    CONNECTING = 0
    """No transport yet."""
    SHAKING = 1
    """The TLS handshake is not done."""
    OPEN = 2
    FINISHING = 3
    """The last bytes were written and the write side is shut down, or the transport was aborted: what still
    arrives is discarded."""
    OVER = 4
    """`lost` was called."""


OPEN = State.OPEN
"""The state that is asked for with every write and read: a name of the module is found sooner than an Enum's member."""


class Connection(asyncio.BaseProtocol):
    """Base of client, peer and admin connections: an `asyncio.Protocol`, which a subclass may make a buffered one.
    The hooks at the end are called by the loop, never from a call into here.
    """

    __slots__ = ("_drain_s", "_drain_timer", "_loop", "_tls", "_water", "state", "transport")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, tls: TlsStream | None, *, high: int, low: int, drain_s: float
    ) -> None:
        self._loop = loop
        self._tls = tls
        self._water = (high, low)
        self._drain_s = drain_s
        self._drain_timer: asyncio.TimerHandle | None = None
        self.state = State.CONNECTING
        self.transport: asyncio.Transport | None = None

    # --- what the owner does

    def write(self, data: bytes) -> None:
        """Hands bytes to the transport; a connection that is not open swallows them."""
        if self.state is OPEN:
            assert self.transport is not None
            if self._tls is not None:
                try:
                    data = self._tls.encrypt(data)
                except ssl.SSLError:
                    self.abort()
                    return
            self.transport.write(data)

    def pending(self) -> int:
        """Bytes that the kernel has not taken yet."""
        return 0 if self.transport is None else self.transport.get_write_buffer_size()

    def finish(self, last: bytes) -> None:
        """Writes `last`, shuts down the write side, discards what still comes until EOF or the drain time
        is over.

        So the other side gets its last bytes: closing with unread input would reset the connection and
        could take them along (RFC 1122, 4.2.2.13).
        """
        if self.state is not State.OPEN:
            self.abort()
            return
        transport = self.transport
        assert transport is not None
        if self._tls is not None:
            try:
                last = self._tls.encrypt(last) + self._tls.close_notify()
            except ssl.SSLError:
                self.abort()
                return
        self.state = State.FINISHING
        if last:
            transport.write(last)
        try:
            transport.write_eof()
        except OSError:  # the connection was reset and the loop has not told us yet
            transport.abort()
            return
        transport.resume_reading()
        self._drain_timer = self._loop.call_later(self._drain_s, transport.abort)

    def abort(self) -> None:
        """Ends the connection without more ado; `lost` follows from the loop."""
        if self.state >= State.FINISHING and self.transport is None:
            return
        if self.state < State.FINISHING:
            self.state = State.FINISHING
        if self.transport is None:
            self._loop.call_soon(self._end, None)
        else:
            self.transport.abort()

    # --- what the loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:  # noqa: D102
        transport = cast("asyncio.Transport", transport)  # uvloop's does not inherit from it
        self.transport = transport
        if self.state is not State.CONNECTING:
            transport.abort()
            return
        high, low = self._water
        transport.set_write_buffer_limits(high=high, low=low)
        if self._tls is None:
            self.state = State.OPEN
            self.opened()
        else:
            self.state = State.SHAKING
            self.connected()

    def data_received(self, data: bytes) -> None:  # noqa: D102
        state = self.state
        if state is OPEN:
            if self._tls is None:
                self.received(data)
            else:
                self._decrypt(data)
        elif state is State.SHAKING:
            self.shaking(data)

    def eof_received(self) -> None:  # noqa: D102
        # The transport closes by itself after this, once its buffer is written: not later than the drain
        # time.
        assert self.transport is not None
        if self.transport.get_write_buffer_size() and self._drain_timer is None:
            self._drain_timer = self._loop.call_later(self._drain_s, self.transport.abort)
        if self.state < State.FINISHING:
            self.state = State.FINISHING
        self._end(None)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: D102
        if self._drain_timer is not None:
            self._drain_timer.cancel()
            self._drain_timer = None
        self._end(exc)
        self.transport = None
        self._tls = None

    def _end(self, exc: Exception | None) -> None:
        if self.state is not State.OVER:
            self.state = State.OVER
            self.lost(exc)

    # --- TLS

    def advance(self, data: bytes) -> None:
        """Takes the TLS handshake as far as `data` reaches. What stands behind it is not of the handshake: a client
        may send its first request, however long, with its last message.
        """
        if len(data) <= PIECE:
            self._advance_piece(data)
            return
        view = memoryview(data)
        for start in range(0, len(data), PIECE):
            if self.state is State.SHAKING:
                self._advance_piece(view[start : start + PIECE])
            elif self.state is State.OPEN:
                self._decrypt(bytes(view[start:]))
                return

    def _advance_piece(self, data: bytes | memoryview) -> None:
        tls, transport = self._tls, self.transport
        assert tls is not None
        assert transport is not None
        try:
            done = tls.advance(data)
        except ssl.SSLError as error:
            transport.write(tls.outgoing())  # the alert that tells the other side why
            self.state = State.FINISHING
            self.shake_failed(error)
            transport.close()
            return
        out = tls.outgoing()
        if out:
            transport.write(out)
        if done:
            self.state = State.OPEN
            self.opened()
            if self.state is State.OPEN:
                self._decrypt(b"")

    def _decrypt(self, data: bytes) -> None:
        if len(data) <= PIECE:
            self._decrypt_piece(data)
            return
        view = memoryview(data)
        for start in range(0, len(data), PIECE):
            self._decrypt_piece(view[start : start + PIECE])
            if self.state is not State.OPEN:
                return

    def _decrypt_piece(self, data: bytes | memoryview) -> None:
        tls, transport = self._tls, self.transport
        assert tls is not None
        assert transport is not None
        try:
            chunks, ended = tls.decrypt(data, self._loop.time())
        except ssl.SSLError as error:
            # A damaged record, or far too many: as dead as a reset connection.
            self.tls_failed(error)
            self.abort()
            return
        out = tls.outgoing()
        if out:
            transport.write(out)
        for chunk in chunks:
            if self.state is State.OPEN:
                self.received(chunk)
        if ended and self.state is State.OPEN:
            self.closed_by_peer()

    # --- hooks

    def closed_by_peer(self) -> None:
        """The other side has closed, behind its last bytes (over TLS; a plain one's transport ends by itself)."""
        self.finish(b"")
        self._end(None)

    def connected(self) -> None:
        """TCP stands and TLS begins."""

    def shaking(self, data: bytes) -> None:
        """Bytes of the TLS handshake."""
        self.advance(data)

    def shake_failed(self, error: ssl.SSLError) -> None:
        """TLS did not come about; `lost` follows."""

    def tls_failed(self, error: ssl.SSLError) -> None:
        """TLS came to an end after its handshake; `lost` follows."""

    def opened(self) -> None:
        """The connection stands, TLS included."""
        raise NotImplementedError

    def received(self, data: bytes) -> None:
        """Bytes from the other side, never after `lost` or once the connection finishes."""
        raise NotImplementedError

    def lost(self, exc: Exception | None) -> None:
        """The connection is over; called once. `exc` is None for an orderly end or an abort of ours."""
        raise NotImplementedError


def died_of_silence(exc: Exception | None) -> bool:
    """Whether a connection ended since its peer stopped answering, not since the peer closed it."""
    return isinstance(exc, OSError) and exc.errno in _DEAD_ERRNOS


def prepare_socket(sock: socket.socket, user_timeout_ms: int) -> None:
    """Options of every connection: no delay, and dead when unacknowledged for so long (RFC 5482)."""
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, user_timeout_ms)
