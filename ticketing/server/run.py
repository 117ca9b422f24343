"""One node as a process: everything is taken before anything starts, and given back in the other order.

Garbage: what start-up made is frozen, and automatic full collections are off, since one over a million held
keys stops the loop for longer than an election takes. Requests make no reference cycles; connections cut
theirs when they end. The young generations are collected as usual.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import resource
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from typing import Any

import msgspec

from ticketing.node.settings import NodeSettings, Place
from ticketing.node.shell import Shell
from ticketing.server.files import StateError, StateLock, read_facts
from ticketing.server.listening import (
    ListenError,
    bind_all,
    close_all,
    is_loopback,
    join_address,
    port_of,
    split_address,
)
from ticketing.server.log import Log
from ticketing.server.node_api import NodeApi
from ticketing.server.settings import ServerSettings
from ticketing.server.shell import AsyncioShell
from ticketing.server.tls import TlsContexts, TlsFilesError

FAILURE = 1
CONFIGURATION = 2

DRAIN_S = 1.2
"""How long the end of the process waits for last bytes: a little over the drain time of one connection."""
DESCRIPTORS_WANTED = 65_536
DESCRIPTORS_RESERVED = 128
"""Not for clients: peers, files, admin connections."""
GC_THRESHOLDS = (20_000, 20, 1_000_000_000)
"""The last one is never reached: no automatic full collection."""

MakeNode = Callable[[NodeSettings, Shell], NodeApi]


class StartError(Exception):
    """The node cannot start: one line, and the exit status."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class Listeners:
    """The bound addresses of one node."""

    def __init__(self, settings: ServerSettings) -> None:
        """Binds all of them or none; `ListenError` otherwise."""
        self.sockets: dict[str, list[socket.socket]] = {"client": [], "peer": [], "admin": []}
        wanted = (
            ("client", settings.listen_client),
            ("peer", settings.listen_peer),
            ("admin", settings.listen_admin),
        )
        try:
            for what, address in wanted:
                if address:
                    self.sockets[what] = bind_all(what, address)
        except ListenError:
            self.close()
            raise

    def close(self) -> None:
        """Unbinds everything; a second time is harmless."""
        for sockets in self.sockets.values():
            close_all(sockets)

    def named(self, place: Place) -> Place:
        """The place with the ports that were bound where it names port 0."""
        fields = {}
        for what, sockets in self.sockets.items():
            address = getattr(place, what)
            if address and sockets:
                host, port = split_address(address)
                fields[what] = join_address(host, port or port_of(sockets[0]))
        return place._replace(**fields)


class Service:
    """One node with its listeners on a running loop; several fit into one process (tests)."""

    def __init__(
        self,
        settings: ServerSettings,
        listeners: Listeners,
        log: Log,
        make_node: MakeNode,
        *,
        descriptors: int,
    ) -> None:
        """Builds shell and node. `TlsFilesError` where the TLS files cannot be used."""
        node_settings = settings.node
        self.place = listeners.named(next(p for p in node_settings.places if p.name == node_settings.place))
        places = tuple(self.place if p.name == self.place.name else p for p in node_settings.places)
        self.settings = msgspec.structs.replace(
            settings, node=msgspec.structs.replace(node_settings, places=places)
        )
        self.log = log
        self.listeners = listeners
        self.shell = AsyncioShell(asyncio.get_running_loop(), settings.state_dir, log)
        if settings.tls is not None:
            self.shell.tls = TlsContexts(settings.tls)
        self.node = make_node(self.settings.node, self.shell)
        self.shell.attach(
            self.node,
            settings.limits,
            hosts=[split_address(place.peer)[0] for place in places if place.peer],
            connections_max=max(16, descriptors - min(DESCRIPTORS_RESERVED, descriptors // 4)),
        )

    def start(self) -> None:
        """The node begins, then the listeners."""
        self.node.start()
        self.shell.request_flush()
        self.shell.clients.listen(self.listeners.sockets["client"])
        self.shell.peers.listen(self.listeners.sockets["peer"])

    def ready_facts(self) -> dict[str, object]:
        """The one line for whoever started this process."""
        place = self.place
        return {
            "place": place.name,
            "client": place.client,
            "peer": place.peer or None,
            "admin": place.admin or None,
            "pid": os.getpid(),
        }

    async def run(self) -> tuple[int, str]:
        """Waits for the node's end and gives everything back: exit status and reason."""
        try:
            return await self.shell.outcome
        finally:
            await self.shell.close(DRAIN_S)
            self.listeners.close()


def run_node(
    settings: ServerSettings,
    *,
    make_node: MakeNode | None = None,
    ready_fd: int | None = None,
) -> int:
    """Runs one node until it ends; the exit status: 0 stopped, 1 failure, 2 configuration, 12 removed for
    good.

    `ready_fd`: a descriptor that gets one JSON line `{"place", "client", "peer", "admin", "pid"}` and is
    closed once the listeners accept; addresses hold the ports that were bound, `peer` and `admin` are null
    where there is none.
    """
    log = Log(sys.stderr, form=settings.log_format, level=settings.log_level, place=settings.node.place)
    lock: StateLock | None = None
    listeners: Listeners | None = None
    try:
        descriptors = raise_descriptor_limit()
        check_exposure(settings, log)
        lock = StateLock(settings.state_dir)
        facts = read_facts(settings.state_dir)
        settings = msgspec.structs.replace(settings, node=facts.applied_to(settings.node))
        listeners = Listeners(settings)
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(
                _main(settings, listeners, log, make_node or _real_node(), descriptors, ready_fd)
            )
    except (StateError, ListenError) as fault:
        log("error", "cannot start", reason=str(fault))
        return CONFIGURATION if fault.configuration else FAILURE
    except TlsFilesError as fault:
        log("error", "cannot start", reason=str(fault))
        return CONFIGURATION
    except StartError as fault:
        log("error", "cannot start", reason=str(fault))
        return fault.status
    finally:
        if listeners is not None:
            listeners.close()
        if lock is not None:
            lock.release()
        log.close()


async def _main(
    settings: ServerSettings,
    listeners: Listeners,
    log: Log,
    make_node: MakeNode,
    descriptors: int,
    ready_fd: int | None,
) -> int:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, context: _fault(log, context))
    service = Service(settings, listeners, log, make_node, descriptors=descriptors)
    _take_signals(loop, service)
    service.start()
    _settle_garbage()
    facts = service.ready_facts()
    log("info", "ready", **facts)
    if ready_fd is not None:
        _tell_ready(ready_fd, facts)
    status, reason = await service.run()
    log("info" if status == 0 else "error", "stopped", status=status, reason=reason)
    return status


def _take_signals(loop: asyncio.AbstractEventLoop, service: Service) -> None:
    asked = False

    def stop(name: str) -> None:
        nonlocal asked
        service.log("info", "stopping at once" if asked else "stopping", signal=name)
        service.node.begin_stop(force=asked)
        asked = True

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number.name)


