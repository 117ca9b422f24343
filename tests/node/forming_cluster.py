"""A few machines that form domains in virtual time: disks, links, clocks, deaths, and what must hold after
every step.

Raft is stood for by one sentence: a domain has a leader where a process that knows it formed is linked with
enough others that act in it. Links carry frames in order; cut, they lose what was under way.
"""

from __future__ import annotations

from collections import deque
from random import Random

from ticketing.node.first_state import FirstState
from ticketing.node.forming import Forming
from ticketing.node.forming_messages import FormingMessage, decode_forming, encode_forming
from ticketing.node.forming_process import FormingOutput
from ticketing.node.handshake import LinkFacts, LinkPeer
from ticketing.node.settings import NodeSettings, Place, S
from ticketing.node.shown import Shows
from ticketing.raft.types import MS

START_WALL_MS = 1_800_000_000_000
"""January 2027."""
LEASE_MAX_NS = 250 * S


class Machine:
    """A place with its disk, which outlives its processes."""

    def __init__(self, name: str, permit: str, made_ms: int) -> None:
        self.name = name
        self.permit = permit
        self.made_ms = made_ms
        self.cluster = "digest"
        self.delta_ns = 500 * MS
        self.wall_offset_ms = 0
        self.record: FirstState | None = None
        self.history: list[FirstState] = []
        self.process: Process | None = None


class Process:
    """One process life: what a node does around `Forming`."""

    def __init__(self, cluster: Cluster, machine: Machine, incarnation: int) -> None:
        self.cluster = cluster
        self.machine = machine
        self.incarnation = incarnation
        self.joined = ""
        self.to_store: deque[FirstState] = deque()
        self.notes: list[str] = []
        record = machine.record
        self.forming = Forming(
            NodeSettings(
                place=machine.name,
                places=cluster.places,
                cluster=machine.cluster,
                permit=machine.permit,
                permit_made_ms=machine.made_ms,
                earlier_first_token=record.first_token if record is not None else 0,
                earlier_domain=record.domain_id if record is not None else "",
                delta_ns=machine.delta_ns,
            ),
            incarnation,
            self,
            cluster.now_ns,
        )

    # --- FormingHost

    def random_bytes(self, count: int) -> bytes:
        return self.cluster.rng.randbytes(count)

    def clock_within(self, place: str) -> bool | None:
        if frozenset((self.machine.name, place)) in self.cluster.clocks_unknown:
            return None
        other = self.cluster.machines[place]
        return abs(self.machine.wall_offset_ms - other.wall_offset_ms) <= 500

    def leader_alive(self) -> bool:
        return self.cluster.has_leader(self)

    def domain(self) -> str:
        return self.joined

    # ---

    @property
    def wall_ms(self) -> int:
        return START_WALL_MS + self.cluster.now_ns // MS + self.machine.wall_offset_ms

    @property
    def acts_in(self) -> str:
        """The domain that this process votes in."""
        recorded = self.forming.recorded
        if self.joined or recorded is None or self.to_store:
            return self.joined
        return recorded.domain_id

    def peer(self) -> LinkPeer:
        facts = LinkFacts(
            self.machine.name,
            0,
            self.incarnation,
            self.joined,
            self.machine.cluster,
            self.forming.permit,
            "1",
        )
        return LinkPeer(facts=facts, purpose="peer", format=1, shows=Shows())

    def act(self) -> None:
        """Carries out what the forming wants."""
        output: FormingOutput = self.forming.take_output()
        self.notes += output.notes
        before = self.joined
        if output.drop:
            assert output.store is not None
            self.joined = ""
        if output.store is not None:
            assert not self.to_store, "one record at a time"
            assert output.drop or not before, "a record ends the former membership"
            self.to_store.append(output.store)
        for incarnation, message in output.messages:
            self.cluster.send(self, incarnation, message)
        if output.formed is not None:
            self.cluster.check_formed(output.formed)
            self.joined = output.formed.domain_id
        if self.joined != before:
            self.cluster.relink(self)

    def finish_store(self) -> None:
        state = self.to_store.popleft()
        self.machine.record = state
        self.machine.history.append(state)
        self.forming.stored(self.cluster.now_ns)
        self.act()


