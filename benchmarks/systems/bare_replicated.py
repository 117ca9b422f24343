"""The bare replicated FIFO: three processes, and an answer waits until one of two followers has the change.

No elections, no terms, no lease, no clock: what is left is the price of one hop to another process and back. What one
turn of the loop has changed goes out in one message a follower; turns are pipelined.

`python -m benchmarks.systems.bare_replicated PORT FOLLOWER FOLLOWER` leads;
`python -m benchmarks.systems.bare_replicated --follow PORT` follows.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from struct import Struct
from typing import cast

import uvloop

from benchmarks.systems.bare import FifoServer
from benchmarks.systems.processes import HOST, free_ports, port_answers, wait_until
from benchmarks.systems.wire_server import WireSession
from benchmarks.systems.wired import WiredSystem
from ticketing.protocol import frames

TURN = Struct(">IQ")
"""Head of a message to a follower: bytes of the changes that follow, number of the turn."""
CHANGE = Struct(">BQB")
"""Head of a change: GRANTED or RELEASE, token, bytes of the key that follows."""
ACK = Struct(">Q")


class Leader(FifoServer):
    """Answers clients, each answer after an acknowledgement."""

    def __init__(self) -> None:
        super().__init__()
        self._changes: list[bytes] = []
        self._turn = 0
        self._scheduled = False
        self._answers: list[tuple[WireSession, bytes]] = []
        """Of this turn."""
        self._unacknowledged: deque[tuple[int, list[tuple[WireSession, bytes]]]] = deque()
        self._followers: list[asyncio.Transport] = []

    async def lead(self, port: int, followers: list[int]) -> None:
        """Serves once all followers are connected."""
        for follower in followers:
            transport, _ = await asyncio.get_running_loop().create_connection(
                lambda: FollowerLink(self), HOST, follower
            )
            self._followers.append(transport)
        await self.serve(HOST, port)

    def changed(self, op: int, token: int, key: bytes) -> None:
        self._changes.append(CHANGE.pack(op, token, len(key)) + key)

    def answer(self, session: WireSession, frame: bytes) -> None:
        self._answers.append((session, frame))

    def end_of_read(self) -> None:
        if (self._answers or self._changes) and not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._send)

    def _send(self) -> None:
        self._scheduled = False
        self._turn += 1
        changes = b"".join(self._changes)
        self._changes.clear()
        message = TURN.pack(len(changes), self._turn) + changes
        for follower in self._followers:
            follower.write(message)
        self._unacknowledged.append((self._turn, self._answers))
        self._answers = []

    def acknowledged(self, turn: int) -> None:
        """One follower has all changes up to `turn`: its answers leave, if the other was not faster."""
        waiting = self._unacknowledged
        while waiting and waiting[0][0] <= turn:
            for session, frame in waiting.popleft()[1]:
                session.out.append(frame)
                self._answered[session] = None
        super().end_of_read()


class FollowerLink(asyncio.Protocol):
    """The leader's end of the connection to one follower."""

    def __init__(self, leader: Leader) -> None:
        self._leader = leader
        self._tail = b""

    def data_received(self, data: bytes) -> None:
        data = self._tail + data
        whole = len(data) // ACK.size * ACK.size
        self._tail = data[whole:]
        if whole:
            self._leader.acknowledged(ACK.unpack_from(data, whole - ACK.size)[0])


class Follower(asyncio.Protocol):
    """Keeps the same table and acknowledges."""

    def __init__(self) -> None:
        self._tail = b""
        self._transport: asyncio.Transport | None = None
        self.held: dict[bytes, int] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        data = self._tail + data
        position, last = 0, 0
        while len(data) - position >= TURN.size:
            size, turn = TURN.unpack_from(data, position)
            start = position + TURN.size
            if len(data) - start < size:
                break
            self._apply(data, start, start + size)
            position, last = start + size, turn
        self._tail = data[position:]
        if last:
            assert self._transport is not None
            self._transport.write(ACK.pack(last))

    def _apply(self, data: bytes, position: int, end: int) -> None:
        held = self.held
        while position < end:
            op, token, size = CHANGE.unpack_from(data, position)
            start = position + CHANGE.size
            position = start + size
            key = data[start:position]
            if op == frames.GRANTED:
                held[key] = token
            else:
                del held[key]


class BareReplicated(WiredSystem):
    """A leader and two followers."""

    name = "bare-replicated"
    title = "bare replicated FIFO"
    promises = "order of arrival; a copy on a second process before the answer; no failover, no lease"
    fifo = True
    module = "benchmarks.systems.bare_replicated"

    def start(self) -> None:
        followers = free_ports(2)
        for port in followers:
            self.processes.append(self.process("--follow", str(port)))
        wait_until(lambda: all(map(port_answers, followers)), "two followers", self.processes)
        self.processes.append(self.process(str(self.port), *map(str, followers)))


async def follow(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Follower, HOST, port)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    if sys.argv[1] == "--follow":
        uvloop.run(follow(int(sys.argv[2])))
    else:
        uvloop.run(Leader().lead(int(sys.argv[1]), [int(word) for word in sys.argv[2:]]))
