"""One life of a node's process: what its kernel keeps for it, when its loop runs, and how it ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tests.sim.network import End, Network
from tests.sim.observed import ObservedNode, Observer
from tests.sim.shell import Disk, SimLink, SimShell
from tests.sim.world import MS, Clock, S, World
from ticketing.node.session import ClientSession
from ticketing.node.settings import NodeSettings
from ticketing.raft.election import Role
from ticketing.raft.types import RaftSettings

DRAIN_NS = 1 * S
DOUBT_NS = RaftSettings().election_timeout_min_ns
HANDSHAKE_NS = 5 * S
"""From accept to authentication (spec 3)."""


class Item(NamedTuple):
    """Something for the node; items of one connection keep their order."""

    end: End | None
    data: bytes
    call: Callable[[], None] | None


class Temper:
    """How a loop takes its inputs; drawn once a run."""

    __slots__ = ("alone", "cut_up", "late_flush", "leaves_rest", "loop_ns", "shuffle", "timer_ns")

    def __init__(self, world: World) -> None:
        chance = world.rng.choice
        self.loop_ns = (0, chance((0, 50_000, 500_000, 5 * MS)))
        """From the arrival of something to the turn that reads it."""
        self.timer_ns = chance((MS, MS, 10 * MS, 20 * MS))
        """How much later than asked for its timers come at most."""
        self.alone = chance((0.0, 0.1, 0.5))
        """How often a turn takes one item only."""
        self.shuffle = chance((0.0, 0.5, 1.0))
        """How often the connections are read in another order than that of arrival."""
        self.late_flush = chance((0.0, 0.1, 0.5))
        """How often time passes, and perhaps more arrives, before a turn ends."""
        self.cut_up = chance((0.0, 0.0, 0.05))
        """How often a chunk of bytes comes in two pieces."""
        self.leaves_rest = chance((0.0, 1.0))
        """How often a client's connection is over before what was read of it has reached the node."""

    def calm_down(self) -> None:
        """Loops with some load: more is done in each turn, and there are fewer of them."""
        self.alone = self.late_flush = self.cut_up = 0.0
        self.loop_ns = (1 * MS, 6 * MS)
        self.timer_ns = 20 * MS


