"""Peer links: dialled and accepted, mutual TLS where configured (spec 9, Peer link). When to dial is the
node's.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Any

from ticketing.node.peers import PEER
from ticketing.node.shell import Link
from ticketing.server.admission import Admission, Applicant
from ticketing.server.connection import Connection, prepare_socket
from ticketing.server.listening import Acceptor, split_address
from ticketing.server.log import Log
from ticketing.server.node_api import NodeApi
from ticketing.server.settings import ShellLimits
from ticketing.server.tls import TlsContexts, TlsStream, certifies, reason_of

DIAL_S = 3.0
"""Limit of name, TCP and TLS together."""
HANDSHAKE_S = 5.0
"""An accepted link that the node has not given a purpose by then is closed, TLS included."""
USER_TIMEOUT_MS = 3_000
"""A link on which nothing was acknowledged for so long is dead; redialling finds a healed network sooner
than TCP's own retransmissions, which back off."""
UNAUTHENTICATED_MAX = 64
UNAUTHENTICATED_PER_SOURCE = 32
INBOUND_MAX = 256
HIGH_WATER = 256 * 1024
LOW_WATER = 64 * 1024


class PeerLink(Link):
    """A link with its connection."""

    __slots__ = ("applicant", "connection", "dialling", "hosts", "timer")

    def __init__(self, address: str, *, inbound: bool, purpose: str) -> None:
        super().__init__(address, inbound=inbound, purpose=purpose)
        self.connection: PeerConnection | None = None
        self.dialling: asyncio.Task[None] | None = None
        self.applicant: Applicant | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.hosts: tuple[str, ...] | None = None
        """Names and addresses in the other side's certificate; None without TLS."""

    def certifies(self, address: str) -> bool:  # noqa: D102
        if self.hosts is None:
            return True
        try:
            host = split_address(address)[0]
        except ValueError:
            return False  # a certificate is for no such thing
        return certifies(self.hosts, host)


class PeerConnection(Connection):
    """One end of a link."""

    __slots__ = ("link", "peers")

    def __init__(self, peers: PeerLinks, link: PeerLink, tls: TlsStream | None) -> None:
        super().__init__(peers.loop, tls, high=HIGH_WATER, low=LOW_WATER, drain_s=peers.limits.drain_s)
        self.peers = peers
        self.link = link

    def connected(self) -> None:  # noqa: D102
        if not self.link.inbound:
            self.advance(b"")  # the dialler speaks first

    def shake_failed(self, error: ssl.SSLError) -> None:  # noqa: D102
        self.peers.log("warning", "TLS with a peer failed", remote=self.link.address, reason=reason_of(error))

    tls_failed = shake_failed

    def opened(self) -> None:  # noqa: D102
        link, peers = self.link, self.peers
        if self._tls is not None:
            link.hosts = self._tls.certified_hosts()
        if link.inbound:
            peers.heard(link)
        else:
            peers.end_timer(link)
        peers.node.link_up(link)

    def received(self, data: bytes) -> None:  # noqa: D102
        link = self.link
        if link.inbound and link.purpose not in ("", PEER):
            # A snapshot comes as fast as the kernels carry it: one read a turn, or the loop would do nothing else.
            assert self.transport is not None
            self.transport.pause_reading()
            self.peers.read_next_turn.append(self)
        self.peers.node.link_data(link, data)

    def resume_writing(self) -> None:  # noqa: D102
        if self.peers.knows(self.link):
            self.peers.node.link_writable(self.link)

    def lost(self, exc: Exception | None) -> None:  # noqa: ARG002, D102
        self.peers.gone(self)


