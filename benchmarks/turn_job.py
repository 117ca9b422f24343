"""The nodes for `benchmarks.turn`, all in one process. Run as a file, so that PYTHONPATH decides whose logic it is.

Arguments: how many nodes, 1 or 3. Each line of its input is `<workload> <rounds>`; each line of its output is JSON: for
each part of a round the median nanoseconds that it took. There are no sockets: what a node writes is handed to whom it
is for, one node at a time, so no part is interrupted by another. Clocks are the real ones.

Workloads: `one` (1 worker, own key), `many` (64 workers, own keys), `queue` (4 keys, 16 workers each). A round is an
acquire and its release of each worker, one after the other (of `queue`: a hand-over of each key, in which the former
holder asks again); what it takes is told for the round, all workers together.
"""

from __future__ import annotations

import gc
import json
import os
import select
import statistics
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import TextIO

from ticketing.node.node import Node
from ticketing.node.session import ClientSession
from ticketing.node.settings import NodeSettings, Place
from ticketing.node.shell import Link
from ticketing.protocol import frames
from ticketing.protocol.decoder import Reply, ReplyDecoder
from ticketing.protocol.handshake import ClientHandshake
from ticketing.server.clock import elapsed_ns

PLACES = tuple(Place(name, f"{name}:5225", f"{name}:6225", f"{name}:7225") for name in "abc")
LEASE_S = 30
WAIT_S = 255
MS = 1_000_000
OWNERS_FROM = 1 << 63
READY_WITHIN_NS = 10_000 * MS
FOREVER_NS = 1 << 62
IDLE_S = 0.02


class Wire(Link):
    """One end of a link between two nodes."""

    __slots__ = ("other", "process")

    def __init__(self, process: Process, address: str, *, inbound: bool, purpose: str) -> None:
        super().__init__(address, inbound=inbound, purpose=purpose)
        self.process = process
        self.other: Wire | None = None


class Client:
    """The one client session: all workers speak on it, as they do on a broker's."""

    def __init__(self) -> None:
        self.session: ClientSession | None = None
        self.process: Process | None = None
        self.ready = False
        self.replies: list[Reply] = []
        self._handshake = ClientHandshake("")
        self._decoder = ReplyDecoder()

    def received(self, data: bytes) -> None:
        if not self.ready:
            answer = self._handshake.feed(data)
            if answer:
                self.send(answer)
            if self._handshake.outcome != "ready":
                return
            self.ready = True
            data = self._handshake.rest
        self.replies += self._decoder.feed(data)

    def send(self, data: bytes) -> None:
        assert self.process is not None
        session = self.session
        assert session is not None
        self.process.inbox.append(("request", lambda node: node.session_data(session, data)))


class Process:
    """One node and its shell (`ticketing.node.shell.Shell`)."""

    def __init__(self, world: World, place: Place, places: tuple[Place, ...]) -> None:
        self.elapsed_ns = elapsed_ns
        self.wall_ns = time.time_ns
        self.random_bytes = os.urandom
        self.world = world
        self.place = place
        self.inbox: deque[tuple[str, Callable[[Node], object]]] = deque()
        self.deadline_ns = 0
        self._flush = False
        settings = NodeSettings(
            place=place.name,
            places=places,
            standalone=len(places) == 1,
            peer_secrets=(b"secret",),
            cluster="digest",
            permit="permit",
            permit_made_ms=time.time_ns() // MS,
        )
        self.node = Node(settings, self)

    # --- the loop

    def run(self, spent: dict[str, int]) -> None:
        """Hands in all that has come, then the flush; adds to `spent` what each took, by what came first."""
        clock = time.perf_counter_ns
        inbox, node = self.inbox, self.node
        first = inbox[0][0]
        for _ in range(len(inbox)):
            kind, call = inbox.popleft()
            began = clock()
            call(node)
            spent[kind] = spent.get(kind, 0) + clock() - began
        if self._flush:
            self._flush = False
            began = clock()
            node.flush()
            self.deadline_ns = node.next_deadline_ns()
            spent[f"flush after {first}"] = spent.get(f"flush after {first}", 0) + clock() - began

    def tick(self) -> None:
        self.node.tick()
        if self._flush:
            self._flush = False
            self.node.flush()
        self.deadline_ns = self.node.next_deadline_ns()

    # --- Shell

    def request_flush(self) -> None:
        self._flush = True

    def write(self, session: ClientSession, data: bytes) -> None:
        del session
        self.world.out.append(lambda: self.world.client.received(data))

    def finish(self, session: ClientSession, last: bytes) -> None:
        raise AssertionError(f"the node ends the session {session.remote}: {last!r}")

    refuse = finish

    def admitted(self, session: ClientSession) -> None:
        """There is no door."""

    def dial(self, address: str, purpose: str) -> Wire:
        own = Wire(self, address, inbound=False, purpose=purpose)
        target = self.world.processes[address]
        other = Wire(target, self.place.peer, inbound=True, purpose="")
        own.other, other.other = other, own
        target.inbox.append(("link", lambda node: node.link_up(other)))
        self.inbox.append(("link", lambda node: node.link_up(own)))
        return own

    def send(self, link: Link, frame: bytes) -> None:
        assert isinstance(link, Wire)
        other = link.other
        assert other is not None
        target = other.process
        kind = "ack" if target.leads else "append"
        target.inbox.append((kind, lambda node: node.link_data(other, frame)))

    @property
    def leads(self) -> bool:
        return self.node.lead is not None

    def buffered(self, link: Link) -> int:
        del link
        return 0

    def hang_up(self, link: Link) -> None:
        raise AssertionError(f"a node hangs up on {link.address}")

    def store(self, name: str, content: bytes, done: Callable[[], None]) -> None:
        del name, content
        self.inbox.append(("disk", lambda _node: done()))

    def remove(self, name: str) -> None:
        """There is no disk."""

    def stop(self, status: int, reason: str) -> None:
        raise AssertionError(f"a node stops with {status}: {reason}")

    def log(self, level: str, event: str, **facts: object) -> None:
        """Nobody reads it."""


