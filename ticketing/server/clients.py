"""Client connections: from accept to the last byte (spec 3 and 4)."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable

from ticketing.node.session import ClientSession
from ticketing.server.admission import Admission, Applicant
from ticketing.server.connection import OPEN, Connection, State, died_of_silence, prepare_socket
from ticketing.server.intake import Intake
from ticketing.server.listening import Acceptor
from ticketing.server.log import Log
from ticketing.server.node_api import NodeApi
from ticketing.server.settings import ShellLimits
from ticketing.server.tls import IDLE_BYTES_MAX, TlsStream, describe_not_tls, first_record_complete, reason_of

STARTS_PER_TURN = 16
"""TLS handshakes begun in one turn of the loop."""
RETRY_S = 0.25
"""How soon silent handshakes are looked at again while others wait."""


class ClientConnection(Connection, asyncio.BufferedProtocol):
    """One client. `session` exists from when TLS is done; the session hot path is `buffer_updated`."""

    __slots__ = (
        "_closed_behind",
        "_full",
        "_leaving",
        "_rest",
        "_stash",
        "_timer",
        "admitted",
        "applicant",
        "clients",
        "node",
        "remote",
        "session",
        "silent",
    )

    def __init__(
        self, clients: ClientConnections, applicant: Applicant, remote: str, tls: TlsStream | None
    ) -> None:
        limits = clients.limits
        super().__init__(
            clients.loop, tls, high=limits.write_buffer, low=limits.write_buffer // 2, drain_s=limits.drain_s
        )
        self.clients = clients
        self.node = clients.node
        self.applicant = applicant
        self.remote = remote
        self.session: ClientSession | None = None
        self.admitted = False
        self.silent = False
        """The node has refused it: nothing more is handed over while the answer is held back."""
        self._stash: bytearray | None = bytearray() if tls is not None else None
        """What has come of the first TLS record while the handshake has not begun."""
        if tls is not None:
            tls.idle_max = limits.unauthenticated_buffer
        self._closed_behind = False
        """The other side has closed behind `_rest`."""
        self._full = False
        """Its write buffer is: it is not read until that has drained."""
        self._leaving = False
        """Its end is told, and `_rest` has yet to reach the node."""
        self._rest = b""
        """Read, and more than the present turn takes: it is not read until the node has got it."""
        self._timer: asyncio.TimerHandle | None = self._loop.call_later(limits.handshake_s, self._overdue)
        """The deadline for authenticating; after that, the one of a full write buffer."""

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002, D102
        return self.clients.intake.room

    def buffer_updated(self, nbytes: int) -> None:  # noqa: D102
        data = bytes(self.clients.intake.room[:nbytes])
        if self.admitted and self._tls is None and self.state is OPEN:
            self._hand_in(data)
        else:
            self.data_received(data)

    def _hand_in(self, data: bytes) -> None:
        intake = self.clients.intake
        if len(data) <= intake.left and not self._rest:
            intake.left -= len(data)
            assert self.session is not None
            self.node.session_data(self.session, data)
        elif self._rest:
            self._rest += data  # further records of one read
        else:
            self._rest = data
            assert self.transport is not None
            self.transport.pause_reading()
            intake.put_off(self)

    @property
    def behind(self) -> bool:  # noqa: D102
        return bool(self._rest)

    def go_on(self, limit: int) -> int:  # noqa: D102
        session = self.session
        if session is None or (session.ended and not self._leaving):
            self._rest = b""
            return 0
        # One that breaks is handed in like any other: it was read before that.
        piece, self._rest = self._rest[:limit], self._rest[limit:]
        if self._leaving:
            self.node.session_rest(session, piece)
            if not self._rest:
                self._leaving = False
                self.session = None
                self.clients.intake.leavers -= 1
            return len(piece)
        if not self._rest and not self._full and self.state is State.OPEN:
            assert self.transport is not None
            self.transport.resume_reading()
        self.node.session_data(session, piece)
        if self._closed_behind and not self._rest and self.state is State.OPEN:
            super().closed_by_peer()
        return len(piece)

    def closed_by_peer(self) -> None:  # noqa: D102
        if self._rest:
            self._closed_behind = True
        else:
            super().closed_by_peer()

    # --- the door

    def shaking(self, data: bytes) -> None:  # noqa: D102
        if self._stash is None:
            self.advance(data)
            return
        self._stash += data
        assert self.transport is not None
        if len(self._stash) > self.clients.limits.unauthenticated_buffer:
            # A client has nothing to say behind its first record before it is answered: this is none.
            kept = describe_not_tls(self._stash) or "more than a first record before it was answered"
            self.clients.log("warning", "not a TLS client", remote=self.remote, reason=kept)
            self._stash.clear()
            self.abort()
        elif first_record_complete(self._stash):
            self.clients.heard(self)
            self.transport.pause_reading()
            self.clients.handshake_ready(self)

    def begin_handshake(self) -> None:
        """Its turn has come: the TLS handshake begins with what was kept."""
        if self.state is not State.SHAKING:
            return
        assert self._stash is not None
        assert self.transport is not None
        self.clients.heard(self)  # it has waited for us, not we for it
        first, self._stash = self._stash, None
        foreign = describe_not_tls(first)
        if foreign is not None:
            self.clients.log("warning", "not a TLS client", remote=self.remote, reason=foreign)
            self.abort()
            return
        self.transport.resume_reading()
        self.advance(bytes(first))

    def shake_failed(self, error: ssl.SSLError) -> None:  # noqa: D102
        self.clients.log("warning", "TLS with a client failed", remote=self.remote, reason=reason_of(error))

    tls_failed = shake_failed

    def opened(self) -> None:  # noqa: D102
        clients = self.clients
        clients.heard(self)
        clients.handshake_done(self)
        clients.opening = self
        session = self.node.session_opened(self.applicant.source, self.remote)
        clients.opening = None
        session.io = self
        self.session = session

    def received(self, data: bytes) -> None:  # noqa: D102
        if self.silent:
            return
        if self.admitted:
            self._hand_in(data)
            return
        session = self.session
        assert session is not None
        # What authenticates is short; frames behind it are taken as any others.
        size = self.clients.limits.unauthenticated_buffer
        self.node.session_data(session, data[:size])
        if len(data) > size and self.state is State.OPEN:
            self.received(data[size:])

    def _overdue(self) -> None:
        self._timer = None
        if self.session is None:
            self.clients.log("info", "handshake took too long", remote=self.remote)
            self.abort()
        elif not self.admitted and self.state is State.OPEN and not self.silent:
            self.node.session_overdue(self.session)

    # --- flow control: a full write buffer stops the reading, and, until the node has got it, what was read

    def pause_writing(self) -> None:  # noqa: D102
        if self.state is State.OPEN and self.admitted:
            assert self.transport is not None
            self._full = True
            self.transport.pause_reading()
            self._cancel_timer()
            self._timer = self._loop.call_later(self.clients.limits.slow_consumer_s, self._slow)

    def resume_writing(self) -> None:  # noqa: D102
        if self.state is State.OPEN and self.admitted:
            assert self.transport is not None
            self._full = False
            self._cancel_timer()
            if not self._rest:
                self.transport.resume_reading()

    def _slow(self) -> None:
        self._timer = None
        if self.session is not None and self.state is State.OPEN:
            self.node.session_slow(self.session)

    # --- what the node asks for

    def admit(self) -> None:
        """It has authenticated."""
        self.admitted = True
        if self._tls is not None:
            self._tls.idle_max = IDLE_BYTES_MAX
        self._cancel_timer()
        self.clients.admission.leave(self.applicant)

    def finish(self, last: bytes) -> None:  # noqa: D102
        self._cancel_timer()
        super().finish(last)

    def refuse(self, last: bytes) -> None:
        """Answers `last` later, outside the pool; at once nothing and closed where too many are to be
        answered.
        """
        clients = self.clients
        self._cancel_timer()
        clients.admission.leave(self.applicant)
        self.silent = True
        if self.state is not State.OPEN or len(clients.refusals) >= clients.limits.refusals:
            self.abort()
            return
        assert self.transport is not None
        self.transport.pause_reading()
        clients.refusals[self] = None
        self._timer = self._loop.call_later(clients.limits.refusal_delay_s, self._answer_refusal, last)

    def _answer_refusal(self, last: bytes) -> None:
        self._timer = None
        self.clients.refusals.pop(self, None)
        self.finish(last)

    # --- the end

    def lost(self, exc: Exception | None) -> None:  # noqa: D102
        self._cancel_timer()
        self.clients.gone(self)
        session = self.session
        if session is None:
            return
        # Both ends of the knot are cut: full garbage collections are rare (`ticketing.server.run`).
        self.session = None
        session.io = GONE
        rest, self._rest = self._rest, b""
        if session.ended:
            rest = b""  # the node has ended it: it takes nothing behind that
        self.node.session_ended(session, by_timeout=died_of_silence(exc))
        if not rest:
            return
        # Read before the end, and releases may be among it. Many may break at one stroke: their end is told at once,
        # their rests take the turns that they would have had.
        intake = self.clients.intake
        if intake.leavers < intake.full_reads:
            intake.leavers += 1
            self._leaving = True
            self.session, self._rest = session, rest
        else:
            intake.left -= len(rest)
            self.node.session_rest(session, rest)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class _Gone:
    """Stands where a session's connection was."""

    __slots__ = ()

    def write(self, data: bytes) -> None:
        """Swallows it."""

    def finish(self, last: bytes) -> None:
        """Is over already."""

    def refuse(self, last: bytes) -> None:
        """Is over already."""

    def admit(self) -> None:
        """Is over already."""


