"""Releases, extensions and cancels that a client has no business to send: each is answered `N` and ends nothing."""

from __future__ import annotations

from random import Random

from tests.sim.history import History, Request
from ticketing.protocol import frames

RECENT = 20
NEVER_GIVEN = 1 << 61
"""Above every token of a run."""


def draw_mistake(rng: Random, history: History) -> tuple[str, bytes, int] | None:
    """What is asked, of which key, under which owner or token: an owner that was refused, the token of another key,
    one that was never given.
    """
    if not history.requests:
        return None
    known = rng.choice(history.requests[-RECENT:])
    if known.op in "AQ" and known.answer in ("T", "B", "V"):
        return "C", known.key, known.ident
    token = NEVER_GIVEN + rng.randrange(1 << 32)
    if history.holds and rng.random() < 0.5:
        token = rng.choice(history.holds[-RECENT:]).token
    op = rng.choice("RX")
    for request in reversed(history.requests[-RECENT:]):
        if not any(hold.token == token and hold.key == request.key for hold in history.holds):
            return op, request.key, token
    return None


def encode_mistake(request: Request) -> tuple[str, bytes]:
    """The kind of its answer, and its frame."""
    if request.op == "C":
        return "cancel", frames.encode_cancel(request.ident, request.key)
    if request.op == "X":
        return "extend", frames.encode_extend(request.ident, request.lease, request.key)
    return "release", frames.encode_release(request.ident, request.key)