def _tell_ready(descriptor: int, facts: dict[str, object]) -> None:
    with contextlib.suppress(OSError):  # whoever asked is gone
        os.write(descriptor, msgspec.json.encode(facts) + b"\n")
        os.close(descriptor)


def _settle_garbage() -> None:
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


def _fault(log: Log, context: dict[str, Any]) -> None:
    """What no code of ours caught. Out of our own code it is a broken invariant, and the node stops at
    once: peers and clients are better off without it than with a state that nobody understands.
    """
    error = context.get("exception")
    text = ""
    if error is not None:
        text = "".join(traceback.format_exception(error))
    log("error", "internal fault", message=str(context.get("message", "")), traceback=text)
    if error is not None and from_our_code(error):
        log("error", "stopped", status=FAILURE, reason="internal fault")
        log.close()
        os._exit(FAILURE)


def from_our_code(error: BaseException) -> bool:
    """Whether an exception came through this program's own modules (the admin plane excepted: it answers
    500).
    """
    frame = error.__traceback__
    while frame is not None:
        name = frame.tb_frame.f_globals.get("__name__", "")
        if name.startswith("ticketing.") and not name.startswith("ticketing.server.admin"):
            return True
        frame = frame.tb_next
    return False


def raise_descriptor_limit() -> int:
    """Raises the soft limit of open files as far as it goes and is of use; the limit then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS_WANTED if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_WANTED)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            return wanted
    return DESCRIPTORS_WANTED if soft == resource.RLIM_INFINITY else soft


def check_exposure(settings: ServerSettings, log: Log) -> None:
    """Beyond loopback: no TLS is warned of, no token or secret is refused unless told otherwise (spec 3)."""
    doors = (
        ("client", settings.listen_client, bool(settings.node.client_tokens), "client tokens"),
        ("peer", settings.listen_peer, bool(settings.node.peer_secrets), "a peer secret"),
        ("admin", settings.listen_admin, bool(settings.admin_token), "an admin token"),
    )
    for what, address, guarded, guard in doors:
        if not address:
            continue
        try:
            host = split_address(address)[0]
        except ValueError as error:
            raise StartError(f"{what} address {error}", CONFIGURATION) from None
        if is_loopback(host):
            continue
        if not guarded and not settings.insecure:
            raise StartError(
                f"{what} address {address} is open to other machines and nothing guards it:"
                f" configure {guard}, or listen on loopback",
                CONFIGURATION,
            )
        if settings.tls is None:
            log("warning", "no TLS beyond loopback", listener=what, address=address)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def _real_node() -> MakeNode:
    from ticketing.node.node import Node

    return Node
