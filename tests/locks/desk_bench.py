"""A desk over a real table, with the node's part played by hand: commits are the test's to time."""

from __future__ import annotations

from collections.abc import Sequence

from ticketing.locks.commands import LockCommand
from ticketing.locks.desk import Desk, DeskLimits
from ticketing.locks.session import DeskSession
from ticketing.locks.table import LockTable
from ticketing.protocol import frames
from ticketing.protocol.decoder import Reply, ReplyDecoder

S = 1_000_000_000
MS = 1_000_000
FIRST_TOKEN = 1_000
ROOM = 1 << 20

NAMES = {
    frames.GRANTED: "A",
    frames.GRANTED_WAITED: "G",
    frames.TIMEOUT: "T",
    frames.BUSY: "B",
    frames.NOT_LEADING: "V",
    frames.RELEASED: "R",
    frames.NOT_HELD: "N",
    frames.EXTENDED: "X",
}

OWNER = 1 << 63
"""Owners in tests are OWNER + a small number."""


class Client(DeskSession):
    """A session that remembers what it was told."""

    __slots__ = ("replies", "title")

    def __init__(self, title: str) -> None:
        super().__init__(f"host-{title}")
        self.title = title
        self.name = f"client {title}"
        self.replies: list[Reply] = []

    def __repr__(self) -> str:
        return self.title


class Bench:
    """The desk, its table and its clock. Nothing commits, and nothing is written to clients, by itself."""

    def __init__(
        self,
        limits: DeskLimits | None = None,
        *,
        legacy: bool = False,
        table: LockTable | None = None,
        room: int = ROOM,
        gate: bool = True,
    ) -> None:
        self.table = table or LockTable(FIRST_TOKEN)
        self.desk = Desk(self.table, limits, legacy_resend=legacy, term=3)
        self.now = 100 * S
        self.log: list[list[LockCommand]] = []
        """Entries that were proposed and not applied yet."""
        self._barriers = 0
        self.desk.open()
        self.desk.room = room
        self.desk.reserved_room = room
        self.desk.gate_open = gate
        self.desk.wall_ms = 1_700_000_000_000

    # --- requests, numbered for short

    def ask(
        self,
        client: Client,
        owner: int,
        key: bytes = b"k",
        *,
        wait: int = 10,
        lease: int = 20,
        op: int = frames.ACQUIRE,
    ) -> None:
        self.desk.acquire(client, op, wait, lease, OWNER + owner, key, self.now)

    def release(self, client: Client, token: int, key: bytes = b"k") -> None:
        self.desk.release(client, token, key, self.now)

    def extend(self, client: Client, token: int, lease: int = 20, key: bytes = b"k") -> None:
        self.desk.extend(client, token, lease, key, self.now)

    def cancel(self, client: Client, owner: int, key: bytes = b"k") -> None:
        self.desk.cancel(client, OWNER + owner, key, self.now)

    def end(self, client: Client) -> None:
        """The session is over, before what stands in its `out` was written."""
        self.desk.session_ended(client, self.now)
        client.out.clear()

    def leave(self, client: Client) -> None:
        """The session is over, after what stood in its `out` was written."""
        self.write()
        self.end(client)

    # --- the node's part

    def propose(self) -> None:
        """Takes what is pending as one entry."""
        commands = self.desk.take_pending(self.now)
        if commands:
            self.log.append(commands)

    def commit(self, entries: int = 1) -> None:
        """Applies the oldest entries in flight."""
        for _ in range(entries):
            commands = self.log.pop(0)
            outcomes = self.table.apply(commands, self.now)
            self.desk.applied(commands, outcomes, self.now, mine=True)

    def barrier(self) -> None:
        """One barrier, from its beginning to its end."""
        self._barriers += 1
        self.desk.barrier_begun(self._barriers)
        self.desk.barrier_passed(self._barriers, self.now)

    def write(self) -> None:
        """Hands every answer to its client."""
        for session in self.desk.dirty:
            assert isinstance(session, Client)
            session.queued = False
            decoder = ReplyDecoder()
            replies = decoder.feed(b"".join(session.out))
            assert decoder.problem is None, decoder.detail
            if not session.ended:
                session.replies.extend(replies)
            session.out.clear()
        self.desk.dirty.clear()

    def wait(self, seconds: float) -> None:
        self.now += round(seconds * S)

    def run(self) -> None:
        """All that time and earlier slices have left to do."""
        self.desk.run_due(self.now)
        for _ in range(1_000):
            if not self.desk.more:
                return
            self.desk.run_due(self.now)
        raise AssertionError("work without an end")

    def turn(self) -> None:
        """A whole turn with everything committed at once; what follows from it too."""
        self.run()
        self.propose()
        while self.log or self.desk.barrier_wanted:
            while self.log:
                self.commit()
                self.propose()
            self.barrier()
            self.propose()
        self.write()

    def hold(self, client: Client, owner: int, key: bytes = b"k", *, lease: int = 20) -> int:
        """Lets `client` hold a free key and forgets the answer. Returns the token."""
        self.ask(client, owner, key, lease=lease)
        self.turn()
        client.replies.clear()
        return self.table.held[key].token

    # --- what came of it

    def more(self) -> bool:
        return self.desk.more

    def barrier_wanted(self) -> bool:
        return self.desk.barrier_wanted

    def said(self, client: Client) -> list[str]:
        """What the client was told since the last look: letter and the owner's or token's number."""
        self.write()
        told = [say(reply) for reply in client.replies]
        client.replies.clear()
        return told

    @property
    def holder(self) -> int:
        """The number of the owner that holds `k`; 0 where nobody does."""
        held = self.table.held.get(b"k")
        return held.owner - OWNER if held is not None else 0

    @property
    def in_flight(self) -> list[LockCommand]:
        return [command for entry in self.log for command in entry]


def say(reply: Reply) -> str:
    opcode, token, owner, _waited, _key = reply
    ident = owner or token
    return f"{NAMES[opcode]}{ident - OWNER if ident >= OWNER else ident}"


def clients(titles: str) -> Sequence[Client]:
    return [Client(title) for title in titles]
