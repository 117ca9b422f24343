"""Reading the desk for lists and the dashboard: bounded work, nothing kept for it but the order by length."""

from __future__ import annotations

from itertools import islice

from ticketing.locks.figures import KeyView, QueuePage, QueueView, WaiterView
from ticketing.locks.held import Held
from ticketing.locks.keystate import KeyState
from ticketing.locks.waiting import Waiter, Waiters

EXAMINED_MAX = 2_000


def key_view(held: Held | None, state: KeyState | None, limit: int) -> KeyView | None:
    """One key: who holds it and the first `limit` of those that wait."""
    if held is None and state is None:
        return None
    queue: list[WaiterView] = []
    waiter = state.first if state is not None else None
    while waiter is not None and len(queue) < limit:
        queue.append(_view(waiter))
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


def queue_page(
    waiters: Waiters, state: KeyState | None, after: tuple[int, int] | None, limit: int
) -> QueuePage:
    """At most `limit` of a queue, from its front, or behind the one that `after` names (time of reading, owner).

    Where that one has left meanwhile, from whoever was read at the same moment on: nobody is left out, and some may
    come twice. The queue is then walked, which for the longest one takes some milliseconds.
    """
    waiter = None if state is None else state.first
    if after is not None and state is not None:
        read_ns, owner = after
        last = waiters.by_owner.get(owner)
        if isinstance(last, Waiter) and last.state is state and last.wait and last.read_ns == read_ns:
            waiter = last.behind
        else:
            while waiter is not None and waiter.read_ns < read_ns:
                waiter = waiter.behind
    queue: list[WaiterView] = []
    while waiter is not None and len(queue) < limit:
        queue.append(_view(waiter))
        waiter = waiter.behind
    return QueuePage(tuple(queue), waiter is not None)


def _view(waiter: Waiter) -> WaiterView:
    session = waiter.session
    return WaiterView(waiter.owner, session.name, session.source, waiter.read_ns, waiter.due_ns, waiter.lease)


def longest_queue(waiters: Waiters) -> int:
    """The most that wait for one key."""
    for states in reversed(waiters.by_length):
        if states:
            return max(state.waiting for state in islice(states, EXAMINED_MAX))
    return 0


def longest_queues(waiters: Waiters, limit: int) -> list[QueueView]:
    """Keys by how many wait, longest first, then by key.

    Keys are kept by the bit length of their count. Of one such class at most 2,000 are looked at: where more
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