GONE = _Gone()


class ClientConnections:
    """All client connections of one node and the door to them."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        node: NodeApi,
        limits: ShellLimits,
        log: Log,
        *,
        tls: Callable[[], ssl.SSLContext | None],
        connections_max: int,
    ) -> None:
        self.loop = loop
        self.node = node
        self.limits = limits
        self.log = log
        self.admission = Admission(limits)
        self.intake = Intake(limits.turn_bytes, limits.held_bytes)
        self.opening: ClientConnection | None = None
        """The connection whose `Node.session_opened` is running."""
        self.refusals: dict[ClientConnection, None] = {}
        self.turned_away = 0
        """Connections closed at the door."""
        self._tls = tls
        self._connections: dict[ClientConnection, None] = {}
        self._connections_max = connections_max
        """What the process's descriptors allow beside peers and files."""
        self._attaching: set[asyncio.Task[None]] = set()
        self._acceptor: Acceptor | None = None
        self._starting = False
        self._retry: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._connections)

    def listen(self, sockets: list[socket.socket]) -> None:
        """Begins to accept."""
        self._acceptor = Acceptor(
            self.loop,
            sockets,
            per_turn=self.limits.accepts_per_turn,
            accepted=self._accepted,
            room=lambda: self._connections_max - len(self._connections),
            turned_away=self._note_turned_away,
        )
        self._acceptor.start()

    def close_listener(self) -> None:
        """Accepts nobody any more."""
        if self._acceptor is not None:
            self._acceptor.close()
            self._acceptor = None
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None

    def finish_all(self) -> None:
        """Ends every connection that is not ending yet, behind what was written to it."""
        for connection in list(self._connections):
            if connection.state < State.FINISHING:
                connection.finish(b"")

    def abort_all(self) -> None:
        """Ends every connection at once."""
        for connection in list(self._connections):
            connection.abort()

    def unwritten(self) -> int:
        """Bytes that wait in the write buffers of all connections."""
        return sum(connection.pending() for connection in self._connections)

    # --- the door

    def _accepted(self, sock: socket.socket, source: str, remote: str) -> None:
        applicant = Applicant(source)
        let_in, victim = self.admission.arrive(applicant, self.loop.time())
        if victim is not None:
            self._evict(victim)
        if not let_in:
            sock.close()
            self._note_turned_away("too many connections that have not authenticated", remote=remote)
            return
        context = self._tls()
        try:
            prepare_socket(sock, self.limits.user_timeout_ms)
        except OSError:  # reset already
            self.admission.leave(applicant)
            sock.close()
            return
        connection = ClientConnection(
            self, applicant, remote, None if context is None else TlsStream(context)
        )
        self._connections[connection] = None
        applicant.owner = connection
        task = self.loop.create_task(self._attach(connection, sock))
        self._attaching.add(task)
        task.add_done_callback(self._attaching.discard)

    async def _attach(self, connection: ClientConnection, sock: socket.socket) -> None:
        try:
            await self.loop.connect_accepted_socket(lambda: connection, sock)
        except OSError:
            sock.close()
            connection.abort()

    def _evict(self, applicant: Applicant) -> None:
        connection: ClientConnection = applicant.owner
        self._note_turned_away("silent while others wait at the door", remote=connection.remote)
        connection.abort()

    def _note_turned_away(self, reason: str, *, remote: str = "") -> None:
        self.turned_away += 1
        self.log("warning", "client turned away", reason=reason, remote=remote)

    def heard(self, connection: ClientConnection) -> None:
        """A connection at the door has come a step further."""
        self.admission.heard(connection.applicant, self.loop.time())

    def gone(self, connection: ClientConnection) -> None:
        """A connection is over."""
        self.admission.leave(connection.applicant)
        self.refusals.pop(connection, None)
        self._connections.pop(connection, None)
        connection.applicant.owner = None
        self._next_turn()

    # --- TLS handshakes

    def handshake_ready(self, connection: ClientConnection) -> None:
        """A connection's TLS handshake can begin."""
        if connection.applicant.inside:
            self.admission.handshake_ready(connection.applicant)
            if self.admission.congested and self._acceptor is not None:
                self._acceptor.hold()
            self._next_turn()

    def handshake_done(self, connection: ClientConnection) -> None:
        """A connection's TLS handshake is done."""
        self.admission.handshake_done(connection.applicant)
        self._next_turn()

    def _next_turn(self) -> None:
        if not self._starting and self.admission.waiting_count:
            self._starting = True
            self.loop.call_soon(self._start_handshakes)

    def _start_handshakes(self) -> None:
        self._starting = False
        admission = self.admission
        for _ in range(STARTS_PER_TURN):
            applicant, victim = admission.next_handshake(self.loop.time())
            if victim is not None:
                self._evict(victim)
            if applicant is None:
                # All that run may yet fall silent: looked at again while somebody waits.
                if admission.waiting_count and self._retry is None:
                    self._retry = self.loop.call_later(RETRY_S, self._look_again)
                break
            applicant.owner.begin_handshake()
        else:
            self._next_turn()
        if not admission.congested and self._acceptor is not None:
            self._acceptor.go_on()

    def _look_again(self) -> None:
        self._retry = None
        self._next_turn()