class Process:
    """A process and its node. `ended` is called when it is over."""

    def __init__(
        self,
        world: World,
        network: Network,
        clock: Clock,
        disk: Disk,
        machine: str,
        settings: NodeSettings,
        places: dict[str, str],
        temper: Temper,
        name: str,
        observer: Observer,
        ended: Callable[[Process, int, str], None],
    ) -> None:
        self.world = world
        self.network = network
        self.clock = clock
        self.name = name
        self.machine = machine
        self.born_ns = world.now
        self.alive = True
        self.paused = False
        self.frozen = False
        """It is paused for good."""
        self.stopping = False
        self.turn_began_ns = 0
        """The elapsed clock when the present turn began."""
        self.doubtful_term = 0
        """It led this term when the present turn began, after a gap in which another one may have been elected."""
        self.decided_from_ns = 0
        """What is proposed in this turn was decided in one that began then, or later: most often in this one."""
        self.gate_closed_since_decided = False
        """Within these turns the leader's gate was closed, or requests were held back from its desk."""
        self._temper = temper
        self._observe = observer.after_turn
        self.on_turn: Callable[[Process], None] = lambda _process: None
        """Called after every turn, behind the observer."""
        self._ended = ended
        self._inbox: list[Item] = []
        self._waking = False
        self._flush_asked = False
        self._timer_ns: int | None = None
        """When the timer fires, and below, by the elapsed clock, for what it was set."""
        self._deadline_ns = 0
        self._sessions: dict[End, ClientSession] = {}
        self._finishing: dict[End, None] = {}
        self.shell = SimShell(world, network, clock, disk, self, places)
        self.node = ObservedNode(settings, self.shell, self, observer)
        place = self.node.place
        network.listen(place.client, self.machine, self)
        if place.peer:
            network.listen(place.peer, self.machine, self)
        self.call(self.node.start)

    # --- what the node's shell asks

    def ask_flush(self) -> None:
        """A turn has begun."""
        self._flush_asked = True
        self.turn_began_ns = self.clock.elapsed_ns()
        self.doubtful_term = 0
        node = self.node
        lead = node.lead
        held = bool(node.clients._held)
        self._look_for_doubt()
        carried_over = lead is not None and (lead.desk.has_pending or bool(lead._entries))
        if not carried_over:
            self.decided_from_ns = self.turn_began_ns
        # The desk still shows the gate of the turn before.
        closed = lead is not None and not lead.desk.gate_open
        self.gate_closed_since_decided = held or (carried_over and (closed or self.gate_closed_since_decided))

    def _look_for_doubt(self) -> None:
        """A leader that stood still for so long may have been followed by another one."""
        node = self.node
        if self.clock.elapsed_ns() - node.loop_turn.seen_ns > DOUBT_NS:
            raft = node.raft
            if raft is not None and raft.role is Role.LEADER:
                self.doubtful_term = raft.term

    def peer_at(self, end: End) -> Process | None:
        """The process whose end of a connection this is."""
        return end.host if isinstance(end.host, Process) else None

    def finishing(self, end: End) -> None:
        """The last bytes of a session are out: what it still sends is discarded, for a while."""
        self._finishing[end] = None
        self.world.after(DRAIN_NS, lambda: self._drained(end))

    def _drained(self, end: End) -> None:
        if self.alive and not end.ended:
            self.network.hang_up(end)
            self.call(lambda: self._session_over(end, by_timeout=False), end)

    def slow(self, session: ClientSession, end: End) -> None:
        """A client does not read."""
        self.call(lambda: None if end.ended else self.node.session_slow(session), end)

    def exit(self, status: int, reason: str) -> None:
        """The node ends the process."""
        self._over()
        self.world.say(self.name, "exit", f"{status} {reason}")
        self._ended(self, status, reason)

    # --- what its kernel gets (Host)

    def accepted(self, end: End, purpose: str) -> None:
        if purpose == "client":
            self.call(lambda: self._open(end), end)
        else:
            end.io = link = SimLink(end.address, inbound=True, purpose="")
            link.end = end
            self.call(lambda: self.node.link_up(link), end)

    def _open(self, end: End) -> None:
        self.shell.opening = end
        session = self.node.session_opened(end.address, f"{end.address}:1")
        self.shell.opening = None
        session.io = end
        self._sessions[end] = session
        self.world.after(HANDSHAKE_NS, lambda: self._overdue(end, session))

    def _overdue(self, end: End, session: ClientSession) -> None:
        if session.handshake is not None and not end.ended:
            self.call(lambda: None if end.ended else self.node.session_overdue(session), end)

    def connected(self, end: End) -> None:
        link = end.io
        assert isinstance(link, SimLink)
        self.call(lambda: self.node.link_up(link) if end.io is link else None, end)

    def refused(self, end: End, *, by_host: bool) -> None:
        link = end.io
        assert isinstance(link, SimLink)
        self.call(lambda: self.node.link_down(link, refused=by_host) if end.io is link else None, end)

    def arrived(self, end: End, data: bytes) -> None:
        self._put(Item(end, data, None))

    def lost(self, end: End, *, by_timeout: bool) -> None:
        link = end.io
        if isinstance(link, SimLink):
            self.call(lambda: self.node.link_down(link, refused=False) if end.io is link else None, end)
            return
        session = self._sessions.get(end)
        rest = b""
        if session is not None and session.handshake is None and self.world.chance(self._temper.leaves_rest):
            rest = b"".join(item.data for item in self._inbox if item.end is end)
            self._inbox = [item for item in self._inbox if item.end is not end or item.call is not None]
        self.call(lambda: self._session_over(end, by_timeout=by_timeout, rest=rest), end)

    def _session_over(self, end: End, *, by_timeout: bool, rest: bytes = b"") -> None:
        finishing = end in self._finishing
        self._finishing.pop(end, None)
        session = self._sessions.pop(end, None)
        if session is None:
            return
        takes_rest = not finishing and not session.ended
        self.node.session_ended(session, by_timeout=by_timeout)
        if rest and takes_rest:
            at = self.world.rng.randrange(len(rest)) + 1
            self.call(lambda: self.node.session_rest(session, rest[:at]))
            if rest[at:]:
                self.call(lambda: self.node.session_rest(session, rest[at:]))

    # --- the loop

    def call(self, what: Callable[[], None], end: End | None = None) -> None:
        """Has the node called in one of its turns, behind what arrived on the connection before."""
        self._put(Item(end, b"", what))

    def _put(self, item: Item) -> None:
        self._inbox.append(item)
        if not self._waking and not self.paused and self.alive:
            self._waking = True
            self.world.after(self.world.between(*self._temper.loop_ns), self._wake)

    def _wake(self) -> None:
        self._waking = False
        if not self.alive or self.paused:
            return
        alone = len(self._inbox) > 1 and self.world.chance(self._temper.alone)
        self._read(1 if alone else len(self._inbox))
        self._end_turn()
        if self._inbox and not self._waking and self.alive:
            self._waking = True
            self.world.after(0, self._wake)

    def _read(self, count: int) -> None:
        """Hands the first items of the inbox to the node."""
        items, self._inbox = self._inbox[:count], self._inbox[count:]
        temper, world = self._temper, self.world
        if len(items) > 1 and world.chance(temper.shuffle):
            rank: dict[End | None, float] = {}
            for item in items:
                if item.end not in rank:
                    rank[item.end] = world.rng.random()
            items.sort(key=lambda item: rank[item.end])
        for item in items:
            if not self.alive:
                return
            end = item.end
            if item.call is not None:
                item.call()
            elif end is not None:
                if len(item.data) > 1 and world.chance(temper.cut_up):
                    at = world.rng.randrange(1, len(item.data))
                    self._data(end, item.data[:at])
                    self._data(end, item.data[at:])
                else:
                    self._data(end, item.data)

    def _data(self, end: End, data: bytes) -> None:
        link = end.io
        if not self.alive:
            return
        if isinstance(link, SimLink):
            self.node.link_data(link, data)
        elif end in self._sessions and end not in self._finishing:
            self.node.session_data(self._sessions[end], data)

    def _end_turn(self) -> None:
        if self._flush_asked and self.alive:
            if self.world.chance(self._temper.late_flush):
                self.world.after(self.world.between(1_000, MS), self._flush)
            else:
                self._flush()
        elif self.alive:
            self._arm()

    def _flush(self) -> None:
        if self.alive and self._flush_asked and not self.paused:
            self._flush_asked = False
            self._look_for_doubt()
            self.node.flush()
            self._observe(self)
            self.on_turn(self)
            self._arm()

    def _arm(self) -> None:
        if not self.alive:
            return
        deadline_ns = self.node.next_deadline_ns()
        if self._timer_ns is None or deadline_ns < self._deadline_ns:
            self._deadline_ns = deadline_ns
            # Whole milliseconds, rounded up, as a loop's timers are, or more on a busy machine.
            late_ns = 1 + int(self.world.rng.random() * self._temper.timer_ns)
            self._timer_ns = due = max(self.clock.true_ns(deadline_ns), self.world.now) + late_ns
            self.world.at(due, lambda: self._fire(due))

    def _fire(self, due: int) -> None:
        if self._timer_ns != due or not self.alive or self.paused:
            return
        self._timer_ns = None
        self._read(len(self._inbox))
        if self.alive:
            self.node.tick()
            self._end_turn()

    # --- faults

    def pause(self, for_ns: int) -> None:
        """The process stands still; its kernel does not."""
        if self.alive and not self.paused:
            self.paused = True
            self.world.say(self.name, "pause", f"{for_ns // MS} ms")
            self.world.after(for_ns, self.resume)

    def freeze(self) -> None:
        """It stands still until the end."""
        self.paused = self.frozen = True
        self.world.say(self.name, "freeze")

    def resume(self) -> None:
        """It goes on: what lies in its sockets first, then the time."""
        if not self.alive or not self.paused or self.frozen:
            return
        self.paused = False
        self.world.say(self.name, "resume")
        self._timer_ns = None
        if self._flush_asked and self.world.chance(0.5):
            self._flush()
        if self._inbox and not self._waking:
            self._waking = True
            self.world.after(0, self._wake)
        self.world.after(self.world.rng.randrange(2 * MS), self._tick_after_pause)

    def _tick_after_pause(self) -> None:
        if self.alive and not self.paused:
            self._timer_ns = self.world.now
            self._fire(self.world.now)

    def kill(self, *, power: bool) -> None:
        """SIGKILL, or the machine loses power."""
        if self.alive:
            self.world.say(self.name, "power off" if power else "kill")
            if power:
                self.network.power_off(self.machine)
            self._over()

    def stop(self) -> None:
        """SIGTERM."""
        if self.alive and not self.stopping:
            self.stopping = True
            self.world.say(self.name, "stop")
            self.call(self.node.begin_stop)

    def _over(self) -> None:
        self.alive = False
        self._inbox.clear()
        self.network.drop_host(self)
