"""`TicketBroker`: what a program has one of. Binds itself to a loop, checks what is passed in, hops between loops."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import os
import socket
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from ticketing.client import arguments
from ticketing.client import tls as tls_modes
from ticketing.client.acquire import acquire, acquire_told
from ticketing.client.alarm import NEVER
from ticketing.client.arguments import Seconds
from ticketing.client.auto_extend import AutoExtension
from ticketing.client.bridge import Call, LoopThread, hop, join_ending
from ticketing.client.clock import SECOND, Clock, elapsed_ns
from ticketing.client.cluster import Cluster, Settings
from ticketing.client.domain import Domains
from ticketing.client.errors import TicketError, TicketErrorKind
from ticketing.client.requests import Acquire
from ticketing.client.telemetry import EventKind, OnEvent, Teller
from ticketing.client.ticket import Ticket
from ticketing.client.tls import TlsMode
from ticketing.protocol.fields import hello_text

T = TypeVar("T")


class TicketBroker:
    """The connections of this program to one cluster. Make one at the start and share it.

    It may be used from any loop and any thread. At its first use it binds to the running loop, or to a loop on a
    thread of its own where there is none; calls from elsewhere hop there. When its loop was closed it binds anew.
    After a fork the child's copy raises `closed`; one that was not used before the fork is as new.
    """

    def __init__(
        self,
        addrs: Iterable[str],
        *,
        token: str = "",
        tls: TlsMode = tls_modes.OFF,
        name: str = "",
        logger: logging.Logger | None = None,
        allow_future_domain: bool = False,
        on_event: OnEvent | None = None,
        clock: Clock = elapsed_ns,
    ) -> None:
        """`addrs` as `host:port`. `token`: one of the servers' `client_tokens`. `tls`: `off`, `system-roots`,
        `insecure-skip-verify` or the path of a CA file. `name`: this program's, shown to operators.
        `allow_future_domain`: follow a domain that is dated over 60 days ahead. `on_event`: told of waits, holds and
        sessions (`ticketing.client.telemetry`). `clock` is for tests.

        Raises TicketError: `invalid_input`, or `io` where the CA file cannot be used. Connects to nothing yet.
        """
        if on_event is not None and not callable(on_event):
            raise arguments.invalid(
                "on_event", on_event, "a callable", f"a callable is wanted, not {type(on_event).__name__}"
            )
        logger = logger or logging.getLogger("ticketing.client")
        self._settings = Settings(
            addresses=arguments.addresses(addrs),
            token=arguments.token_text(token),
            tls=tls_modes.context(tls, logger),
            hello=_hello(name),
            logger=logger,
            clock=clock,
            teller=Teller(on_event, logger) if on_event is not None else None,
        )
        self._clock = clock
        self._domains = Domains(allow_future_domain)
        self._cluster: Cluster | None = None
        self._thread: LoopThread | None = None
        self._lock = threading.Lock()
        self._closed = False
        self._forked = False

    @classmethod
    def connect(cls, *addrs: str) -> TicketBroker:
        """A broker without token and TLS. As with any other, connections begin with its first use."""
        return cls(addrs)

    def __repr__(self) -> str:
        return f"<TicketBroker {', '.join(self._settings.addresses)}>"

    @property
    def domain(self) -> str | None:
        """The domain that is followed, as `<first token>.<16 hex digits>`; None where none is known yet."""
        return self._domains.current

    # --- acquiring

    async def acquire(
        self,
        key: str,
        wait: Seconds,
        lease: Seconds,
        min_work_budget: Seconds,
        *,
        auto_extend: bool | Seconds = False,
    ) -> Ticket:
        """Waits up to `wait` (0: one try; at most 255 s) for `key`, to hold it for `lease` (1 to 250 s).

        Both are rounded up to whole seconds. `min_work_budget` is what the work under the lock needs, pauses and the
        end of its database transaction included: with less left than that, no ticket is handed out. With
        `auto_extend` the lease is extended while the ticket's block (`async with`, `with`) runs; given a time, until
        the block is so old. Raises TicketError; where it was cancelled after bytes may have left,
        `IndeterminateCancelledError`.
        """
        wait_ns, lease_s = arguments.wait_ns(wait), arguments.lease_seconds(lease)
        budget_ns = arguments.budget_ns(min_work_budget, lease_s)
        raw = arguments.key_bytes(key)
        auto = _auto(auto_extend) if auto_extend is not False else None
        loop = asyncio.get_running_loop()
        cluster = self._cluster
        if cluster is None or cluster.closed or cluster.loop is not loop:
            cluster = self._bound(loop)
        if cluster.loop is loop:
            if self._settings.teller is None:
                request, end_ns = await acquire(cluster, raw, wait_ns, lease_s, budget_ns)
                return self._ticket(request, end_ns, auto)
            return await self._acquire(cluster, raw, wait_ns, lease_s, budget_ns, auto)
        self._check_running(cluster)
        make = partial(self._acquire, cluster, raw, wait_ns, lease_s, budget_ns, auto)
        return await hop(cluster.loop, make, Ticket.close)

    def acquire_sync(
        self,
        key: str,
        wait: Seconds,
        lease: Seconds,
        min_work_budget: Seconds,
        *,
        auto_extend: bool | Seconds = False,
    ) -> Ticket:
        """`acquire` for a thread without a loop. Left by an exception (Ctrl-C), it counts as cancelled."""
        wait_ns, lease_s = arguments.wait_ns(wait), arguments.lease_seconds(lease)
        budget_ns = arguments.budget_ns(min_work_budget, lease_s)
        raw = arguments.key_bytes(key)
        auto = _auto(auto_extend)
        cluster = self._bound_sync()
        make = partial(self._acquire, cluster, raw, wait_ns, lease_s, budget_ns, auto)
        return Call(cluster.loop, make, Ticket.close).wait()

    async def _acquire(
        self,
        cluster: Cluster,
        key: bytes,
        wait_ns: int,
        lease_s: int,
        budget_ns: int,
        auto: AutoExtension | None,
    ) -> Ticket:
        teller = self._settings.teller
        if teller is None:
            request, end_ns = await acquire(cluster, key, wait_ns, lease_s, budget_ns)
            return self._ticket(request, end_ns, auto)
        request, end_ns = await acquire_told(teller, cluster, key, wait_ns, lease_s, budget_ns)
        ticket = self._ticket(request, end_ns, auto)
        ticket._began_ns = request.read_ns
        return ticket

    def _ticket(self, request: Acquire, end_ns: int, auto: AutoExtension | None) -> Ticket:
        session = request.session
        assert session is not None
        return Ticket(
            self, self._clock, request.key, request.token, session.domain, request.lease, end_ns, auto
        )

    async def release(self, key: str, token: int) -> bool:
        """Releases a grant of which only key and token are known. As `Ticket.release`."""
        return await self._holder(key, token).release()

    def release_sync(self, key: str, token: int) -> bool:
        """`release` for a thread without a loop."""
        return self._holder(key, token).release_sync()

    def _holder(self, key: str, token: int) -> Ticket:
        # Its lease is not known: an end in the past keeps it from being released once more when collected.
        return Ticket(self, self._clock, arguments.key_bytes(key), arguments.fencing_token(token), None, 1, 0)

    # --- readiness and end

    async def wait_ready(self, timeout: Seconds) -> bool:  # noqa: ASYNC109 - the documents' signature
        """True once there is a session to a serving leader, False at the timeout. `auth` where every address
        refuses the token.
        """
        timeout_ns = arguments.nanoseconds("timeout", timeout)
        return await self._on_its_loop(partial(self._wait_ready, timeout_ns=timeout_ns))

    def wait_ready_sync(self, timeout: Seconds) -> bool:
        """`wait_ready` for a thread without a loop."""
        timeout_ns = arguments.nanoseconds("timeout", timeout)
        return self._sync(partial(self._wait_ready, timeout_ns=timeout_ns))

    async def _wait_ready(self, cluster: Cluster, timeout_ns: int) -> bool:
        if await cluster.wait_ready(timeout_ns):
            return True
        if cluster.closed:
            raise TicketError(TicketErrorKind.CLOSED, "the broker was closed")
        if cluster.refuses_token and cluster.refusal is not None:
            raise TicketError(TicketErrorKind.AUTH, f"every address refuses: {cluster.refusal.detail}")
        return False

    async def settled(self, timeout: Seconds) -> bool:  # noqa: ASYNC109 - as above
        """Whether all that this broker is giving back now is answered within the timeout.

        That is releases, and the cancels that it sends for requests without an answer. After an acquire that ended as
        `indeterminate`, True says that nothing of it is held or can still be granted.
        """
        timeout_s = arguments.nanoseconds("timeout", timeout) / SECOND
        return await self._on_its_loop(partial(_settled, timeout_s=timeout_s))

    def settled_sync(self, timeout: Seconds) -> bool:
        """`settled` for a thread without a loop."""
        return self._sync(partial(_settled, timeout_s=arguments.nanoseconds("timeout", timeout) / SECOND))

    async def aclose(self) -> None:
        """Takes nothing new, drains releases for at most 5 s, ends connections and thread. May be called again."""
        cluster = self._closing()
        if cluster is None:
            return
        try:
            if cluster.loop is asyncio.get_running_loop():
                await cluster.close()
            elif cluster.loop.is_running():
                await hop(cluster.loop, cluster.close, None)
            else:
                cluster.leave()
        finally:
            if self._thread is not None:
                self._thread.stop()

    def close(self) -> None:
        """`aclose` for a thread without a loop."""
        cluster = self._cluster
        if cluster is not None and _running_loop() is cluster.loop:
            raise _own_loop()
        cluster = self._closing()
        try:
            if cluster is not None and cluster.loop.is_running():
                Call(cluster.loop, cluster.close, None).wait()
            elif cluster is not None:
                cluster.leave()
        finally:
            if self._thread is not None:
                self._thread.stop()

    def _closing(self) -> Cluster | None:
        with self._lock:
            self._closed = True
            cluster = self._cluster
        if self._forked or cluster is None or cluster.loop.is_closed():
            return None
        return cluster

    async def __aenter__(self) -> TicketBroker:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __enter__(self) -> TicketBroker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        cluster = getattr(self, "_cluster", None)
        if cluster is None or self._closed or self._forked or sys.is_finalizing() or not cluster.usable:
            return
        warnings.warn(f"{self!r} was never closed", ResourceWarning, source=self, stacklevel=2)
        thread = self._thread
        try:
            if thread is not None:
                thread.end_with(cluster.close)
            else:
                cluster.loop.call_soon_threadsafe(cluster.leave)
        except RuntimeError:
            pass  # its loop is closed

    # --- binding

    def _bound(self, loop: asyncio.AbstractEventLoop | None) -> Cluster:
        """The cluster, bound to `loop` where it is not bound yet; without `loop` to a thread of its own."""
        cluster = self._cluster
        if cluster is not None and cluster.usable:
            return cluster
        with self._lock:
            if self._forked:
                raise TicketError(
                    TicketErrorKind.CLOSED,
                    "this process was forked from the broker's; make a broker of its own",
                )
            if self._closed:
                raise TicketError(TicketErrorKind.CLOSED, "the broker was closed")
            cluster = self._cluster
            if cluster is not None and cluster.usable:
                return cluster
            if loop is None:
                if self._thread is None or self._thread.loop.is_closed():
                    self._thread = LoopThread()
                loop = self._thread.loop
            cluster = self._cluster = Cluster(self._settings, self._domains, loop)
            _bound_brokers.add(self)
        if loop is _running_loop():
            cluster.start()
        else:
            loop.call_soon_threadsafe(cluster.start)
        return cluster

    def _bound_sync(self) -> Cluster:
        cluster = self._bound(None)
        if cluster.loop is _running_loop():
            raise _own_loop()
        self._check_running(cluster)
        return cluster

    def _check_running(self, cluster: Cluster) -> None:
        """A call to a loop that stands still would wait for ever. A thread of ours may only just be starting."""
        if cluster.loop.is_running() or (self._thread is not None and cluster.loop is self._thread.loop):
            return
        raise TicketError(
            TicketErrorKind.INVALID_INPUT, "the event loop that the broker is bound to does not run"
        )

    async def _on_its_loop(self, work: Callable[[Cluster], Coroutine[Any, Any, T]]) -> T:
        running = asyncio.get_running_loop()
        cluster = self._bound(running)
        if cluster.loop is running:
            return await work(cluster)
        self._check_running(cluster)
        return await hop(cluster.loop, partial(work, cluster), None)

    def _sync(self, work: Callable[[Cluster], Coroutine[Any, Any, T]]) -> T:
        cluster = self._bound_sync()
        return Call(cluster.loop, partial(work, cluster), None).wait()

    def _post(self, work: Callable[[Cluster], None]) -> None:
        """Has something done on the broker's loop, without waiting. Nothing where the broker is closed."""
        cluster = self._cluster
        if cluster is None or cluster.loop.is_closed() or self._forked:
            return
        if cluster.loop is _running_loop():
            work(cluster)
            return
        with contextlib.suppress(RuntimeError):  # its loop was closed just now
            cluster.loop.call_soon_threadsafe(work, cluster)

    def _collected(
        self, key: bytes, token: int, domain: str | None, began_ns: int, auto: AutoExtension | None
    ) -> bool:
        """A ticket was collected without having been released. May run at any point of any thread."""
        cluster = self._cluster
        if cluster is None or not cluster.usable or self._forked:
            return False
        try:
            if auto is not None:
                cluster.loop.call_soon_threadsafe(auto.stop)
            cluster.loop.call_soon_threadsafe(cluster.compensate, token, key, domain)
            teller = self._settings.teller
            if began_ns and teller is not None:
                held_ns = self._clock() - began_ns
                cluster.loop.call_soon_threadsafe(teller.tell, EventKind.ENDED, key, "collected", held_ns)
        except RuntimeError:
            return False
        return True

    def _after_fork(self) -> None:
        self._lock = threading.Lock()
        self._forked = True
        if self._cluster is not None:
            self._cluster.fork_child()


async def _settled(cluster: Cluster, timeout_s: float) -> bool:
    return await cluster.errands.settled(timeout_s)


def _auto(value: bool | Seconds) -> AutoExtension | None:
    if value is False:
        return None
    return AutoExtension(NEVER if value is True else arguments.nanoseconds("auto_extend", value))


_bound_brokers: weakref.WeakSet[TicketBroker] = weakref.WeakSet()


def _hello(name: str) -> bytes:
    program = name or Path(sys.argv[0]).name or "python"
    return hello_text(f"{program} {socket.gethostname()} {os.getpid()}")


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _own_loop() -> TicketError:
    return TicketError(
        TicketErrorKind.INVALID_INPUT,
        "a blocking call inside the event loop that the broker is bound to would wait for itself: use await",
    )


def _close_all() -> None:
    """At exit, before threads are joined: those who wait in `acquire_sync` must not keep the interpreter."""
    for broker in list(_bound_brokers):
        if broker._thread is not None and not broker._closed and not broker._forked:
            broker.close()
    join_ending()


def _after_fork_in_child() -> None:
    for broker in list(_bound_brokers):
        broker._after_fork()


# What `atexit` itself offers runs only after threads have been joined.
getattr(threading, "_register_atexit", atexit.register)(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
