"""Reading the desk for lists and the dashboard: bounded work, nothing kept for it but the order by length."""

from __future__ import annotations

from itertools import islice

from ticketing.locks.figures import KeyView, QueueView, WaiterView
from ticketing.locks.held import Held
from ticketing.locks.keystate import KeyState
from ticketing.locks.waiting import Waiters

EXAMINED_MAX = 5_000


def key_view(held: Held | None, state: KeyState | None, limit: int) -> KeyView | None:
    """One key: who holds it and the first `limit` of those that wait."""
    if held is None and state is None:
        return None
    queue: list[WaiterView] = []
    waiter = state.first if state is not None else None
    while waiter is not None and len(queue) < limit:
        session = waiter.session
        queue.append(
            WaiterView(
                waiter.owner, session.name, session.source, waiter.read_ns, waiter.due_ns, waiter.lease
            )
        )
        waiter = waiter.behind
    in_flight = state is not None and state.flight != 0
    waiting = state.waiting if state is not None else 0
    if held is None:
        assert state is not None
        return KeyView(state.key, 0, 0, "", 0, 0, 0, in_flight, waiting, tuple(queue))
    return KeyView(
        held.key,
        held.token,
        held.owner,
        held.name,
        held.lease,
        held.granted_wall_ms,
        held.due_ns,
        in_flight,
        waiting,
        tuple(queue),
    )


def longest_queues(waiters: Waiters, limit: int) -> list[QueueView]:
    """Keys by how many wait, longest first, then by key.

    Keys are kept by the bit length of their count. Of one such class at most 5,000 are looked at: where more
    keys have queues of about the same length, which of them are shown is the order of their growing.
    """
    found: list[QueueView] = []
    for states in reversed(waiters.by_length):
        for state in islice(states, EXAMINED_MAX):
            first = state.first
            assert first is not None
            found.append(QueueView(state.key, state.waiting, first.read_ns))
        if len(found) >= limit:
            break
    found.sort(key=lambda view: (-view.waiting, view.key))
    return found[:limit]
