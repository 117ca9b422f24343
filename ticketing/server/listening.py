"""Listening sockets, and an accept loop that survives floods and running out of descriptors (spec 3; F097,
F115).

asyncio's own accept loop takes the whole backlog in one turn and knows no admission; here a turn takes a
bounded number, and what has to wait waits in the kernel.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import os
import socket
from collections.abc import Callable

BACKLOG = 1024
PAUSE_S = 0.1
"""How long an accept loop that could not take a connection leaves the listener alone."""

_OUT_OF_DESCRIPTORS = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))

Accepted = Callable[[socket.socket, str, str], None]
"""Takes a new connection: socket, source (address without port), remote end (for people)."""


class ListenError(Exception):
    """An address that cannot be listened on. `configuration`: the same settings will never work on this
    machine.
    """

    def __init__(self, message: str, *, configuration: bool) -> None:
        super().__init__(message)
        self.configuration = configuration


def split_address(text: str) -> tuple[str, int]:
    """Reads `host:port` or `[IPv6]:port` of a listener, port 0 included; `ValueError` otherwise."""
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{text!r}: an IPv6 address needs brackets, for example [::1]:5225")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port[:6]) > 65_535:
        raise ValueError(f"{text!r} is no host:port, for example 127.0.0.1:5225")
    return host, int(port)


def join_address(host: str, port: int) -> str:
    """The other direction of `split_address`."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def source_of(host: str) -> str:
    """The form of a remote address in which sources are counted: no zone, IPv4 as IPv4."""
    if ":" not in host:
        return host
    address = ipaddress.IPv6Address(host.partition("%")[0])
    mapped = address.ipv4_mapped
    return str(address if mapped is None else mapped)


def is_loopback(host: str) -> bool:
    """Whether a host to listen on means this machine alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower().rstrip(".") == "localhost"


def bind_all(what: str, address: str) -> list[socket.socket]:
    """Listens on every address that `address` names; with port 0 all get the same free one.

    `[::]` takes IPv4 as well where the system allows it. SO_REUSEADDR lets a restart pass connections of
    the former process in TIME_WAIT; SO_REUSEPORT is never set, so two processes cannot share a port.

    Raises:
        ListenError: one line that names address, port and reason; nothing stays bound.

    """
    try:
        host, port = split_address(address)
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except ValueError as error:
        raise ListenError(f"{what} address {error}", configuration=True) from None
    except socket.gaierror as error:
        raise ListenError(f"{what} address {address}: {error.strerror}", configuration=True) from None
    sockets: list[socket.socket] = []
    try:
        for family, kind, protocol, _name, target in dict.fromkeys(found):
            sock = socket.socket(family, kind, protocol)
            sockets.append(sock)
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(target[0] != "::"))
            sock.bind((target[0], port, *target[2:]))
            sock.listen(BACKLOG)
            port = port_of(sock)
    except OSError as error:
        close_all(sockets)
        raise _fault(what, address, error) from None
    return sockets


def _fault(what: str, address: str, error: OSError) -> ListenError:
    code = error.errno
    if code == errno.EADDRINUSE:
        return ListenError(f"{what} address {address}: in use by another process", configuration=False)
    if code == errno.EADDRNOTAVAIL:
        return ListenError(f"{what} address {address}: not an address of this machine", configuration=True)
    if code == errno.EACCES:
        return ListenError(
            f"{what} address {address}: not allowed, ports below 1024 need privileges", configuration=True
        )
    return ListenError(f"{what} address {address}: {error.strerror}", configuration=False)


def port_of(sock: socket.socket) -> int:
    """The port that a socket is bound to."""
    port: int = sock.getsockname()[1]
    return port


def close_all(sockets: list[socket.socket]) -> None:
    """Closes listeners."""
    for sock in sockets:
        sock.close()
    sockets.clear()


class Acceptor:
    """The accept loop of one or more listening sockets.

    `room` says how many connections may be taken now; beyond it connections are taken and closed at once, a
    turn's worth in each pause, so that clients go elsewhere. `hold`/`go_on` leave the rest in the kernel's
    backlog.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sockets: list[socket.socket],
        *,
        per_turn: int,
        accepted: Accepted,
        room: Callable[[], int],
        turned_away: Callable[[str], None],
    ) -> None:
        self._loop = loop
        self._sockets = sockets
        self._per_turn = per_turn
        self._accepted = accepted
        self._room = room
        self._turned_away = turned_away
        self._reserve = _spare_descriptor()
        self._timer: asyncio.TimerHandle | None = None
        self._held = False
        self._watching = False

    def start(self) -> None:
        """Begins to accept."""
        self._watch()

    def hold(self) -> None:
        """Accepts nothing until `go_on`."""
        self._held = True
        self._unwatch()

    def go_on(self) -> None:
        """Ends a `hold`."""
        if self._held:
            self._held = False
            self._watch()

    def close(self) -> None:
        """Stops listening."""
        self._unwatch()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        close_all(self._sockets)
        if self._reserve is not None:
            os.close(self._reserve)
            self._reserve = None

    def _watch(self) -> None:
        if not self._watching and not self._held and self._timer is None:
            self._watching = True
            for sock in self._sockets:
                self._loop.add_reader(sock.fileno(), self._accept, sock)

    def _unwatch(self) -> None:
        if self._watching:
            self._watching = False
            for sock in self._sockets:
                self._loop.remove_reader(sock.fileno())

    def _pause(self) -> None:
        self._unwatch()
        if self._timer is None:
            self._timer = self._loop.call_later(PAUSE_S, self._resume)

    def _resume(self) -> None:
        self._timer = None
        self._watch()

    def _accept(self, listener: socket.socket) -> None:
        full = False
        for _ in range(self._per_turn):
            if self._held or not self._watching:
                break
            try:
                sock, address = listener.accept()
            except (BlockingIOError, InterruptedError):
                break
            except OSError as error:
                if error.errno in _OUT_OF_DESCRIPTORS:
                    self._shed(listener)
                    full = True
                    break
                continue  # that connection was gone before we took it (accept(2))
            if self._room() <= 0:
                sock.close()
                self._turned_away("no descriptors left for more")
                full = True
                continue
            self._accepted(sock, source_of(address[0]), join_address(address[0], address[1]))
        if full:
            self._pause()

    def _shed(self, listener: socket.socket) -> None:
        """Takes one connection with the descriptor kept for this and closes it, so that its client does not
        wait.
        """
        if self._reserve is None:
            self._reserve = _spare_descriptor()
            return
        os.close(self._reserve)
        with contextlib.suppress(OSError):
            listener.accept()[0].close()
        self._reserve = _spare_descriptor()
        self._turned_away("out of descriptors")


def _spare_descriptor() -> int | None:
    try:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
