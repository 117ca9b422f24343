"""From `host:port` to socket addresses, anew for each connection.

Names are looked up on a thread of our own that nothing waits for at the interpreter's exit: the loop's executor
would, as long as a dead name server takes.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from typing import Any

SocketAddress = tuple[socket.AddressFamily, Any]
"""Family, and what `connect` takes."""


def _look_up(host: str, port: int, flags: int) -> list[SocketAddress]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags | socket.AI_NUMERICSERV)
    return [(family, address) for family, _, _, _, address in found]


def _no_host_name(host: str, error: UnicodeError) -> OSError:
    """For an empty label, or one that is too long: Python encodes names before it asks anybody."""
    return OSError(f"{host!r} is no host name: {error}")


class Resolver:
    """Looks up one name; one look-up at most is under way."""

    __slots__ = ("_host", "_pending", "_port")

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._pending: asyncio.Future[list[SocketAddress]] | None = None

    async def addresses(self) -> list[SocketAddress]:
        """All addresses of the name, in the system's order. Raises OSError where it has none."""
        try:
            return _look_up(self._host, self._port, socket.AI_NUMERICHOST)
        except socket.gaierror:
            pass
        except UnicodeError as error:
            raise _no_host_name(self._host, error) from error
        if self._pending is None or self._pending.done():
            self._pending = self._start()
        # A caller that runs out of time leaves the look-up to the next one.
        return await asyncio.shield(self._pending)

    def _start(self) -> asyncio.Future[list[SocketAddress]]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[list[SocketAddress]] = loop.create_future()
        # Nobody may be there any more when it fails.
        future.add_done_callback(lambda done: done.cancelled() or done.exception())

        def finish(found: list[SocketAddress], error: OSError | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(found)
            else:
                future.set_exception(error)

        def work() -> None:
            found: list[SocketAddress] = []
            failure: OSError | None = None
            try:
                found = _look_up(self._host, self._port, 0)
            except OSError as error:
                failure = error
            except UnicodeError as error:
                failure = _no_host_name(self._host, error)
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(finish, found, failure)

        threading.Thread(target=work, name="ticketing-resolve", daemon=True).start()
        return future
