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
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec

from ticketing.native import is_compiled
from ticketing.server.faults import Faults
from ticketing.server.files import StateError, StateLock, read_facts
from ticketing.server.listening import ListenError, is_loopback, split_address
from ticketing.server.log import Log
from ticketing.server.service import Listeners, LoadSettings, MakeNode, Service
from ticketing.server.settings import ServerSettings
from ticketing.server.tls import TlsFilesError

FAILURE = 1
CONFIGURATION = 2

DESCRIPTORS_WANTED = 65_536
GC_THRESHOLDS = (5_000, 10, 1_000_000_000)
"""The middle generation stays below 50,000 objects, a few milliseconds; the last one is never reached: no
automatic full collection."""


class StartError(Exception):
    """The node cannot start: one line, and the exit status."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


def run_node(
    settings: ServerSettings,
    *,
    make_node: MakeNode | None = None,
    ready_fd: int | None = None,
    load: LoadSettings | None = None,
    watch: tuple[Path, ...] = (),
) -> int:
    """Runs one node until it ends: its exit status.

    0 stopped, 1 failure, 2 configuration, 12 removed for good (the node's own).

    `ready_fd`: a descriptor that gets one JSON line `{"place", "client", "peer", "admin", "pid"}` and is
    closed once the listeners accept; addresses hold the ports that were bound, `peer` and `admin` are null
    where there is none. `load` and `watch`: how settings are read anew (`Service`), on SIGHUP too.
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
        make_service = partial(
            Service,
            settings,
            listeners,
            log,
            make_node or _real_node(),
            descriptors=descriptors,
            load=load,
            watch=watch,
        )
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(_main(make_service, ready_fd))
    except (StateError, ListenError) as fault:
        log("error", "cannot start", reason=str(fault))
        return CONFIGURATION if fault.configuration else FAILURE
    except TlsFilesError as fault:
        log("error", "cannot start", reason=str(fault))
        return CONFIGURATION
    except StartError as fault:
        log("error", "cannot start", reason=str(fault))
        return fault.status
    except Exception as error:
        Faults(log).report(error, "the node did not start")
        return FAILURE
    finally:
        if listeners is not None:
            listeners.close()
        if lock is not None:
            lock.release()
        log.close()


async def _main(make_service: Callable[[], Service], ready_fd: int | None) -> int:
    loop = asyncio.get_running_loop()
    service = make_service()
    loop.set_exception_handler(Faults(service.log))
    try:
        _take_signals(loop, service)
        service.start()
        _settle_garbage()
        facts = service.ready_facts()
        service.log("info", "ready", **facts, compiled=is_compiled())
        if ready_fd is not None:
            _tell_ready(ready_fd, facts)
        status, reason = await service.run()
    finally:
        # A node that goes on ticking would keep uvloop from ever closing.
        await service.close()
    service.log("info" if status == 0 else "error", "stopped", status=status, reason=reason)
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
    loop.add_signal_handler(signal.SIGHUP, service.request_reload)
    # The command holds it back from its first moment on: one that came meanwhile is a reload now.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})


def _tell_ready(descriptor: int, facts: dict[str, object]) -> None:
    with contextlib.suppress(OSError):  # whoever asked is gone
        os.write(descriptor, msgspec.json.encode(facts) + b"\n")
        os.close(descriptor)


def _settle_garbage() -> None:
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


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
        ("admin", settings.listen_admin, bool(settings.admin_tokens), "an admin token"),
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