class World:
    """All nodes, and the client of the one that leads."""

    def __init__(self, nodes: int) -> None:
        places = PLACES[:nodes]
        self.client = Client()
        self.out: deque[Callable[[], None]] = deque()
        self.processes: dict[str, Process] = {}
        for place in places:
            self.processes[place.peer] = Process(self, place, places)
        for process in self.processes.values():
            process.node.start()
            process.tick()
        self.until(lambda: self.leader() is not None)
        leader = self.leader()
        assert leader is not None
        self.client.process = leader
        leader.inbox.append(("open", self._open))
        self.until(lambda: self.client.ready)

    def _open(self, node: Node) -> None:
        self.client.session = node.session_opened("10.0.0.9", "10.0.0.9:4000")

    def leader(self) -> Process | None:
        for process in self.processes.values():
            lead = process.node.lead
            if lead is not None and lead.serving and lead.desk.gate_open:
                return process
        return None

    def until(
        self,
        true: Callable[[], object],
        spent: dict[str, int] | None = None,
        within_ns: int = READY_WITHIN_NS,
    ) -> None:
        """Lets the nodes run until something is true. `spent`: what each part took, ticks not among it."""
        spent = {} if spent is None else spent
        end_ns = elapsed_ns() + within_ns
        while not true():
            for process in self.processes.values():
                if process.inbox:
                    process.run(spent)
                while self.out:
                    self.out.popleft()()
            now_ns = elapsed_ns()
            if now_ns > end_ns:
                raise SystemExit("the nodes do not go on")
            for process in self.processes.values():
                if process.deadline_ns <= now_ns:
                    process.tick()

    def wait_for(self, source: TextIO) -> None:
        """Until there is something to read: the nodes hear of each other meanwhile, or they would part."""
        self.until(lambda: select.select([source], [], [], IDLE_S)[0], within_ns=FOREVER_NS)

    def answered(self, count: int, spent: dict[str, int]) -> None:
        """Until so many answers have come, and whatever else that set going is done."""
        replies, processes = self.client.replies, self.processes.values()
        self.until(lambda: len(replies) >= count and not any(process.inbox for process in processes), spent)


def steps(client: Client, keys: list[bytes], workers: int) -> Iterator[tuple[bytes, int]]:
    """What the workers send next, and how many answers that has: acquires, then releases of what was granted."""
    owner = OWNERS_FROM + elapsed_ns()
    of_worker = {owner + worker: keys[worker % len(keys)] for worker in range(workers)}
    yield b"".join(frames.encode_q(WAIT_S, LEASE_S, mine, key) for mine, key in of_worker.items()), len(keys)
    while True:
        grants = [reply for reply in client.replies if reply[0] in (frames.GRANTED, frames.GRANTED_WAITED)]
        client.replies.clear()
        if len(keys) == workers:
            yield b"".join(frames.encode_release(reply[1], reply[-1]) for reply in grants), workers
            client.replies.clear()
            owner += workers
            yield (
                b"".join(frames.encode_q(WAIT_S, LEASE_S, owner + n, key) for n, key in enumerate(keys)),
                workers,
            )
        else:
            asked = []
            for reply in grants:
                owner += workers
                asked.append(frames.encode_release(reply[1], reply[-1]))
                asked.append(frames.encode_q(WAIT_S, LEASE_S, owner, reply[-1]))
            yield b"".join(asked), 2 * len(keys)


def measure(world: World, workload: str, rounds: int) -> dict[str, float]:
    workers = 1 if workload == "one" else 64
    count = 4 if workload == "queue" else workers
    mark = elapsed_ns()  # what former rounds left waiting is on other keys
    keys = [b"%d-%d" % (mark, number) for number in range(count)]
    client = world.client
    client.replies.clear()
    taken: dict[str, list[int]] = {}
    going: dict[str, int] = {}
    steps_a_round = 1 if workload == "queue" else 2
    for number, (data, answers) in enumerate(steps(client, keys, workers)):
        if number % steps_a_round == 0:
            for part, took in going.items():
                taken.setdefault(part, []).append(took)
            going = {}
        if number == steps_a_round * rounds:
            break
        client.send(data)
        world.answered(answers, going)
    return {part: statistics.median(each) for part, each in taken.items()}


def serve(nodes: int) -> None:
    world = World(nodes)
    gc.freeze()
    gc.disable()
    while True:
        world.wait_for(sys.stdin)
        line = sys.stdin.readline()
        if not line:
            return
        workload, rounds = line.split()
        print(json.dumps(measure(world, workload, int(rounds))), flush=True)


if __name__ == "__main__":
    serve(int(sys.argv[1]))
