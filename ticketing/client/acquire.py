"""The life of one acquire: asked, perhaps asked again, granted, given up.

Asked again as a *new* request, under a new owner, only after a `V`: a fact that nothing was proposed. Asked again as
the same request only where no byte can have left, which sessions and cluster do between them. Everything else
ends the call.
"""

from __future__ import annotations

import asyncio

from ticketing.client.clock import MILLISECOND, SECOND
from ticketing.client.cluster import Cluster, refusal_kind
from ticketing.client.errors import IndeterminateCancelledError, TicketError, TicketErrorKind
from ticketing.client.requests import (
    ABANDONED,
    LOST,
    NO_SESSION,
    QUEUED,
    REFUSED,
    SENT,
    SHUT,
    WAIT_OVER,
    Acquire,
)
from ticketing.client.telemetry import EventKind, Teller, failure_detail
from ticketing.protocol.fields import escaped
from ticketing.protocol.frames import BUSY, GRANTED, GRANTED_WAITED, NOT_LEADING, TIMEOUT

RETRY_MIN_NS = 10 * MILLISECOND
RETRY_MAX_NS = 200 * MILLISECOND
WAITING_MAX = 100_000
"""Acquires of one broker without a session."""


def conservative_end_ns(sent_ns: int, read_ns: int, lease_s: int, waited_ms: int) -> int:
    """Until when a grant holds at least, by the elapsed clock of this machine (spec 10).

    The leader stamped it no earlier than `waited_ms` after it read the request, which it did after the first byte
    left at `sent_ns`; 0.998 is what two clocks of 0.1 % can be apart. `read_ns`, when the answer was read, bounds
    what a wrong `waited_ms` could add.
    """
    lease_ns = lease_s * SECOND
    by_request = sent_ns + (lease_ns + waited_ms * MILLISECOND) * 998 // 1000
    by_answer = read_ns + lease_ns * 998 // 1000
    return min(by_request, by_answer)


def retry_pause_ns(number: int) -> int:
    """The pause before the `number`th time that a request is asked again, before jitter: none for the first."""
    return min(RETRY_MIN_NS << min(number - 2, 10), RETRY_MAX_NS) if number > 1 else 0


async def acquire(
    cluster: Cluster, key: bytes, wait_ns: int, lease_s: int, budget_ns: int
) -> tuple[Acquire, int]:
    """Returns the grant and its conservative end. Raises TicketError; when cancelled, see `_left`."""
    if cluster.waiting >= WAITING_MAX:
        raise TicketError(TicketErrorKind.BUSY, f"{WAITING_MAX} acquires wait for a session already")
    now = cluster.turn_ns()
    wait_end_ns = now + wait_ns if wait_ns else 0
    future: asyncio.Future[int] = cluster.loop.create_future()
    request = Acquire(future, key, wait_end_ns, lease_s)
    cluster.place(request, now)
    again = 0
    while True:
        try:
            outcome = await future
        except BaseException as error:
            _left(cluster, request, error)
            raise
        if outcome != NOT_LEADING:
            break
        again += 1
        if again > 1:
            if not wait_ns:
                raise TicketError(TicketErrorKind.NOT_CONNECTED, "no node that was asked leads")
            await _pause(cluster, again, wait_end_ns)
        future = cluster.loop.create_future()
        request = Acquire(future, key, wait_end_ns, lease_s)
        request.named = True
        cluster.place(request)
    if outcome != GRANTED_WAITED and outcome != GRANTED:
        raise _failure(cluster, request, wait_ns)
    end_ns = conservative_end_ns(request.sent_ns, request.read_ns, lease_s, request.waited_ms)
    left = end_ns - cluster.clock()
    if left < budget_ns or left <= 0:
        _give_back(cluster, request)
        raise TicketError(
            TicketErrorKind.INSUFFICIENT_LEASE,
            f"'{escaped(key)}' was granted with {max(0, left) / SECOND:.3f} s left of a lease of {lease_s} s, "
            f"less than the budget of {budget_ns / SECOND:g} s; it is given back",
        )
    return request, end_ns


async def acquire_told(
    teller: Teller, cluster: Cluster, key: bytes, wait_ns: int, lease_s: int, budget_ns: int
) -> tuple[Acquire, int]:
    """`acquire`, with its beginning and its end told."""
    began_ns = cluster.clock()
    teller.tell(EventKind.ASKED, key)
    try:
        request, end_ns = await acquire(cluster, key, wait_ns, lease_s, budget_ns)
    except BaseException as error:
        teller.tell(EventKind.FAILED, key, failure_detail(error), cluster.clock() - began_ns)
        raise
    teller.tell(EventKind.ACQUIRED, key, "", request.read_ns - began_ns)
    return request, end_ns


async def _pause(cluster: Cluster, number: int, wait_end_ns: int) -> None:
    pause = retry_pause_ns(number) * cluster.rng.uniform(0.5, 1.0)
    left = max(0, wait_end_ns - cluster.clock())
    await asyncio.sleep(min(pause, left) / SECOND)


def _give_back(cluster: Cluster, request: Acquire) -> None:
    session = request.session
    assert session is not None
    cluster.compensate(request.token, request.key, session.domain)


def _left(cluster: Cluster, request: Acquire, error: BaseException) -> None:
    """The caller is gone. Returns where nothing can have been acquired; raises where that is not known.

    A grant that was read, and not returned yet, is given back by its exact token.
    """
    state = request.state
    if state == QUEUED:
        cluster.withdraw(request)
        return
    if state == SENT:
        cluster.abandon(request)
    elif request.outcome in (GRANTED, GRANTED_WAITED):
        _give_back(cluster, request)
    elif state != ABANDONED and request.outcome != LOST:
        return
    if isinstance(error, asyncio.CancelledError):
        raise IndeterminateCancelledError(
            TicketErrorKind.INDETERMINATE,
            f"the acquire of '{escaped(request.key)}' was cancelled after it may have been sent; "
            "it is cancelled at the server in the background",
        ) from error


def _failure(cluster: Cluster, request: Acquire, wait_ns: int) -> TicketError:
    outcome = request.outcome
    key = escaped(request.key)
    if outcome == TIMEOUT:
        if wait_ns:
            text = f"'{key}' did not become free within {wait_ns / SECOND:g} s"
        else:
            text = f"'{key}' is not free"
        return TicketError(TicketErrorKind.TIMEOUT, text)
    if outcome == BUSY:
        text = f"the server refused the acquire of '{key}': at a bound, out of range, or clocks not in order"
        return TicketError(TicketErrorKind.BUSY, text)
    if outcome == WAIT_OVER:
        text = f"no session to a serving leader within {wait_ns / SECOND:g} s; nothing was sent for '{key}'"
        return TicketError(TicketErrorKind.TIMEOUT, text)
    if outcome == NO_SESSION:
        text = f"no session to a serving leader; nothing was sent for '{key}'"
        return TicketError(TicketErrorKind.NOT_CONNECTED, text)
    if outcome == REFUSED:
        refusal = cluster.refusal
        detail = refusal.detail if refusal is not None else "the server refused the token"
        return TicketError(refusal_kind(refusal), f"every address refuses: {detail}")
    if outcome == SHUT:
        return TicketError(TicketErrorKind.CLOSED, f"the broker was closed; nothing was sent for '{key}'")
    assert outcome == LOST, outcome
    text = f"no answer to the acquire of '{key}', which may have been sent: it may be held until its cancel arrives"
    return TicketError(TicketErrorKind.INDETERMINATE, text)
