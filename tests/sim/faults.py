"""The faults of phase 1, as often as the run's swarm says."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.sim.swarm import RHO_PPB
from tests.sim.world import MS, S
from ticketing.node.state_files import PERMIT

if TYPE_CHECKING:
    from tests.sim.process import Process
    from tests.sim.scenario import Scenario


class Faults:
    """Happens to one run, until its calm."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self.world = scenario.world
        self.network = scenario.network
        self.swarm = scenario.swarm
        self.machines = scenario.machines
        self.clients = scenario.clients
        self._bad_disk = self.world.rng.choice(list(self.machines))
        """The machine that loses its disk."""

    def every(self, a_minute: float, what: Callable[[], None]) -> None:
        """Has `what` happen at random, so often on average, until the calm."""
        if not a_minute:
            return
        mean_ns = 60 * S / a_minute

        def happen() -> None:
            if not self._scenario.calm:
                what()
                self.world.after(int(self.world.rng.expovariate(1) * mean_ns) + 1, happen)

        self.world.after(int(self.world.rng.expovariate(1) * mean_ns) + 1, happen)

    def begin(self) -> None:
        """From now on."""
        swarm, network = self.swarm, self.network
        self.every(swarm.kills, self._kill)
        self.every(swarm.pauses, self._pause)
        self.every(swarm.stalls, self._stall)
        self.every(swarm.cuts, self._cut)
        self.every(swarm.isolations, self._isolate)
        self.every(swarm.slow, self._slow)
        self.every(swarm.clock_faults, self._clock_fault)
        self.every(swarm.stops, self._stop)
        self.every(swarm.vanish, self._vanish)
        self.every(swarm.gate_swings, self._swing)
        self.every(swarm.blinded, self._blind)
        network.frame_drop = network.frame_double = network.frame_reorder = swarm.frames

    def _victim(self) -> Process | None:
        """A running process; the leader more often than others."""
        rng = self.world.rng
        leader = self._scenario.leader()
        if leader is not None and rng.random() < 0.4:
            return leader
        living = self._scenario.living()
        return rng.choice(living) if living else None

    def _kill(self) -> None:
        victim, world = self._victim(), self.world
        if victim is None or not self._may_lose(victim):
            return
        victim.kill(power=world.chance(self.swarm.power))
        machine = self.machines[victim.machine]
        if machine.name == self._bad_disk and world.chance(self.swarm.lost_disk):
            # With its permit, which the lost record had made void, it may not form a domain either.
            machine.disk.lose(but=PERMIT if world.chance(0.5) else "")
            world.say(machine.name, "disk lost")
        world.after(
            world.between(50 * MS, world.rng.choice((200, 2000, 15_000)) * MS),
            lambda: self._scenario.start(machine),
        )

    def _may_lose(self, victim: Process) -> bool:
        if self.swarm.standalone or not self.swarm.spares_majority:
            return True
        raft = victim.node.raft
        if raft is None or not self._scenario.majority_lives():
            return True
        living = [
            process.node.raft.me
            for process in self._scenario.living()
            if process.node.raft is not None and not process.stopping
        ]
        configuration = raft.configuration
        return all(
            (sum(v in living for v in voters) - (raft.me in voters)) * 2 > len(voters)
            for voters in (configuration.voters, configuration.outgoing)
            if voters
        )

    def _pause(self) -> None:
        victim, world = self._victim(), self.world
        if victim is not None:
            if victim is self._scenario.leader():
                self._let_wander()
            victim.pause(world.rng.choice((5, 60, 200, 500, 1000, 3000, 8000)) * MS)

    def _stall(self) -> None:
        """A leader stands still for so long that there may be another one, while its sockets fill up."""
        leader = self._scenario.leader()
        if leader is not None:
            self._let_wander()
            leader.pause(self.world.rng.choice((450, 700, 1000, 1500)) * MS)

    def _ends(self) -> list[str]:
        return [*self.machines, *(client.name for client in self.clients)]

    def _cut(self) -> None:
        """One way between two, both ways, or one machine from many."""
        world, network, rng = self.world, self.network, self.world.rng
        leader = self._scenario.leader()
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
        rng = self.world.rng
        leader = self._scenario.leader()
        if leader is None:
            return
        self._let_wander()
        others = [name for name in self.machines if name != leader.machine]
        if rng.random() < 0.3:
            others.remove(rng.choice(others))
        self._part(leader.machine, others, both_ways=rng.random() < 0.7, for_ns=0)

    def change_proposed(self, leader: Process) -> None:
        """A leader has just appended a change of members; nobody has heard of it yet."""
        rng = self.world.rng
        if self.swarm.cut_changes and not self._scenario.calm and rng.random() < self.swarm.cut_changes:
            if rng.random() < 0.3:
                self._kill_soon(leader, rng.choice((0, 1, 5, 20, 60)) * MS)
                return
            others = [name for name in self.machines if name != leader.machine]
            if rng.random() < 0.4:
                others.remove(rng.choice(others))
            self._part(leader.machine, others, both_ways=True, for_ns=rng.choice((300, 900, 1500)) * MS)

    def _kill_soon(self, leader: Process, within_ns: int) -> None:
        """At any step of the change: before it is heard of, committed, followed by the final one, or reported."""
        machine = self.machines[leader.machine]

        def kill() -> None:
            if leader.alive and not self._scenario.calm and self._may_lose(leader):
                leader.kill(power=self.world.chance(self.swarm.power))
                self.world.after(self.world.between(50 * MS, 2 * S), lambda: self._scenario.start(machine))

        self.world.after(self.world.between(0, within_ns), kill)

    def _let_wander(self) -> None:
        if self.swarm.wander:
            for client in self.clients:
                if self.world.rng.random() < self.swarm.wander:
                    client.wander()

    def _part(self, machine: str, others: list[str], *, both_ways: bool, for_ns: int) -> None:
        world, network, rng = self.world, self.network, self.world.rng
        pairs = [(machine, other) for other in others]
        if both_ways:
            pairs += [(other, machine) for other in others]
        for pair in pairs:
            network.cut(*pair)
        world.say("network", "isolate", f"{machine} from {' '.join(others)}")

        def heal() -> None:
            for pair in pairs:
                network.heal(*pair)
            world.say("network", "heal", machine)

        world.after(for_ns or rng.choice((500, 900, 1500, 4000 if self.swarm.long else 700)) * MS, heal)

    def _blind(self) -> None:
        """No sample of a clock counts any more where the way there and back takes over half of delta; meanwhile the
        clocks of most others are set.
        """
        world, network, rng = self.world, self.network, self.world.rng
        leader = self._scenario.leader()
        if leader is None:
            return
        others = [name for name in self.machines if name != leader.machine]
        pairs = [(leader.machine, other) for other in others] + [(other, leader.machine) for other in others]
        for pair in pairs:
            network.latency[pair] = (135 * MS, 160 * MS)
        rng.shuffle(others)
        size = rng.choice((-1, 1)) * rng.choice((600, 5000)) * MS
        for name in others[: len(others) // 2 + 1]:
            self.machines[name].clock.step(size)
        world.say("network", "blind", f"{leader.machine}; {' '.join(others)} set by {size // MS} ms")

        def heal() -> None:
            for pair in pairs:
                network.latency.pop(pair, None)

        world.after(rng.choice((3500, 6000)) * MS, heal)

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
        self.world.say(machine.name, "wall clock", f"set by {size // MS} ms")
        if rng.random() < 0.3:
            most = RHO_PPB // 2 if self.swarm.even_rates else RHO_PPB
            machine.clock.set_rate(rng.randint(-most, most))

    def _swing(self) -> None:
        """A wall clock is set about half of delta off, and back: the gate closes and opens in hand-overs."""
        rng = self.world.rng
        machine = self.machines[rng.choice(list(self.machines))]
        size = rng.choice((-1, 1)) * rng.choice((150, 200, 240, 260, 400)) * MS
        machine.clock.step(size)

        def back() -> None:
            if not self._scenario.calm:
                machine.clock.step(-size)

        self.world.after(rng.choice((1, 20, 200, 1500)) * MS, back)

    def _stop(self) -> None:
        victim = self._victim()
        if victim is not None and self._may_lose(victim):
            victim.stop()

    def _vanish(self) -> None:
        rng = self.world.rng
        client = rng.choice(self.clients)
        if client.alive and rng.random() < 0.5:
            client.vanish(power=rng.random() < 0.5)
            self._scenario.new_client()
