"""One node with its listeners and its admin plane on a running loop; several fit into one process (tests)."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ticketing.node.settings import NodeSettings, Place
from ticketing.node.shell import Shell
from ticketing.server.chrony import follow
from ticketing.server.faults import Faults
from ticketing.server.listening import ListenError, bind_all, close_all, join_address, port_of, split_address
from ticketing.server.loaded import Loaded, loaded_certificates, loaded_secrets
from ticketing.server.log import Log
from ticketing.server.node_api import NodeApi
from ticketing.server.settings import ServerSettings
from ticketing.server.shell import AsyncioShell, Outcome
from ticketing.server.tls import TlsContexts, TlsFilesError, check_own_certificate

if TYPE_CHECKING:
    from ticketing.server.admin import AdminPlane

DRAIN_S = 1.2
"""How long the end waits for last bytes: a little over the drain time of one connection."""
DESCRIPTORS_RESERVED = 128
"""Not for clients: peers, files, admin connections."""
CLIENTS_MIN = 16
CERTIFICATE_CHECK_S = 3600.0
CERTIFICATE_WARN_MS = 14 * 24 * 3600 * 1000
"""From this long before its end on a certificate is warned of."""
WATCH_S = 10.0
"""How often the files behind tokens, secrets and certificates are looked at."""

MakeNode = Callable[[NodeSettings, Shell], NodeApi]
LoadSettings = Callable[[], ServerSettings]


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
        """The place with the ports that were bound where it names port 0, and without what is not listened
        on.
        """
        fields = {"peer": "", "admin": ""}
        for what, sockets in self.sockets.items():
            address = getattr(place, what)
            if address and sockets:
                host, port = split_address(address)
                fields[what] = join_address(host, port or port_of(sockets[0]))
        return place._replace(**fields)


class Service:
    """One node, from the first accept to the last byte."""

    def __init__(
        self,
        settings: ServerSettings,
        listeners: Listeners,
        log: Log,
        make_node: MakeNode,
        *,
        descriptors: int,
        load: LoadSettings | None = None,
        watch: tuple[Path, ...] = (),
    ) -> None:
        """Builds shell and node. `TlsFilesError` where the TLS files cannot be used.

        `load` reads the settings anew for a reload, in a thread, and raises where they are wrong; `watch` are
        the files that it reads.
        """
        own = settings.node
        self.place = listeners.named(next(place for place in own.places if place.name == own.place))
        places = tuple(self.place if place.name == own.place else place for place in own.places)
        self.settings = msgspec.structs.replace(settings, node=msgspec.structs.replace(own, places=places))
        self.log = log
        self.reload_fault: str | None = None
        """Why the last reload changed nothing; an alarm until one succeeds."""
        self.certificate_ends_ms: int | None = None
        self.certificate_fault: str | None = None
        """Why the node's own certificate would not pass at its peers; an alarm."""
        self.loop_busy = 0.0
        """Share of one core that the loop's thread used in the last ten seconds; near 1 it misses
        heartbeats.
        """
        self.admin: AdminPlane | None = None
        """Once it has been loaded."""
        self._listeners = listeners
        self._load = load
        self._watch = watch
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[object]] = set()
        self._reloading = asyncio.Lock()
        self._clients_max = max(CLIENTS_MIN, descriptors - min(DESCRIPTORS_RESERVED, descriptors // 4))
        # Before the files are read: a change between the two is a change.
        self._seen = self._signatures()
        self.shell = AsyncioShell(self._loop, settings.state_dir, log)
        if settings.tls is not None:
            self.shell.tls = TlsContexts(settings.tls)
        self._certificates = loaded_certificates(settings.tls)
        self.node = make_node(self.settings.node, self.shell)
        log.audited = self._audited
        self.shell.attach(
            self.node,
            settings.limits,
            connections_max=self._clients_max,
        )

    def start(self) -> None:
        """The node begins, then the listeners, then the admin plane when it has been loaded."""
        self.node.start()
        self.shell.request_flush()
        self.shell.clients.listen(self._listeners.sockets["client"])
        self.shell.peers.listen(self._listeners.sockets["peer"])
        if self._listeners.sockets["admin"]:
            self._spawn(self._serve_admin())
        self._spawn(self._watch_files())
        self._spawn(self._watch_certificate())
        if self.settings.chronyc:
            error_max_s = self.settings.node.delta_ns / 2 / 1_000_000_000
            self._spawn(follow(self.settings.chronyc, error_max_s, self._clock_source))

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

    async def run(self) -> Outcome:
        """Waits for the node's end and gives everything back."""
        try:
            return await self.shell.outcome
        finally:
            await self.close()

    async def close(self) -> None:
        """Ends everything, what was written first; a second time is harmless."""
        try:
            await self.shell.close(DRAIN_S)
        finally:
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._listeners.close()

    def _audited(self, event: str, facts: dict[str, object]) -> None:
        self.node.events.add("audit", event=event, facts=facts)

    def _clock_source(self, synchronised: bool, detail: str) -> None:
        self.node.clock_source(synchronised=synchronised, detail=detail)

    # --- tokens, secrets, certificates

    def request_reload(self) -> None:
        """Reloads in the background (SIGHUP)."""
        self._spawn(self.reload())

    async def reload(self) -> str | None:
        """Takes over tokens, secrets and certificates anew, all or nothing; otherwise why not.

        What runs goes on with what it began with; addresses and everything else need a restart.
        """
        async with self._reloading:
            try:
                fresh, contexts, certificates = await self._read_anew()
            except Exception as error:  # whatever is wrong with a file: the old settings stay in force
                self.reload_fault = str(error)
                self.log("error", "reload failed, the former settings stay", reason=str(error))
                return self.reload_fault
            node_settings = msgspec.structs.replace(
                self.settings.node,
                client_tokens=fresh.node.client_tokens,
                peer_secrets=fresh.node.peer_secrets,
            )
            self.settings = msgspec.structs.replace(
                self.settings, node=node_settings, admin_tokens=fresh.admin_tokens, tls=fresh.tls
            )
            self._certificates = certificates
            self.shell.tls = contexts
            self.node.reload(node_settings)
            self.reload_fault = None
            self.log("audit", "reloaded")
            await self._check_certificate()
            return None

    async def _read_anew(self) -> tuple[ServerSettings, TlsContexts | None, Loaded]:
        fresh = self.settings
        if self._load is not None:
            fresh = await self._loop.run_in_executor(None, self._load)
        if (fresh.tls is None) != (self.settings.tls is None):
            raise ValueError("TLS cannot be switched on or off while the node runs")
        contexts = None
        if fresh.tls is not None:
            contexts = await self._loop.run_in_executor(None, TlsContexts, fresh.tls)
        return fresh, contexts, await self._loop.run_in_executor(None, loaded_certificates, fresh.tls)

    async def _watch_files(self) -> None:
        while True:
            begun_s, used_s = self._loop.time(), time.thread_time()
            await asyncio.sleep(WATCH_S)
            self.loop_busy = (time.thread_time() - used_s) / max(self._loop.time() - begun_s, 1e-3)
            now = await self._loop.run_in_executor(None, self._signatures)
            if now != self._seen:
                self._seen = now
                await self.reload()

    async def _watch_certificate(self) -> None:
        while True:
            await self._check_certificate()
            await asyncio.sleep(CERTIFICATE_CHECK_S)

    async def _check_certificate(self) -> None:
        contexts = self.shell.tls
        if contexts is None:
            return
        host = split_address(self.place.peer or self.place.client)[0]
        try:
            ends_ms = await self._loop.run_in_executor(None, check_own_certificate, contexts, host)
        except TlsFilesError as fault:
            self.certificate_fault = str(fault)
            self.log("error", "certificate unfit", reason=self.certificate_fault)
            return
        self.certificate_fault = None
        self.certificate_ends_ms = ends_ms
        left_ms = ends_ms - self.shell.wall_ns() // 1_000_000
        if left_ms < CERTIFICATE_WARN_MS:
            self.log("warning", "certificate ends soon", hours_left=left_ms // 3_600_000)

    def _signatures(self) -> list[tuple[int, int, int] | None]:
        tls = self.settings.tls
        paths = self._watch if tls is None else (*self._watch, tls.ca, tls.certificate, tls.key)
        signatures: list[tuple[int, int, int] | None] = []
        for path in paths:
            try:
                facts = path.stat()
            except OSError:
                signatures.append(None)
            else:
                signatures.append((facts.st_ino, facts.st_size, facts.st_mtime_ns))
        return signatures

    # --- the admin plane

    async def _serve_admin(self) -> None:
        try:
            plane_class = await self._loop.run_in_executor(None, _load_admin_plane)
        except ImportError as error:
            self.log("error", "no admin plane", reason=str(error))
            return
        self.admin = plane = plane_class(
            self.node,
            self.log,
            Faults(self.log),
            tokens=lambda: self.settings.admin_tokens,
            loaded=self.loaded,
            process_facts=self._process_facts,
            reload=self.reload,
            metrics_open=self.settings.metrics_open,
        )
        try:
            await plane.start(
                self._listeners.sockets["admin"],
                lambda: None if self.shell.tls is None else self.shell.tls.client,
            )
            await self._loop.create_future()
        finally:
            await plane.close()

    def _process_facts(self) -> dict[str, object]:
        clients = self.shell.clients
        longest = self.shell.turns.longest
        return {
            "pid": os.getpid(),
            "client_connections": len(clients),
            "client_connections_max": self._clients_max,
            "clients_at_the_door": len(clients.admission),
            "clients_turned_away": clients.turned_away,
            "peer_connections": len(self.shell.peers),
            "loop_busy": round(min(self.loop_busy, 1.0), 3),
            "longest_turn_ms": longest.elapsed_ns / 1_000_000,
            "longest_turn_cpu_ms": longest.cpu_ns / 1_000_000,
            "tls": self.settings.tls is not None,
            "certificate_ends_ms": self.certificate_ends_ms,
            "certificate_fault": self.certificate_fault,
            "reload_fault": self.reload_fault,
            "loaded": self.loaded(),
        }

    def loaded(self) -> Loaded:
        """Which secrets and certificates are in force, by fingerprint."""
        return loaded_secrets(self.settings) | self._certificates

    def _spawn(self, work: Coroutine[Any, Any, object]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._spawned_done)

    def _spawned_done(self, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._loop.call_exception_handler({"message": "a task of the service failed", "exception": error})


def _load_admin_plane() -> type[AdminPlane]:
    from ticketing.server.admin import AdminPlane

    return AdminPlane
