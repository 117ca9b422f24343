"""The lists of waiters: what enters leaves all of them, and deadlines come in their order."""

from __future__ import annotations

from random import Random

from tests.locks.desk_bench import OWNER, Client, S
from ticketing.locks.keystate import KeyState
from ticketing.locks.waiting import NEVER_NS, Waiter, Waiters
from ticketing.protocol import frames


def waiter(client: Client, owner: int, wait: int, read_ns: int) -> Waiter:
    return Waiter(client, frames.Q, wait, 10, OWNER + owner, read_ns)


def test_one_that_comes_back_to_its_queue_is_timed_out_at_its_own_time_and_holds_nobody_up() -> None:
    waiters, state, client = Waiters(), KeyState(b"k", free=False), Client("a")
    early = waiter(client, 1, 5, 0)
    late = waiter(client, 2, 5, 3 * S)
    waiters.add(state, late)
    waiters.add(state, early)
    assert waiters.next_due_ns == 5 * S
    assert waiters.overdue(5 * S, 10) == [early]
    assert waiters.overdue(8 * S, 10) == [early, late]
    waiters.remove(early)
    assert waiters.next_due_ns == 8 * S


def test_one_that_is_put_back_is_first_again() -> None:
    waiters, state, client = Waiters(), KeyState(b"k", free=False), Client("a")
    first, second = waiter(client, 1, 5, 0), waiter(client, 2, 5, 1 * S)
    waiters.add(state, first)
    waiters.add(state, second)
    waiters.remove(first)
    waiters.put_back(state, first)
    assert state.first is first
    assert first.behind is second
    assert waiters.overdue(9 * S, 10) == [first, second]


def test_who_waits_not_at_all_is_never_timed_out() -> None:
    waiters, state = Waiters(), KeyState(b"k", free=True)
    once = waiter(Client("a"), 1, 0, 0)
    waiters.add(state, once)
    assert waiters.next_due_ns == NEVER_NS
    assert waiters.overdue(1 << 61, 10) == []
    assert waiters.count == 1
    waiters.remove(once)
    assert (waiters.count, state.once) == (0, None)


def test_removing_in_any_order_keeps_every_list_whole() -> None:
    draw = Random(7)
    waiters = Waiters()
    states = [KeyState(b"k%d" % n, free=False) for n in range(3)]
    people = [Client(f"c{n}") for n in range(3)]
    present: list[Waiter] = []
    for step in range(3_000):
        if present and draw.random() < 0.5:
            waiters.remove(present.pop(draw.randrange(len(present))))
        else:
            one = waiter(draw.choice(people), draw.randint(1, 40), draw.choice((1, 2, 255)), step)
            waiters.add(draw.choice(states), one)
            present.append(one)
        assert waiters.count == len(present)
        assert waiters.next_due_ns == min((one.due_ns for one in present), default=NEVER_NS)
        if step % 50 == 0:
            check(waiters, states, people, present)


def check(waiters: Waiters, states: list[KeyState], people: list[Client], present: list[Waiter]) -> None:
    for state in states:
        mine = [one for one in present if one.state is state]
        queue = []
        one = state.first
        while one is not None:
            queue.append(one)
            one = one.behind
        assert queue == mine
        assert state.last is (mine[-1] if mine else None)
        assert state.waiting == len(mine)
    for person in people:
        mine = [one for one in present if one.session is person]
        assert waiters.some_of_session(person, 10_000) == mine
        assert waiters.of_session(person) == len(mine)
    assert sorted(waiters.some(10_000), key=id) == sorted(present, key=id)
    for owner in range(1, 41):
        assert waiters.of_owner(OWNER + owner, 100) == [one for one in present if one.owner == OWNER + owner]
    due = waiters.overdue(1 << 61, 10_000)
    assert sorted(due, key=id) == sorted(present, key=id)
    for wait in (1, 2, 255):
        times = [one.due_ns for one in due if one.wait == wait]
        assert times == sorted(times)
