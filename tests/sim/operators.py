"""What operators do to a cluster that runs, and to one whose domain was lost (`ticketing.node.operations`, spec 9)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from tests.sim.world import MS, S, Violation
from ticketing.node.asked import CannotError
from ticketing.node.settings import OperatorCommand, Place
from ticketing.node.state_files import FLOOR, REPLACE

if TYPE_CHECKING:
    from tests.sim.faults import Faults
    from tests.sim.process import Process
    from tests.sim.scenario import Machine, Scenario

REVOKE_TRIES = 4
MOVES_MAX = 3
"""How many places move in one run: each needs a machine of its own."""
ASK_AGAIN_NS = 5 * S
DISTURBED_MAX = 2


class Operator:
    """The people behind one cluster."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self.world = scenario.world
        self._rng = scenario.world.rng
        self._commands = 0
        self._revoking: dict[int, None] = {}
        self.moved: list[Machine] = []
        """Machines that an operator has prepared to take a place over."""
        self.undone: dict[str, None] = {}
        """Their commands that may have been taken back."""
        self._forming = False
        self.formed = False
        """A new domain was asked for."""
        self._domains_before = 0
        self.disturbed: list[str] = []
        """Machines whose process was killed while a domain was being formed at an operator's word."""
        self._settled: dict[str, Place] = {}
        """By name: where a place that has moved is now, as the files of all others say from then on."""

    def begin(self, faults: Faults) -> None:
        """From now on, until the calm."""
        swarm = self._scenario.swarm
        faults.every(swarm.revokes, self._revoke)
        faults.every(swarm.transfers, self._transfer)
        faults.every(swarm.overtakes, self._overtake)
        faults.every(swarm.replaces, self._replace)
        if swarm.replaces:
            self.world.after(S, self._look_after_moves)

    def _next_command(self) -> str:
        self._commands += 1
        return f"command-{self._commands}"

    # --- locks

    def _revoke(self) -> None:
        """Ends one of the ownerships, sometimes one that is over already."""
        leader = self._scenario.leader()
        if leader is None or leader.node.state is None:
            return
        held = leader.node.state.table.held
        if not held:
            return
        key, grant = list(held.items())[self._rng.randrange(len(held))]
        token = grant.token if self._rng.random() < 0.9 else grant.token - 1
        self._scenario.history.revoked.setdefault(token, self.world.now)
        self._try_to_revoke(key, token, self._next_command(), 1)

    def _try_to_revoke(self, key: bytes, token: int, command: str, tries: int) -> None:
        leader = self._scenario.leader()
        if leader is None or tries > REVOKE_TRIES:
            return

        def again() -> None:
            wait = self._rng.choice((1, 500, 3000)) * MS
            self.world.after(wait, lambda: self._try_to_revoke(key, token, command, tries + 1))

        def told(outcome: dict[str, Any] | None) -> None:
            self.world.say("operator", "told", f"{command}: {outcome}")
            state = leader.node.state
            if outcome is None:
                again()
            elif state is not None:
                held = state.table.held.get(key)
                if held is not None and held.token == token:
                    raise Violation(
                        "what was revoked is over", f"{leader.name}: {token} of {key!r}: {outcome}"
                    )
                if self._rng.random() < 0.2:
                    again()

        def act() -> None:
            try:
                leader.node.operations.revoke(
                    key, token, command_id=command, who="somebody", why="a reason", told=told
                )
            except CannotError as error:
                if error.code == "id_used":
                    raise Violation("what was revoked is over", f"{leader.name}: {token}: {error}") from error
                again()

        self.world.say("operator", "revoke", f"{token} of {key!r} at {leader.name}: {command}")
        leader.call(act)

    # --- members

    def _ask(self, process: Process, what: str, act: Any) -> None:
        def turn() -> None:
            try:
                act(process.node.operations)
                self.world.say("operator", what, f"at {process.name}")
            except CannotError as error:
                self.world.say("operator", what, f"at {process.name}: {error.code} {error}")

        process.call(turn)

    def _transfer(self) -> None:
        leader = self._scenario.leader()
        if leader is not None:
            place = self._rng.choice([None, *(place.name for place in self._scenario.places)])
            self._ask(leader, "transfer", lambda operations: operations.transfer(place))

    def _overtake(self) -> None:
        """The lead goes to another voter and comes back; what a third one answered to the former lead arrives then."""
        scenario, rng = self._scenario, self._rng
        leader = scenario.leader()
        if leader is None or leader.node.raft is None:
            return
        voters = leader.node.raft.configuration.voters
        others = [p for p in scenario.living() if p is not leader and p.node.member in voters]
        if len(others) < 2:
            return
        rng.shuffle(others)
        path = others[0].machine, leader.machine
        target, home = scenario.machines[others[1].machine].place, scenario.machines[leader.machine].place
        scenario.network.latency[path] = (200 * MS, 700 * MS)
        self._ask(leader, "transfer", lambda operations: operations.transfer(target.name))

        def back() -> None:
            scenario.network.latency.pop(path, None)
            interim = scenario.leader()
            if interim is not None and interim is not leader:
                self._ask(interim, "transfer", lambda operations: operations.transfer(home.name))

        self.world.after(rng.choice((20, 60, 150)) * MS, back)

    def _replace(self) -> None:
        """A place moves to another machine, though its voter may live; sometimes that is taken back."""
        scenario, rng = self._scenario, self._rng
        if len(self.moved) >= MOVES_MAX:
            return
        name = rng.choice([place.name for place in scenario.places])
        if any(machine.place.name == name for machine in self.moved):
            return
        host = f"{name}-new"
        place = Place(name, f"{host}:5225", f"{host}:6225", f"{host}:7225")
        command = self._next_command()
        leader = scenario.leader()
        if leader is not None:
            self._ask(
                leader,
                "replace",
                lambda operations: operations.replace(
                    name,
                    command_id=command,
                    who="somebody",
                    why="a reason",
                    addresses=(place.client, place.peer),
                ),
            )
        machine = scenario.new_machine(host, place)
        order = OperatorCommand(command_id=command, who="somebody", why="a reason")
        machine.disk.files[REPLACE] = msgspec.json.encode(order)
        machine.command = command
        self.moved.append(machine)
        self.world.after(self.world.between(0, 3 * S), lambda: scenario.start(machine))
        if rng.random() < 0.3:
            self.undone[command] = None
            self.world.after(self.world.between(0, 6 * S), lambda: self._undo(name, command))

    def at(self, place: Place) -> Place:
        """Where a place is by now."""
        return self._settled.get(place.name, place)

    def _look_after_moves(self) -> None:
        """Once a place has moved its old machine is switched off, and the files of the others name the new one."""
        self.world.after(S, self._look_after_moves)
        scenario = self._scenario
        for machine in self.moved:
            process = machine.process
            raft = process.node.raft if process is not None and process.alive else None
            if (
                raft is None
                or machine.place.name in self._settled
                or not raft.configuration.is_voter(raft.me)
            ):
                continue
            if raft.configuration.joint or raft.configuration_index > raft.applied_index:
                continue
            self._settled[machine.place.name] = machine.place
            for other in scenario.machines.values():
                if other is not machine and other.place.name == machine.place.name:
                    other.retired = True
                    waits = other.process is not None and other.process.node.raft is None
                    if other.process is not None and other.process.alive and waits:
                        other.process.kill(
                            power=False
                        )  # one that is a member ends by itself when it hears of it
            if scenario.calm:
                scenario.start_anew_where_nobody_is()

    def _undo(self, place: str, command: str) -> None:
        leader = self._scenario.leader()
        if leader is not None and not self._scenario.calm:
            self._ask(
                leader,
                "undo",
                lambda operations: operations.undo(place, command_id=command, who="somebody", why="a reason"),
            )

    # --- a domain that was lost

    def end_domain(self) -> None:
        """So many machines lose power at once that the domain is over."""
        scenario = self._scenario
        living = scenario.living()
        self._rng.shuffle(living)
        more = self._rng.randrange(len(living)) if living else 0
        for process in living:
            if not scenario.majority_lives():
                more -= 1
                if more < 0:
                    break
            process.kill(power=True)

    def _disturb(self, name: str) -> None:
        """A first state is about to be recorded somewhere: whoever dies now leaves it half formed."""
        scenario = self._scenario
        if (
            name != FLOOR
            or not self._forming
            # A member that is taken in writes the same file: its death, or another's, is no part of the forming.
            or len(scenario.invariants.domains) > self._domains_before
            or len(self.disturbed) >= DISTURBED_MAX
            or self._rng.random() < 0.8
        ):
            return
        victim = self._rng.choice(scenario.living())
        machine = scenario.machines[victim.machine]
        self.disturbed.append(machine.name)

        def kill() -> None:
            victim.kill(power=self._rng.random() < 0.5)
            self.world.after(self._rng.choice((50, 2000)) * MS, lambda: scenario.start(machine))

        self.world.after(self._rng.choice((0, 1, 20)) * MS, kill)

    def started(self, process: Process) -> None:
        """A process has just begun."""
        process.shell.on_store = self._disturb

    def form(self, *, first: bool) -> None:
        """Asks the lowest place for a new domain until there is one. To be called once the old one is over."""
        scenario = self._scenario
        before = self._domains_before = len(scenario.invariants.domains)
        self._forming = self.formed = True
        scenario.history.apart |= first
        lowest = scenario.machines[scenario.places[0].name]
        floor = self._rng.choice((0, 0, 1 << 59))

        def ask() -> None:
            if len(scenario.invariants.domains) > before and scenario.majority_lives():
                self._forming = False
                return
            process = lowest.process
            if process is not None and process.alive and not process.stopping:

                def act() -> None:
                    refused = process.node.form(first=first, first_token=floor)
                    self.world.say("operator", "form", f"at {process.name}: {refused or 'under way'}")

                process.call(act)
            self.world.after(ASK_AGAIN_NS, ask)

        ask()
