"""One run: a cluster, its clients, and a swarm of faults drawn from the seed.

Phase 1 lets anything happen and demands safety. Phase 2 heals everybody, or all but a minority (`Unhealed`); where a
majority of the domain's voters lives no more an operator forms a new domain. Then it demands progress: a serving leader
within `LEADER_WITHIN_NS`, and what else `Demands` has. It ends as soon as all that is the case.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tests.sim.clients import Client
from tests.sim.demands import Demands
from tests.sim.faults import Faults
from tests.sim.history import History
from tests.sim.history_serving import Serving, ServingNotes
from tests.sim.invariants import Invariants
from tests.sim.manners import Manners
from tests.sim.network import CLIENT_TIMEOUT_NS, PEER_TIMEOUT_NS, Network
from tests.sim.operators import DISTURBED_MAX, Operator
from tests.sim.process import Process, Temper
from tests.sim.shell import Disk
from tests.sim.swarm import RHO_PPB, Swarm
from tests.sim.unhealed import Unhealed
from tests.sim.world import MS, WALL_START_NS, Clock, S, Violation, World
from ticketing.node import snapshots
from ticketing.node.settings import Limits, NodeSettings, OperatorCommand, Place
from ticketing.node.state_files import FLOOR, PERMIT, RECORD, REPLACE
from ticketing.raft.election import Role
from ticketing.raft.types import MIB, RaftSettings

DELTA_NS = 500 * MS
ELECTION_NS = 800 * MS
LEADER_WITHIN_NS = 10 * ELECTION_NS
"""Ten election timeouts from the healing to a leader that serves, new links and samples of the clocks included."""
STEP_NS = 100 * MS
"""How often it is looked whether all demands are met."""
SERVES_WITHIN_NS = 3 * S
"""The faults begin by then, be there a leader or not."""
STOPPED_WITHIN_NS = 31 * S
"""A process that wants to stop does so with leave, or after `stop_wait`; the next one has begun by then."""
LOST_WITHIN_NS = 50 * S
"""From an operator's first `form` to the new domain: survivors have to be without leader for 30 s."""
QUARANTINED_NS = 251 * S
GATE_STALE_NS = 1010 * MS
"""What a leader that has lost its majority may still say at most after it heard of it last: 800 ms, looked at every
50 ms, in a loop whose gap was shorter than 150 ms.
"""
LONGEST_PAUSE_NS = 8 * S
REMOVED = 12
GIVEN_UP = "given up before it became a voter"
"""A learner that was not caught up in time ends as failed, for its supervisor to start it anew."""


