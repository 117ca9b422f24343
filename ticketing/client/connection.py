"""A standing connection to one address: dials, keeps one session, and dials again when it has ended."""

from __future__ import annotations

import asyncio
import logging
import random
import socket
import ssl
from typing import TYPE_CHECKING

from ticketing.client.clock import SECOND
from ticketing.client.errors import TicketErrorKind
from ticketing.client.resolve import Resolver, SocketAddress
from ticketing.client.session import STEP_NS, End, Session
from ticketing.protocol.fields import split_address
from ticketing.protocol.frames import AUTH_FAILED
from ticketing.protocol.handshake import PROTOCOL

if TYPE_CHECKING:
    from ticketing.client.cluster import Cluster

BACKOFF_MIN_S = 0.1
BACKOFF_MAX_S = 3.2
SHORT_SESSION_NS = SECOND
"""A session that was shorter counts as a failed try."""
_STEP_S = STEP_NS / SECOND


class Backoff:
    """Pauses between tries: 0.1 s, doubling to 3.2 s, of which a random half to whole is taken.

    The jitter comes after the cap, so that those who have failed for long stay apart as well.
    """

    __slots__ = ("_next_s", "_random")

    def __init__(self, rng: random.Random) -> None:
        self._random = rng
        self._next_s = BACKOFF_MIN_S

    def pause_s(self) -> float:
        """The pause before the next try."""
        pause, self._next_s = self._next_s, min(self._next_s * 2, BACKOFF_MAX_S)
        return pause * self._random.uniform(0.5, 1.0)

    def reset(self) -> None:
        """After a try that succeeded."""
        self._next_s = BACKOFF_MIN_S


class Connection:
    """Runs as one task of the cluster's loop until it is stopped."""

    def __init__(self, cluster: Cluster, address: str, number: int, configured: bool) -> None:
        self.address = address
        self.configured = configured
        self.session: Session | None = None
        self.refusal: End | None = None
        """Why no session can be had here without somebody changing something; None where that is not known."""
        self.failures = 0
        """Tries in a row without a session."""
        self._cluster = cluster
        self._host, self._port = split_address(address)
        self._resolver = Resolver(self._host, self._port)
        self._backoff = Backoff(cluster.rng)
        self._turn = number
        self._task: asyncio.Task[None] | None = None
        self._stopping = False

    def start(self) -> None:
        """Begins to dial."""
        self._task = self._cluster.loop.create_task(self._run(), name=f"ticketing {self.address}")

    def stop(self) -> asyncio.Task[None] | None:
        """Ends session and task; the task is returned to be waited for."""
        self._stopping = True
        if self._task is not None:
            self._task.cancel()
        return self._task

    async def _run(self) -> None:
        cluster = self._cluster
        try:
            while True:
                end = await self._live()
                opened = self.session is not None and self.session.opened_ns <= cluster.clock()
                lasted = cluster.clock() - self.session.opened_ns if opened and self.session else 0
                self.session = None
                if lasted >= SHORT_SESSION_NS:
                    self._backoff.reset()
                self.failures = 0 if opened else self.failures + 1
                self.refusal = end if end.kind in (TicketErrorKind.AUTH, PROTOCOL, "tls") else None
                pause = self._backoff.pause_s()
                level = logging.WARNING if opened or self.failures == 1 else logging.INFO
                cluster.logger.log(level, "%s: %s; next try in %.1f s", self.address, end.detail, pause)
                if not cluster.connection_down(self):
                    self._stopping = True
                    return
                await asyncio.sleep(pause)
        finally:
            if not cluster.loop.is_closed():
                if self.session is not None:
                    self.session.flush()  # what was given back in this turn
                    self.session.close("closed", "the broker was closed", flush=True)
                if not self._stopping:
                    # Cancelled by somebody else, as `asyncio.run` does at its end.
                    cluster.leave()

    async def _live(self) -> End:
        """One try, and the session that comes of it. Returns why there is none (any more)."""
        try:
            session = await self._dial()
        except TimeoutError:
            return End("io", f"no connection within {_STEP_S:.0f} s")
        except ssl.SSLCertVerificationError as error:
            return End("tls", f"the server's certificate is refused: {error.verify_message}")
        except (ssl.SSLError, OSError) as error:
            return End("io", f"cannot connect: {error}")
        except Exception as error:  # such as no thread to be had for a look-up: it may go the next time
            return End("io", f"cannot connect: {type(error).__name__}: {error}")
        end = await session.ended
        return End(TicketErrorKind.AUTH, end.detail) if end.kind == AUTH_FAILED else end

    async def _dial(self) -> Session:
        cluster = self._cluster
        sock = await self._connect()
        session = cluster.new_session(self.address)
        secured = cluster.tls is not None
        try:
            async with asyncio.timeout(_STEP_S):
                await cluster.loop.create_connection(
                    lambda: session,
                    sock=sock,
                    ssl=cluster.tls,
                    server_hostname=self._host if secured else None,
                    ssl_shutdown_timeout=1 if secured else None,
                )
        except BaseException:
            cluster.sockets.discard(sock)
            sock.close()
            session.close("io", "no session came about")
            raise
        self.session = session
        session.ended.add_done_callback(lambda _: cluster.sockets.discard(sock))
        return session

    async def _connect(self) -> socket.socket:
        """A connected socket: the addresses of the name are tried in turn, within 3 s together."""
        async with asyncio.timeout(_STEP_S):
            found = await self._resolver.addresses()
            # The next try begins with another one, and so does a second connection to the same name.
            first = self._turn % len(found)
            self._turn += 1
            found = found[first:] + found[:first]
            share = _STEP_S / min(len(found), 4)
            for number, target in enumerate(found, 1):
                try:
                    async with asyncio.timeout(share):
                        return await self._reach(target)
                except OSError:  # includes the timeout of one address
                    if number == len(found):
                        raise
        raise AssertionError("a name with addresses was tried without a result")

    async def _reach(self, target: SocketAddress) -> socket.socket:
        family, address = target
        # The protocol is named, or asyncio would not take it for TCP and leave Nagle's algorithm on.
        sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        sockets = self._cluster.sockets
        sockets.add(sock)
        try:
            sock.setblocking(False)
            await self._cluster.loop.sock_connect(sock, address)
            if sock.getsockname() == sock.getpeername():
                # The kernel gave us the very port that we dialled: nobody listens there.
                raise ConnectionRefusedError("connected to itself")  # noqa: TRY301
        except BaseException:
            sockets.discard(sock)
            sock.close()
            raise
        return sock
