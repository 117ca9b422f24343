"""What a node keeps only while it leads: the desk, its turn's allowances, and the snapshots that it sends."""

from __future__ import annotations

from collections import deque

from ticketing.locks.codec import ENTRY_OVERHEAD_MAX, encode_commands, size_of
from ticketing.locks.commands import LockCommand
from ticketing.locks.desk import Desk, DeskLimits
from ticketing.locks.waiting import NEVER_NS
from ticketing.node.clock_health import ClockHealth
from ticketing.node.settings import NodeSettings
from ticketing.node.state import ReplicatedState
from ticketing.raft.core import Raft
from ticketing.raft.types import MS

WALL_PER_MS = 1_000_000

ENTRY_BYTES_MAX = 64 * 1024
"""A turn that proposes more than this makes several entries: none takes long to apply, or fills Raft's window alone."""
OVERHEAD_SHARE = 256
"""One byte in so many is kept for what several entries of one turn cost beside their data."""


class Lead:
    """One term's leadership. It is dropped whole when the lead ends, so nothing of it outlives the term."""

    __slots__ = (
        "_clock",
        "_entries",
        "_raft",
        "_settings",
        "_state",
        "desk",
        "due_ns",
        "serving",
        "since_ns",
        "term",
    )

    def __init__(
        self, raft: Raft, state: ReplicatedState, clock: ClockHealth, settings: NodeSettings, now_ns: int
    ) -> None:
        limits = settings.limits
        self._raft = raft
        self._state = state
        self._clock = clock
        self._settings = settings
        self.term = raft.term
        self.since_ns = now_ns
        self.due_ns = 0
        """When `run_due` is to be called; also with every housekeeping, since what it rests on can change by itself."""
        self.serving = False
        """The state of all former leaders is applied here and the lead is confirmed: requests may be answered."""
        self._entries: deque[tuple[list[LockCommand], bytes]] = deque()
        """What was taken from the desk and not yet by Raft, as entries: it goes before anything else is decided."""
        self.desk = Desk(
            state.table,
            DeskLimits(
                waiters_per_session=limits.waiters_per_session,
                waiters_per_key=limits.waiters_per_key,
                waiters=limits.waiters,
                keys=limits.keys,
            ),
            legacy_resend=settings.legacy_resend,
            term=raft.term,
        )

    def begin_turn(self, now_ns: int, wall_ns: int) -> None:
        """Sets what the desk may do in this turn: the room in Raft's log and the clock gate (spec 5, 8)."""
        self._allow()
        desk = self.desk
        desk.wall_ms = wall_ns // WALL_PER_MS
        desk.gate_open = self.gate(now_ns, wall_ns)

    def pause(self) -> None:
        """Requests may not be answered for now: the desk decides nothing, whatever is applied meanwhile. What
        would follow is kept and decided under the gate of the turn in which the lead serves again.
        """
        self.serving = False
        self._allow()

    def _allow(self) -> None:
        raft, desk = self._raft, self.desk
        if not self.serving or self._entries:
            desk.allow(0, 0)
            return
        room, reserved = raft.rooms()
        room -= room // OVERHEAD_SHARE + ENTRY_OVERHEAD_MAX
        reserved -= reserved // OVERHEAD_SHARE + ENTRY_OVERHEAD_MAX
        desk.allow(room, reserved)

    def gate(self, now_ns: int, wall_ns: int) -> bool:
        """Whether grants may be proposed now (spec 8)."""
        if self._settings.standalone:
            return True
        raft = self._raft
        configuration = raft.configuration
        return self._clock.gate(now_ns, wall_ns, raft.me, configuration.voters, configuration.outgoing)

    def run_due(self, now_ns: int) -> None:
        """Waits that are over, leases that ran out, and what was left of earlier slices, where `due_ns` has come."""
        if now_ns < self.due_ns:
            return
        desk = self.desk
        raft = self._raft
        configuration = raft.configuration
        desk.rate_ok = not self._clock.rate_proved_wrong(
            now_ns, raft.me, configuration.voters, configuration.outgoing
        )
        desk.run_due(now_ns)

    def end_turn(self) -> bool:
        """Looks when `run_due` has something to do; whether that is at once: slices were left that can go on."""
        desk = self.desk
        if self.serving and desk.more:
            self.due_ns = 0
            return True
        due_ns = desk.next_deadline_ns if self.serving else None
        self.due_ns = NEVER_NS if due_ns is None else due_ns
        return False

    @property
    def wants_to_propose(self) -> bool:
        """Whether the desk has gathered anything since `propose`."""
        return self.desk.has_pending or self.desk.barrier_wanted

    def propose(self, now_ns: int) -> bool:
        """Hands what the desk has gathered to Raft; whether there was anything to be begun."""
        desk, raft, entries = self.desk, self._raft, self._entries
        proposed = False
        # While the lead is given away nothing is taken from the desk: what was never proposed is then known
        # as such (spec 4, `V`).
        if raft.transferring is None:
            if not entries and desk.has_pending:
                in_one = desk.pending_bytes <= ENTRY_BYTES_MAX
                pending = desk.take_pending(now_ns)
                for commands in (pending,) if in_one else in_entries(pending):
                    entries.append((commands, encode_commands(commands)))
            while entries:
                # Raft appends entries of its own (changes of members), so the room that it stated when the
                # turn began may be gone by now.
                commands, data = entries[0]
                if not raft.propose(data, now_ns, decoded=commands, reserved=True):
                    break
                entries.popleft()
                proposed = True
            if proposed or entries:
                self._allow()
        if desk.barrier_wanted:
            desk.barrier_begun(raft.begin_barrier())
            return True
        return proposed

    def applied(self, commands: list[LockCommand], outcomes: list[int], now_ns: int, *, mine: bool) -> None:
        """An entry of lock commands was applied: its requests are answered."""
        self._allow()
        self.desk.applied(commands, outcomes, now_ns, mine=mine)


RETRY_NS = 2 * MS
"""How soon a node looks again at work that was cut into slices."""


def in_entries(commands: list[LockCommand]) -> list[list[LockCommand]]:
    """The commands of one turn as one entry, or, where they are many, as several, in their order."""
    entries: list[list[LockCommand]] = [[]]
    size = 0
    for command in commands:
        size += size_of(command)
        if size > ENTRY_BYTES_MAX and entries[-1]:
            entries.append([])
            size = size_of(command)
        entries[-1].append(command)
    return entries
