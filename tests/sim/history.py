"""What clients saw, and whether it can have been the service that was promised (spec 1).

The checker knows nothing of nodes, logs or leaders: only what was sent and received when, in true time, and what a
client may conclude from its own clock (spec 10, Conservative end). Each rule is one function, so that a finding has
a name. It judges the simulator's runs and, over hours and millions of requests, those of `tests/chaos`: no rule
compares every request of a key with every other.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from itertools import accumulate, groupby

from tests.sim.world import MS, S, Violation

SURE = 997
"""Per mille of a lease that has passed at least where the node's clock shows all of it: both clocks within rho."""

LOST = "lost"
"""In place of an answer: the session ended first."""


class Request:
    """One request of one client, and what became of it."""

    __slots__ = (
        "answer",
        "answered_ns",
        "clock_ns",
        "first_ns",
        "ident",
        "key",
        "lease",
        "op",
        "order",
        "sent_ns",
        "session",
        "token",
        "wait",
        "waited_ms",
    )

    def __init__(
        self, op: str, key: bytes, ident: int, session: int, sent_ns: int, *, wait: int = 0, lease: int = 0
    ) -> None:
        self.op = op
        """`A`, `Q`, `R`, `X` or `C`."""
        self.key = key
        self.ident = ident
        """The owner of an `A`, `Q` or `C`, the token of an `R` or `X`."""
        self.session = session
        self.sent_ns = sent_ns
        self.first_ns = sent_ns
        """When it was sent for the first time, where this is a copy of one that got no answer."""
        self.order = -1
        """Its place among all requests of the history: on one session they were sent in this order."""
        self.wait = wait
        self.lease = lease
        self.clock_ns = 0
        """The client's own clock before its first byte could leave."""
        self.answer: str | None = None
        self.answered_ns = 0
        self.token = 0
        self.waited_ms = 0

    def __repr__(self) -> str:
        return (
            f"{self.op} {self.key.decode()} {self.ident:x} wait={self.wait} lease={self.lease}"
            f" session={self.session} sent={self.sent_ns / S:.6f}"
            f" -> {self.answer} {self.token or ''} at {self.answered_ns / S:.6f}"
        )


class Hold:
    """One ownership as its holder sees it."""

    __slots__ = ("from_ns", "key", "released_ns", "request", "token", "until_ns")

    def __init__(self, request: Request, token: int, from_ns: int, until_ns: int) -> None:
        self.request = request
        self.key = request.key
        self.token = token
        self.from_ns = from_ns
        self.until_ns = until_ns
        """The conservative end, in true time; later where it was extended."""
        self.released_ns: int | None = None
        """When its release, or the cancel of its owner, was invoked."""

    @property
    def end_ns(self) -> int:
        """Until when the holder could rely on it."""
        return self.until_ns if self.released_ns is None else min(self.until_ns, self.released_ns)

    def __repr__(self) -> str:
        released = "" if self.released_ns is None else f" released {self.released_ns / S:.6f}"
        return (
            f"token {self.token} of {self.key.decode()} {self.from_ns / S:.6f}..{self.until_ns / S:.6f}{released}"
            f" by {self.request!r}"
        )


