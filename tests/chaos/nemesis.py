"""Carries a plan out: strikes round after round, sees to it that the cluster comes back, and keeps the score."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from tests.chaos.clients import Client
from tests.chaos.cluster import ChaosCluster
from tests.chaos.faults import FAULTS, Withheld
from tests.chaos.forwarder import Paths
from tests.chaos.liveness import Timeline, majority
from tests.chaos.machines import REMOVED, Machine
from tests.chaos.network import Network
from tests.chaos.plan import Fault, Plan, Round

ROUND_S = 420.0
"""A round that takes longer than its faults and an operator's patience hangs."""
WHOLE_S = 90.0
"""Within this after the end of a round every place has its voter."""
SUPERVISE_EVERY_S = 0.05
CLOCK_SEEN_S = 2.5
"""A process sees its faked clock set within so long."""
IN_RANGE_S = 0.15
"""A wall clock that is off by no more may lead and be led: less than half of Δ, with room for errors."""
RATE_IN_RANGE = 0.9995


class Nemesis:
    """See the module. Faults use it to find their victims."""

    def __init__(
        self,
        cluster: ChaosCluster,
        network: Network,
        clients: Sequence[Client],
        plan: Plan,
        paths: Paths,
        tell: Callable[[str], None],
    ) -> None:
        self.cluster = cluster
        self.network = network
        self.clients = list(clients)
        self.bad_paths: Counter[tuple[str, str]] = Counter()
        self.moving: Machine | None = None
        """The host of a voter that is about to be removed."""
        self.timeline = Timeline()
        self.struck: Counter[str] = Counter()
        self.withheld: Counter[str] = Counter()
        self.violations: list[str] = []
        self.going_on = True
        self.rounds = 0
        self.longest_refill_s = 0.0
        self._plan = plan
        self._paths = paths
        self._tell = tell
        self._noted: list[tuple[float, str]] = []
        self.began = time.monotonic()
        cluster.on_look = self.changed

    def note(self, text: str) -> None:
        """A line of the run's log."""
        self.note_at(time.monotonic(), text)

    def note_at(self, at: float, text: str) -> None:
        """A line about another time."""
        line = f"{at - self.began:9.3f} {text}"
        self._noted.append((at, line))
        self._tell(line)

    def noted(self, begin: float, end: float) -> list[str]:
        """The lines of the run's log about a time."""
        return [line for at, line in sorted(self._noted) if begin <= at <= end]

    # --- victims

    def living(self) -> list[Machine]:
        """Hosts whose node runs."""
        return [machine for machine in self.cluster.placed if machine.running]

    def leader(self) -> Machine:
        """Raises `Withheld` where nobody leads."""
        leader = self.cluster.leader()
        if leader is None or not leader.running:
            raise Withheld("nobody leads")
        return leader

    def victim(self, fault: Fault) -> Machine:
        """The living node that plays the part the fault names."""
        living = self.living()
        if not living:
            raise Withheld("nobody lives")
        leader = self.cluster.leader()
        if fault.victim == "leader" and leader in living:
            return leader
        if fault.victim.startswith("follower-"):
            followers = [machine for machine in living if machine is not leader] or living
            return followers[int(fault.victim.removeprefix("follower-")) % len(followers)]
        return Random(f"{fault}").choice(living)

    def pair(self, fault: Fault) -> tuple[Machine, Machine]:
        """The victim and somebody else."""
        one = self.victim(fault)
        others = [machine for machine in self.cluster.placed if machine is not one]
        return one, Random(f"{fault}").choice(others)

    def spare(self) -> Machine:
        """A host without a node."""
        for machine in self.cluster.machines.values():
            if machine.place is None and not machine.running:
                return machine
        raise Withheld("there is no spare host")

    def some_clients(self, draw: int) -> list[Client]:
        """One or more, never all."""
        rng = Random(draw)
        return rng.sample(self.clients, rng.randint(1, max(1, len(self.clients) - 1)))

    def everybody(self) -> list[str]:
        """All machines but the operator's."""
        return [*(machine.name for machine in self.cluster.placed), *(client.name for client in self.clients)]

    def slow_path(self, source: str, target: str, **path: Any) -> None:
        """Tells the forwarder."""
        self._paths.set_path(self.network.address(source), self.network.address(target), **path)

    # --- the score

    def changed(self) -> None:
        """Something may have changed: whether a majority can serve is judged anew."""
        self.timeline.note(time.monotonic(), self._could_serve())

    def _could_serve(self) -> bool:
        fit = [machine.name for machine in self.cluster.placed if self._fit(machine)]
        living_clients = [client.name for client in self.clients if client.running and not client.paused]
        bad = self.bad_paths
        leader = self.cluster.leader()
        return majority(
            fit,
            self.cluster.nodes,
            lambda one, other: bad[one, other] <= 0 and bad[other, one] <= 0,
            lambda node: any(bad[node, client] <= 0 and bad[client, node] <= 0 for client in living_clients),
            leader.name if leader is not None else None,
        )

    def _fit(self, machine: Machine) -> bool:
        return (
            machine.running
            and not machine.paused
            and not machine.limited
            and machine is not self.moving
            and self.cluster.votes(machine)
            and machine.rate >= RATE_IN_RANGE
            and abs(machine.offset_s) <= IN_RANGE_S
            and time.monotonic() > machine.clock_set_at + CLOCK_SEEN_S
        )

    # --- the work

    async def supervise(self) -> None:
        """Stands for what supervises services; judges how processes end."""
        while True:
            for machine in self.cluster.machines.values():
                ending = machine.supervise(time.monotonic())
                if ending is not None:
                    self.changed()
                    self.note(f"{machine} ended with {ending.status} ({ending.cause or 'by itself'})")
                    if not ending.cause:
                        self.violations.append(
                            f"{machine} ended by itself with status {ending.status}:\n{machine.log_end()}"
                        )
                    elif ending.status == REMOVED and "replaced" not in ending.cause:
                        self.violations.append(f"{machine} was removed, and nobody replaced it")
            for client in self.clients:
                client.supervise()
            await asyncio.sleep(SUPERVISE_EVERY_S)

    async def rage(self, until: float) -> None:
        """Rounds, as long as there is time for another one."""
        while time.monotonic() < until and not self.violations:
            await self._round(self._plan.next_round())

    async def _round(self, planned: Round) -> None:
        self.rounds += 1
        self.note(f"round {planned.number}: {len(planned.faults)} faults")
        tasks = [asyncio.create_task(self._strike(fault)) for fault in planned.faults]
        try:
            async with asyncio.timeout(ROUND_S):
                await asyncio.gather(*tasks)
        except TimeoutError:
            self.violations.append(f"round {planned.number} did not come to its end")
            return
        finally:
            for task in tasks:
                task.cancel()
        await self.recover()
        await asyncio.sleep(planned.calm_s)

    async def _strike(self, fault: Fault) -> None:
        await asyncio.sleep(fault.at_s)
        self.note(str(fault))
        try:
            await FAULTS[fault.kind](self, fault)
        except Withheld as reason:
            self.withheld[fault.kind] += 1
            self.note(f"{fault.kind} withheld: {reason}")
        except AssertionError as error:
            self.violations.append(f"{fault}: {error}")
        else:
            self.struck[fault.kind] += 1
            self.note(f"{fault.kind} is over")

    async def recover(self) -> None:
        """Everything is mended: every place gets its voter."""
        began = time.monotonic()
        for machine in self.cluster.placed:
            if not machine.running and not machine.wanted:
                machine.start()
        if not await self.cluster.until_whole(WHOLE_S):
            self.violations.append(f"after round {self.rounds} a place stayed empty for {WHOLE_S:g} s")
        self.longest_refill_s = max(self.longest_refill_s, time.monotonic() - began)
        self.note(f"whole after {time.monotonic() - began:.2f} s, led by {self.cluster.leader()}")
