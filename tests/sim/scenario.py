"""One run: a cluster, its clients, and a swarm of faults drawn from the seed.

Phase 1 lets anything happen and demands safety. Phase 2 heals what can be healed; where a majority of the domain's
voters still lives it demands progress: a serving leader within `LEADER_WITHIN_NS`, and an answer to every request
that a living session sends within its wait and `ANSWER_WITHIN_NS`.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tests.sim.clients import Client, Manners
from tests.sim.history import History
from tests.sim.invariants import Invariants
from tests.sim.network import Network
from tests.sim.process import Process, Temper
from tests.sim.shell import Disk
from tests.sim.world import MS, PPB, WALL_START_NS, Clock, S, Violation, World
from ticketing.node.membership import FLOOR, PERMIT, RECORD
from ticketing.node.settings import Limits, NodeSettings, Place
from ticketing.raft.election import Role
from ticketing.raft.types import MIB, RaftSettings

RHO_PPB = PPB // 1000
DELTA_NS = 500 * MS
ELECTION_NS = 800 * MS
LEADER_WITHIN_NS = 10 * ELECTION_NS
"""Ten election timeouts from the healing to a leader that serves, new links and samples of the clocks included."""
ANSWER_WITHIN_NS = 10 * S
REJOINED_WITHIN_NS = 15 * S
"""From the start of a process to its place as a voter, others before it in the line included."""
CALM_NS = LEADER_WITHIN_NS + 12 * S
ENDS = (0, 12)
"""Exit statuses that are no fault: stopped, removed."""
GIVEN_UP = "given up before it became a voter"
"""A learner that was not caught up in time ends as failed, for its supervisor to start it anew."""


class Swarm:
    """Which faults this run has, and how strong. Rates are mean numbers a virtual minute."""

    __slots__ = (
        "clock_faults",
        "cuts",
        "even_rates",
        "far",
        "frames",
        "isolations",
        "kills",
        "nodes",
        "pauses",
        "phase_ns",
        "power",
        "rates_hold",
        "slow",
        "small_log",
        "stops",
        "tight",
        "tiny",
        "vanish",
    )

    def __init__(self, world: World) -> None:
        choice = world.rng.choice
        self.nodes = choice((3, 3, 5))
        self.phase_ns = choice((15, 30, 50)) * S
        self.kills = choice((0, 0, 4, 15, 40))
        self.power = choice((0.0, 0.5))
        """How many of the kills are losses of power."""
        self.pauses = choice((0, 0, 10, 60, 200))
        self.cuts = choice((0, 0, 10, 40, 120))
        self.slow = choice((0, 0, 10))
        self.frames = choice((0.0, 0.0, 0.01, 0.2))
        """How often a frame between peers is lost, doubled, or overtaken."""
        self.clock_faults = choice((0, 0, 5, 30))
        self.rates_hold = choice((True, True, True, True, False))
        self.even_rates = self.rates_hold and choice((True, True, False))
        """No two elapsed clocks differ by more than rho: only then is nobody's rate ever found wrong."""
        self.stops = choice((0, 0, 4, 15))
        self.vanish = choice((0, 0, 10))
        self.small_log = choice((True, True, False))
        self.tiny = choice((False, False, True))
        self.far = choice((1, 1, 1, 20, 150)) * MS
        """The greatest usual delay of every path."""
        self.tight = choice((False, False, True))
        """Election timeouts hardly differ: elections collide."""
        self.isolations = choice((0, 0, 15, 60))
        """Leaders that no peer hears any more while clients do: what they append meanwhile is in conflict later."""

    def __str__(self) -> str:
        return " ".join(f"{name}={getattr(self, name)}" for name in self.__slots__)


class Machine:
    """A place's machine: its clocks and its disk outlive processes."""

    def __init__(self, place: Place, clock: Clock) -> None:
        self.place = place
        self.clock = clock
        self.disk = Disk()
        self.process: Process | None = None
        self.lives = 0


