"""Whether the answers to releases, extensions and cancels are facts: `R` and `X` say that it was held, `N` that it was
not, or not any more.

All of it holds whatever the clocks do, but that a lease has not ended yet.
"""

from __future__ import annotations

from itertools import groupby

from tests.sim.history_facts import LOST, SURE, Facts, Hold, Request
from tests.sim.world import S, Violation

REFUSED = ("T", "B", "V")


class _Asked:
    """The requests of a history, by what an answer to an ending can rest on."""

    __slots__ = ("acquires", "cancels", "holds", "keys", "lost", "releases")

    def __init__(self, history: Facts) -> None:
        self.acquires: dict[tuple[int, bytes], list[Request]] = {}
        """By owner and key, as `cancels`."""
        self.cancels: dict[tuple[int, bytes], list[Request]] = {}
        self.releases: dict[tuple[int, bytes], list[Request]] = {}
        """By token and key, as `holds`."""
        self.holds: dict[tuple[int, bytes], Hold] = {}
        self.keys: dict[int, bytes] = {}
        """By token: what it was granted for."""
        self.lost: dict[bytes, int] = {}
        """By key: when the first acquire was sent that nobody knows the answer of."""
        for request in history.requests:
            place = (request.ident, request.key)
            if request.op in "AQ":
                self.acquires.setdefault(place, []).append(request)
                if request.answer in (None, LOST):
                    self.lost.setdefault(request.key, request.first_ns)
            elif request.op == "C":
                self.cancels.setdefault(place, []).append(request)
            elif request.op == "R":
                self.releases.setdefault(place, []).append(request)
        for hold in history.holds:
            self.holds[hold.token, hold.key] = hold
            self.keys.setdefault(hold.token, hold.key)


def endings_are_facts(history: Facts) -> None:
    """`R` and `X` imply that it was held; each ownership ends once, before the next one begins."""
    asked = _Asked(history)
    later_grants = _later_grants(history)
    released: dict[tuple[int, bytes], Request] = {}
    ended_owners: dict[tuple[int, bytes], Request] = {}
    for request in history.requests:
        answer = request.answer
        if request.op == "C":
            _check_cancel(request, asked, ended_owners)
            acquires = asked.acquires.get((request.ident, request.key), ())
            # Where the owner asked more than once nobody knows which of them the cancel has met.
            if answer != "R" or len(acquires) != 1 or acquires[0].answer not in ("A", "G"):
                continue
            token = acquires[0].token
        elif request.op in ("R", "X") and answer == request.op:
            token = request.ident
        else:
            continue
        hold = asked.holds.get((token, request.key))
        if hold is None:
            _check_untold(request, asked)
        else:
            _check_still_held(history, request, hold, later_grants)
        former = released.get((token, request.key))
        if answer == "R":
            if former is not None:
                raise Violation("R twice", f"{former!r} and {request!r}")
            released[token, request.key] = request
        elif former is not None and former.answered_ns < request.sent_ns:
            raise Violation("X after its release", f"{former!r}, then {request!r}")


def _check_untold(request: Request, asked: _Asked) -> None:
    """No client was told of this token, for this key. It can be that of a grant whose answer was lost."""
    lost_ns = asked.lost.get(request.key)
    if request.ident in asked.keys or lost_ns is None or lost_ns > request.answered_ns:
        raise Violation(f"{request.answer} of what was never held", f"{request!r}")


def _check_still_held(
    history: Facts, request: Request, hold: Hold, later_grants: dict[tuple[bytes, int], Hold]
) -> None:
    formed_ns = history.formed_after(hold.token)
    if formed_ns is not None and formed_ns < request.sent_ns:
        raise Violation("a ticket of a former domain", f"{request!r}, but {hold!r}")
    later = later_grants.get((hold.key, hold.token))
    if later is not None and later.from_ns < request.sent_ns:
        raise Violation(f"{request.answer} after the next grant", f"{request!r}, but {later!r}")


def _check_cancel(request: Request, asked: _Asked, ended: dict[tuple[int, bytes], Request]) -> None:
    """`R` to a `C` says that its owner waited or held, `N` that it did neither; afterwards it does neither any more."""
    place = (request.ident, request.key)
    acquires = asked.acquires.get(place, [])
    if request.answer == "N":
        for acquire in acquires:
            taken_out = acquire.answer == "R" and acquire.answered_ns == request.answered_ns
            if taken_out and acquire.session == request.session:
                raise Violation("N although it waits", f"{request!r}, but {acquire!r}")
    if request.answer != "R":
        return
    if all(
        acquire.sent_ns > request.answered_ns
        or (acquire.answer in REFUSED and acquire.answered_ns < request.sent_ns)
        for acquire in acquires
    ):
        raise Violation("R of what was never held", f"{request!r}")
    former = ended.setdefault(place, request)
    if len(acquires) == 1 and former.answered_ns < request.sent_ns:
        raise Violation("R twice", f"{former!r} and {request!r}")


def _later_grants(history: Facts) -> dict[tuple[bytes, int], Hold]:
    """By key and token: of the grants of that key with a higher one, that which was read first."""
    found: dict[tuple[bytes, int], Hold] = {}
    for key, holds in history.of_key().items():
        first: Hold | None = None
        for token, same in groupby(reversed(holds), key=lambda hold: hold.token):
            if first is not None:
                found[key, token] = first
            for hold in same:
                if first is None or hold.from_ns < first.from_ns:
                    first = hold
    return found


def not_held_is_a_fact(history: Facts) -> None:
    """`N` to a release, an extension or a cancel: neither while the lease runs and nobody has ended it."""
    asked = _Asked(history)
    held_by: dict[tuple[int, bytes], list[Hold]] = {}
    for hold in history.holds:
        held_by.setdefault((hold.request.ident, hold.key), []).append(hold)
    for request in history.requests:
        if request.answer != "N":
            continue
        place = (request.ident, request.key)
        if request.op == "C":
            for hold in held_by.get(place, ()):
                if hold.request.sent_ns <= request.answered_ns and not _formed_since(history, hold, request):
                    _check_not_held(history, request, hold, asked)
        elif place in asked.holds:
            _check_not_held(history, request, asked.holds[place], asked)


def _formed_since(history: Facts, hold: Hold, request: Request) -> bool:
    """Whether the domain of this hold is younger than the request: it was answered in another one."""
    formed = [formed_ns for first_token, formed_ns in history.domains if first_token <= hold.token]
    return bool(formed) and formed[-1] > request.sent_ns


def _check_not_held(history: Facts, request: Request, hold: Hold, asked: _Asked) -> None:
    grant = hold.request
    for ended_ns in (history.formed_after(hold.token), history.revoked.get(hold.token)):
        if ended_ns is not None and ended_ns < request.answered_ns:
            return
    if request.answered_ns >= grant.first_ns + grant.lease * S * SURE // 1000:
        return
    endings = (
        *asked.cancels.get((grant.ident, grant.key), ()),
        *asked.releases.get((hold.token, hold.key), ()),
    )
    if any(other is not request and other.sent_ns < request.answered_ns for other in endings):
        return
    raise Violation("N although held", f"{request!r}, but {hold!r}")