class History:
    """Everything that all clients of a run saw."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.holds: list[Hold] = []
        self.ended_sessions: dict[int, int] = {}
        """Session to when its client saw the end of it."""
        self.read_upto: dict[int, list[tuple[int, int]]] = {}
        """By session: (at, order): at that time it was clear that all up to this request had been read."""
        self.bounds_are_wide = True
        """No limit of the nodes was so low that these clients could meet it."""
        self.stale_ns = 2 * S
        """A leader that a majority has left may say so much later that a key is not free: `T` promises no more than
        that nothing was acquired.
        """
        self.domains: list[tuple[int, int]] = []
        """First token, and when it formed, of each domain, in order."""
        self.apart = False
        """Domains followed each other without the wait between them: only within each one is a key held once."""
        self.revoked: dict[int, int] = {}
        """By token: when an operator began to end its ownership."""
        self.on_cancel_answered: Callable[[int, bytes], None] = lambda _owner, _key: None
        """Called when a client reads the answer to a `C`."""

    def add(self, request: Request) -> None:
        """A request is sent; those of one session in the order in which they are written."""
        request.order = len(self.requests)
        self.requests.append(request)

    def was_read(self, request: Request, at_ns: int) -> None:
        """Its answer was seen on its session. What is written behind it at the same moment may be read later."""
        self.read_upto.setdefault(request.session, []).append((at_ns, request.order))

    def check(self, *, rates_hold: bool = True) -> None:
        """Raises `Violation` for the first rule that was broken. Beyond rho nothing is promised of time."""
        for rule in (*TIMED_RULES, *RULES) if rates_hold else RULES:
            rule(self)

    def end_ns(self, hold: Hold) -> int:
        """Until when it was a hold for its holder and the operators."""
        return min(hold.end_ns, self.revoked.get(hold.token, hold.end_ns))

    def formed_after(self, token: int) -> int | None:
        """When a domain after the one that this token is of had formed."""
        return next((formed_ns for first_token, formed_ns in self.domains if first_token > token), None)

    def of_key(self) -> dict[bytes, list[Hold]]:
        """The holds of each key in token order."""
        keys: dict[bytes, list[Hold]] = {}
        for hold in sorted(self.holds, key=lambda hold: hold.token):
            keys.setdefault(hold.key, []).append(hold)
        return keys


def one_holder(history: History) -> None:
    """No two overlapping valid holds of one key."""
    for holds in history.of_key().values():
        domains: dict[int | None, list[Hold]] = {}
        for hold in holds:
            if hold.from_ns < history.end_ns(hold):
                domain = history.formed_after(hold.token) if history.apart else None
                domains.setdefault(domain, []).append(hold)
        for valid in domains.values():
            _held_in_turn(history, sorted(valid, key=lambda hold: hold.from_ns))


def _held_in_turn(history: History, valid: list[Hold]) -> None:
    latest: Hold | None = None
    for hold in valid:
        if latest is not None and hold.from_ns < history.end_ns(latest) and hold.token != latest.token:
            raise Violation("one holder", f"{latest!r} and {hold!r}")
        if latest is None or history.end_ns(hold) > history.end_ns(latest):
            latest = hold


def tokens_rise(history: History) -> None:
    """Tokens are given once, and rise with real time: whoever asked after a grant was read has a higher one."""
    seen: dict[int, Hold] = {}
    for hold in history.holds:
        other = seen.get(hold.token)
        if other is not None and (other.key, other.request.ident) != (hold.key, hold.request.ident):
            raise Violation("a token once", f"{other!r} and {hold!r}")
        seen[hold.token] = hold
    read = sorted(history.holds, key=lambda hold: hold.from_ns)
    position = 0
    highest: Hold | None = None
    for hold in sorted(history.holds, key=lambda hold: hold.request.first_ns):
        while position < len(read) and read[position].from_ns < hold.request.first_ns:
            if highest is None or read[position].token > highest.token:
                highest = read[position]
            position += 1
        if highest is not None and hold.token < highest.token:
            raise Violation("tokens rise", f"{highest!r}, then {hold!r}")


def waited_is_possible(history: History) -> None:
    """What `G` says of the wait cannot exceed what passed at the client (spec 10)."""
    for request in history.requests:
        if request.answer == "G":
            passed_ns = request.answered_ns - request.sent_ns
            if request.waited_ms * MS > passed_ns * 1003 // 1000 + 2 * MS:
                raise Violation("waited", f"{request.waited_ms} ms: {request!r}")


def _cancels(history: History) -> dict[tuple[int, bytes], int]:
    """When each (owner, key) was first cancelled."""
    found: dict[tuple[int, bytes], int] = {}
    for request in history.requests:
        if request.op == "C":
            found.setdefault((request.ident, request.key), request.sent_ns)
    return found


def refusals_are_facts(history: History) -> None:
    """`T` and `B` of an acquire with a wait: not before its wait was over, nor for no reason."""
    cancelled = {owner: at for (owner, _key), at in reversed(_cancels(history).items())}
    for request in history.requests:
        if request.op not in "AQ" or not request.wait or not 1 <= request.lease <= 250 or request.wait > 255:
            continue
        passed_ns = request.answered_ns - request.first_ns
        at = cancelled.get(request.ident)
        if request.answer == "T" and (at is None or at > request.answered_ns):
            # A grant whose lease ran out before it could be answered is answered `T` as well (spec 4).
            least = min(request.wait, request.lease)
            if passed_ns < least * S * SURE // 1000:
                raise Violation("T too early", f"{passed_ns / S:.3f} s: {request!r}")
        if request.answer == "B" and request.op == "Q" and history.bounds_are_wide:
            raise Violation("B without a bound", f"{request!r}")


def not_free_is_a_fact(history: History) -> None:
    """`T` at once says that somebody else had, or was about to have, the key."""
    others: dict[bytes, list[tuple[int, int, Request]]] = {}
    released: dict[int, int] = {}
    for request in history.requests:
        if request.op == "R" and request.answer in ("R", "N"):
            released.setdefault(request.ident, request.answered_ns + history.stale_ns)
    cancels = _cancels(history)
    for request in history.requests:
        if request.op in "AQ":
            # Whoever was granted may hold to the end of its lease, be it never told; more than that is a dead leader.
            until = request.sent_ns + (request.wait + request.lease + 60) * S
            if request.answer in ("T", "B", "V"):
                until = request.answered_ns  # until then it may have waited
            elif request.answer in ("A", "G"):
                until = min(until, released.get(request.token, until))
            others.setdefault(request.key, []).append((request.sent_ns, until, request))
    ranked = {key: _Rivals(rivals) for key, rivals in others.items()}
    for request in history.requests:
        if request.answer != "T" or request.wait or (request.ident, request.key) in cancels:
            continue
        if not ranked[request.key].may_hold(request):
            raise Violation("T without a holder", f"{request!r}")


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

    def may_hold(self, request: Request) -> bool:
        """Whether somebody else can have had the key, or been about to, while this request was under way."""
        before = bisect_left(self._sent, request.answered_ns)
        found = self._longest[before - 1] if before else ()
        return any(until > request.sent_ns and rival is not request for until, rival in found)


def endings_are_facts(history: History) -> None:
    """`R` implies that it was held, `N` that it was not (any more), `X` that it still was."""
    holds = {hold.token: hold for hold in history.holds}
    later_grants = _later_grants(history)
    cancels = _cancels(history)
    first_release: dict[int, Request] = {}
    released: dict[int, Request] = {}
    for request in history.requests:
        if request.op == "R":
            first_release.setdefault(request.ident, request)
    for request in history.requests:
        if request.op not in "RX" or request.answer in (None, LOST):
            continue
        hold = holds.get(request.ident)
        if request.answer == "N":
            if hold is not None and request.key == hold.key:
                _check_not_held(history, request, hold, cancels, first_release)
            continue
        if hold is None or hold.key != request.key:
            continue  # a token out of thin air, or one that another life of the client was given
        formed_ns = history.formed_after(hold.token)
        if formed_ns is not None and formed_ns < request.sent_ns:
            raise Violation("a ticket of a former domain", f"{request!r}, but {hold!r}")
        later = later_grants.get((hold.key, hold.token))
        if later is not None and later.from_ns < request.sent_ns:
            raise Violation(f"{request.answer} after the next grant", f"{request!r}, but {later!r}")
        if request.op == "R":
            if request.ident in released:
                raise Violation("R twice", f"{released[request.ident]!r} and {request!r}")
            released[request.ident] = request


def _later_grants(history: History) -> dict[tuple[bytes, int], Hold]:
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


def _check_not_held(
    history: History,
    request: Request,
    hold: Hold,
    cancels: dict[tuple[int, bytes], int],
    first_release: dict[int, Request],
) -> None:
    grant = hold.request
    for ended_ns in (history.formed_after(hold.token), history.revoked.get(hold.token)):
        if ended_ns is not None and ended_ns < request.answered_ns:
            return
    earliest_end = grant.first_ns + grant.lease * S * SURE // 1000
    if request.answered_ns >= earliest_end:
        return
    cancelled = cancels.get((grant.ident, grant.key))
    if cancelled is not None and cancelled < request.answered_ns:
        return
    released = first_release.get(hold.token)
    if released is not None and released is not request and released.sent_ns < request.answered_ns:
        return
    raise Violation("N although held", f"{request!r}, but {hold!r}")


def first_come_first_served(history: History) -> None:
    """Among granted requests for one key, sent to one node on sessions that lived, the earlier was granted first.

    Earlier is what a client can know: on the same session, or surely read before the other was sent.
    """
    granted: dict[bytes, list[Hold]] = {}
    for hold in history.holds:
        request = hold.request
        asked_once = request.first_ns == request.sent_ns
        if request.wait and asked_once and request.session not in history.ended_sessions:
            granted.setdefault(hold.key, []).append(hold)
    surely_read = _Reading(history)
    for holds in granted.values():
        holds.sort(key=lambda hold: (hold.request.sent_ns, hold.request.order))
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


class _Reading:
    """When it was clear that what had been sent on a session was read."""

    def __init__(self, history: History) -> None:
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


def cancelled_get_nothing(history: History) -> None:
    """A late copy of a request is granted nothing once its owner's cancel was answered (spec 3, `C`).

    Not where the cancel came on the session that carried the request: there is no other copy then.
    """
    carried: dict[int, int] = {}
    answered: dict[int, int] = {}
    for request in history.requests:
        if request.op in "AQ":
            carried.setdefault(request.ident, request.session)
        elif (
            request.op == "C"
            and request.answer in ("R", "N")
            and carried.get(request.ident, request.session) != request.session
        ):
            answered.setdefault(request.ident, request.answered_ns)
    for request in history.requests:
        cancelled_ns = answered.get(request.ident)
        if cancelled_ns is None or cancelled_ns > request.sent_ns:
            continue
        if request.op in "AQ" and request.answer in ("A", "G"):
            if cancelled_ns < max(
                (formed for first, formed in history.domains if first <= request.token), default=0
            ):
                continue  # in a former domain: the next one knows nothing of it
            raise Violation("a cancelled owner gets nothing", f"{request!r}")


TIMED_RULES: tuple[Callable[[History], None], ...] = (
    one_holder,
    waited_is_possible,
    refusals_are_facts,
    endings_are_facts,
)
RULES: tuple[Callable[[History], None], ...] = (
    tokens_rise,
    not_free_is_a_fact,
    first_come_first_served,
    cancelled_get_nothing,
)