class Scenario:
    """See the module. `run` raises `Violation`."""

    def __init__(self, seed: int, *, log: Callable[[str], None] | None = None) -> None:
        self.world = world = World(seed)
        world.log = log
        self.network = Network(world)
        self.swarm = swarm = Swarm(world)
        self.temper = Temper(world)
        self.network.usual = (100_000, swarm.far)
        self.manners = Manners(world)
        self.history = History()
        self.history.bounds_are_wide = not swarm.tiny
        self.history.on_cancel_answered = lambda owner, key: self.invariants.cancel_answered(owner, key)
        self.calm = False
        places = [
            Place(name, f"{name}:5225", f"{name}:6225", f"{name}:7225")
            for name in (f"node-{number}" for number in range(1, swarm.nodes + 1))
        ]
        self.places = tuple(places)
        self.machines = {place.name: Machine(place, self._clock(node=True)) for place in places}
        self._machine_of = {place.client: place.name for place in places} | {
            place.peer: place.name for place in places
        }
        clocks = {name: machine.clock for name, machine in self.machines.items()}
        self.invariants = Invariants(world, clocks, rates_hold=swarm.rates_hold, delta_ns=DELTA_NS)
        self._sessions = 0
        self._init_disks()
        for machine in self.machines.values():
            world.after(world.between(0, 2 * S), lambda machine=machine: self._start(machine))  # type: ignore[misc]
        self.clients: list[Client] = []
        for number in range(world.rng.choice((1, 3, 6))):
            self.clients.append(self._client(number))
        self._settings = self._raft_settings()
        world.say("world", "swarm", str(swarm))

    def _clock(self, *, node: bool) -> Clock:
        world, swarm = self.world, self.swarm
        rate = world.rng.choice((0, world.rng.randint(-RHO_PPB, RHO_PPB), world.rng.randint(-50_000, 50_000)))
        if node and swarm.even_rates:
            rate //= 2
        if node and not swarm.rates_hold and world.chance(0.3):
            rate = world.rng.choice((-20, 20)) * RHO_PPB
        return Clock(
            world,
            origin_ns=world.rng.randrange(0, 1000 * S),
            rate_ppb=rate,
            wall_ns=world.between(-DELTA_NS // 6, DELTA_NS // 6),
            wall_ppb=world.rng.randint(-100_000, 100_000),
        )

    def _raft_settings(self) -> RaftSettings:
        world, swarm = self.world, self.swarm
        keep = world.rng.choice((2_000, 20_000)) if swarm.small_log else 60_000
        longest = 405 * MS if swarm.tight else ELECTION_NS
        if not swarm.tiny:
            return RaftSettings(
                log_keep_bytes=keep, learner_log_bytes_max=MIB, election_timeout_max_ns=longest
            )
        return RaftSettings(
            log_keep_bytes=keep,
            election_timeout_max_ns=longest,
            learner_log_bytes_max=64 * 1024,
            uncommitted_bytes_max=8 * 1024,
            uncommitted_bytes_reserved=3 * 1024,
            inflight_bytes_max=1024,
            message_bytes_max=512,
        )

    def _limits(self) -> Limits:
        if not self.swarm.tiny:
            return Limits()
        return Limits(waiters_per_session=5, waiters_per_key=8, waiters=12, keys=4, sessions=20, held_back=5)

    def _init_disks(self) -> None:
        permit = {"permit": "permit-1", "made_ms": WALL_START_NS // MS}
        for machine in self.machines.values():
            machine.disk.files[PERMIT] = msgspec.json.encode(permit)

    def _client(self, number: int, manners: Manners | None = None) -> Client:
        def next_session() -> int:
            self._sessions += 1
            return self._sessions

        return Client(
            self.world,
            self.network,
            self._clock(node=False),
            self.history,
            manners or self.manners,
            {place.client: place.name for place in self.places},
            f"client-{number}",
            next_session,
            self.clients,
        )

    # --- processes

    def _node_settings(self, machine: Machine) -> NodeSettings:
        files = machine.disk.files
        permit = msgspec.json.decode(files[PERMIT])
        record = msgspec.json.decode(files[RECORD]) if RECORD in files else None
        floor = msgspec.json.decode(files[FLOOR]) if FLOOR in files else {"first_token": "0"}
        return NodeSettings(
            place=machine.place.name,
            places=self.places,
            peer_secrets=(b"a secret of the simulator's",),
            cluster="cluster",
            permit=permit["permit"],
            permit_made_ms=permit["made_ms"],
            earlier_first_token=max(int(floor["first_token"]), int(record["first_token"]) if record else 0),
            earlier_domain=record["domain"] if record else "",
            delta_ns=DELTA_NS,
            raft=self._settings,
            limits=self._limits(),
        )

    def _start(self, machine: Machine) -> None:
        if machine.process is not None and machine.process.alive:
            return
        self.network.power_on(machine.place.name)
        machine.lives += 1
        name = f"{machine.place.name}/{machine.lives}"
        self.world.say(name, "start")
        machine.process = Process(
            self.world,
            self.network,
            machine.clock,
            machine.disk,
            self._node_settings(machine),
            self._machine_of,
            self.temper,
            name,
            self.invariants.after_turn,
            self._ended,
        )

    def _ended(self, process: Process, status: int, reason: str) -> None:
        if status not in ENDS and not reason.startswith(GIVEN_UP):
            raise Violation("exit", f"{process.name} ends with {status}: {reason}")
        machine = self.machines[process.machine]
        self.world.after(self.world.between(100 * MS, 5 * S), lambda: self._start(machine))

    def living(self) -> list[Process]:
        """The processes that run, or will go on."""
        return [m.process for m in self.machines.values() if m.process is not None and m.process.alive]

    def leader(self) -> Process | None:
        """The one that leads the highest term."""
        leading = [
            (process.node.raft.term, process)
            for process in self.living()
            if process.node.raft is not None and process.node.raft.role is Role.LEADER
        ]
        return max(leading, key=lambda pair: pair[0])[1] if leading else None

    def majority_lives(self) -> bool:
        """Whether a majority of the newest committed configuration's voters, of both halves, is alive."""
        living = {process.node.raft.me: process for process in self.living() if process.node.raft is not None}
        if not living:
            return False
        rafts = [process.node.raft for process in living.values() if process.node.raft is not None]
        newest = max(rafts, key=lambda raft: (raft.commit_index, raft.last_index))
        configurations = [newest.committed_configuration, newest.configuration]
        for configuration in configurations:
            for voters in (configuration.voters, configuration.outgoing):
                if voters and sum(voter in living for voter in voters) * 2 <= len(voters):
                    return False
        return True

    # --- faults

    def _every(self, a_minute: float, what: Callable[[], None]) -> None:
        """Has `what` happen at random, so often on average, until the calm."""
        if not a_minute:
            return
        mean_ns = 60 * S / a_minute

        def happen() -> None:
            if not self.calm:
                what()
                self.world.after(int(self.world.rng.expovariate(1) * mean_ns) + 1, happen)

        self.world.after(int(self.world.rng.expovariate(1) * mean_ns) + 1, happen)

    def _faults(self) -> None:
        swarm, network = self.swarm, self.network
        self._every(swarm.kills, self._kill)
        self._every(swarm.pauses, self._pause)
        self._every(swarm.cuts, self._cut)
        self._every(swarm.isolations, self._isolate)
        self._every(swarm.slow, self._slow)
        self._every(swarm.clock_faults, self._clock_fault)
        self._every(swarm.stops, self._stop)
        self._every(swarm.vanish, self._vanish)
        network.frame_drop = network.frame_double = network.frame_reorder = swarm.frames

    def _victim(self) -> Process | None:
        """A running process; the leader more often than others."""
        rng = self.world.rng
        leader = self.leader()
        if leader is not None and rng.random() < 0.4:
            return leader
        living = self.living()
        return rng.choice(living) if living else None

    def _kill(self) -> None:
        victim, world = self._victim(), self.world
        if victim is None or not self._may_lose(victim):
            return
        victim.kill(power=world.chance(self.swarm.power))
        machine = self.machines[victim.machine]
        world.after(
            world.between(50 * MS, world.rng.choice((200, 2000, 15_000)) * MS), lambda: self._start(machine)
        )

    def _may_lose(self, victim: Process) -> bool:
        """Most runs keep a majority, or there would be nothing to see; some do not."""
        if self.world.seed % 16 == 0:
            return True
        raft = victim.node.raft
        if raft is None or not self.majority_lives():
            return True
        living = [process.node.raft.me for process in self.living() if process.node.raft is not None]
        configuration = raft.configuration
        return all(
            (sum(v in living for v in voters) - (raft.me in voters)) * 2 > len(voters)
            for voters in (configuration.voters, configuration.outgoing)
            if voters
        )

    def _pause(self) -> None:
        victim, world = self._victim(), self.world
        if victim is not None:
            victim.pause(world.rng.choice((5, 60, 200, 500, 1000, 3000, 8000)) * MS)

    def _ends(self) -> list[str]:
        return [*self.machines, *(client.name for client in self.clients)]

    def _cut(self) -> None:
        """One way between two, both ways, or one machine from many."""
        world, network, rng = self.world, self.network, self.world.rng
        leader = self.leader()
        victim = rng.choice(list(self.machines))
        if leader is not None and rng.random() < 0.5:
            victim = leader.machine
        others = [name for name in self._ends() if name != victim]
        among = rng.randrange(4)
        if among == 0:
            others = [rng.choice(others)]
        elif among == 1:
            others = [name for name in self.machines if name != victim]
        elif among == 2:
            others = [name for name in others if rng.random() < 0.5]
        kind = rng.randrange(3)
        pairs = [(victim, other) for other in others] if kind != 1 else []
        pairs += [(other, victim) for other in others] if kind != 0 else []
        for pair in pairs:
            network.cut(*pair)
        world.say("network", "cut", f"{victim} {('from it', 'to it', 'both ways')[kind]}: {' '.join(others)}")

        def heal() -> None:
            for pair in pairs:
                network.heal(*pair)
            world.say("network", "heal", victim)

        world.after(rng.choice((50, 300, 1000, 4000, 12000)) * MS, heal)

    def _isolate(self) -> None:
        """The leader alone on its side of a cut, or with one other, and with the clients."""
        world, network, rng = self.world, self.network, self.world.rng
        leader = self.leader()
        if leader is None:
            return
        others = [name for name in self.machines if name != leader.machine]
        if rng.random() < 0.3:
            others.remove(rng.choice(others))
        pairs = [(leader.machine, other) for other in others]
        if rng.random() < 0.7:
            pairs += [(other, leader.machine) for other in others]
        for pair in pairs:
            network.cut(*pair)
        world.say("network", "isolate", f"{leader.machine} from {' '.join(others)}")

        def heal() -> None:
            for pair in pairs:
                network.heal(*pair)
            world.say("network", "heal", leader.machine)

        world.after(rng.choice((500, 900, 1500, 4000)) * MS, heal)

    def _slow(self) -> None:
        world, network, rng = self.world, self.network, self.world.rng
        one, other = rng.choice(list(self.machines)), rng.choice(self._ends())
        high = rng.choice((5, 50, 300, 1000)) * MS
        network.latency[one, other] = (high // 4, high)
        world.say("network", "slow", f"{one} -> {other} {high // MS} ms")
        world.after(rng.choice((1000, 5000)) * MS, lambda: network.latency.pop((one, other), None) and None)

    def _clock_fault(self) -> None:
        rng = self.world.rng
        machine = self.machines[rng.choice(list(self.machines))]
        size = rng.choice((-1, 1)) * rng.choice((2, 100, 300, 2000, 3600_000)) * MS
        machine.clock.step(size)
        self.world.say(machine.place.name, "wall clock", f"set by {size // MS} ms")
        if rng.random() < 0.3:
            most = RHO_PPB // 2 if self.swarm.even_rates else RHO_PPB
            machine.clock.set_rate(rng.randint(-most, most))

    def _stop(self) -> None:
        victim = self._victim()
        if victim is not None and self._may_lose(victim):
            victim.stop()

    def _vanish(self) -> None:
        rng = self.world.rng
        client = rng.choice(self.clients)
        if client.alive and rng.random() < 0.5:
            client.vanish(power=rng.random() < 0.5)
            self.clients.append(self._client(len(self.clients)))

    # --- the run

    def run(self) -> None:
        """Both phases, then everything that can only be judged at the end."""
        world = self.world
        world.after(3 * S, self._faults)
        world.run(self.swarm.phase_ns)
        self._calm_down()
        started = world.now
        world.run(started + LEADER_WITHIN_NS)
        # Two places that leave at once without leave may end the domain: that is said, and no fault.
        progress = self.majority_lives() and not any(process.stopping for process in self.living())
        if progress:
            self._demand_leader()
        world.run(started + CALM_NS)
        if progress:
            self._demand_answers()
            self._demand_voters()
        self.invariants.final()
        self.invariants.never_proposed(self.history.requests)
        self.history.check(rates_hold=self.swarm.rates_hold)

    def _calm_down(self) -> None:
        """Heals everything that can be: what is dead stays dead."""
        self.calm = True
        self.world.say("world", "calm")
        self.network.heal_all()
        self.network.usual = (100_000, 1 * MS)
        for machine in self.machines.values():
            self.network.power_on(machine.place.name)
            machine.clock.set_wall(0)
            if abs(machine.clock.rate_ppb) > RHO_PPB // 2:
                machine.clock.set_rate(0)
            if machine.process is not None:
                machine.process.resume()
            self._start(machine)
        self._calm_client = self._client(len(self.clients), Manners.well_behaved(self.world))
        self.clients.append(self._calm_client)

    def _demand_leader(self) -> None:
        leader = self.leader()
        if leader is None or leader.node.lead is None or not leader.node.lead.serving:
            who = leader.name if leader is not None else "nobody"
            raise Violation(
                "progress", f"nobody serves {LEADER_WITHIN_NS // S} s after the healing; {who} leads"
            )
        if self.world.log is not None:
            self.world.say(leader.name, "serves")

    def _demand_answers(self) -> None:
        before = self.world.now - ANSWER_WITHIN_NS
        for client in self.clients:
            request = client.unanswered(before)
            if request is not None:
                raise Violation("no waiter starves", f"{client.name}: {request!r}")
        if self.swarm.even_rates and not self.swarm.tiny and not self._calm_client.grants:
            raise Violation("progress", "nothing was granted after the healing")

    def _demand_voters(self) -> None:
        """Whoever has run for long enough is a voter."""
        leader = self.leader()
        raft = leader.node.raft if leader is not None else None
        if raft is None:
            raise Violation("progress", "nobody leads at the end of the calm")
        for process in self.living():
            member = process.node.member
            if self.world.now - process.born_ns < REJOINED_WITHIN_NS:
                continue
            if member not in raft.configuration.voters or raft.configuration.joint:
                raise Violation("rejoin", f"{process.name} ({member}) is no voter yet: {raft.configuration}")
