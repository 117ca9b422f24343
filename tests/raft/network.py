"""A cluster in one thread and in virtual time: delivers, drops, delays, doubles and reorders by a seed.

After every event it asserts what must hold inside each member (`ticketing.raft.invariants`) and between them:
election safety, log matching, leader completeness, state machine safety, that barriers see everything
committed before them, and that no stamp is older than its proposal however clocks run within their bound.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterable
from typing import NamedTuple

from tests.raft.hand import output_of
from ticketing.raft.core import Output, Raft
from ticketing.raft.election import Role
from ticketing.raft.invariants import Witness
from ticketing.raft.messages import Message, decode, decode_change, encode
from ticketing.raft.types import (
    BLANK,
    MS,
    Base,
    Configuration,
    Entry,
    EntryKind,
    Member,
    RaftSettings,
    first_base,
)

S = 1000 * MS


class Snapshot(NamedTuple):
    base: Base
    digest: int


class Process:
    """One process life: its member, its own clock and a state machine that is a digest of all it applied."""

    def __init__(self, network: Network, member: Member, base: Base, digest: int) -> None:
        self.network = network
        self.member = member
        rng = network.rng
        self.clock_offset = rng.randrange(0, 1000 * S)
        self.clock_rate = 1.0 + rng.choice((-0.0009, -0.0005, 0.0, 0.0, 0.0005, 0.0009))
        self.raft = Raft(member, base, network.settings, random.Random(rng.random()), self.now())
        self.witness = Witness(self.raft)
        self.digest = digest
        self.alive = True
        self.stopped_at: int | None = None
        self.inbox: list[tuple[Member, bytes]] = []
        self.applied: list[Entry] = []
        self.outputs: list[Output] = []
        self.proposed = 0
        self.seen: dict[int, Entry] = {}
        self.timer_at = -1

    def now(self) -> int:
        return self.clock_offset + int(self.network.now * self.clock_rate)

    def true_time(self, stamp_ns: int) -> float:
        return (stamp_ns - self.clock_offset) / self.clock_rate

    @property
    def running(self) -> bool:
        return self.alive and self.stopped_at is None


class Network:
    """The members, the messages between them, and the operator's and the faults' hands."""

    def __init__(self, seed: int, voters: int = 3, settings: RaftSettings | None = None) -> None:
        self.rng = random.Random(seed)
        self.settings = settings or RaftSettings()
        self.now = 0
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0
        self.processes: dict[Member, Process] = {}
        self.cut: set[tuple[Member, Member]] = set()
        self.delay_ns = (1 * MS, 2 * MS)
        self.drop = 0.0
        self.double = 0.0
        self.drop_message: Callable[[Member, Member, Message], bool] | None = None
        self.sent: dict[str, int] = {}
        self.snapshots_fail = 0.0
        # What the whole cluster has shown so far.
        self.leaders: dict[int, Member] = {}
        self.decided: dict[int, tuple[int, int, bytes, int]] = {}
        """index -> (term, kind, data, a term in which it was known to be committed)"""
        self.digests: dict[int, int] = {}
        self.configurations: dict[int, Configuration] = {}
        self.entries: dict[tuple[int, int], tuple[bytes, int]] = {}
        self.proposed_at: dict[tuple[int, int], int] = {}
        self.highest_decided = 1
        self.barriers: dict[tuple[Member, int], int] = {}
        self.barriers_through = 0
        self._next_id = 1
        members = tuple(self._new_member() for _ in range(voters))
        base = first_base(Configuration(members))
        self.digests[base.index] = 0
        self.configurations[base.index] = base.configuration
        for member in members:
            self.start(member, base)

    # --- processes

    def _new_member(self) -> Member:
        member = Member(self._next_id, self.rng.getrandbits(63))
        self._next_id += 1
        return member

    def start(self, member: Member, base: Base) -> Process:
        process = Process(self, member, base, 0)
        self.processes[member] = process
        self._arm(process)
        return process

    def start_blank(self) -> Member:
        member = self._new_member()
        self.start(member, BLANK)
        return member

    def crash(self, member: Member) -> None:
        self.processes[member].alive = False

    def stop(self, member: Member) -> None:
        """The process stands still; what arrives waits in its sockets."""
        self.processes[member].stopped_at = self.now

    def go_on(self, member: Member) -> None:
        """It runs again: first what lies in its sockets, then the gap, as a node does."""
        process = self.processes[member]
        if process.stopped_at is None:
            return
        gap = self.now - process.stopped_at
        process.stopped_at = None
        if not process.alive:
            return
        inbox, process.inbox = process.inbox, []
        for sender, data in inbox:
            process.raft.step(sender, decode(data), process.now())
        process.raft.after_gap(gap, process.now())
        self.flush(process)

    def raft(self, member: Member) -> Raft:
        return self.processes[member].raft

    def running(self) -> list[Process]:
        return [process for process in self.processes.values() if process.running]

    def leader(self) -> Process | None:
        """The running leader of the highest term."""
        leaders = [process for process in self.running() if process.raft.role is Role.LEADER]
        return max(leaders, key=lambda process: process.raft.term) if leaders else None

    # --- time

    def at(self, when: int, what: Callable[[], None]) -> None:
        self._sequence += 1
        heapq.heappush(self._events, (when, self._sequence, what))

    def run(self, for_ns: int, until: Callable[[], bool] | None = None) -> bool:
        """Runs; with `until`, true as soon as that holds after an event."""
        end = self.now + for_ns
        if until is not None and until():
            return True
        while self._events and self._events[0][0] <= end:
            self.now, _, what = heapq.heappop(self._events)
            what()
            if until is not None and until():
                return True
        self.now = end
        return False

    def run_to_leader(self, for_ns: int = 5 * S) -> Process:
        def serves() -> bool:
            leader = self.leader()
            return leader is not None and leader.raft.own_term_committed

        assert self.run(for_ns, serves), "no leader"
        leader = self.leader()
        assert leader is not None
        return leader

    def _arm(self, process: Process) -> None:
        """A timer at the member's next deadline; an armed one that is early enough serves as well."""
        true_deadline = process.true_time(process.raft.next_deadline_ns)
        when = max(int(true_deadline) + 1, self.now)
        if self.now < process.timer_at <= when:
            return
        process.timer_at = when

        def fire() -> None:
            if process.timer_at == when:
                process.timer_at = -1
            if process.running:
                process.raft.tick(process.now())
                self.flush(process)
            elif process.alive:
                process.timer_at = -1
                self.at(self.now + 50 * MS, lambda: self._arm(process))

        self.at(when, fire)

    # --- messages

    def flush(self, process: Process) -> Output:
        """The end of a turn."""
        output = output_of(process.raft, process.now())
        self._check(process, output)
        for target, message in output.messages:
            self._post(process.member, target, message)
        for member in output.snapshots_wanted:
            self._send_snapshot(process, member)
        self._arm(process)
        return output

    def _post(self, sender: Member, target: Member, message: Message) -> None:
        name = type(message).__name__
        self.sent[name] = self.sent.get(name, 0) + 1
        if (sender, target) in self.cut or self.rng.random() < self.drop:
            return
        if self.drop_message is not None and self.drop_message(sender, target, message):
            return
        data = encode(message)
        for _ in range(2 if self.rng.random() < self.double else 1):
            self.at(self.now + self.rng.randint(*self.delay_ns), lambda: self._deliver(sender, target, data))

    def _deliver(self, sender: Member, target: Member, data: bytes) -> None:
        process = self.processes.get(target)
        if process is None or not process.alive:
            return
        if process.stopped_at is not None:
            process.inbox.append((sender, data))
            return
        process.raft.step(sender, decode(data), process.now())
        self.flush(process)

    def _send_snapshot(self, process: Process, target: Member) -> None:
        snapshot = Snapshot(process.raft.snapshot_base(), process.digest)
        assert process.raft.snapshot_begun(target, snapshot.base, process.now())

        def arrive() -> None:
            receiver = self.processes[target]
            reached = receiver.running and (process.member, target) not in self.cut
            if reached and self.rng.random() >= self.snapshots_fail:
                if receiver.raft.restore(snapshot.base, receiver.now()):
                    receiver.digest = snapshot.digest
                    assert snapshot.base.configuration == self._configuration_at(snapshot.base.index)
                self.flush(receiver)
            else:
                reached = False
            tell(reached)

        def tell(reached: bool) -> None:
            if process.running:
                done = process.raft.snapshot_done if reached else process.raft.snapshot_failed
                done(target, process.now())
                self.flush(process)
            elif process.alive:
                self.at(self.now + 50 * MS, lambda: tell(reached))

        self.at(self.now + self.rng.randint(5 * MS, 100 * MS), arrive)

    def isolate(self, member: Member) -> None:
        for other in self.processes:
            if other != member:
                self.cut |= {(member, other), (other, member)}

    def split(self, group: Iterable[Member]) -> None:
        inside = set(group)
        for one in self.processes:
            for other in self.processes:
                if (one in inside) != (other in inside):
                    self.cut.add((one, other))

    def heal(self) -> None:
        self.cut.clear()
        self.drop = self.double = 0.0

    # --- wishes

    def propose(self, process: Process, data: bytes = b"x") -> int:
        index = process.raft.propose(data, process.now())
        if index:
            self.proposed_at[index, process.raft.term] = self.now
        self.flush(process)
        return index

    def begin_barrier(self, process: Process) -> int:
        identity = process.raft.begin_barrier()
        if identity:
            self.barriers[process.member, identity] = self.highest_decided
        self.flush(process)
        return identity

    # --- what must hold between members

    def _check(self, process: Process, output: Output) -> None:
        raft = process.raft
        process.witness.observe()
        self._check_log_matching(process)
        if raft.role is Role.LEADER:
            known = self.leaders.get(raft.term)
            assert known in (None, process.member), (
                f"two leaders in term {raft.term}: {known}, {process.member}"
            )
            if known is None:
                self.leaders[raft.term] = process.member
                self._check_leader_completeness(raft)
        for entry in output.committed:
            self._decide(process, entry)
        for identity in output.barriers:
            floor = self.barriers.pop((process.member, identity))
            assert raft.applied_index >= floor, "a barrier is through that does not see what was committed"
            self.barriers_through += 1
        for identity in output.barriers_lost:
            del self.barriers[process.member, identity]
        for member in output.rolled_back:
            raise AssertionError(f"{process.member} takes {member} for rolled back, which nobody is here")
        process.outputs.append(output)

    def _decide(self, process: Process, entry: Entry) -> None:
        index = entry.index
        fact = (entry.term, entry.kind, entry.data)
        known = self.decided.get(index)
        if known is None:
            assert index == self.highest_decided + 1, (index, self.highest_decided)
            self.highest_decided = index
            self.decided[index] = (*fact, process.raft.term)
            self.digests[index] = hash((self.digests[index - 1], *fact))
            if entry.kind == EntryKind.CONFIGURATION:
                self.configurations[index] = decode_change(entry.data).configuration
        else:
            assert known[:3] == fact, f"{process.member} hands out {entry}, others {known}"
        process.applied.append(entry)
        process.digest = hash((process.digest, *fact))
        assert process.digest == self.digests[index], f"{process.member} missed something before {index}"
        proposed = self.proposed_at.get((index, entry.term))
        if proposed is not None:
            assert process.true_time(entry.stamp_ns) >= proposed - 2, "a stamp before its proposal"

    def _configuration_at(self, index: int) -> Configuration:
        return self.configurations[max(since for since in self.configurations if since <= index)]

    def _check_leader_completeness(self, raft: Raft) -> None:
        log = raft._replica.log
        for index, (term, _, _, committed_in) in self.decided.items():
            if committed_in < raft.term and index > log.base_index:
                assert log.contains(index, term), f"{raft.me} leads term {raft.term} without entry {index}"

    def _check_log_matching(self, process: Process) -> None:
        log = process.raft._replica.log
        index = log.last_index
        while index > log.base_index:
            entry = log.entry_at(index)
            if process.seen.get(index) is entry:
                return
            process.seen[index] = entry
            fact = (entry.data, log.term_at(index - 1))
            known = self.entries.setdefault((index, entry.term), fact)
            assert known == fact, f"two entries {index} of term {entry.term}"
            index -= 1
