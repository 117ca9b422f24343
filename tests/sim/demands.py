"""What the calm demands of a cluster that has a majority: progress, and not only safety."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.sim.history import Request
from tests.sim.swarm import RHO_PPB
from tests.sim.world import MS, S, Violation

if TYPE_CHECKING:
    from tests.sim.clients import Client
    from tests.sim.scenario import Scenario

ANSWER_WITHIN_NS = 10 * S
REJOINED_WITHIN_NS = 15 * S
"""From the start of a process to its place as a voter, others before it in the line included."""
MOVED_WITHIN_NS = 25 * S
"""The same for a process that an operator has prepared: its place's voter has to give way first."""
SETTLED_WITHIN_NS = MOVED_WITHIN_NS + S
"""From a serving leader to the rest of what is demanded: whoever the calm has started is owed its place by then."""
SESSION_WITHIN_NS = 15 * S
"""From there to a session of every client: it may have to find out that a node is silent, and go on to the next."""
CALM_LEAST_NS = 5 * S
CALM_LEAST_SHORT_NS = 500 * MS
RATES_REMEMBERED_NS = 61 * S
"""For so long a sample of the clocks' rates counts."""
RATES_FORGOTTEN_NS = 65 * S
"""No sample of the clocks' rates from before the calm counts any more, and the gate has been looked at."""


class Demands:
    """A session for every client, an answer to every request that a living session sends within its wait and
    `ANSWER_WITHIN_NS`, a place for every process, and grants.
    """

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._world = scenario.world
        self._swarm = scenario.swarm
        self._clients = scenario.clients
        self._machines = scenario.machines

    def progress(self) -> None:
        """Waits for all of it; raises `Violation` where it does not come in time."""
        world = self._world
        if not self.leader_serves():
            leader = self._scenario.leader()
            raise Violation("progress", f"nobody serves in time; {leader.name if leader else 'nobody'} leads")
        began = world.now
        world.run(began + (CALM_LEAST_NS if self._swarm.long else CALM_LEAST_SHORT_NS))
        self._scenario.until(self._settled, SETTLED_WITHIN_NS)
        self._demand_sessions()
        self._demand_answers(world.now - ANSWER_WITHIN_NS)
        waits = self._without_place(REJOINED_WITHIN_NS, MOVED_WITHIN_NS)
        if waits:
            raise Violation("rejoin", waits)
        if self._swarm.tiny:
            return  # what others hold may fill a node whose limits are so low
        if not self._rates_were_even():
            # Until every sample of the clocks' true rates is forgotten the gate may be closed, rightly.
            if not self._swarm.long_calm:
                return
            self._scenario.until(lambda: bool(self._scenario.calm_client.grants), RATES_FORGOTTEN_NS)
        if not self._scenario.calm_client.grants:
            raise Violation("progress", "nothing was granted after the healing")

    def leader_serves(self) -> bool:
        """Whether somebody who is healed does, for a majority."""
        leader = self._scenario.leader()
        serves = leader is not None and leader.node.lead is not None and leader.node.lead.serving
        # Of a lost domain the last leader may not have noticed yet.
        return serves and self._scenario.majority_lives()

    def _settled(self) -> bool:
        """Whether all that is demanded is the case by now."""
        return (
            self.leader_serves()
            and not self._without_place(0, 0)
            and bool(self._scenario.calm_client.grants or self._swarm.tiny or not self._rates_were_even())
            and not any(self._without_session(client) for client in self._clients)
            and not any(self._unanswered(client, self._world.now - S) for client in self._clients)
        )

    def _rates_were_even(self) -> bool:
        """No two elapsed clocks differed by more than rho for as long as anybody remembers."""
        since = self._world.now - RATES_REMEMBERED_NS
        rates = [rate for machine in self._machines.values() for rate in machine.clock.rates_since(since)]
        return max(rates) - min(rates) <= RHO_PPB

    def _without_session(self, client: Client) -> bool:
        # So few sessions are let in that there may be none left.
        return client.alive and not client.ready and not self._swarm.tiny

    def _demand_sessions(self) -> None:
        for client in self._clients:
            self._scenario.until(lambda client=client: not self._without_session(client), SESSION_WITHIN_NS)  # type: ignore[misc]
            if self._without_session(client):
                raise Violation("progress", f"{client.name} finds no node that lets it in")

    def _unanswered(self, client: Client, before: int) -> Request | None:
        """What such a client waits for, but where its node is one that cannot answer."""
        if client.machine is not None and self._scenario.unhealed.out(client.machine):
            return None
        return client.unanswered(before)

    def _demand_answers(self, before: int) -> None:
        for client in self._clients:
            request = self._unanswered(client, before)
            if request is not None:
                raise Violation("no waiter starves", f"{client.name}: {request!r}")

    def _without_place(self, within_ns: int, moved_within_ns: int) -> str:
        """Who has run for long enough and is no voter though it should be; empty where nobody is."""
        leader = self._scenario.leader()
        raft, state = (leader.node.raft, leader.node.state) if leader is not None else (None, None)
        if raft is None or state is None:
            return "nobody leads at the end of the calm"
        voters = raft.configuration.voters
        filled = {
            self._machines[p.machine].place.name for p in self._scenario.living() if p.node.member in voters
        }
        for process in self._scenario.living():
            machine, age_ns = self._machines[process.machine], self._world.now - process.born_ns
            command = machine.command
            may_move = command and command not in state.members.used and command not in state.members.undone
            if process.node.member in voters or (machine.place.name in filled and not may_move):
                continue
            if self._scenario.unhealed.ails(machine.name):
                continue
            if age_ns >= (moved_within_ns if may_move else within_ns):
                return f"{process.name} ({process.node.member}) is no voter yet: {raft.configuration}"
        return f"an open change: {raft.configuration}" if raft.configuration.joint else ""
