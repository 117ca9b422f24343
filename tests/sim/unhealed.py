"""Whom the calm leaves as it is: in about half of the runs a minority stays off, still, cut off, or in another time.

What the others owe then is what they owe without it: a leader, answers, grants, and their places.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from tests.sim.world import MS, S

if TYPE_CHECKING:
    from tests.sim.scenario import Machine, Scenario
    from ticketing.raft.types import Configuration, Member


class Ailment(Enum):
    """What is wrong with a machine until the end."""

    OFF = "off"
    STILL = "still"
    """Its process is paused; its kernel goes on acknowledging."""
    APART = "apart"
    """No other node reaches it, nor it them; clients do."""
    MUTE = "mute"
    """Nothing that it sends reaches another node."""
    DEAF = "deaf"
    """Nothing that another node sends reaches it."""
    CLOCK = "clock"
    """Its wall clock is far off: it does all that it should, but lead for long."""


class Unhealed:
    """The machines that ail; none until `choose`."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._ailments: dict[str, Ailment] = {}

    def choose(self) -> None:
        """To be called as the calm begins: a majority of every configuration that may count is left to be healed."""
        scenario, world = self._scenario, self._scenario.world
        swarm = scenario.swarm
        if swarm.standalone or swarm.form or scenario.operator.moved or not world.chance(0.5):
            return
        names = list(scenario.machines)
        world.rng.shuffle(names)
        most = world.rng.randint(1, (swarm.nodes - 1) // 2)
        chosen: list[str] = []
        for name in names:
            if len(chosen) < most and scenario.majority_lives() and self._leaves_majority([*chosen, name]):
                chosen.append(name)
        for name in chosen:
            ailment = self._ailments[name] = world.rng.choice(list(Ailment))
            world.say(name, "not healed", ailment.value)

    def _leaves_majority(self, without: list[str]) -> bool:
        scenario = self._scenario
        healthy: dict[Member, None] = {}
        counting: list[Configuration] = []
        for process in scenario.living():
            raft = process.node.raft
            if raft is None:
                continue
            counting += [raft.committed_configuration, raft.configuration]
            if process.machine not in without and not process.stopping:
                healthy[raft.me] = None
        return all(
            sum(voter in healthy for voter in voters) * 2 > len(voters)
            for configuration in counting
            for voters in (configuration.voters, configuration.outgoing)
            if voters
        )

    def stays_off(self, machine: Machine) -> bool:
        """It is not switched on again."""
        return self._ailments.get(machine.name) is Ailment.OFF

    def out(self, machine: str) -> bool:
        """The others have to do without it."""
        return self._ailments.get(machine, Ailment.CLOCK) is not Ailment.CLOCK

    def ails(self, machine: str) -> bool:
        """Something is wrong with it, if only its wall clock."""
        return machine in self._ailments

    def strike(self) -> None:
        """To be called when all others are healed."""
        scenario, rng = self._scenario, self._scenario.world.rng
        for name, ailment in self._ailments.items():
            machine = scenario.machines[name]
            others = [other for other in scenario.machines if other != name]
            match ailment:
                case Ailment.OFF:
                    if machine.process is not None:
                        machine.process.kill(power=True)
                    scenario.network.power_off(name)
                case Ailment.STILL:
                    if machine.process is not None:
                        machine.process.freeze()
                case Ailment.CLOCK:
                    machine.clock.set_wall(rng.choice((-1, 1)) * rng.choice((600 * MS, 5 * S, 3600 * S)))
                case _:
                    for other in others:
                        if ailment is not Ailment.DEAF:
                            scenario.network.sever(name, other)
                        if ailment is not Ailment.MUTE:
                            scenario.network.sever(other, name)
