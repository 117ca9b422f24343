"""The null server: our wire with nothing behind it. What remains is the price of sockets, frames and the loop.

`python -m benchmarks.systems.null PORT` serves on loopback.
"""

from __future__ import annotations

import sys

import uvloop

from benchmarks.systems.processes import HOST
from benchmarks.systems.wire_server import WireServer, WireSession
from benchmarks.systems.wired import WiredSystem
from ticketing.protocol import frames
from ticketing.protocol.decoder import Request


class NullServer(WireServer):
    """Grants everything to everybody at once, and releases it."""

    def __init__(self) -> None:
        super().__init__()
        self._token = 0

    def handle(self, session: WireSession, requests: list[Request]) -> None:
        token = self._token
        append = session.out.append
        for op, _wait, _lease, ident, key in requests:
            if op == frames.Q:
                token += 1
                append(frames.encode_granted_waited(token, ident, 0, key))
            elif op == frames.ACQUIRE:
                token += 1
                append(frames.encode_granted(token, ident, key))
            elif op == frames.RELEASE:
                append(frames.encode_released(ident, key))
        self._token = token
        session.flush()


class Null(WiredSystem):
    """One process."""

    name = "null"
    title = "null server"
    promises = "nothing: every acquire is granted at once"
    module = "benchmarks.systems.null"


if __name__ == "__main__":
    uvloop.run(NullServer().serve(HOST, int(sys.argv[1])))
