"""All client connections are read into one room: no byte is lost, doubled, out of order or another's, whatever happens.

The loop here is the test's own and does one thing at a time, in any order that a real one could choose; what a read
leaves in the room is overwritten before the next one.
"""

from __future__ import annotations

import asyncio
import io
from collections import deque
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ticketing.node.session import ClientSession
from ticketing.protocol.handshake import ServerHandshake
from ticketing.server.admission import Applicant
from ticketing.server.clients import ClientConnection, ClientConnections
from ticketing.server.connection import State
from ticketing.server.intake import LEAST_BYTES, SHARE_BYTES
from ticketing.server.log import Log
from ticketing.server.settings import ShellLimits

COUNT = 4
TURN_BYTES = 6_000
FULL_READS = 2
OTHER = 0xEE
"""What overwrites the room; nobody sends it."""


class Loop:
    """Callbacks wait until they are run; timers never fire."""

    def __init__(self) -> None:
        self.ready: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()

    def time(self) -> float:
        return 0.0

    def call_soon(self, callback: Callable[..., object], *args: Any) -> None:
        self.ready.append((callback, args))

    def call_later(self, _delay: float, _callback: Callable[..., object], *_args: Any) -> asyncio.TimerHandle:
        return asyncio.TimerHandle(0, lambda: None, (), self)  # type: ignore[arg-type]

    def _timer_handle_cancelled(self, _handle: asyncio.TimerHandle) -> None:
        pass

    def get_debug(self) -> bool:
        return False

    def run(self) -> None:
        while self.ready:
            callback, args = self.ready.popleft()
            callback(*args)


class Socket:
    """A transport, the kernel behind it and the client at the other end."""

    def __init__(self, loop: Loop, number: int) -> None:
        self.loop = loop
        self.number = number
        self.sent = bytearray()
        """By the client, all of it."""
        self.read = 0
        """How much of it the server has read."""
        self.reading = True
        self.closed = False
        """The client has closed behind `sent`."""
        self.over = False
        self.protocol: ClientConnection

    def send(self, size: int) -> None:
        """More of a stream in which every byte tells where it stands and whose it is."""
        first = len(self.sent)
        self.sent += bytes((at * 7 + self.number * 61) % 200 for at in range(first, first + size))

    def serve(self, size: int) -> None:
        """The loop finds it readable."""
        if not self.reading or self.over:
            return
        if self.read == len(self.sent):
            if self.closed:
                self.protocol.eof_received()
                self.close()
            return
        room = self.protocol.get_buffer(-1)
        count = min(size, len(room), len(self.sent) - self.read)
        room[:count] = self.sent[self.read : self.read + count]
        self.read += count
        self.protocol.buffer_updated(count)
        room[:] = bytes([OTHER]) * len(room)

    # --- asyncio.Transport

    def close(self) -> None:
        self.abort()

    def abort(self, error: OSError | None = None) -> None:
        if not self.over:
            self.over = True
            self.loop.call_soon(self.protocol.connection_lost, error)

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: bytes) -> None:
        pass

    def write_eof(self) -> None:
        pass


class Node:
    """Keeps what reaches it, and ends a session or breaks its connection in the midst of that where it is told so."""

    def __init__(self) -> None:
        self.got: dict[ClientSession, bytearray] = {}
        self.ended: set[ClientSession] = set()
        self.in_turn = 0
        """Bytes of this turn, but for rests at once."""
        self.begins_turn = False
        self.rests_at_once = 0
        """Of connections that were over when as many as may had left a rest."""
        self.flush_asked = False
        self.next: str | None = None

    def session_opened(self, source: str, remote: str) -> ClientSession:
        session = ClientSession(source, remote, ServerHandshake(b"", "nonce", ()), 0)
        self.got[session] = bytearray()
        return session

    def session_data(self, session: ClientSession, data: bytes) -> None:
        assert session not in self.ended
        assert data
        self.flush_asked = True
        if session.ended:
            return
        self.got[session] += data
        connection = session.io
        if isinstance(connection, ClientConnection):
            if not connection.admitted:
                connection.admit()
                return
            self.in_turn += len(data)
            what, self.next = self.next, None
            if what == "finish":
                session.ended = True
                connection.finish(b"")
            elif what == "abort":
                connection.abort()

    def session_rest(self, session: ClientSession, data: bytes) -> None:
        assert session in self.ended
        assert data
        assert not session.ended, "whom the node has ended has no more to say"
        self.flush_asked = True
        self.got[session] += data
        if self.begins_turn:
            self.in_turn += len(data)
        else:
            self.rests_at_once += 1

    def session_ended(self, session: ClientSession, *, by_timeout: bool) -> None:
        assert session not in self.ended
        self.ended.add(session)
        self.flush_asked = True


