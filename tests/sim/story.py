"""Histories made by hand, for the tests of the checker."""

from __future__ import annotations

import pytest

from tests.sim.history import History, Hold, Request
from tests.sim.history_serving import Serving, Stretch
from tests.sim.world import S, Violation

KEY = b"seat"
NODE = "node-1:5225"
T0 = 100 * S


class Story:
    """A history told in seconds after its beginning."""

    def __init__(self) -> None:
        self.history = History()
        self._owner = 1 << 63

    def asks(
        self, at: float, *, wait: int = 5, lease: int = 10, session: int = 1, key: bytes = KEY, op: str = "Q"
    ) -> Request:
        self._owner += 1
        request = Request(op, key, self._owner, session, ns_at(at), wait=wait, lease=lease)
        self.history.add(request)
        return request

    def answered(self, request: Request, at: float, answer: str) -> Request:
        request.answer, request.answered_ns = answer, ns_at(at)
        self.history.was_read(request, ns_at(at))
        return request

    def granted(self, request: Request, at: float, token: int, *, waited_ms: int = 0) -> Hold:
        self.answered(request, at, "G")
        request.token, request.waited_ms = token, waited_ms
        hold = Hold(request, token, ns_at(at), request.sent_ns + request.lease * S * 998 // 1000)
        self.history.holds.append(hold)
        return hold

    def says(self, op: str, hold: Hold, at: float, answer: str, took: float = 0.1) -> Request:
        ident = hold.request.ident if op == "C" else hold.token
        request = Request(op, hold.key, ident, hold.request.session, ns_at(at))
        if op in "RC" and hold.released_ns is None:
            hold.released_ns = ns_at(at)
        self.history.add(request)
        return self.answered(request, at + took, answer)

    def forges(self, op: str, token: int, at: float, answer: str, *, key: bytes = KEY) -> None:
        """A release or extension of a token that this client was never told of, for that key."""
        request = Request(op, key, token, 1, ns_at(at), lease=1)
        self.history.add(request)
        self.answered(request, at + 0.1, answer)

    def cancels(self, acquire: Request, at: float, answer: str, *, session: int = 1) -> Request:
        request = Request("C", acquire.key, acquire.ident, session, ns_at(at))
        self.history.add(request)
        return self.answered(request, at + 0.1, answer)

    def served(self, since: float, until: float, *, node: str = NODE, lead: int = 1, **state: bool) -> None:
        if self.history.serving is None:
            self.history.serving = Serving(1 * S)
            self.history.stale_ns = 1 * S
        ends, gate = state.get("ends", True), state.get("gate", True)
        self.history.serving.add(node, Stretch(lead, ns_at(since), ns_at(until), ends=ends, gate=gate))
        self.history.nodes = dict.fromkeys(range(1, 9), NODE)

    def breaks(self, rule: str) -> None:
        with pytest.raises(Violation) as caught:
            self.history.check()
        assert caught.value.rule == rule


def ns_at(at: float) -> int:
    return T0 + int(at * S)
