"""The desk against its naive twin: the same steps, the same answers, the same proposals, nothing left behind."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.locks.desk_bench import NAMES, OWNER, ROOM, Bench, Client
from tests.locks.desk_twin import Acquire, Told, Twin
from ticketing.locks.commands import Cancel, Extend, LockCommand, Turn
from ticketing.locks.keystate import GRANT, UNMARKED
from ticketing.protocol import frames
from ticketing.protocol.decoder import ReplyDecoder

WIDE = (b"k", b"l", b"m"), 6
NARROW = (b"k",), 2
"""Keys, and how many owners: few of both make the rare meetings frequent."""
OPS = {"A": frames.ACQUIRE, "Q": frames.Q}
ROOMS = {"full": (ROOM, ROOM), "ends": (0, ROOM), "none": (0, 0)}

STEPS = {
    "acquire": 30,
    "try": 6,
    "release": 12,
    "extend": 5,
    "cancel": 9,
    "end": 6,
    "propose": 14,
    "commit": 16,
    "write": 10,
    "barrier_begun": 5,
    "barrier_passed": 5,
    "gate": 3,
    "room": 3,
    "wait": 9,
}


class Pair:
    """A desk and its twin, told the same."""

    def __init__(self, draw: Random, span: tuple[tuple[bytes, ...], int], *, legacy: bool) -> None:
        self.draw = draw
        self.keys, self.owners = span
        self.bench = Bench(legacy=legacy)
        self.twin = Twin(legacy=legacy)
        self.serial = 0
        self.clients: list[Client] = []
        self.twins: dict[str, Client] = {}
        for _ in range(4):
            self.newcomer()
        self.barriers: list[int] = []
        self.seen: dict[Client, int] = {}
        self.fresh: list[LockCommand] = []
        self.taken: list[Any] = []

    def newcomer(self) -> None:
        self.serial += 1
        client = Client(f"c{self.serial}")
        self.clients.append(client)
        self.twins[client.title] = Client(client.title)

    # --- steps

    def step(self, name: str) -> None:
        twin, bench = self.twin, self.bench
        bench.desk.room, bench.desk.reserved_room = ROOMS[twin.room]
        twin.now = bench.now
        getattr(self, f"do_{name}")()
        twin.now = bench.now
        twin.sweep()
        bench.run()
        self.compare(name)

    def compare(self, name: str) -> None:
        told = [told for client in self.clients for told in self.told(client)]
        assert sorted(told) == sorted(self.twin.told), name
        self.twin.told.clear()
        proposed = [facts(command) for command in self.fresh]
        proposed += [facts(command) for command in self.bench.desk.pending]
        untaken = [command.facts() for command in self.twin.pending]
        assert sorted(map(str, proposed)) == sorted(map(str, [*self.taken, *untaken])), name
        self.fresh = []
        self.taken = []
        check(self.bench)

    def told(self, client: Client) -> list[Told]:
        replies = list(client.replies)
        client.replies.clear()
        done = self.seen.get(client, 0)
        decoder = ReplyDecoder()
        replies += decoder.feed(b"".join(client.out[done:]))
        self.seen[client] = len(client.out)
        told = []
        for opcode, token, owner, waited, key in replies:
            letter = NAMES[opcode]
            if letter in "AG":
                letter += f"{token}/{waited}" if letter == "G" else str(token)
            told.append((client.title, letter, owner or token, key))
        return told

    def some_client(self) -> Client:
        return self.draw.choice(self.clients)

    def some_owner(self) -> int:
        return OWNER + self.draw.randint(1, self.owners)

    def acquire(self, wait: int) -> None:
        client, owner, key = self.some_client(), self.some_owner(), self.draw.choice(self.keys)
        op, lease = self.draw.choice("AQ"), self.draw.choice((2, 2, 9))
        now = self.bench.now
        self.bench.desk.acquire(client, OPS[op], wait, lease, owner, key, now)
        self.twin.acquire(Acquire(self.twins[client.title], op, wait, lease, owner, key, now))

    def do_acquire(self) -> None:
        self.acquire(self.draw.choice((1, 3, 3, 200)))

    def do_try(self) -> None:
        self.acquire(0)

    def some_token(self, key: bytes) -> int:
        held = self.bench.table.held.get(key)
        if held is not None and self.draw.random() < 0.8:
            return held.token
        return self.bench.table.next_token - self.draw.randint(-1, 4)

    def do_release(self) -> None:
        client, key = self.some_client(), self.draw.choice(self.keys)
        token = self.some_token(key)
        self.bench.desk.release(client, token, key, self.bench.now)
        self.twin.release(self.twins[client.title], token, key)

    def do_extend(self) -> None:
        client, key = self.some_client(), self.draw.choice(self.keys)
        token, lease = self.some_token(key), self.draw.choice((1, 4))
        self.bench.desk.extend(client, token, lease, key, self.bench.now)
        self.twin.extend(self.twins[client.title], token, lease, key)

    def do_cancel(self) -> None:
        client, key, owner = self.some_client(), self.draw.choice(self.keys), self.some_owner()
        if self.twin.waiting and self.draw.random() < 0.6:
            waiter = self.draw.choice(self.twin.waiting)
            owner, key = waiter.owner, waiter.key
            client = next((c for c in self.clients if c.title == waiter.session.title), client)
        self.bench.desk.cancel(client, owner, key, self.bench.now)
        self.twin.cancel(self.twins[client.title], owner, key)

    def do_end(self) -> None:
        client = self.some_client()
        self.told_before_the_end(client)
        self.bench.end(client)
        self.twin.session_ended(self.twins[client.title])
        self.seen[client] = 0
        self.clients.remove(client)
        self.newcomer()

    def told_before_the_end(self, client: Client) -> None:
        # What was answered and compared already is not told again; the end itself tells this client nothing.
        assert self.told(client) == []

    def do_propose(self) -> None:
        self.propose()

    def propose(self) -> None:
        self.taken += [command.facts() for command in self.twin.pending]
        before = len(self.twin.emitted)
        self.twin.propose()
        self.taken += self.twin.emitted[before:]
        self.twin.emitted.clear()
        commands = self.bench.desk.take_pending(self.bench.now)
        if commands:
            self.bench.log.append(commands)
            self.fresh += commands
            # In which order keys are looked at is the desk's own affair; the tokens follow from it.
            order = {facts(command): place for place, command in enumerate(commands)}
            if self.twin.log:
                self.twin.log[-1].sort(key=lambda command: order.get(command.facts(), len(order)))

    def do_commit(self) -> None:
        if self.bench.log:
            self.bench.commit()
            self.twin.commit()
            self.twin.sweep()

    def do_write(self) -> None:
        self.bench.write()
        for client in self.clients:
            # Compared before, when they were answered.
            client.replies.clear()
            self.seen[client] = 0
        self.twin.write()

    def do_barrier_begun(self) -> None:
        if self.bench.desk.barrier_wanted:
            self.serial += 1
            self.barriers.append(self.serial)
            self.bench.desk.barrier_begun(self.serial)
            self.twin.barrier_begun()

    def do_barrier_passed(self) -> None:
        if self.barriers:
            self.bench.desk.barrier_passed(self.barriers.pop(0), self.bench.now)
            self.twin.barrier_passed()

    def do_gate(self) -> None:
        self.twin.gate = self.bench.desk.gate_open = not self.twin.gate

    def do_room(self) -> None:
        self.twin.room = self.draw.choice(("full", "full", "ends", "none"))
        self.bench.desk.room, self.bench.desk.reserved_room = ROOMS[self.twin.room]

    def do_wait(self) -> None:
        self.bench.wait(self.draw.choice((0.2, 0.7, 1.0, 3.0)))

    # --- the end

    def finish(self) -> None:
        """Everybody leaves and every lease ends: nothing may be left of it."""
        self.twin.room = "full"
        self.twin.gate = self.bench.desk.gate_open = True
        while self.clients:
            self.step("end")
            self.clients.pop()
        for _ in range(40):
            self.bench.wait(10)
            for name in ("propose", "commit", "barrier_begun", "barrier_passed", "write"):
                self.step(name)
            if not self.bench.table.held and not self.bench.log and not self.barriers:
                break
        leftovers(self.bench)

    def step_down(self) -> None:
        self.bench.desk.step_down(self.bench.now)
        unanswerable = self.bench.desk.stranded
        assert len(unanswerable) == len(set(unanswerable))
        titles = sorted(session.title for session in unanswerable if isinstance(session, Client))
        assert titles == self.twin.step_down()
        told = [told for client in self.clients for told in self.told(client)]
        assert sorted(told) == sorted(self.twin.told)


def facts(command: LockCommand) -> tuple[Any, ...]:
    if isinstance(command, Turn):
        return (
            "turn",
            command.key,
            command.expect,
            command.owner,
            command.lease,
            command.name,
            command.renewal,
        )
    if isinstance(command, Extend):
        return ("extend", command.key, command.expect, command.lease)
    assert isinstance(command, Cancel)
    return ("cancel", command.owners)


def check(bench: Bench) -> None:
    """Invariants of the desk's own records, after every step."""
    desk = bench.desk
    waiters = desk._waiters
    counted = 0
    for key, state in desk._states.items():
        assert state.key == key
        assert not state.idle, "state for a key that needs none"
        assert (state.next is not None) == (state.flight == GRANT)
        length = 0
        waiter = state.first
        while waiter is not None:
            assert waiter.state is state
            assert waiter.behind is None or waiter.behind.ahead is waiter
            length += 1
            waiter = waiter.behind
        assert length == state.waiting
        assert not length or state in waiters.by_length[length.bit_length()]
        counted += length + (state.once is not None)
        if key not in bench.table.held and not state.flight and state.mark == UNMARKED:
            assert all(w.owner in desk.cancelling for w in _queue(state)), (
                "free with a head, and nobody cares"
            )
    assert counted == waiters.count
    assert sum(len(keys) for keys in waiters.by_length) == desk.keys_waited_for
    assert desk._free_states == sum(state.free for state in desk._states.values())
    assert sum(seat.count for seat in waiters._seats.values()) == counted
    in_flight = [c.key for c in (*bench.in_flight, *desk.pending) if not isinstance(c, Cancel)]  # type: ignore[union-attr]
    assert len(in_flight) == len(set(in_flight)), "two in flight for one key"
    assert sorted(in_flight) == sorted(k for k, state in desk._states.items() if state.flight)


