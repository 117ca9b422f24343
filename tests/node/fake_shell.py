"""A few whole nodes in memory: one virtual clock, links and clients between them, disks, and one fault at a time.

Everything takes a fixed time, and nothing is random but what each node draws from its shell, so a test reads as one
story. What the simulator (`tests/sim`) searches for by chance, these tests state on purpose.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from heapq import heappop, heappush
from random import Random

import msgspec

from ticketing.node.node import Node
from ticketing.node.session import ClientSession
from ticketing.node.settings import Limits, NodeSettings, Place, S
from ticketing.node.shell import Link
from ticketing.protocol import frames
from ticketing.protocol.decoder import Reply, ReplyDecoder
from ticketing.protocol.handshake import ClientHandshake
from ticketing.raft.types import MS, RaftSettings

LATENCY_NS = 1 * MS
START_WALL_NS = 1_800_000_000 * S
"""January 2027."""
KIND_AT = 4
"""Where a peer frame's kind stands."""
OWNER = 1 << 63


class World:
    """Time, and what is to happen when."""

    def __init__(self) -> None:
        self.now_ns = 1_000 * S
        self.machines: dict[str, Machine] = {}
        """By peer address: who listens there."""
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._count = itertools.count()

    def at(self, when_ns: int, what: Callable[[], None]) -> None:
        heappush(self._events, (max(when_ns, self.now_ns), next(self._count), what))

    def after(self, wait_ns: int, what: Callable[[], None]) -> None:
        self.at(self.now_ns + wait_ns, what)

    def run(self, for_ns: int) -> None:
        end_ns = self.now_ns + for_ns
        while self._events and self._events[0][0] <= end_ns:
            when_ns, _, what = heappop(self._events)
            self.now_ns = when_ns
            what()
        self.now_ns = end_ns

    def until(self, true: Callable[[], object], within_ns: int = 30 * S) -> None:
        """Runs on until something is true; fails where it does not come true in time."""
        end_ns = self.now_ns + within_ns
        while not true():
            assert self._events, "nothing will happen any more"
            assert self._events[0][0] <= end_ns, "it did not come true in time"
            when_ns, _, what = heappop(self._events)
            self.now_ns = when_ns
            what()


class FakeLink(Link):
    """One end of a connection between two nodes."""

    __slots__ = ("machine", "open", "other", "waiting_bytes")

    def __init__(self, machine: Machine, address: str, *, inbound: bool, purpose: str) -> None:
        super().__init__(address, inbound=inbound, purpose=purpose)
        self.machine = machine
        self.other: FakeLink | None = None
        self.open = True
        self.waiting_bytes = 0


