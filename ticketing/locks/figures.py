"""What operators see of the desk: counters and the queue of a key."""

from __future__ import annotations

from typing import NamedTuple

COUNTERS = (
    "granted",  # of a free key
    "handed_over",
    "released",
    "extended",
    "expired",
    "revoked",
    "cancelled",
    "undeliverable",  # released because no session was left to tell
    "void",  # granted, and ended again before it could be answered
    "taken_over",
    "resent",
    "timeout",
    "not_free",
    "cancelled_waiting",
    "cancelled_owner",
    "not_held",
    "busy_range",
    "busy_clock",
    "busy_session",
    "busy_key",
    "busy_waiters",
    "busy_keys",
    "dropped",  # waiting when their session ended
    "not_leading",
    "sessions_closed",  # by their peers or by us
    "sessions_timed_out",
)


def new_counters() -> dict[str, int]:
    """All counters at 0."""
    return dict.fromkeys(COUNTERS, 0)


class WaiterView(NamedTuple):
    """One request in a queue."""

    owner: int
    name: str
    source: str
    since_ns: int
    """The elapsed clock when it was read."""
    due_ns: int
    """When its wait is over."""
    lease: int


class KeyView(NamedTuple):
    """A key as the leader sees it."""

    key: bytes
    token: int
    """0: nobody holds it."""
    owner: int
    name: str
    lease: int
    granted_wall_ms: int
    due_ns: int
    """When the lease is over by this leader's elapsed clock."""
    in_flight: bool
    waiting: int
    queue: tuple[WaiterView, ...]
    """The first of those that wait, in their order."""


class QueuePage(NamedTuple):
    """Some of a key's queue, in order."""

    queue: tuple[WaiterView, ...]
    more: bool
    """Somebody waits behind the last one."""


class QueueView(NamedTuple):
    """A key by how many wait for it."""

    key: bytes
    waiting: int
    since_ns: int
    """When the request at its head was read."""
