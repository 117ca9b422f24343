"""Whether a key is free when nobody can have it any more, and goes to whoever waits for it."""

from __future__ import annotations

from bisect import bisect_left

from tests.sim.history_facts import LOST, SURE, Facts, Request, first_cancels
from tests.sim.world import S, Violation

NOT_GRANTED = ("T", "B", "V", "R")
"""Answers to an acquire after which its owner has nothing: `R` is its cancel's, which took it out of the queue."""
OVERDUE_NS = 60 * S
"""Where nothing is known of leaders: what a lease that is over may still keep a key from others."""


def _over(lease: int) -> int:
    """True time after which a node's clock shows that all of a lease has passed, stamped though it was by another."""
    return lease * S * 1003 // 1000


class _Ownerships:
    """By when a key is free again that a request may have been granted."""

    __slots__ = ("_cancelled", "_extended", "_history", "_released")

    def __init__(self, history: Facts) -> None:
        self._history = history
        self._released: dict[tuple[int, bytes], int] = {}
        self._cancelled: dict[tuple[int, bytes], int] = {}
        self._extended: dict[tuple[int, bytes], tuple[int, int]] = {}
        """By token and key: when the last extension that may have come to something was read at the latest, and the
        longest lease that was asked for.
        """
        for request in history.requests:
            place = (request.ident, request.key)
            if request.op == "R" and request.answer in ("R", "N"):
                self._released.setdefault(place, request.answered_ns)
            elif request.op == "C" and request.answer in ("R", "N"):
                self._cancelled.setdefault(place, request.answered_ns)
            elif request.op == "X" and request.answer != "N":
                read_ns, lease = self._extended.get(place, (0, 0))
                self._extended[place] = max(read_ns, self._read_by(request)), max(lease, request.lease)

    def _read_by(self, request: Request) -> int:
        """By when a request was read by a node, at the latest."""
        if request.answer in (None, LOST):
            return request.sent_ns + self._history.underway_ns
        return request.answered_ns

    def free_from(self, request: Request) -> int:
        """When nobody has the key any more because of this acquire, or has been told otherwise, at the latest.

        Only what was answered, or not answered at all, can have been granted.
        """
        history = self._history
        place = (request.token, request.key)
        granted = request.answer in ("A", "G")
        granted_ns, lease = self._read_by(request), request.lease
        if granted:
            extended_ns, extension = self._extended.get(place, (0, 0))
            granted_ns, lease = max(granted_ns, extended_ns), max(lease, extension)
        else:
            granted_ns += request.wait * S
        if history.serving is None:
            until_ns = granted_ns + _over(lease) + OVERDUE_NS
        else:
            until_ns = history.serving.expired_by(granted_ns, _over(lease), history.stale_ns)
        ended_ns = self._released.get(place) if granted else None
        cancelled_ns = self._cancelled.get((request.ident, request.key))
        if cancelled_ns is not None and cancelled_ns > request.sent_ns and granted:
            ended_ns = cancelled_ns if ended_ns is None else min(ended_ns, cancelled_ns)
        return until_ns if ended_ns is None else min(until_ns, ended_ns)


def not_free_is_a_fact(history: Facts) -> None:
    """`T` at once says that somebody else had, or was about to have, the key.

    A leader that others have left may not know of what ended meanwhile; who led on for long enough was none.
    """
    ownerships = _Ownerships(history)
    others: dict[bytes, list[tuple[int, int, Request]]] = {}
    stale_others: dict[bytes, list[tuple[int, int, Request]]] = {}
    for request in history.requests:
        if request.op in "AQ":
            until = known_until = request.answered_ns  # until then it may have waited
            if request.answer not in NOT_GRANTED:
                until = ownerships.free_from(request)
                known_until = until + history.stale_ns
            others.setdefault(request.key, []).append((request.sent_ns, until, request))
            stale_others.setdefault(request.key, []).append((request.sent_ns, known_until, request))
    ranked = {key: _Rivals(rivals) for key, rivals in others.items()}
    stale_ranked = {key: _Rivals(rivals) for key, rivals in stale_others.items()}
    cancels = first_cancels(history)
    for request in history.requests:
        if request.answer != "T" or request.wait or (request.ident, request.key) in cancels:
            continue
        if ranked[request.key].may_hold(request):
            continue
        if not stale_ranked[request.key].may_hold(request) or _led_on(history, request):
            raise Violation("T without a holder", f"{request!r}")


def _led_on(history: Facts, request: Request) -> bool:
    node, serving = history.nodes.get(request.session), history.serving
    if node is None or serving is None:
        return False
    return serving.led_throughout(node, request.sent_ns, request.answered_ns + history.stale_ns)


class _Rivals:
    """The requests for one key by when they were sent, and who of the first so many may hold it longest."""

    __slots__ = ("_longest", "_sent")

    def __init__(self, rivals: list[tuple[int, int, Request]]) -> None:
        by_sending = sorted(rivals, key=lambda rival: rival[0])
        self._sent = [sent for sent, _until, _request in by_sending]
        self._longest: list[tuple[tuple[int, Request], ...]] = []
        """The two that may hold longest: one of them may be the request in question."""
        longest: tuple[tuple[int, Request], ...] = ()
        for _sent, until, request in by_sending:
            longest = tuple(sorted((*longest, (until, request)), key=lambda one: -one[0])[:2])
            self._longest.append(longest)

    def until(self, before_ns: int, but: Request) -> int:
        """Until when anybody else of those that were sent before may hold it; 0 where there is nobody."""
        before = bisect_left(self._sent, before_ns)
        found = self._longest[before - 1] if before else ()
        return max((until for until, rival in found if rival is not but), default=0)

    def may_hold(self, request: Request) -> bool:
        """Whether somebody else can have had the key, or been about to, while this request was under way."""
        return self.until(request.answered_ns, request) > request.sent_ns


def leases_end(history: Facts) -> None:
    """Nobody's wait runs out behind a key that nobody can have any more, while the node could have granted it.

    Whoever waited as well, and was granted nothing either, is no reason.
    """
    serving = history.serving
    if serving is None:
        return
    ownerships = _Ownerships(history)
    holders: dict[bytes, list[tuple[int, int, Request]]] = {}
    cancels = first_cancels(history)
    waited: list[Request] = []
    for request in history.requests:
        if request.op not in "AQ":
            continue
        if request.answer not in NOT_GRANTED:
            free_ns = ownerships.free_from(request)
            holders.setdefault(request.key, []).append((request.sent_ns, free_ns, request))
        elif request.answer == "T" and request.wait and (request.ident, request.key) not in cancels:
            waited.append(request)
    ranked = {key: _Rivals(rivals) for key, rivals in holders.items()}
    for request in waited:
        node = history.nodes.get(request.session)
        wait_ns = request.wait * S * SURE // 1000
        # It had been read by then, and its wait was not over before.
        from_ns, to_ns = request.answered_ns - wait_ns, request.sent_ns + wait_ns
        if node is None or to_ns - from_ns < serving.within_ns:
            continue
        rivals = ranked.get(request.key)
        if rivals is not None:
            from_ns = max(from_ns, rivals.until(to_ns, request))
        if serving.could_grant(node, from_ns, to_ns):
            raise Violation("nobody waits behind a lease that is over", f"{request!r}")