def _queue(state: Any) -> list[Any]:
    queue = []
    waiter = state.first
    while waiter is not None:
        queue.append(waiter)
        waiter = waiter.behind
    return queue


def leftovers(bench: Bench) -> None:
    desk = bench.desk
    waiters = desk._waiters
    assert not bench.table.held
    assert not desk._states
    assert waiters.count == 0
    assert not waiters.by_owner
    assert not waiters._seats
    assert not waiters.onces
    assert not any(waiters.by_length)
    assert not any((*waiters._due_first, *waiters._due_last))
    assert not desk.cancelling
    assert not desk._watching
    assert not desk._expiring
    assert not desk._ends_kept
    assert not desk._grants_kept
    assert not desk._leaving
    assert desk._free_states == 0
    assert desk.next_deadline_ns is None
    resends = desk._resends
    if resends is not None:
        assert (resends._sessions, resends._handed, resends.unhanded) == ({}, {}, {})


def run(seed: int, steps: int, span: tuple[tuple[bytes, ...], int], *, legacy: bool) -> None:
    draw = Random(seed)
    pair = Pair(draw, span, legacy=legacy)
    names, weights = list(STEPS), list(STEPS.values())
    for name in draw.choices(names, weights, k=steps):
        pair.step(name)
    if seed % 2:
        pair.finish()
    else:
        pair.step_down()


@pytest.mark.parametrize("legacy", [False, True], ids=["", "resend"])
@pytest.mark.parametrize("span", [WIDE, NARROW], ids=["wide", "narrow"])
@pytest.mark.parametrize("seed", range(60))
def test_the_desk_does_what_its_twin_does(
    seed: int, span: tuple[tuple[bytes, ...], int], legacy: bool
) -> None:
    run(seed, 250, span, legacy=legacy)


@settings(max_examples=100, deadline=None)
@given(
    names=st.lists(st.sampled_from(sorted(STEPS)), max_size=60),
    draw=st.randoms(use_true_random=False),
    legacy=st.booleans(),
)
def test_the_desk_does_what_its_twin_does_on_any_steps(names: list[str], draw: Random, legacy: bool) -> None:
    pair = Pair(draw, NARROW, legacy=legacy)
    for name in names:
        pair.step(name)
    pair.finish()