class Machine:
    """A place's machine: its clocks and its disk outlive processes."""

    def __init__(self, name: str, place: Place, clock: Clock) -> None:
        self.name = name
        self.place = place
        """With the addresses that it has here."""
        self.command = ""
        """The operator's by which its process takes the place over."""
        self.retired = False
        """Its process is over for good."""
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
        self.history.stale_ns = self._stale_ns()
        self.history.underway_ns = self._underway_ns()
        self.history.serving = Serving(self.history.stale_ns)
        self.history.apart = swarm.standalone
        self.history.on_cancel_answered = lambda owner, key: self.invariants.cancel_answered(owner, key)
        self.calm = False
        places = [
            # A standalone node has no port for peers.
            Place(name, f"{name}:5225", "" if swarm.standalone else f"{name}:6225", f"{name}:7225")
            for name in (f"node-{number}" for number in range(1, swarm.nodes + 1))
        ]
        self.places = tuple(places)
        self.machines = {place.name: Machine(place.name, place, self._clock(node=True)) for place in places}
        self._machine_of = {place.client: place.name for place in places} | {
            place.peer: place.name for place in places
        }
        self._client_addresses = {place.client: place.name for place in self.places}
        self.invariants = Invariants(
            world,
            rates_hold=swarm.rates_hold,
            delta_ns=DELTA_NS,
            every_index=not swarm.long and world.chance(0.1),
        )
        self._noting = ServingNotes(world, self.history.serving)
        self._sessions = 0
        self.manners.resend = swarm.resend
        self.manners.follow(swarm.theme, world)
        self._init_disks()
        for machine in self.machines.values():
            world.after(world.between(0, swarm.start_within_ns), lambda machine=machine: self.start(machine))  # type: ignore[misc]
        self.clients: list[Client] = []
        for number in range(swarm.clients):
            self.clients.append(self._client(number))
        self._settings = self._raft_settings()
        snapshots.SLICE_RECORDS = swarm.slice_records
        self.faults = Faults(self)
        self.invariants.on_change_proposed = self.faults.change_proposed
        self.operator = Operator(self)
        self.unhealed = Unhealed(self)
        self._demands = Demands(self)
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

    def _stale_ns(self) -> int:
        """For how long after a key was released elsewhere a former leader may call it taken.

        A leader counts its majority from when it reads their word, which may have been under way for long.
        """
        swarm = self.swarm
        stale_ns = GATE_STALE_NS + swarm.far
        if swarm.slow or swarm.pauses:
            stale_ns += 1 * S
        if swarm.cuts or swarm.isolations or swarm.power:
            stale_ns += PEER_TIMEOUT_NS
        return stale_ns

    def _underway_ns(self) -> int:
        """For how long what a client has sent may be under way, and lie with a process that stands still."""
        swarm = self.swarm
        underway_ns = swarm.far + S
        if swarm.slow:
            underway_ns += 1 * S
        if swarm.cuts or swarm.power:
            underway_ns += CLIENT_TIMEOUT_NS
        if swarm.pauses or swarm.stalls:
            underway_ns += LONGEST_PAUSE_NS
        return underway_ns

    def _raft_settings(self) -> RaftSettings:
        swarm = self.swarm
        longest = 405 * MS if swarm.tight else ELECTION_NS
        if not swarm.tiny:
            return RaftSettings(
                log_keep_bytes=swarm.log_keep_bytes,
                learner_log_bytes_max=MIB,
                election_timeout_max_ns=longest,
            )
        return RaftSettings(
            log_keep_bytes=swarm.log_keep_bytes,
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
        return Limits(waiters_per_session=5, waiters_per_key=8, waiters=12, keys=4, sessions=3, held_back=5)

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
            self._client_addresses,
            f"client-{number}",
            next_session,
            self.clients,
        )

    def new_client(self) -> None:
        """One more client, of the same manners as the others."""
        self.clients.append(self._client(len(self.clients)))

    def new_machine(self, name: str, place: Place) -> Machine:
        """One more machine with an empty disk; nothing runs there yet."""
        machine = self.machines[name] = Machine(name, place, self._clock(node=True))
        self._machine_of[place.client] = self._machine_of[place.peer] = name
        self._client_addresses[place.client] = name
        return machine

    # --- processes

    def _node_settings(self, machine: Machine) -> NodeSettings:
        files = machine.disk.files
        permit = msgspec.json.decode(files.get(PERMIT, b'{"permit": "", "made_ms": 0}'))
        record = msgspec.json.decode(files[RECORD]) if RECORD in files else None
        floor = msgspec.json.decode(files[FLOOR]) if FLOOR in files else {"first_token": "0"}
        command = msgspec.json.decode(files[REPLACE], type=OperatorCommand) if REPLACE in files else None
        own = machine.place
        return NodeSettings(
            place=own.name,
            places=self._places_for(machine),
            standalone=self.swarm.standalone,
            legacy_resend=self.swarm.legacy_resend,
            operator_command=command,
            peer_secrets=(b"a secret of the simulator's",),
            cluster="cluster",
            permit=permit["permit"],
            permit_made_ms=permit["made_ms"],
            earlier_first_token=max(int(floor["first_token"]), int(record["first_token"]) if record else 0),
            earlier_domain=record["domain"] if record else "",
            delta_ns=DELTA_NS,
            raft=self._settings,
            limits=self._limits(),
            snapshot_bytes_per_s=self.swarm.snapshot_bytes_per_s,
        )

    def _places_for(self, machine: Machine) -> tuple[Place, ...]:
        """What the machine's file says of all places by now."""
        own = machine.place
        return tuple(own if place.name == own.name else self.operator.at(place) for place in self.places)

    def start(self, machine: Machine) -> None:
        """The machine is on, and its process runs."""
        if machine.retired or (machine.process is not None and machine.process.alive):
            return
        if self.unhealed.stays_off(machine):
            return
        self.network.power_on(machine.name)
        machine.lives += 1
        name = f"{machine.name}/{machine.lives}"
        self.world.say(name, "start")
        machine.process = Process(
            self.world,
            self.network,
            machine.clock,
            machine.disk,
            machine.name,
            self._node_settings(machine),
            self._machine_of,
            self.temper,
            name,
            self.invariants,
            self._ended,
        )
        machine.process.on_turn = self._noting.after_turn
        self.operator.started(machine.process)

    def start_anew_where_nobody_is(self) -> None:
        """Who asks for its place, all other places having moved since it began, knows nobody's address any more: its
        operator starts it with the file as it is now.
        """
        for machine in list(self.machines.values()):
            process = machine.process
            if process is None or not process.alive or process.node.raft is not None:
                continue
            known = set(process.node.settings.places) - {machine.place}
            if known and known.isdisjoint(self._places_for(machine)):
                process.kill(power=False)
                self.start(machine)

    def _ended(self, process: Process, status: int, reason: str) -> None:
        self._check_end(process, status, reason)
        machine = self.machines[process.machine]
        moved = [other for other in self.operator.moved if other.place.name == machine.place.name]
        if status == REMOVED and (
            machine.command in self.operator.undone or any(m is not machine for m in moved)
        ):
            machine.retired = True
            return
        self.world.after(self.world.between(100 * MS, 5 * S), lambda: self.start(machine))

    def _check_end(self, process: Process, status: int, reason: str) -> None:
        """A process ends with 0 when it was told to, and as removed when no voter of its domain."""
        if status == 0 and process.stopping:
            return
        if status == REMOVED and not self._is_voter(process):
            return
        if status not in (0, REMOVED) and reason.startswith(GIVEN_UP):
            return
        raise Violation("exit", f"{process.name} ends with {status}: {reason}")

    def _is_voter(self, process: Process) -> bool:
        """As far as anybody of its domain has committed."""
        domain = _first_token(process)
        rafts = [
            machine.process.node.raft
            for machine in self.machines.values()
            if machine.process is not None and _first_token(machine.process) == domain
        ]
        known = [raft for raft in rafts if raft is not None]
        if not known:
            return False
        newest = max(known, key=lambda raft: raft.commit_index).committed_configuration
        return process.node.member in newest.voters

    def living(self) -> list[Process]:
        """The processes that run, or will go on."""
        return [m.process for m in self.machines.values() if m.process is not None and m.process.alive]

    def leader(self) -> Process | None:
        """The one that leads the highest term of the newest domain, but for those that are not healed."""
        leading = [
            ((_first_token(process), process.node.raft.term), process)
            for process in self.living()
            if process.node.raft is not None
            and process.node.raft.role is Role.LEADER
            and not self.unhealed.out(process.machine)
        ]
        return max(leading, key=lambda pair: pair[0])[1] if leading else None

    def majority_lives(self) -> bool:
        """Whether a majority of the newest committed configuration's voters, of both halves, is alive."""
        living = {process.node.raft.me: process for process in self.living() if process.node.raft is not None}
        if not living:
            return False
        rafts = [
            (_first_token(process), process.node.raft)
            for process in living.values()
            if process.node.raft is not None
        ]
        newest = max(rafts, key=lambda pair: (pair[0], pair[1].commit_index, pair[1].last_index))[1]
        if not newest.configuration.voters:
            return False  # a learner that has not heard of its domain yet
        configurations = [newest.committed_configuration, newest.configuration]
        for configuration in configurations:
            for voters in (configuration.voters, configuration.outgoing):
                if voters and sum(voter in living for voter in voters) * 2 <= len(voters):
                    return False
        return True

    # --- the run

    def run(self) -> None:
        """Both phases, then everything that can only be judged at the end."""
        world, swarm = self.world, self.swarm
        if not swarm.at_once:
            self.until(self._demands.leader_serves, SERVES_WITHIN_NS)
        self.faults.begin()
        self.operator.begin(self.faults)
        world.run(world.now + swarm.phase_ns)
        if swarm.form:
            self.operator.end_domain()
        self._calm_down()
        self.until(lambda: not self._anybody_stops(), STOPPED_WITHIN_NS)
        if self._anybody_stops():
            raise Violation("progress", "a process that was told to stop goes on")
        self.until(self._demands.leader_serves, LEADER_WITHIN_NS)
        if self.majority_lives() or self._form_anew():
            self._demands.progress()
        if len(self.invariants.domains) > 1 and not self.swarm.standalone and not self.operator.formed:
            raise Violation("one domain", "another one has formed though no operator asked for it")
        self.history.domains = sorted(
            (domain.first_token, domain.formed_ns) for domain in self.invariants.domains.values()
        )
        self.invariants.final()
        self.invariants.never_proposed(self.history.requests)
        self.history.check(rates_hold=self.swarm.rates_hold)

    def until(self, done: Callable[[], bool], within_ns: int) -> None:
        """Goes on until something is the case, or the time is over."""
        until_ns = self.world.now + within_ns
        while self.world.now < until_ns and not done():
            self.world.run(min(self.world.now + STEP_NS, until_ns))

    def _anybody_stops(self) -> bool:
        return any(p.stopping and not self.unhealed.out(p.machine) for p in self.living())

    def _calm_down(self) -> None:
        """Heals everybody, but for those that ail until the end."""
        self.calm = True
        self.world.say("world", "calm")
        self.unhealed.choose()
        self.network.heal_all()
        self.network.usual = (100_000, 1 * MS)
        self.manners.calm_down()
        self.temper.calm_down()
        for machine in list(self.machines.values()):
            self.network.power_on(machine.name)
            machine.clock.set_wall(0)
            if abs(machine.clock.rate_ppb) > RHO_PPB // 2:
                machine.clock.set_rate(0)
            if machine.process is not None:
                machine.process.resume()
            self.start(machine)
        self.start_anew_where_nobody_is()
        self.unhealed.strike()
        self.calm_client = self._client(len(self.clients), Manners.well_behaved(self.world))
        self.clients.append(self.calm_client)

    def _form_anew(self) -> bool:
        """The domain is over: an operator forms another one. False where that takes more than one word."""
        if self.swarm.standalone or self.operator.moved:
            return False  # with other addresses in some files than in others nothing forms
        first = self.swarm.form_first or not self.swarm.form
        self.operator.form(first=first)
        within_ns = LOST_WITHIN_NS + LEADER_WITHIN_NS + (0 if first else QUARANTINED_NS)
        self.until(self._demands.leader_serves, within_ns)
        for _ in range(DISTURBED_MAX):
            # Who died while it was being formed was a founder: the next one begins as late.
            if self.operator.disturbed and not self._demands.leader_serves():
                self.until(self._demands.leader_serves, within_ns)
        return True


def _first_token(process: Process) -> int:
    state = process.node.state
    return state.domain.first_token if state is not None else 0