class Machine:
    """A place with its disk, its kernel and at most one process; `ticketing.node.shell.Shell` for that process."""

    def __init__(self, world: World, settings: NodeSettings, number: int) -> None:
        self.world = world
        self.settings = settings
        self.place = next(place for place in settings.places if place.name == settings.place)
        self.rng = Random(number)
        self.disk: dict[str, bytes] = {}
        self.wall_offset_ns = 0
        self.paused = False
        self.cut = False
        """Nothing leaves this machine and nothing reaches it; its connections stand."""
        self.drops: Callable[[str, int, bytes], bool] = lambda place, kind, payload: False
        """Whether a frame that is about to reach this machine (place of its sender, kind, payload) is lost."""
        self.stores_after_ns = MS
        self.lines: list[tuple[str, str, dict[str, object]]] = []
        """Log lines: level, event, facts."""
        self.stopped: tuple[int, str] | None = None
        self.links: dict[FakeLink, None] = {}
        self.clients: dict[ClientSession, Client] = {}
        self._opening: Client | None = None
        self._inbox: list[Callable[[], object]] = []
        self._waking = False
        self._flush = False
        self._timer = 0
        self.node: Node | None = None

    # --- its process

    def start(self) -> Node:
        """A new process life, with what the disk says."""
        assert self.node is None
        record = msgspec.json.decode(self.disk["record.json"]) if "record.json" in self.disk else None
        floor = msgspec.json.decode(self.disk["floor.json"]) if "floor.json" in self.disk else None
        if record is not None:
            self.settings = msgspec.structs.replace(
                self.settings,
                earlier_domain=record["domain"],
                earlier_first_token=int(floor["first_token"]) if floor else 0,
            )
        self.stopped = None
        self.paused = False
        self._flush = False
        self.node = node = Node(self.settings, self)
        self.world.machines[self.place.peer] = self
        self.call(node.start)
        return node

    @property
    def up(self) -> Node:
        assert self.node is not None
        return self.node

    def kill(self) -> None:
        """The process is gone; its kernel closes every connection."""
        self.node = None
        self._inbox.clear()
        self.world.machines.pop(self.place.peer, None)
        for link in list(self.links):
            self.hang_up(link)
        for client in list(self.clients.values()):
            self.world.after(LATENCY_NS, client.closed_by_server)
        self.clients.clear()

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        """Goes on: what lies in its sockets first, then the time."""
        self.paused = False
        self._wake()
        if self.node is not None:
            self._tick(self._timer)

    def call(self, what: Callable[[], object]) -> None:
        """Has something done in a turn of the process's loop."""
        self._inbox.append(what)
        if not self._waking and not self.paused:
            self._waking = True
            self.world.at(self.world.now_ns, self._wake)

    def _wake(self) -> None:
        self._waking = False
        if self.paused or self.node is None:
            return
        inbox, self._inbox = self._inbox, []
        for what in inbox:
            if self.node is not None:
                what()
        self.end_turn()

    def end_turn(self) -> None:
        """The flush that was asked for, and the one timer."""
        node = self.node
        if node is None:
            return
        if self._flush:
            self._flush = False
            node.flush()
        if self.stopped is not None:
            self.kill()
            return
        self._timer += 1
        timer = self._timer
        self.world.at(node.next_deadline_ns(), lambda: self._tick(timer))

    def _tick(self, timer: int) -> None:
        if timer == self._timer and not self.paused and self.node is not None:
            self.node.tick()
            self.end_turn()

    # --- Shell

    def elapsed_ns(self) -> int:
        return self.world.now_ns

    def wall_ns(self) -> int:
        return self.world.now_ns + START_WALL_NS + self.wall_offset_ns

    def random_bytes(self, count: int) -> bytes:
        return self.rng.randbytes(count)

    def request_flush(self) -> None:
        self._flush = True

    def _client(self, session: ClientSession) -> Client:
        client = self.clients.get(session)
        if client is None:
            assert self._opening is not None
            client = self.clients[session] = self._opening
        return client

    def write(self, session: ClientSession, data: bytes) -> None:
        client = self._client(session)
        client.written += len(data)
        self.world.after(LATENCY_NS, lambda: client.received(data))

    def finish(self, session: ClientSession, last: bytes) -> None:
        client = self._client(session)
        self.world.after(LATENCY_NS, lambda: client.received(last))
        self.world.after(LATENCY_NS, client.closed_by_server)

    def refuse(self, session: ClientSession, last: bytes) -> None:
        client = self._client(session)
        self.world.after(S, lambda: client.received(last))
        self.world.after(S, client.closed_by_server)

    def admitted(self, session: ClientSession) -> None:
        pass

    def dial(self, address: str, purpose: str) -> FakeLink:
        link = FakeLink(self, address, inbound=False, purpose=purpose)
        self.links[link] = None
        self.world.after(LATENCY_NS, lambda: self._dialled(link))
        return link

    def _dialled(self, link: FakeLink) -> None:
        if not link.open or self.cut:
            return
        target = self.world.machines.get(link.address)
        if target is None:
            link.open = False
            self.links.pop(link, None)
            self.call(lambda: self.up.link_down(link, refused=True))
        elif not target.cut:
            other = FakeLink(target, self.place.peer, inbound=True, purpose="")
            target.links[other] = None
            link.other, other.other = other, link
            target.call(lambda: target.up.link_up(other) if other.open else None)
            self.call(lambda: self.up.link_up(link) if link.open else None)

    def send(self, link: Link, frame: bytes) -> None:
        assert isinstance(link, FakeLink)
        other = link.other
        if other is not None and link.open:
            self.world.after(LATENCY_NS, lambda: self._arrives(other, frame))

    def _arrives(self, end: FakeLink, frame: bytes) -> None:
        target = end.machine
        if not end.open or self.cut or target.cut:
            return
        if target.drops(self.place.name, frame[KIND_AT], frame[KIND_AT + 1 :]):
            return
        target.call(lambda: target.up.link_data(end, frame) if end.open else None)

    def buffered(self, link: Link) -> int:
        assert isinstance(link, FakeLink)
        return link.waiting_bytes

    def hang_up(self, link: Link) -> None:
        assert isinstance(link, FakeLink)
        if link.open:
            link.open = False
            self.links.pop(link, None)
            if link.other is not None:
                other = link.other
                self.world.after(LATENCY_NS, lambda: self._hung_up(other))

    def _hung_up(self, end: FakeLink) -> None:
        target = end.machine
        if self.cut or target.cut or not end.open:
            return

        def down() -> None:
            if end.open:
                end.open = False
                target.links.pop(end, None)
                target.up.link_down(end, refused=False)

        target.call(down)

    def store(self, name: str, content: bytes, done: Callable[[], None]) -> None:
        life = self.node

        def written() -> None:
            if self.node is life:
                self.disk[name] = content
                self.call(done)

        self.world.after(self.stores_after_ns, written)

    def remove(self, name: str) -> None:
        self.disk.pop(name, None)

    def stop(self, status: int, reason: str) -> None:
        if self.stopped is None:
            self.stopped = (status, reason)

    def log(self, level: str, event: str, **facts: object) -> None:
        self.lines.append((level, event, facts))

    def logged(self, event: str) -> int:
        return sum(line[1] == event for line in self.lines)

    # --- clients

    def connect(self, source: str = "10.0.0.9") -> Client:
        """A client connection to this machine."""
        client = Client(self, source)

        def open_session() -> None:
            self._opening = client
            client.session = self.up.session_opened(source, f"{source}:4000")
            self.clients[client.session] = client
            self._opening = None

        self.call(open_session)
        return client


