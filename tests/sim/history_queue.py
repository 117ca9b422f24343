"""Whether who came first was served first."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import accumulate

from tests.sim.history_facts import SURE, Facts, Hold, Request, first_cancels
from tests.sim.world import S, Violation


def first_come_first_served(history: Facts) -> None:
    """Among granted requests for one key on sessions that lived until then the earlier was granted first.

    Earlier is what a client can know: on the same session, or surely read before the other was sent.
    """
    granted = _granted(history)
    surely_read = _Reading(history)
    for holds in granted.values():
        last: dict[int, Hold] = {}
        """By session: the grant with the highest token of what was sent there before."""
        read = sorted(((surely_read.at(hold.request), hold) for hold in holds), key=lambda one: one[0])
        position = 0
        highest: Hold | None = None
        """Of what was surely read before the request at hand was sent."""
        for hold in holds:
            request = hold.request
            while read[position][0] < request.sent_ns:
                earlier = read[position][1]
                if highest is None or earlier.token > highest.token:
                    highest = earlier
                position += 1
            former = last.get(request.session)
            for before in (former, highest):
                if before is not None and hold.token <= before.token:
                    raise Violation("first come, first served", f"{before!r} after {hold!r}")
            if former is None or hold.token > former.token:
                last[request.session] = hold


def _granted(history: Facts) -> dict[bytes, list[Hold]]:
    """By key, as they were sent: what was asked once, on a session that lived until the grant.

    A leader that was followed by another one drops its queue, and tells so to every session that lives.
    """
    granted: dict[bytes, list[Hold]] = {}
    ended = history.ended_sessions
    for hold in history.holds:
        request = hold.request
        ended_ns = ended.get(request.session)
        if request.first_ns == request.sent_ns and (ended_ns is None or ended_ns > hold.from_ns):
            granted.setdefault(hold.key, []).append(hold)
    for holds in granted.values():
        holds.sort(key=lambda hold: (hold.request.sent_ns, hold.request.order))
    return granted


class _Reading:
    """When it was clear that what had been sent on a session was read."""

    def __init__(self, history: Facts) -> None:
        self._times = {session: [at for at, _order in told] for session, told in history.read_upto.items()}
        self._upto = {
            session: list(accumulate((order for _at, order in told), max))
            for session, told in history.read_upto.items()
        }

    def at(self, request: Request) -> int:
        """The time for this request, far in the future where it never was clear."""
        upto = self._upto.get(request.session, [])
        found = bisect_left(upto, request.order)
        return self._times[request.session][found] if found < len(upto) else 1 << 62


def nobody_is_passed_over(history: Facts) -> None:
    """Nobody's wait runs out while a later request for the key is granted within it, by the same node.

    A node that stands down says so to whoever waits: `T` comes of the lead in which the request was read. Another
    node may have led meanwhile, so nothing is known of what was granted there.
    """
    if not history.nodes:
        return
    granted = _granted(history)
    sent = {key: [hold.request.sent_ns for hold in holds] for key, holds in granted.items()}
    cancels = first_cancels(history)
    surely_read = _Reading(history)
    for request in history.requests:
        if request.answer != "T" or request.op not in "AQ" or not request.wait:
            continue
        node = history.nodes.get(request.session)
        if node is None or (request.ident, request.key) in cancels or request.key not in granted:
            continue
        due_ns = request.sent_ns + request.wait * S * SURE // 1000
        read_ns = surely_read.at(request)
        times = sent[request.key]
        for hold in granted[request.key][
            bisect_left(times, request.sent_ns) : bisect_right(times, request.answered_ns)
        ]:
            other = hold.request
            behind = (
                other.order > request.order if other.session == request.session else other.sent_ns > read_ns
            )
            if (
                behind
                and hold.from_ns < due_ns
                and history.nodes.get(other.session) == node
                and not history.may_have_held(request, request.sent_ns, hold.from_ns)
            ):
                raise Violation("nobody is passed over", f"{request!r}, but {hold!r}")