class PeerLinks:
    """All links of one node. A link stands in `_links` from when the node knows of it until it is over."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        node: NodeApi,
        limits: ShellLimits,
        log: Log,
        *,
        tls: Callable[[], TlsContexts | None],
    ) -> None:
        self.loop = loop
        self.node = node
        self.limits = limits
        self.log = log
        self._tls = tls
        self._links: dict[PeerLink, None] = {}
        self._connections: dict[PeerConnection, None] = {}
        """All that have a transport or wait for one, those that the node has hung up included."""
        self._door = Admission(_door_limits(limits))
        self._applicants: dict[Applicant, PeerLink] = {}
        self._acceptor: Acceptor | None = None
        self._attaching: set[asyncio.Task[None]] = set()
        self.read_next_turn: list[PeerConnection] = []
        """Connections that have been read in this turn and are not read again in it."""

    def __len__(self) -> int:
        return len(self._connections)

    def next_turn(self) -> None:
        """A flush is over."""
        if self.read_next_turn:
            for connection in self.read_next_turn:
                if connection.transport is not None:
                    connection.transport.resume_reading()
            self.read_next_turn.clear()

    # --- what the node asks for

    def dial(self, address: str, purpose: str) -> PeerLink:
        """Starts connecting; `link_up` or `link_down` follows."""
        link = PeerLink(address, inbound=False, purpose=purpose)
        self._links[link] = None
        link.timer = self.loop.call_later(DIAL_S, self._dial_overdue, link)
        link.dialling = self.loop.create_task(self._connect(link))
        return link

    def send(self, link: Link, frame: bytes) -> None:
        """Queues a frame; a link that is over swallows it."""
        assert isinstance(link, PeerLink)
        if link.connection is not None:
            link.connection.write(frame)

    def buffered(self, link: Link) -> int:
        """Bytes that the kernel has not taken."""
        assert isinstance(link, PeerLink)
        return 0 if link.connection is None else link.connection.pending()

    def hang_up(self, link: Link) -> None:
        """Closes a link behind what was sent; the node hears no more of it."""
        assert isinstance(link, PeerLink)
        if self._forget(link):
            if link.connection is not None:
                link.connection.finish(b"")
            elif link.dialling is not None:
                link.dialling.cancel()

    # --- dialling

    async def _connect(self, link: PeerLink) -> None:
        refused = False
        try:
            host, port = split_address(link.address)
            found = await self._resolve(host, port)
            errors: list[OSError] = []
            for family, kind, protocol, _name, target in found:
                sock = socket.socket(family, kind, protocol)
                try:
                    prepare_socket(sock, USER_TIMEOUT_MS)
                    async with asyncio.timeout(DIAL_S / len(found)):
                        await self.loop.sock_connect(sock, target)
                except OSError as error:  # TimeoutError included
                    sock.close()
                    errors.append(error)
                except BaseException:
                    sock.close()
                    raise
                else:
                    await self._attach(link, host, sock)
                    return
            refused = bool(errors) and all(isinstance(error, ConnectionRefusedError) for error in errors)
        except (OSError, ValueError) as error:  # a name that does not resolve
            self.log("warning", "peer address does not resolve", remote=link.address, reason=reason_of(error))
        self.over(link, refused=refused)

    async def _resolve(self, host: str, port: int) -> list[tuple[Any, ...]]:
        try:
            # An address needs no resolver, and so no thread that a slow one may block.
            return list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST))
        except socket.gaierror:
            return list(await self.loop.getaddrinfo(host, port, type=socket.SOCK_STREAM))

    async def _attach(self, link: PeerLink, host: str, sock: socket.socket) -> None:
        contexts = self._tls()
        tls = None
        if contexts is not None:
            if link.inbound:
                tls = TlsStream(contexts.peer_inbound)
            else:
                tls = TlsStream(contexts.peer_outbound, dialled_host=host)
        connection = PeerConnection(self, link, tls)
        link.connection = connection
        self._connections[connection] = None
        try:
            if link.inbound:
                await self.loop.connect_accepted_socket(lambda: connection, sock)
            else:
                await self.loop.create_connection(lambda: connection, sock=sock)
        except OSError:
            sock.close()
            connection.abort()

    def _dial_overdue(self, link: PeerLink) -> None:
        link.timer = None
        if link.connection is not None:
            link.connection.abort()  # TLS did not end: `lost` tells the node
        else:
            if link.dialling is not None:
                link.dialling.cancel()
            self.over(link, refused=False)

    # --- accepting

    def listen(self, sockets: list[socket.socket]) -> None:
        """Begins to accept."""
        self._acceptor = Acceptor(
            self.loop,
            sockets,
            per_turn=self.limits.accepts_per_turn,
            accepted=self._accepted,
            room=lambda: INBOUND_MAX - len(self._links),
            turned_away=self._note_turned_away,
        )
        self._acceptor.start()

    def close_listener(self) -> None:
        """Accepts nobody any more."""
        if self._acceptor is not None:
            self._acceptor.close()
            self._acceptor = None

    def _accepted(self, sock: socket.socket, source: str, remote: str) -> None:
        self._let_through()
        applicant = Applicant(source)
        let_in, victim = self._door.arrive(applicant, self.loop.time())
        if victim is not None:
            self._end(self._applicants.pop(victim))
        if let_in:
            try:
                prepare_socket(sock, USER_TIMEOUT_MS)
            except OSError:
                self._door.leave(applicant)
                let_in = False
        else:
            self._note_turned_away("too many links that have not authenticated")
        if not let_in:
            sock.close()
            return
        link = PeerLink(remote, inbound=True, purpose="")
        link.applicant = applicant
        self._links[link] = None
        self._applicants[applicant] = link
        link.timer = self.loop.call_later(HANDSHAKE_S, self._handshake_overdue, link)
        task = self.loop.create_task(self._attach(link, "", sock))
        self._attaching.add(task)
        task.add_done_callback(self._attaching.discard)

    def _let_through(self) -> None:
        """Links that have authenticated leave the door: the node has given them their purpose."""
        for applicant, link in list(self._applicants.items()):
            if link.purpose:
                self._leave_door(link, applicant)

    def _leave_door(self, link: PeerLink, applicant: Applicant) -> None:
        del self._applicants[applicant]
        self._door.leave(applicant)
        link.applicant = None

    def _handshake_overdue(self, link: PeerLink) -> None:
        link.timer = None
        if not link.purpose:
            self.log("info", "link did not authenticate in time", remote=link.address)
            self._end(link)

    def _note_turned_away(self, reason: str) -> None:
        self.log("warning", "link turned away", reason=reason)

    def heard(self, link: PeerLink) -> None:
        """A link that stands at the door has come a step further."""
        if link.applicant is not None:
            self._door.heard(link.applicant, self.loop.time())

    # --- the end

    def knows(self, link: PeerLink) -> bool:
        """Whether the node still counts on this link."""
        return link in self._links

    def end_timer(self, link: PeerLink) -> None:
        """The link's deadline is met."""
        if link.timer is not None:
            link.timer.cancel()
            link.timer = None

    def over(self, link: PeerLink, *, refused: bool) -> None:
        """A link is over, or never came about; the node hears of it unless it hung up itself."""
        known = self._forget(link)
        link.connection = None
        link.dialling = None
        if known:
            self.node.link_down(link, refused=refused)

    def gone(self, connection: PeerConnection) -> None:
        """A connection is over."""
        self._connections.pop(connection, None)
        self.over(connection.link, refused=False)

    def abort_all(self) -> None:
        """Ends every link at once."""
        for link in list(self._links):
            self._end(link)
        for connection in list(self._connections):
            connection.abort()

    def unwritten(self) -> int:
        """Bytes that wait in the write buffers of all links."""
        return sum(connection.pending() for connection in self._connections)

    def _end(self, link: PeerLink) -> None:
        if link.connection is not None:
            link.connection.abort()
        elif link.dialling is not None:
            link.dialling.cancel()
            self.over(link, refused=False)

    def _forget(self, link: PeerLink) -> bool:
        if self._links.pop(link, False) is not None:
            return False
        self.end_timer(link)
        if link.applicant is not None and link.applicant in self._applicants:
            self._leave_door(link, link.applicant)
        return True


def _door_limits(limits: ShellLimits) -> ShellLimits:
    fields: dict[str, Any] = {
        "unauthenticated": UNAUTHENTICATED_MAX,
        "unauthenticated_per_source": min(UNAUTHENTICATED_PER_SOURCE, UNAUTHENTICATED_MAX),
        "silent_s": limits.silent_s,
    }
    return ShellLimits(**fields)
