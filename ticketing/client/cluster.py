"""The client's view of one cluster: its connections, who leads, which domain is followed, who waits for a session.

Everything here runs on one loop. A session that an `L` names is the leader's; among several claims the latest
counts, and a `V` takes one back. Acquires that no session can take wait here, unsent, in their order.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import socket
import ssl
from collections.abc import AsyncGenerator
from dataclasses import dataclass

from ticketing.client.alarm import NEVER, Alarm
from ticketing.client.auto_extend import AutoExtension
from ticketing.client.clock import SECOND, Clock, elapsed_ns
from ticketing.client.connection import Connection
from ticketing.client.domain import Domains, Verdict
from ticketing.client.errors import TicketErrorKind
from ticketing.client.release import ERRAND_NS, Errands
from ticketing.client.requests import (
    LOST,
    NO_SESSION,
    QUEUED,
    REFUSED,
    SENT,
    SHUT,
    WAIT_OVER,
    WITHDRAWN,
    Acquire,
    Errand,
)
from ticketing.client.session import FLUSH_S, FOLLOWS, LEADS, UNKNOWN, End, Session
from ticketing.client.telemetry import EventKind, Teller
from ticketing.client.tls import verified
from ticketing.protocol.fields import address_problem
from ticketing.protocol.frames import AUTH_FAILED, CANCEL, RELEASE
from ticketing.protocol.handshake import PROTOCOL

_LOGGER = logging.getLogger("ticketing.client")

UNLISTED_MAX = 8
"""Addresses that were not configured but named as the leader's."""
UNLISTED_FAILURES_MAX = 5
"""After so many failed tries in a row such an address is dropped, unless it is named as the leader's now."""
DRAIN_S = 5.0
_SCAN_NS = 2_000
"""The alarm of the waiting keeps this distance for each of them, so looking takes a small share of the time."""


@dataclass(frozen=True)
class Settings:
    """What a broker was made with."""

    addresses: tuple[str, ...]
    token: str = ""
    tls: ssl.SSLContext | None = None
    hello: bytes = b""
    logger: logging.Logger = _LOGGER
    clock: Clock = elapsed_ns
    teller: Teller | None = None