class Client:
    """One client connection: authenticates by itself, keeps every reply."""

    def __init__(self, machine: Machine, source: str) -> None:
        self.machine = machine
        self.source = source
        self.session: ClientSession | None = None
        self.handshake = ClientHandshake("")
        self.ready = False
        self.closed = False
        self.written = 0
        self.keepalives = 0
        self.replies: list[Reply] = []
        self._decoder = ReplyDecoder()
        self._tail = b""

    def received(self, data: bytes) -> None:
        if not self.ready:
            answer = self.handshake.feed(data)
            if answer:
                self.send(answer)
            if self.handshake.outcome != "ready":
                return
            self.ready = True
            data = self.handshake.rest
        if data == frames.KEEPALIVE:
            self.keepalives += 1
        self.replies += self._decoder.feed(data)
        assert self._decoder.problem is None, self._decoder.detail

    def closed_by_server(self) -> None:
        """The server has closed: so do we."""
        if not self.closed:
            self.close()

    def close(self, *, by_timeout: bool = False) -> None:
        self.closed = True
        machine, session = self.machine, self.session
        if session is None or session not in machine.clients:
            return
        del machine.clients[session]
        machine.call(lambda: machine.up.session_ended(session, by_timeout=by_timeout))

    def send(self, data: bytes) -> None:
        """Bytes for the server; they arrive in one piece."""
        session = self.session
        assert session is not None
        machine = self.machine

        def arrives() -> None:
            if session in machine.clients:
                machine.call(lambda: machine.up.session_data(session, data))

        machine.world.after(LATENCY_NS, arrives)

    # --- what was said

    def said(self, opcode: int) -> list[Reply]:
        """The replies with this opcode."""
        return [reply for reply in self.replies if reply[0] == opcode]

    def word(self) -> str:
        """The opcodes of all replies, in order."""
        return "".join(chr(reply[0]) for reply in self.replies)

    def token(self) -> int:
        """The token of the only grant."""
        (grant,) = self.said(frames.GRANTED) + self.said(frames.GRANTED_WAITED)
        return grant[1]


class Cluster:
    """Places `a`, `b`, `c` (or more) with one permit and configuration."""

    def __init__(
        self,
        count: int = 3,
        *,
        permit: str = "permit",
        raft: RaftSettings | None = None,
        limits: Limits | None = None,
        client_tokens: tuple[str, ...] = (),
        snapshot_bytes_per_s: int = 64 << 20,
    ) -> None:
        self.world = World()
        names = "abcde"[:count]
        places = tuple(Place(name, f"{name}:5225", f"{name}:6225", f"{name}:7225") for name in names)
        if count == 1:
            places = (places[0]._replace(peer=""),)  # a standalone node has no such port
        self.machines = [
            Machine(
                self.world,
                NodeSettings(
                    place=name,
                    places=places,
                    standalone=count == 1,
                    peer_secrets=(b"secret",),
                    client_tokens=client_tokens,
                    cluster="digest",
                    permit=permit,
                    permit_made_ms=(self.world.now_ns + START_WALL_NS) // MS,
                    raft=raft or RaftSettings(),
                    limits=limits or Limits(),
                    snapshot_bytes_per_s=snapshot_bytes_per_s,
                    version="1",
                ),
                number,
            )
            for number, name in enumerate(names)
        ]

    def start(self) -> None:
        for machine in self.machines:
            machine.start()

    def serving(self) -> list[Machine]:
        """Those that think that they lead and serve."""
        return [
            machine
            for machine in self.machines
            if machine.node is not None and machine.node.lead is not None and machine.node.lead.serving
        ]

    @property
    def leader(self) -> Machine:
        (leader,) = self.serving()
        return leader

    @property
    def followers(self) -> list[Machine]:
        leader = self.leader
        return [machine for machine in self.machines if machine is not leader and machine.node is not None]

    def settle(self) -> None:
        """Until one leader serves, the gate is open and everybody knows the leader."""

        def settled() -> bool:
            if len(self.serving()) != 1:
                return False
            lead = self.leader.up.lead
            assert lead is not None
            address = self.leader.place.client
            living = [machine for machine in self.machines if machine.node is not None and not machine.cut]
            return lead.desk.gate_open and all(
                machine.up.clients.leader_address == address for machine in living if not machine.paused
            )

        self.world.until(settled)

    def connect(self, machine: Machine, source: str = "10.0.0.9") -> Client:
        """An open session."""
        client = machine.connect(source)
        self.world.until(lambda: client.ready)
        return client

    def ask(self, client: Client, data: bytes, opcodes: bytes) -> Reply:
        """Sends and waits for one reply with one of these opcodes."""
        before = len(client.replies)
        client.send(data)
        self.world.until(lambda: any(reply[0] in opcodes for reply in client.replies[before:]))
        return next(reply for reply in client.replies[before:] if reply[0] in opcodes)


def formed(count: int = 3, **options: object) -> Cluster:
    """A cluster that serves."""
    cluster = Cluster(count, **options)  # type: ignore[arg-type]
    cluster.start()
    cluster.settle()
    return cluster