class Scene:
    """A few connections, one after another or at once."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.node = Node()
        limits = ShellLimits(turn_bytes=TURN_BYTES, held_bytes=FULL_READS * SHARE_BYTES)
        self.clients = ClientConnections(
            self.loop,  # type: ignore[arg-type]
            self.node,  # type: ignore[arg-type]
            limits,
            Log(io.StringIO(), form="text"),
            tls=lambda: None,
            connections_max=COUNT,
        )
        self.sockets = [Socket(self.loop, number) for number in range(COUNT)]
        self.sessions: list[ClientSession] = []
        self.most_leavers = 0
        for socket in self.sockets:
            applicant = Applicant("here")
            self.clients.admission.arrive(applicant, 0.0)
            connection = ClientConnection(self.clients, applicant, "here:1", None)
            applicant.owner = connection
            socket.protocol = connection
            connection.connection_made(socket)  # type: ignore[arg-type]
            assert connection.session is not None
            self.sessions.append(connection.session)
            socket.send(1)  # it authenticates
            socket.serve(1)
        self.turn()

    def turn(self) -> None:
        """A flush, as the shell does it."""
        if self.node.flush_asked:
            self.node.flush_asked = False
            self.node.in_turn = 0
            self.node.begins_turn = True
            self.clients.intake.next_turn()
            self.node.begins_turn = False

    def happens(self, what: str, who: int, size: int) -> None:
        socket = self.sockets[who]
        connection = socket.protocol
        match what:
            case "send" if not socket.closed:
                socket.send(size)
            case "close":
                socket.closed = True
            case "read":
                socket.serve(size)
            case "flood":
                for each in self.sockets:
                    if not each.closed:
                        each.send(size)
                    each.serve(SHARE_BYTES)
            case "turn":
                self.turn()
            case "callbacks":
                self.loop.run()
            case "write buffer full" if not socket.over:
                connection.pause_writing()
            case "write buffer drained" if not socket.over:
                connection.resume_writing()
            case "finish at its next bytes":
                self.node.next = "finish"
            case "abort at its next bytes":
                self.node.next = "abort"
            case "reset":
                socket.abort(ConnectionResetError())

    def check(self) -> None:
        held = 0
        for socket, session in zip(self.sockets, self.sessions, strict=True):
            connection = socket.protocol
            got = self.node.got[session]
            held += len(connection._rest)
            assert got == socket.sent[: len(got)]
            if session.ended:
                continue
            assert len(got) + len(connection._rest) >= socket.read * (connection.state < State.FINISHING)
            if connection.behind:
                assert self.node.flush_asked, "whoever is behind has a turn coming"
                assert connection.state is not State.OPEN or not socket.reading
            elif connection.state is State.OPEN:
                assert socket.reading is not connection._full
            if session in self.node.ended:
                assert session.io is not connection
                assert (connection.session is session) is connection.behind
        leavers = sum(socket.protocol._leaving for socket in self.sockets)
        assert self.clients.intake.leavers == leavers <= FULL_READS
        self.most_leavers = max(self.most_leavers, leavers)
        assert held <= FULL_READS * SHARE_BYTES + COUNT * LEAST_BYTES
        assert self.node.in_turn <= TURN_BYTES
        assert not self.node.rests_at_once or self.most_leavers == FULL_READS

    def settle(self) -> None:
        """All comes to rest: nothing is full any more, everything is read."""
        self.node.next = None
        for socket in self.sockets:
            if not socket.over and socket.protocol._full:
                socket.protocol.resume_writing()
        while any(self.goes_on(socket) for socket in self.sockets):
            for socket in self.sockets:
                socket.serve(SHARE_BYTES)
            self.loop.run()
            self.turn()
            self.check()

    def goes_on(self, socket: Socket) -> bool:
        """Whether something of this connection is still to come. Each round brings one of them further."""
        unread = len(socket.sent) - socket.read + socket.closed
        return socket.protocol.behind or bool(self.loop.ready) or bool(not socket.over and unread)


NAMES = (
    *["send", "read", "flood", "turn"] * 2,
    *["callbacks", "reset", "write buffer full", "write buffer drained"],
    *["close", "finish at its next bytes", "abort at its next bytes"],
)
SIZES = st.one_of(st.integers(1, TURN_BYTES // 2), st.integers(TURN_BYTES, 2 * SHARE_BYTES))


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, COUNT - 1), SIZES), min_size=5, max_size=40))
def test_each_session_gets_its_own_bytes_once_and_in_order(events: list[tuple[str, int, int]]) -> None:
    scene = Scene()
    for event in events:
        scene.happens(*event)
        scene.check()
    scene.settle()
    for socket, session in zip(scene.sockets, scene.sessions, strict=True):
        got = scene.node.got[session]
        if not session.ended:
            # Whole as far as it was read, whether the connection stands, was closed or has broken.
            assert len(got) == socket.read
            assert socket.over or socket.read == len(socket.sent)