class Cluster:
    """See the module. Implements what sessions report to (`session.Keeper`)."""

    def __init__(self, settings: Settings, domains: Domains, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.clock = settings.clock
        self.logger = settings.logger
        self.tls = settings.tls
        self.domains = domains
        self.rng = random.Random(os.urandom(16))  # noqa: S311 - spreads retries, guards nothing
        self.sockets: set[socket.socket] = set()
        """Of all connections, so that the child of a fork can close its copies."""
        self.leader: str | None = None
        """The address that was named last."""
        self.refusal: End | None = None
        """Set while every configured address refuses."""
        self.closed = False
        self.errands = Errands(self)
        self.extending: dict[AutoExtension, None] = {}
        self.lost_waiters: dict[asyncio.Future[None], str | None] = {}
        """Those who wait for the end of a ticket, and the domain of that ticket."""
        self._settings = settings
        self._sessions: list[Session] = []
        self._chosen: Session | None = None
        self._unknown: list[Session] = []
        """Usable sessions of which nobody has said that they lead, or that they do not."""
        self._turn = 0
        self._waiting: dict[Acquire, None] = {}
        self._alarm = Alarm(loop, self.clock, self._look)
        self._ready: list[asyncio.Future[None]] = []
        self._guard: AsyncGenerator[None, None] | None = None
        self._ended = False
        """Nothing of it is left: no task, no transport."""
        addresses = settings.addresses
        if len(addresses) == 1:
            # One socket may drop without anybody noticing.
            addresses *= 2
        self.connections = [
            Connection(self, address, number, True) for number, address in enumerate(addresses)
        ]

    def start(self) -> None:
        """Begins to dial all addresses. To be called on the loop."""
        self._guard = self._until_the_loop_ends()
        with contextlib.suppress(StopIteration):
            self._guard.__anext__().send(None)  # from now on the loop knows it
        for connection in self.connections:
            connection.start()

    async def _until_the_loop_ends(self) -> AsyncGenerator[None, None]:
        """Is closed by the loop behind all of its tasks, as `asyncio.run` does it. A release that comes then, of a task
        that was cancelled, may have bound this cluster when those to be cancelled had been counted.
        """
        try:
            yield
        finally:
            # The loop closes all generators together: one of the user's may be what closes us at this moment.
            self._guard = None
            if not self._ended:
                self.shut()
                await self._end()

    @property
    def usable(self) -> bool:
        """Whether it can still serve: neither closed nor left behind by its loop."""
        return not self.closed and not self.loop.is_closed()

    # --- sessions

    def new_session(self, address: str) -> Session:
        """A session for a connection that stands, or is about to."""
        settings = self._settings
        return Session(self, self.errands, self.loop, self.clock, address, settings.token, settings.hello)

    def session_ready(self, session: Session) -> None:
        """The answer was accepted. What a banner says counts only once its node names a serving leader."""
        self.logger.debug("%s: session open, leader %s", session.address, session.leader)
        self._sessions.append(session)
        if self._settings.teller is not None:
            self._settings.teller.tell(EventKind.SESSION_OPENED, b"", session.address)
        for connection in self.connections:
            if connection.session is session:
                connection.refusal = None
        self.refusal = None
        if session.leader is not None:
            self.session_named(session, session.leader)
        else:
            self._review()

    def session_named(self, session: Session, address: str) -> None:
        """A node named the serving leader."""
        if not self._follow(session):
            self._review()
            return
        if address != self.leader:
            self.logger.info("%s names %s as the leader", session.address, address)
        self.leader = address
        own_claim = _node(session) == address
        now = self.clock()
        found = False
        for other in self._sessions:
            if not self._eligible(other):
                continue
            if _node(other) == address:
                other.standing = LEADS
                other.own()
                found = True
            elif other is session:
                other.standing = FOLLOWS
                other.disown(now)
            elif own_claim:
                # What another says of itself weighs enough to want answers, not to drop what this one said.
                other.disown(now)
        if not found:
            self._dial_unlisted(address)
        self._review()

    def session_disowned(self, session: Session) -> None:
        """A node said that it does not lead."""
        if session.standing == FOLLOWS:
            return
        session.standing = FOLLOWS
        if self.leader == _node(session):
            self.leader = None
            for other in self._sessions:
                if other.standing == LEADS:
                    other.own()
        self._review()

    def session_granted(self, session: Session) -> None:
        """A node serves, whether or not it said so."""
        self._follow(session)

    def session_ended(self, session: Session, unsent: list[Acquire], lost: list[Acquire]) -> None:
        """Takes back what was not sent; what was, and has no answer, gets a cancel."""
        if session in self._sessions:
            self._sessions.remove(session)
            if self._settings.teller is not None:
                lasted = self.clock() - session.opened_ns
                self._settings.teller.tell(EventKind.SESSION_ENDED, b"", session.address, lasted)
        session.standing = FOLLOWS
        self._review()
        if session.end is not None and session.end.kind == AUTH_FAILED:
            # The session of a published server, which refuses late: nothing of it was ever looked at.
            for request in lost:
                if request.state == SENT:
                    request.settle(REFUSED)
        elif session.extended:
            deadline = self.clock() + ERRAND_NS
            for request in lost:
                self.errands.run(Errand(CANCEL, request.owner, request.key, session.domain, deadline))
        for request in unsent:
            self.place(request)

    def grant_unwanted(self, session: Session, request: Acquire) -> None:
        """Gives back by its exact token what nobody waits for any more."""
        self.compensate(request.token, request.key, session.domain)

    def connection_down(self, connection: Connection) -> bool:
        """A try to connect failed, or a session ended. False where the connection is not wanted any more."""
        if not connection.configured:
            wanted = connection.failures < UNLISTED_FAILURES_MAX or connection.address == self.leader
            if not wanted:
                self.connections.remove(connection)
            return wanted
        refusals = [connection.refusal for connection in self.connections if connection.configured]
        self.refusal = refusals[0] if all(refusals) and not self._sessions else None
        if self.refusal is not None:
            for request in list(self._waiting):
                self._unqueue(request, REFUSED)
            self._tell_ready()
        return True

    def _follow(self, session: Session) -> bool:
        """Whether this session is of the domain that is followed, now that its node is known to serve."""
        banner = session.banner
        assert banner is not None
        if session.extended and banner.domain is None and not banner.standalone:
            # Formed since it greeted us: its banner has to be read anew.
            session.close("io", "the node has joined a domain")
            return False
        before = self.domains.current
        verdict = self.domains.judge(banner)
        if verdict is Verdict.REFUSED:
            session.close(PROTOCOL, self.domains.reason)
        elif verdict is Verdict.NEWER:
            self.logger.warning("the domain %s is over, following %s", before, self.domains.current)
            self.leader = None
            for other in [other for other in self._sessions if self.domains.is_over(other.domain)]:
                other.close("io", f"the domain {before} is over")
            self.errands.domain_changed()
            for waiter, domain in list(self.lost_waiters.items()):
                if self.domains.is_over(domain) and not waiter.done():
                    waiter.set_result(None)
        return verdict in (Verdict.FOLLOWED, Verdict.NEWER)

    def _eligible(self, session: Session) -> bool:
        if not session.open or self.domains.is_over(session.domain):
            return False
        if session.extended:
            banner = session.banner
            assert banner is not None
            return session.domain is not None or banner.standalone
        return self.domains.current is None

    def _dial_unlisted(self, address: str) -> None:
        if not verified(self.tls) or self.closed or address_problem(address) is not None:
            return
        if any(connection.address == address for connection in self.connections):
            return
        unlisted = [connection for connection in self.connections if not connection.configured]
        if len(unlisted) >= UNLISTED_MAX:
            oldest = unlisted[0]
            self.connections.remove(oldest)
            oldest.stop()
        self.logger.info("the leader's address %s was not configured; dialling it as well", address)
        connection = Connection(self, address, len(self.connections), False)
        self.connections.append(connection)
        connection.start()

    # --- the choice of a session

    def _review(self) -> None:
        """Who leads or who is there has changed."""
        chosen: Session | None = None
        unknown = []
        for session in self._sessions:
            if session.standing == FOLLOWS or not self._eligible(session):
                continue
            if session.standing == UNKNOWN:
                unknown.append(session)
            elif chosen is None or (_node(session) == self.leader != _node(chosen)):
                chosen = session
        self._chosen = chosen
        self._unknown = unknown
        if self.is_ready:
            self._tell_ready()
        self._pump()
        self.errands.pump()

    @property
    def is_ready(self) -> bool:
        """Whether there is a session to a serving leader. Published servers cannot say: any of them will do."""
        return self._chosen is not None or any(not session.extended for session in self._unknown)

    @property
    def refuses_token(self) -> bool:
        """Whether nothing is wrong at any address but our token."""
        return self.refusal is not None and refusal_kind(self.refusal) == TicketErrorKind.AUTH

    def _choose(self, named: bool) -> Session | None:
        chosen = self._chosen
        if chosen is not None:
            return chosen
        unknown = self._unknown
        if named:
            unknown = [session for session in unknown if not session.extended]
        if not unknown:
            return None
        self._turn += 1
        return unknown[self._turn % len(unknown)]

    def errand_session(self, extended: bool) -> Session | None:
        """Where a release, or with `extended` a cancel or an extension, is answered; or None for now."""
        chosen = self._chosen or self._choose(True)
        if chosen is None or (extended and not chosen.extended):
            return None
        return chosen

    # --- acquires

    def turn_ns(self) -> int:
        """A reading of the clock made in this turn of the loop: never newer than now, good for deadlines."""
        chosen = self._chosen
        return (chosen.turn_ns if chosen is not None else 0) or self.clock()

    def place(self, request: Acquire, now: int = 0) -> None:
        """Puts an unsent acquire on a session, or lets it wait for one.

        A try without wait does not wait for one; like a request that was asked again after a `V`, it goes only to a
        session that an `L` names.
        """
        session = self._chosen or self._choose(request.named or not request.wait_end_ns)
        if session is not None:
            session.submit(request, now)
        elif self.closed:
            request.settle(SHUT)
        elif self.refusal is not None:
            request.settle(REFUSED)
        elif not request.wait_end_ns:
            request.settle(NO_SESSION)
        else:
            request.session = None
            self._waiting[request] = None
            self._alarm.by(request.wait_end_ns)

    def withdraw(self, request: Acquire) -> None:
        """Takes back an acquire that was not sent."""
        assert request.state == QUEUED, request.state
        request.state = WITHDRAWN
        self._waiting.pop(request, None)

    def abandon(self, request: Acquire) -> None:
        """Gives up an acquire that was sent: cancelled on its own session, in the background."""
        session = request.session
        assert session is not None
        deadline = self.clock() + ERRAND_NS
        cancel = Errand(CANCEL, request.owner, request.key, session.domain, deadline)
        if session.extended and not self.errands.adopt(cancel):
            self.logger.warning("too many errands: a request is left to its session's end")
        session.abandon(request, cancel)

    def compensate(self, token: int, key: bytes, domain: str | None) -> None:
        """Releases, in the background, a grant that nobody gets."""
        errand = Errand(RELEASE, token, key, domain, self.clock() + ERRAND_NS)
        if not self.errands.run(errand):
            self.logger.warning("too many errands: a grant is left to its lease")

    @property
    def waiting(self) -> int:
        """How many acquires have no session."""
        return len(self._waiting)

    def _pump(self) -> None:
        if not self._waiting or (self._chosen is None and not self._unknown):
            return
        for request in list(self._waiting):
            session = self._choose(request.named)
            if session is not None:
                del self._waiting[request]
                session.submit(request)

    def _unqueue(self, request: Acquire, outcome: int) -> None:
        self._waiting.pop(request, None)
        if request.state == QUEUED:
            request.settle(outcome)

    def _look(self, now: int) -> None:
        earliest = NEVER
        for request in list(self._waiting):
            if now >= request.wait_end_ns:
                self._unqueue(request, WAIT_OVER)
            elif request.wait_end_ns < earliest:
                earliest = request.wait_end_ns
        if self._waiting:
            self._alarm.by(max(earliest, now + _SCAN_NS * len(self._waiting)))

    # --- readiness and end

    async def wait_ready(self, timeout_ns: int) -> bool:
        """Waits for a session to a serving leader; also returns, False, when every address refuses the token."""
        by_ns = self.clock() + timeout_ns
        while not self.is_ready and not self.refuses_token and not self.closed:
            left = by_ns - self.clock()
            if left <= 0:
                return False
            future = self.loop.create_future()
            self._ready.append(future)
            timer = self.loop.call_later(left / SECOND, _set, future)
            try:
                await future
            finally:
                timer.cancel()
                if future in self._ready:
                    self._ready.remove(future)
        return self.is_ready

    def _tell_ready(self) -> None:
        waiting, self._ready = self._ready, []
        for future in waiting:
            _set(future)

    async def close(self) -> None:
        """Takes nothing new, drains errands for at most 5 s, ends all connections."""
        self.shut()
        try:
            async with asyncio.timeout(DRAIN_S):
                await self.errands.drained()
        except TimeoutError:
            self.logger.warning("closing with %d errands unanswered", len(self.errands))
        finally:
            await self._end()
            if self._guard is not None:
                await self._guard.aclose()

    def shut(self) -> None:
        """Takes nothing new: what was not sent is over, what was is cancelled."""
        if self.closed:
            return
        self.closed = True
        for extension in list(self.extending):
            extension.stop()
        for request in list(self._waiting):
            self._unqueue(request, SHUT)
        for session in list(self._sessions):
            for request in session.requests():
                if request.state == QUEUED:
                    request.settle(SHUT)
                elif request.state == SENT:
                    self.abandon(request)
                    request.outcome = LOST
                    if not request.future.done():
                        request.future.set_result(LOST)
        self._tell_ready()

    async def _end(self) -> None:
        self._alarm.stop()
        # Those that are still in their handshake as well.
        dialled = [connection.session for connection in self.connections if connection.session is not None]
        tasks = [task for task in (connection.stop() for connection in self.connections) if task is not None]
        sessions = list(self._sessions)
        self._end_sessions("the broker was closed")
        if tasks:
            await asyncio.wait(tasks)
        # A loop that is closed right after this must not find transports in the middle of their farewell.
        sessions = list(dict.fromkeys(sessions + dialled))
        open_still = [session.gone for session in sessions if session.gone is not None]
        if open_still:
            await asyncio.wait(open_still, timeout=2 * FLUSH_S)
        self._ended = True

    def leave(self) -> None:
        """Ends everything without waiting: the loop is going away, or nobody is there any more."""
        self.shut()
        self._alarm.stop()
        for connection in self.connections:
            connection.stop()
        self._end_sessions("the broker was left")

    def _end_sessions(self, why: str) -> None:
        sessions = list(self._sessions)
        for session in sessions:
            # Queued in this turn of the loop: there may be no other one to write it in.
            session.flush()
        self.errands.stop()
        for session in sessions:
            session.close("closed", why, flush=True)

    def fork_child(self) -> None:
        """Closes this process's copies of the sockets and touches nothing else: all of it is the parent's."""
        self.closed = True
        for sock in list(self.sockets):
            # Detached, so that nobody closes the number again when it belongs to somebody else.
            descriptor = sock.detach()
            if descriptor >= 0:
                os.close(descriptor)
        self.sockets.clear()


def _node(session: Session) -> str:
    """The address by which others name the node of a session."""
    banner = session.banner
    assert banner is not None
    return banner.node_address or session.address


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def refusal_kind(refusal: End | None) -> TicketErrorKind:
    """The error of a caller for whom every address refuses."""
    if refusal is None or refusal.kind == TicketErrorKind.AUTH:
        return TicketErrorKind.AUTH
    return TicketErrorKind.PROTOCOL if refusal.kind == PROTOCOL else TicketErrorKind.IO
