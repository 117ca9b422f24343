"""The desk once more, without any of what makes it fast: lists, searched from the front, and everything
looked at again after every step. It is told the same and must answer and propose the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.locks.desk_bench import FIRST_TOKEN, MS, Client, S

Told = tuple[str, str, int, bytes]
"""Client, letter, owner or token, key."""


@dataclass(eq=False)
class Acquire:
    session: Client
    op: str
    wait: int
    lease: int
    owner: int
    key: bytes
    read_ns: int

    @property
    def due_ns(self) -> int:
        return self.read_ns + self.wait * S if self.wait else 1 << 62


@dataclass(eq=False)
class Ask:
    kind: str
    session: Client
    number: int
    key: bytes
    lease: int = 0
    found: bool = False
    acquire: Acquire | None = None


@dataclass(eq=False)
class Command:
    kind: str
    key: bytes = b""
    expect: int = 0
    next: Acquire | None = None
    renewal: int = -1
    lease: int = 0
    ask: Ask | None = None
    asks: list[Ask] = field(default_factory=list)
    taken_ns: int = -1

    def __post_init__(self) -> None:
        # Whoever takes the grant over later is answered by it, but what is proposed stays as it is.
        self.proposed = self.next

    def facts(self) -> tuple[Any, ...]:
        """What goes to Raft."""
        if self.kind == "cancel":
            return ("cancel", tuple(dict.fromkeys(ask.number for ask in self.asks)))
        if self.kind == "extend":
            return ("extend", self.key, self.expect, self.lease)
        after = self.proposed
        next_one = (after.owner, after.lease, after.session.name) if after is not None else (0, 0, "")
        return ("turn", self.key, self.expect, *next_one, self.renewal)


@dataclass(eq=False)
class Holder:
    token: int
    owner: int
    lease: int
    stamp_ns: int
    session: Client | None
    renewal: int = 0
    answers: list[list[Any]] = field(default_factory=list)
    """[session, whether it was handed to the transport] of each answer with this token."""


class Twin:
    def __init__(self, *, legacy: bool) -> None:
        self.legacy = legacy
        self.now = 0
        self.gate = True
        self.room = "full"
        """`full`, `ends` (the reserve alone) or `none`."""
        self.next_token = FIRST_TOKEN
        self.held: dict[bytes, Holder] = {}
        self.ring: list[int] = []
        self.waiting: list[Acquire] = []
        self.flights: dict[bytes, Command] = {}
        self.asides: list[Ask] = []
        self.pending: list[Command] = []
        self.cancels: list[Ask] = []
        self.kept_cancels: list[Ask] = []
        self.log: list[list[Command]] = []
        self.barrier_next: list[Ask] = []
        self.barriers: list[list[Ask]] = []
        self.told: list[Told] = []
        self.emitted: list[tuple[Any, ...]] = []

    # --- words of the spec

    def tell(self, session: Client, letter: str, ident: int, key: bytes) -> None:
        if not session.ended:
            self.told.append((session.title, letter, ident, key))

    def cancelling(self, owner: int) -> bool:
        asks = [*self.cancels, *self.kept_cancels]
        asks += [ask for entry in self.log for command in entry for ask in command.asks]
        return any(ask.number == owner for ask in asks)

    def live(self, acquire: Acquire) -> bool:
        return not acquire.session.ended and acquire.due_ns > self.now

    def queue(self, key: bytes) -> list[Acquire]:
        return [a for a in self.waiting if a.key == key]

    def head(self, key: bytes, *, with_once: bool = False) -> Acquire | None:
        for acquire in self.queue(key):
            if (acquire.wait or with_once) and self.live(acquire) and not self.cancelling(acquire.owner):
                return acquire
        return None

    def once(self, key: bytes) -> Acquire | None:
        return next((a for a in self.queue(key) if not a.wait and not a.session.ended), None)

    def rivals(self, key: bytes, owner: int, lease: int = 0) -> list[Acquire]:
        return [
            a
            for a in self.queue(key)
            if a.owner == owner and self.live(a) and (not lease or a.lease == lease)
        ]

    def resends(self, key: bytes) -> list[Ask]:
        asks = [*self.barrier_next, *(ask for asks in self.barriers for ask in asks)]
        return [ask for ask in asks if ask.kind == "resend" and ask.key == key and not ask.session.ended]

    def lost(self, holder: Holder) -> bool:
        """Whether its owner may ask for the same token again."""
        return self.legacy and (holder.session is None or holder.session.ended)

    def find_resends(self, key: bytes) -> None:
        holder = self.held.get(key)
        if holder is not None and self.lost(holder):
            if not self.undeliverable(key) and any(ask.key == key for ask in self.asides):
                return
            for acquire in self.rivals(key, holder.owner):
                self.waiting.remove(acquire)
                self.barrier_next.append(Ask("resend", acquire.session, holder.token, key, acquire=acquire))

    def undeliverable(self, key: bytes) -> bool:
        holder = self.held.get(key)
        if holder is None or holder.session is None or not holder.session.ended:
            return False
        if any(handed or not session.ended for session, handed in holder.answers):
            return False
        return not any(ask.number == holder.token for ask in self.resends(key))

    # --- emitting

    def fits(self, *, end: bool) -> bool:
        return self.room == "full" or (end and self.room == "ends")

    def emit(self, command: Command) -> None:
        assert command.key not in self.flights
        self.flights[command.key] = command
        if command.next is not None and command.next in self.waiting:
            self.waiting.remove(command.next)
        self.pending.append(command)
        self.emitted.append(command.facts())

    def end(self, key: bytes, ask: Ask | None, renewal: int = -1) -> bool:
        if not self.fits(end=True):
            return False
        after = self.head(key) if self.gate else None
        self.emit(Command("turn", key, self.held[key].token, after, renewal, ask=ask))
        return True

    # --- what a key does next

    def settle(self, key: bytes) -> None:
        if key in self.flights:
            return
        while key not in self.flights:
            holder = self.held.get(key)
            self.find_resends(key)
            if self.undeliverable(key):
                if not self.end(key, None):
                    break
                continue
            ask = next((ask for ask in self.asides if ask.key == key), None)
            if ask is not None:
                if not self.answer(ask):
                    break
                self.asides.remove(ask)
                continue
            if holder is None:
                after = self.once(key)
                if after is None or self.cancelling(after.owner):
                    after = self.head(key)
                if after is not None and self.gate and self.fits(end=False):
                    self.emit(Command("turn", key, 0, after))
            break
        for acquire in self.queue(key):
            if not acquire.wait:
                if key in self.flights or key in self.held:
                    self.waiting.remove(acquire)
                    self.tell(acquire.session, "T", acquire.owner, key)
                elif not self.gate:
                    self.waiting.remove(acquire)
                    self.tell(acquire.session, "B", acquire.owner, key)

    def answer(self, ask: Ask) -> bool:
        holder = self.held.get(ask.key)
        if ask.kind == "cancel":
            if holder is not None and holder.owner == ask.number:
                return self.end(ask.key, ask)
            self.tell(ask.session, "R" if ask.found else "N", ask.number, ask.key)
        elif ask.kind == "extend" and ask.session.ended:
            return self.fits(end=True)
        elif holder is None or holder.token != ask.number:
            self.barrier_next.append(ask)
        elif ask.kind == "release":
            return self.end(ask.key, ask)
        else:
            if not self.fits(end=True):
                return False
            self.emit(Command("extend", ask.key, holder.token, lease=max(holder.lease, ask.lease), ask=ask))
        return True

    def sweep(self) -> None:
        """Time, and everything that was kept."""
        for acquire in list(self.waiting):
            if acquire.session.ended:
                self.waiting.remove(acquire)
            elif acquire.due_ns <= self.now:
                self.waiting.remove(acquire)
                self.tell(acquire.session, "T", acquire.owner, acquire.key)
        if self.fits(end=True):
            self.cancels += self.kept_cancels
            self.kept_cancels = []
        keys = (
            {a.key: None for a in self.waiting}
            | {a.key: None for a in self.asides}
            | dict.fromkeys(self.held)
        )
        for key in keys:
            self.settle(key)
        for key, holder in list(self.held.items()):
            if key not in self.flights and self.now >= holder.stamp_ns + holder.lease * S:
                self.end(key, None, holder.renewal)

    # --- requests

    def acquire(self, acquire: Acquire) -> None:
        key, owner = acquire.key, acquire.owner
        flight, holder = self.flights.get(key), self.held.get(key)
        if owner in self.ring or self.cancelling(owner):
            self.tell(acquire.session, "T", owner, key)
            return
        older = flight.next if flight is not None else None
        if older is not None and older.session.ended and (older.owner, older.lease) == (owner, acquire.lease):
            assert flight is not None
            flight.next = acquire
            return
        if flight is None and holder is not None and holder.owner == owner and self.lost(holder):
            self.barrier_next.append(Ask("resend", acquire.session, holder.token, key, acquire=acquire))
            return
        if acquire.wait:
            self.waiting.append(acquire)
        elif flight is not None:
            ending = flight.kind == "turn" and flight.next is None
            if ending and self.once(key) is None and self.head(key) is None:
                self.waiting.append(acquire)
            else:
                self.tell(acquire.session, "T", owner, key)
        elif holder is not None or self.once(key) is not None or self.head(key) is not None:
            self.tell(acquire.session, "T", owner, key)
        elif self.gate:
            self.waiting.append(acquire)
        else:
            self.tell(acquire.session, "B", owner, key)

    def release(self, session: Client, token: int, key: bytes) -> None:
        self.asides.append(Ask("release", session, token, key))

    def extend(self, session: Client, token: int, lease: int, key: bytes) -> None:
        self.asides.append(Ask("extend", session, token, key, lease))

    def cancel(self, session: Client, owner: int, key: bytes) -> None:
        mine = [a for a in self.waiting if a.owner == owner]
        flight, holder = self.flights.get(key), self.held.get(key)
        if (
            len(mine) == 1
            and mine[0].session is session
            and mine[0].key == key
            and not self.cancelling(owner)
            and not (flight is not None and flight.next is not None and flight.next.owner == owner)
            and not (holder is not None and holder.owner == owner)
            and not any(ask.acquire is not None and ask.acquire.owner == owner for ask in self.resends(key))
        ):
            self.waiting.remove(mine[0])
            self.tell(session, "R", owner, key)
            return
        ask = Ask("cancel", session, owner, key)
        # One more who asks for what this turn's entry says already takes no room.
        said = not self.kept_cancels and any(other.number == owner for other in self.cancels)
        (self.cancels if said or self.fits(end=True) else self.kept_cancels).append(ask)

    def session_ended(self, session: Client) -> None:
        session.ended = True
        for key, flight in self.flights.items():
            older = flight.next
            if older is not None and older.session.ended:
                for rival in self.rivals(key, older.owner, older.lease):
                    if not self.cancelling(rival.owner):
                        self.waiting.remove(rival)
                        flight.next = rival
                        break

    # --- the node's part

    def propose(self) -> None:
        if self.cancels:
            command = Command("cancel", asks=self.cancels)
            self.cancels = []
            self.pending.append(command)
            self.emitted.append(command.facts())
        for command in self.pending:
            command.taken_ns = self.now
        if self.pending:
            self.log.append(self.pending)
        self.pending = []

    def commit(self) -> None:
        entry = self.log.pop(0)
        for command in entry:
            if command.kind == "cancel":
                self.ring += [ask.number for ask in command.asks]
            else:
                del self.flights[command.key]
                (self.turn if command.kind == "turn" else self.extended)(command)
        for command in entry:
            if command.kind == "cancel":
                self.cancelled(command.asks)

    def turn(self, command: Command) -> None:
        key, after, ask = command.key, command.next, command.ask
        holder = self.held.pop(key, None)
        assert (holder.token if holder is not None else 0) == command.expect, (
            "the desk proposes nothing in vain"
        )
        if after is not None:
            token = self.next_token
            self.next_token += 1
            self.held[key] = new = Holder(token, after.owner, after.lease, self.now, after.session)
            self.grant(key, new, after, max(0, command.taken_ns - after.read_ns) // MS)
        if ask is not None:
            self.tell(ask.session, "R", ask.number, key)

    def grant(self, key: bytes, holder: Holder, acquire: Acquire, waited_ms: int) -> None:
        if acquire.session.ended:
            return
        letter = f"A{holder.token}" if acquire.op == "A" else f"G{holder.token}/{waited_ms}"
        self.tell(acquire.session, letter, acquire.owner, key)
        holder.session = acquire.session
        holder.answers.append([acquire.session, False])

    def extended(self, command: Command) -> None:
        holder, ask = self.held[command.key], command.ask
        assert ask is not None
        holder.renewal += 1
        holder.lease = max(holder.lease, command.lease)
        holder.stamp_ns = self.now
        self.tell(ask.session, "X", ask.number, command.key)

    def cancelled(self, asks: list[Ask]) -> None:
        gone = [a for a in self.waiting if any(a.owner == ask.number for ask in asks)]
        for acquire in gone:
            self.waiting.remove(acquire)
            self.tell(acquire.session, "T", acquire.owner, acquire.key)
        for ask in asks:
            ask.found = any((a.owner, a.key) == (ask.number, ask.key) for a in gone)
            self.asides.append(ask)

    def write(self) -> None:
        for holder in self.held.values():
            for answer in holder.answers:
                if not answer[0].ended:
                    answer[1] = True

    def barrier_begun(self) -> None:
        self.barriers.append(self.barrier_next)
        self.barrier_next = []

    def barrier_passed(self) -> None:
        while self.barriers[0]:
            ask = self.barriers[0].pop(0)
            holder = self.held.get(ask.key)
            if ask.kind == "resend":
                if not ask.session.ended:
                    self.answer_resend(ask, holder)
            elif holder is not None and holder.token == ask.number:
                self.asides.append(ask)
            else:
                self.tell(ask.session, "N", ask.number, ask.key)
            self.settle(ask.key)
        self.barriers.pop(0)

    def answer_resend(self, ask: Ask, holder: Holder | None) -> None:
        acquire = ask.acquire
        assert acquire is not None
        if (
            holder is not None
            and holder.token == ask.number
            and ask.key not in self.flights
            and acquire.owner not in self.ring
            and not self.cancelling(acquire.owner)
        ):
            self.grant(ask.key, holder, acquire, 0)
        elif acquire.due_ns <= self.now:
            self.tell(acquire.session, "T", acquire.owner, ask.key)
        else:
            self.acquire(acquire)

    def step_down(self) -> list[str]:
        """The titles of the sessions that cannot be answered, sorted."""
        lost = [f.next.session for f in self.flights.values() if f.next is not None and f.taken_ns >= 0]
        asks = [f.ask for f in self.flights.values() if f.ask is not None]
        asks += [*self.asides, *self.cancels, *self.kept_cancels, *self.barrier_next]
        asks += [ask for entry in self.log for command in entry for ask in command.asks]
        asks += [ask for asks in self.barriers for ask in asks]
        lost += [ask.session for ask in asks]
        untaken = [f.next for f in self.flights.values() if f.next is not None and f.taken_ns < 0]
        for acquire in [*self.waiting, *untaken]:
            self.tell(acquire.session, "B" if acquire.op == "A" else "V", acquire.owner, acquire.key)
        return sorted({session.title for session in lost if not session.ended})