class Cluster:
    """All machines, the links between their processes, and the time."""

    def __init__(
        self, count: int, rng: Random | None = None, *, permit: str = "permit", age_s: int = 60
    ) -> None:
        self.rng = rng or Random(1)
        self.now_ns = 1000 * S
        self.places = tuple(
            Place(f"node-{number}", f"h{number}:5225", f"h{number}:6225", f"h{number}:7225")
            for number in range(1, count + 1)
        )
        made_ms = START_WALL_MS + self.now_ns // MS - age_s * 1000
        self.machines = {place.name: Machine(place.name, permit, made_ms) for place in self.places}
        self.links: dict[tuple[str, str], deque[tuple[int, bytes]]] = {}
        """By (sender, receiver), both ends living and linked: what is under way."""
        self.clocks_unknown: set[frozenset[str]] = set()
        self.incarnations = 0
        self.formed: dict[str, FirstState] = {}
        self.formed_ns: dict[str, int] = {}
        self.served_ns: dict[str, int] = {}
        self.first_asked = False
        self.taken_in: list[str] = []
        """The domains that took a process in."""

    @property
    def majority(self) -> int:
        return len(self.places) // 2 + 1

    def processes(self) -> list[Process]:
        return [machine.process for machine in self.machines.values() if machine.process is not None]

    def process(self, number: int) -> Process:
        process = self.machines[f"node-{number}"].process
        assert process is not None
        return process

    # --- life and links

    def start(self, *names: str) -> None:
        for name in names or list(self.machines):
            machine = self.machines[name]
            assert machine.process is None
            self.incarnations += 1
            machine.process = Process(self, machine, self.incarnations)
            machine.process.act()

    def kill(self, name: str) -> None:
        for other in self.machines:
            self.cut(name, other)
        self.machines[name].process = None

    def connect(self, left: str, right: str) -> None:
        near, far = self.machines[left].process, self.machines[right].process
        if near is None or far is None or left == right or (left, right) in self.links:
            return
        self.links[left, right] = deque()
        self.links[right, left] = deque()
        near.forming.peer_up(far.peer(), self.now_ns)
        far.forming.peer_up(near.peer(), self.now_ns)
        near.act()
        far.act()

    def cut(self, left: str, right: str) -> None:
        if self.links.pop((left, right), None) is None:
            return
        del self.links[right, left]
        near, far = self.machines[left].process, self.machines[right].process
        assert near is not None
        assert far is not None
        near.forming.peer_down(far.peer(), self.now_ns)
        far.forming.peer_down(near.peer(), self.now_ns)
        near.act()
        far.act()

    def connect_all(self) -> None:
        for left in self.machines:
            for right in self.machines:
                self.connect(left, right)

    def relink(self, process: Process) -> None:
        """A process that became somebody else dials anew: what was under way is lost."""
        name = process.machine.name
        linked = [other for other in self.machines if (name, other) in self.links]
        for other in linked:
            self.cut(name, other)
        for other in linked:
            self.connect(name, other)

    # --- messages, disk, time

    def send(self, sender: Process, incarnation: int, message: FormingMessage) -> None:
        for name, machine in self.machines.items():
            if machine.process is not None and machine.process.incarnation == incarnation:
                link = self.links.get((sender.machine.name, name))
                if link is not None:
                    link.append((sender.incarnation, encode_forming(message)))

    def deliver(self, sender: str, receiver: str) -> None:
        _, payload = self.links[sender, receiver].popleft()
        source, target = self.machines[sender].process, self.machines[receiver].process
        assert source is not None
        assert target is not None
        target.forming.receive(source.peer(), decode_forming(payload), self.now_ns, target.wall_ms)
        target.act()

    def busy_links(self) -> list[tuple[str, str]]:
        return [pair for pair, link in self.links.items() if link]

    def storing(self) -> list[Process]:
        return [process for process in self.processes() if process.to_store]

    def settle(self) -> None:
        """Delivers and stores until nothing is under way. Ends: nothing repeats itself without time passing."""
        for _ in range(10_000):
            pairs, storing = self.busy_links(), self.storing()
            if not pairs and not storing:
                return
            if pairs:
                self.deliver(*pairs[0])
            else:
                storing[0].finish_store()
        raise AssertionError("talks without end")

    def tick(self, step_ns: int = S // 2) -> None:
        self.now_ns += step_ns
        for process in self.processes():
            process.forming.tick(self.now_ns, process.wall_ms)
            process.act()
        self.check()

    def run(self, seconds: float) -> None:
        end_ns = self.now_ns + int(seconds * S)
        while self.now_ns < end_ns:
            self.tick()
            self.settle()
            self.check()

    def raft_message(self, sender: str, receiver: str) -> None:
        """A member campaigns or leads: whoever it is linked with hears of its domain."""
        source, target = self.machines[sender].process, self.machines[receiver].process
        if source is None or target is None or not source.joined or (sender, receiver) not in self.links:
            return
        target.forming.domain_heard(source.joined, self.now_ns)
        target.act()

    # --- what a domain is worth

    def has_leader(self, process: Process) -> bool:
        """Whether `process` is linked with a majority of its domain, itself counted, one of whom knows it
        formed.
        """
        domain = process.acts_in
        if not domain:
            return False
        name = process.machine.name
        group = [
            other
            for other in self.processes()
            if other is process or ((name, other.machine.name) in self.links and other.acts_in == domain)
        ]
        return len(group) >= self.majority and any(member.joined == domain for member in group)

    def leading_domains(self) -> list[str]:
        return list(
            dict.fromkeys(process.acts_in for process in self.processes() if self.has_leader(process))
        )

    def take_in(self, name: str) -> bool:
        """A domain's leader gives an asking process its place."""
        process = self.machines[name].process
        if process is None or not process.forming.asks_for_place:
            return False
        for other in self.processes():
            linked = (name, other.machine.name) in self.links
            if linked and other.joined and other.joined != process.acts_in and self.has_leader(other):
                self.taken_in.append(other.joined)
                process.joined = other.joined
                process.forming.rejoined(self.now_ns)
                process.act()
                self.relink(process)
                return True
        return False

    # --- what must hold

    def check_formed(self, state: FirstState) -> None:
        """Nobody believes in a domain that one of its places has not on disk, and an id means one first
        state.
        """
        for member in state.members:
            assert state in self.machines[member.place].history, (member, state)
        if state.domain_id not in self.formed:
            for earlier in self.formed.values():
                assert state.first_token > earlier.first_token
            self.formed[state.domain_id] = state
            self.formed_ns[state.domain_id] = self.now_ns
        assert self.formed[state.domain_id] == state

    def check(self) -> None:
        """One domain leads at a time, and a later one grants only when every lease of an earlier one is over."""
        leading = self.leading_domains()
        assert len(leading) <= 1, leading
        for domain in leading:
            quarantine_ns = self.formed[domain].quarantine_s * S
            if self.now_ns < self.formed_ns[domain] + quarantine_ns:
                continue
            self.served_ns[domain] = self.now_ns
            for other, last_ns in self.served_ns.items():
                assert other == domain or self.first_asked or self.now_ns - last_ns >= LEASE_MAX_NS
