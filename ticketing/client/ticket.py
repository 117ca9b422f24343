"""What a caller holds: one grant, with its fencing token, its conservative end and its way back."""

from __future__ import annotations

import asyncio
import sys
import warnings
from collections.abc import Generator
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING

from ticketing.client import arguments
from ticketing.client.arguments import Seconds
from ticketing.client.auto_extend import AutoExtension
from ticketing.client.clock import SECOND, Clock
from ticketing.client.errors import TicketError, TicketErrorKind
from ticketing.client.release import ERRAND_NS
from ticketing.client.requests import UNANSWERED, Errand, Extension
from ticketing.client.telemetry import EventKind
from ticketing.protocol.fields import escaped
from ticketing.protocol.frames import EXTENDED, NOT_HELD, RELEASE, RELEASED

if TYPE_CHECKING:
    from ticketing.client.broker import TicketBroker
    from ticketing.client.cluster import Cluster

_LOOK_S = 1.0
"""The loop's timers may stand still while the machine is suspended; the elapsed clock is asked this often."""


class Lost:
    """Whether a ticket's lease is over, or cannot be proved to go on. True or false, and awaitable.

    It becomes true when the server said that the token holds nothing, when its domain is over, or at the
    conservative end; without any network. Awaiting it returns True then, and False once the ticket was released.
    """

    __slots__ = ("_ticket",)

    def __init__(self, ticket: Ticket) -> None:
        self._ticket = ticket

    def __bool__(self) -> bool:
        return self._ticket._is_lost()

    def __repr__(self) -> str:
        return f"<lost: {bool(self)}>"

    def is_set(self) -> bool:
        """The same as its truth."""
        return bool(self)

    async def wait(self) -> bool:
        """Returns True once the ticket is lost, False once it was released."""
        ticket = self._ticket
        return await ticket._broker._on_its_loop(ticket._wait_lost)

    def wait_sync(self) -> bool:
        """`wait` for a thread without a loop."""
        ticket = self._ticket
        return ticket._broker._sync(ticket._wait_lost)

    def __await__(self) -> Generator[object, None, bool]:
        return self.wait().__await__()


