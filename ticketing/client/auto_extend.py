"""Extends a ticket by itself while its block runs.

A timer of the broker's loop, no task. The first extension is asked for when a third of the lease is over, that is at
end - 2/3 x 0.998 x lease, and so on from each new end. One that was not answered is asked for again after a twelfth
of the lease, at least 0.1 s. It stops with the ticket (release, `close`, collection), with the broker, at its limit,
and once the lease is lost: nothing is asked for after that, so nothing is revived.
"""

from __future__ import annotations

import asyncio
import weakref
from typing import TYPE_CHECKING

from ticketing.client.clock import MILLISECOND, SECOND
from ticketing.client.release import ERRAND_NS
from ticketing.client.requests import UNANSWERED, Errand, Extension
from ticketing.protocol.fields import escaped
from ticketing.protocol.frames import EXTENDED

if TYPE_CHECKING:
    from ticketing.client.cluster import Cluster
    from ticketing.client.ticket import Ticket

PAUSE_MIN_NS = 100 * MILLISECOND


def extend_at_ns(end_ns: int, lease_s: int) -> int:
    """When the lease that ends at `end_ns` is to be extended: a third of it is over by then."""
    return end_ns - lease_s * SECOND * 998 // 1500


def pause_ns(lease_s: int) -> int:
    """How long after a failure it is tried again; also the longest sleep, as timers may stand still in a suspend."""
    return max(lease_s * SECOND // 12, PAUSE_MIN_NS)


class AutoExtension:
    """One ticket's. Lives on the broker's loop once it is started; a ticket has one at most."""

    __slots__ = ("__weakref__", "_by_ns", "_cluster", "_errand", "_limit_ns", "_next_ns", "_ticket", "_timer")

    def __init__(self, limit_ns: int) -> None:
        """`limit_ns`: nothing is asked for later than that after the start."""
        self._limit_ns = limit_ns
        self._by_ns = 0
        self._next_ns = 0
        self._ticket: weakref.ref[Ticket] | None = None
        self._cluster: Cluster | None = None
        self._errand: Extension | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self, cluster: Cluster, ticket: Ticket) -> None:
        """Begins. Entering the block of one ticket again changes nothing."""
        if self._cluster is not None or cluster.closed:
            return
        self._cluster = cluster
        # Weak: a block that was dropped half-way must not be extended for ever.
        self._ticket = weakref.ref(ticket)
        self._by_ns = cluster.clock() + self._limit_ns
        self._next_ns = extend_at_ns(ticket._end_ns, ticket._lease_s)
        cluster.extending[self] = None
        self._look()

    def stop(self) -> None:
        """Asks for nothing more, and withdraws what is asked for. May be called again."""
        cluster = self._cluster
        if cluster is None or self not in cluster.extending:
            return
        del cluster.extending[self]
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        errand, self._errand = self._errand, None
        if errand is not None:
            cluster.errands.answered(errand, UNANSWERED)

    def _look(self) -> None:
        cluster, ticket = self._cluster, self._ticket() if self._ticket is not None else None
        assert cluster is not None
        self._timer = None
        now = cluster.clock()
        if ticket is None or ticket._asked or ticket._is_lost() or now >= self._by_ns:
            self.stop()
        elif now >= self._next_ns:
            self._ask(cluster, ticket, now)
        else:
            self._sleep(cluster, min(self._next_ns - now, pause_ns(ticket._lease_s)))

    def _sleep(self, cluster: Cluster, duration_ns: int) -> None:
        self._timer = cluster.loop.call_later(duration_ns / SECOND, self._look)

    def _ask(self, cluster: Cluster, ticket: Ticket, now: int) -> None:
        # Not sent again past the end: the answer would be of no use.
        deadline = min(now + ERRAND_NS, ticket._end_ns)
        errand = Extension(
            ticket.token, ticket._key, ticket.domain, deadline, ticket._lease_s, self._answered
        )
        self._errand = errand
        if not cluster.errands.run(errand):
            self._failed(cluster, ticket, now)

    def _answered(self, errand: Errand, outcome: int) -> None:
        if self._errand is not errand:
            return  # withdrawn
        assert isinstance(errand, Extension)
        cluster, ticket = self._cluster, self._ticket() if self._ticket is not None else None
        assert cluster is not None
        self._errand = None
        if ticket is None or self not in cluster.extending:
            self.stop()
            return
        ticket._take_extension(errand, outcome)
        if outcome == EXTENDED:
            self._next_ns = extend_at_ns(ticket._end_ns, ticket._lease_s)
            self._look()
        elif outcome == UNANSWERED:
            self._failed(cluster, ticket, cluster.clock())
        else:
            self.stop()

    def _failed(self, cluster: Cluster, ticket: Ticket, now: int) -> None:
        self._errand = None
        cluster.logger.warning(
            "the lease of '%s' could not be extended; %.1f s are left",
            escaped(ticket._key),
            ticket.conservative_remaining(),
        )
        self._next_ns = now + pause_ns(ticket._lease_s)
        self._look()
