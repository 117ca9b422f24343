"""What clients saw, and whether it can have been the service that was promised (spec 1).

The checker knows nothing of nodes, logs or leaders: only what was sent and received when, in true time, what a client
may conclude from its own clock (spec 10, Conservative end), and what the rig says beside that (`history_facts`). Each
rule is one function, so that a finding has a name. It judges the simulator's runs and, over hours and millions of
requests, those of `tests/chaos`: no rule compares every request of a key with every other.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.sim.history_endings import endings_are_facts, not_held_is_a_fact
from tests.sim.history_facts import LOST, SURE, Facts, Hold, Request, first_cancels
from tests.sim.history_leases import leases_end, not_free_is_a_fact
from tests.sim.history_queue import first_come_first_served, nobody_is_passed_over
from tests.sim.world import MS, S, Violation

__all__ = ["LOST", "History", "Hold", "Request"]


class History(Facts):
    """Everything that all clients of a run saw, and its judge."""

    def check(self, *, rates_hold: bool = True) -> None:
        """Raises `Violation` for the first rule that was broken. Beyond rho nothing is promised of time."""
        for rule in (*TIMED_RULES, *RULES) if rates_hold else RULES:
            rule(self)


def one_holder(history: Facts) -> None:
    """No two overlapping valid holds of one key, and of those that follow each other the later has the higher token."""
    for holds in history.of_key().values():
        domains: dict[int | None, list[Hold]] = {}
        for hold in holds:
            if hold.from_ns < history.end_ns(hold):
                domain = history.formed_after(hold.token) if history.apart else None
                domains.setdefault(domain, []).append(hold)
        for valid in domains.values():
            _held_in_turn(history, sorted(valid, key=lambda hold: hold.from_ns))


def _held_in_turn(history: Facts, valid: list[Hold]) -> None:
    latest: Hold | None = None
    highest: Hold | None = None
    for hold in valid:
        if latest is not None and hold.from_ns < history.end_ns(latest) and hold.token != latest.token:
            raise Violation("one holder", f"{latest!r} and {hold!r}")
        if latest is None or history.end_ns(hold) > history.end_ns(latest):
            latest = hold
        # Each held the key when its grant was read: what was read later had been granted later.
        if highest is not None and hold.token < highest.token:
            raise Violation("tokens rise", f"{highest!r}, then {hold!r}")
        highest = hold


def tokens_rise(history: Facts) -> None:
    """Tokens are given once, and rise with real time: whoever asked after one was seen has a higher one."""
    seen: dict[int, Hold] = {}
    for hold in history.holds:
        other = seen.get(hold.token)
        if other is not None and (other.key, other.request.ident) != (hold.key, hold.request.ident):
            raise Violation("a token once", f"{other!r} and {hold!r}")
        seen[hold.token] = hold
    read: list[tuple[int, int, Hold | Request]] = [(hold.from_ns, hold.token, hold) for hold in history.holds]
    read += [
        (request.answered_ns, request.ident, request)
        for request in history.requests
        if request.op in ("R", "X") and request.answer == request.op and request.ident not in seen
    ]
    read.sort(key=lambda one: one[0])
    position = 0
    highest: tuple[int, int, Hold | Request] | None = None
    for hold in sorted(history.holds, key=lambda hold: hold.request.first_ns):
        while position < len(read) and read[position][0] < hold.request.first_ns:
            if highest is None or read[position][1] > highest[1]:
                highest = read[position]
            position += 1
        if highest is not None and hold.token < highest[1]:
            raise Violation("tokens rise", f"{highest[2]!r}, then {hold!r}")


def waited_is_possible(history: Facts) -> None:
    """What `G` says of the wait cannot exceed what passed at the client (spec 10)."""
    for request in history.requests:
        if request.answer == "G":
            passed_ns = request.answered_ns - request.sent_ns
            if request.waited_ms * MS > passed_ns * 1003 // 1000 + 2 * MS:
                raise Violation("waited", f"{request.waited_ms} ms: {request!r}")


def _in_range(request: Request) -> bool:
    return request.wait <= 255 and 1 <= request.lease <= 250


def waits_last(history: Facts) -> None:
    """`T` of an acquire with a wait comes when its wait is over, not before, unless it was cancelled."""
    cancelled = first_cancels(history)
    for request in history.requests:
        if request.answer != "T" or request.op not in "AQ" or not request.wait or not _in_range(request):
            continue
        if request.answered_ns - request.sent_ns >= request.wait * S * SURE // 1000:
            continue
        at_ns = cancelled.get((request.ident, request.key))
        if (at_ns is None or at_ns > request.answered_ns) and not history.may_have_held(
            request, request.first_ns, request.answered_ns
        ):
            passed_ns = request.answered_ns - request.sent_ns
            raise Violation("T too early", f"{passed_ns / S:.3f} s: {request!r}")


def refusals_have_a_reason(history: Facts) -> None:
    """`B`: a bound is met; the clocks are unproven, for a request that cannot wait for them; for an `A`, no lead."""
    if not history.bounds_are_wide:
        return
    serving = history.serving
    for request in history.requests:
        if request.answer != "B" or not _in_range(request):
            continue
        if request.op == "Q" and request.wait:
            raise Violation("B without a bound", f"{request!r}")
        node = history.nodes.get(request.session)
        if serving is None or node is None or request.op not in "AQ":
            continue
        led = serving.led_throughout(node, request.sent_ns, request.answered_ns)
        if request.wait:
            reason = not led
        else:
            reason = (request.op == "A" and not led) or not serving.gate_was_open(
                node, request.sent_ns, request.answered_ns
            )
        if not reason:
            raise Violation("B without a bound", f"{request!r}")


def cancelled_get_nothing(history: Facts) -> None:
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


TIMED_RULES: tuple[Callable[[Facts], None], ...] = (
    one_holder,
    waited_is_possible,
    waits_last,
    not_held_is_a_fact,
    nobody_is_passed_over,
    leases_end,
)
RULES: tuple[Callable[[Facts], None], ...] = (
    tokens_rise,
    refusals_have_a_reason,
    endings_are_facts,
    not_free_is_a_fact,
    first_come_first_served,
    cancelled_get_nothing,
)