class Ticket:
    """One grant. Made by `TicketBroker.acquire`; a context manager in both worlds.

    Leaving the context releases and waits for the answer. An error of the release is raised only where the body
    raised none; otherwise it is added to the body's error as a note. Where it was acquired with `auto_extend`, the
    lease is extended from entering the context to the release.
    """

    __slots__ = (
        "__weakref__",
        "_asked",
        "_auto",
        "_began_ns",
        "_broker",
        "_clock",
        "_cluster",
        "_end_ns",
        "_errand",
        "_key",
        "_lease_s",
        "_lost",
        "_lost_waiters",
        "_release_waiters",
        "_result",
        "domain",
        "token",
    )

    def __init__(
        self,
        broker: TicketBroker,
        clock: Clock,
        key: bytes,
        token: int,
        domain: str | None,
        lease_s: int,
        end_ns: int,
        auto: AutoExtension | None = None,
    ) -> None:
        self._broker = broker
        self._clock = clock
        self._key = key
        self.token = token
        """The fencing token: a plain int, larger than every earlier one of this cluster."""
        self.domain = domain
        """`<first token>.<16 hex digits>`; None from a published server, which does not say."""
        self._lease_s = lease_s
        self._end_ns = end_ns
        self._auto = auto
        self._began_ns = 0
        """When it was handed out; 0 where nobody is told of its end (any more)."""
        self._lost = False
        self._result: bool | None = None
        self._errand: Errand | None = None
        self._release_waiters: list[asyncio.Future[int]] | None = None
        self._lost_waiters: list[asyncio.Future[None]] | None = None
        self._asked = False
        """Whether a release was begun, whatever became of it. Set last: see `__del__`."""

    def __repr__(self) -> str:
        if self._result is not None:
            state = "released" if self._result else "was not held any more"
        else:
            state = f"{self.conservative_remaining():.3f} s left"
        return f"<Ticket '{escaped(self._key)}' token={self.token} {state}>"

    @property
    def key(self) -> str:
        """The key that is held."""
        return self._key.decode()

    def conservative_remaining(self) -> float:
        """Seconds that are left at least, by a fresh reading of the elapsed clock; 0.0 once released or lost.

        No substitute for fencing: the process may stop right after the reading.
        """
        if self._result is not None or self._is_over():
            return 0.0
        return max(0, self._end_ns - self._clock()) / SECOND

    @property
    def lost(self) -> Lost:
        """True, or awaited to be true, once the lease is over or cannot be proved to go on."""
        return Lost(self)

    def _is_over(self) -> bool:
        return self._lost or self._broker._domains.is_over(self.domain)

    def _is_lost(self) -> bool:
        # A ticket that was released in time is not lost by its end.
        return self._is_over() or (self._result is not True and self._clock() >= self._end_ns)

    async def _wait_lost(self, cluster: Cluster) -> bool:
        while not self._is_lost():
            if self._result is not None:
                return False
            future = cluster.loop.create_future()
            left_s = (self._end_ns - self._clock()) / SECOND
            timer = cluster.loop.call_later(min(max(left_s, 0.001), _LOOK_S), _wake, future)
            cluster.lost_waiters[future] = self.domain
            if self._lost_waiters is None:
                self._lost_waiters = []
            self._lost_waiters.append(future)
            try:
                await future
            finally:
                timer.cancel()
                cluster.lost_waiters.pop(future, None)
                if future in (self._lost_waiters or ()):
                    self._lost_waiters.remove(future)
        return True

    def _tell_waiters(self) -> None:
        waiters, self._lost_waiters = self._lost_waiters, None
        for future in waiters or ():
            _wake(future)

    # --- release

    async def release(self) -> bool:
        """Gives the key back. True: released. False: it was not held any more when the server looked.

        Tried again within 5 s from the first call, which calls made meanwhile share; then `io`, after which, as after
        a cancelled call, it can be called again. Once answered, every further call returns the same.
        """
        if self._result is not None:
            return self._result
        cluster = self._broker._cluster
        if cluster is not None and not cluster.closed and cluster.loop is asyncio.get_running_loop():
            return self._released(await self._begin_release(cluster))
        return await self._broker._on_its_loop(self._release)

    def release_sync(self) -> bool:
        """`release` for a thread without a loop."""
        if self._result is not None:
            return self._result
        return self._broker._sync(self._release)

    def close(self) -> None:
        """Queues the release and does not wait for it. Does nothing where it was released or is being released."""
        if self._result is None:
            self._broker._post(self._close)

    async def _release(self, cluster: Cluster) -> bool:
        if self._result is not None:
            return self._result
        return self._released(await self._begin_release(cluster))

    def _released(self, outcome: int) -> bool:
        if outcome == UNANSWERED:
            seconds = ERRAND_NS // SECOND
            raise TicketError(
                TicketErrorKind.IO,
                f"no answer to the release of '{escaped(self._key)}' within {seconds} s: "
                "it may be held until its lease ends, and can be released again",
            )
        return outcome == RELEASED

    def _begin_release(self, cluster: Cluster) -> asyncio.Future[int]:
        """Sees to it that a release is under way, and returns what its outcome will be told to."""
        future: asyncio.Future[int] = cluster.loop.create_future()
        waiters = self._release_waiters or []
        # Of a loop that was closed while it waited there is nobody left to be told.
        self._release_waiters = [waiter for waiter in waiters if not waiter.get_loop().is_closed()]
        self._release_waiters.append(future)
        if self._errand is not None and self._cluster is cluster:
            return future
        if self._auto is not None:
            self._auto.stop()
        now = cluster.turn_ns()
        errand = Errand(RELEASE, self.token, self._key, self.domain, now + ERRAND_NS, self._release_answered)
        self._errand = errand
        self._cluster: Cluster = cluster
        self._asked = True
        if not cluster.errands.run(errand, now):
            self._errand = self._release_waiters = None
            self._tell_end(UNANSWERED)
            raise TicketError(
                TicketErrorKind.IO,
                f"too many releases are under way; '{escaped(self._key)}' may be held until its lease ends",
            )
        return future

    def _close(self, cluster: Cluster) -> None:
        if self._result is not None:
            return
        try:
            self._begin_release(cluster)
        except TicketError as error:
            cluster.logger.warning("%s", error)

    def _release_answered(self, errand: Errand, outcome: int) -> None:
        if self._errand is errand:
            self._errand = None
        if outcome == RELEASED:
            self._result = True
        elif outcome == NOT_HELD:
            self._result = False
            self._lost = True
        if self._began_ns:
            self._tell_end(outcome)
        waiters, self._release_waiters = self._release_waiters, None
        for future in waiters or ():
            if not future.done():
                future.set_result(outcome)
        if outcome != UNANSWERED and self._lost_waiters is not None:
            self._tell_waiters()

    def _tell_end(self, outcome: int) -> None:
        """Once a ticket, if at all: a release may be repeated."""
        began_ns, self._began_ns = self._began_ns, 0
        teller = self._broker._settings.teller
        if began_ns and teller is not None:
            teller.tell(EventKind.ENDED, self._key, _OUTCOMES[outcome], self._clock() - began_ns)

    # --- extension

    async def extend(self, lease: Seconds | None = None) -> bool:
        """Has the lease counted anew: `lease` seconds, by default as many as before; never fewer than were left.

        True: extended. False: nothing is held any more, and `lost` is true. `io` where no answer came within 5 s: the
        conservative end is as before. A lost ticket is never revived; one that is being released cannot be extended.
        """
        lease_s = self._extension(lease)
        return await self._broker._on_its_loop(partial(self._extend, lease_s=lease_s))

    def extend_sync(self, lease: Seconds | None = None) -> bool:
        """`extend` for a thread without a loop."""
        lease_s = self._extension(lease)
        return self._broker._sync(partial(self._extend, lease_s=lease_s))

    def _extension(self, lease: Seconds | None) -> int:
        return self._lease_s if lease is None else arguments.lease_seconds(lease)

    async def _extend(self, cluster: Cluster, lease_s: int) -> bool:
        if self._result is not None or self._errand is not None:
            raise TicketError(
                TicketErrorKind.INVALID_INPUT, f"the ticket for '{escaped(self._key)}' is released"
            )
        if self._is_lost():
            return False
        future: asyncio.Future[int] = cluster.loop.create_future()
        errand = Extension(
            self.token,
            self._key,
            self.domain,
            self._clock() + ERRAND_NS,
            lease_s,
            partial(self._extension_answered, future),
        )
        if not cluster.errands.run(errand):
            raise TicketError(TicketErrorKind.IO, "too many releases and extensions are under way")
        outcome = await future
        if outcome == UNANSWERED:
            raise TicketError(
                TicketErrorKind.IO,
                f"no answer to the extension of '{escaped(self._key)}': its lease may end as it was",
            )
        return outcome == EXTENDED and not self._is_lost()

    def _extension_answered(self, future: asyncio.Future[int], errand: Errand, outcome: int) -> None:
        # Done here and not by the caller, who may have been cancelled.
        assert isinstance(errand, Extension)
        self._take_extension(errand, outcome)
        if not future.done():
            future.set_result(outcome)

    def _take_extension(self, errand: Extension, outcome: int) -> None:
        if self._is_lost():
            # The end was seen, or could have been: an answer that comes later revives nothing.
            self._lost = True
            self._tell_waiters()
        elif outcome == EXTENDED:
            # The server never shortens: it takes the greater of the two leases.
            self._lease_s = max(self._lease_s, errand.lease)
            self._end_ns = max(self._end_ns, errand.moment_ns + self._lease_s * SECOND * 998 // 1000)
        elif outcome == NOT_HELD:
            self._lost = True
            self._tell_waiters()
        teller = self._broker._settings.teller
        if teller is not None:
            teller.tell(EventKind.EXTENDED, self._key, _OUTCOMES[outcome])

    def _begin_auto(self, cluster: Cluster) -> None:
        if self._auto is not None and not self._asked:
            self._auto.start(cluster, self)

    # --- contexts and the end

    async def __aenter__(self) -> Ticket:
        if self._auto is not None:
            self._broker._post(self._begin_auto)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.release()
        except TicketError as failure:
            _prefer(error, failure)

    def __enter__(self) -> Ticket:
        if self._auto is not None:
            self._broker._post(self._begin_auto)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.release_sync()
        except TicketError as failure:
            _prefer(error, failure)

    def __del__(self) -> None:
        # An instance whose __init__ did not come to its end lacks the last of its attributes. Once a release was
        # begun, its outcome was told to whoever asked for it.
        try:
            if self._asked:
                return
        except AttributeError:
            return
        if sys.is_finalizing():
            return
        if not self._broker._collected(self._key, self.token, self.domain, self._began_ns, self._auto):
            return
        if self._clock() < self._end_ns and not self._lost:
            warnings.warn(
                f"{self!r} was never released; it is now", ResourceWarning, source=self, stacklevel=2
            )


_OUTCOMES = {
    RELEASED: "released",
    NOT_HELD: "not_held",
    EXTENDED: "extended",
    UNANSWERED: "unanswered",
}
"""As they are told to the event callback."""


def _prefer(error: BaseException | None, failure: TicketError) -> None:
    """Raises the failure of a release unless the body has an error of its own."""
    if error is None:
        raise failure
    error.add_note(f"the lock could not be released: {failure}")


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
