"""What a leader may do by the clocks, judged by the machines' true ones (spec 7 and 8).

No grant while a majority's wall clocks are not known to be near the leader's, or their elapsed clocks are proved to run
at another rate; no expiry while that is proved of the leader's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tests.sim.world import MS, PPB, S, Violation
from ticketing.raft.core import Raft
from ticketing.raft.types import Configuration, Member

if TYPE_CHECKING:
    from tests.sim.process import Process

CLOCKS_KNOWN_NS = 3 * S
"""A sample of a wall clock counts for so long (spec 8)."""
RHO_PPB = PPB // 1000


class Clocks:
    """Knows all processes, members or not: a founder that has not heard yet that its domain is formed has clocks."""

    def __init__(self, delta_ns: int) -> None:
        self._lives: dict[int, Process] = {}
        self._delta_ns = delta_ns

    def started(self, process: Process) -> None:
        """One more process life."""
        self._lives[process.node.incarnation] = process

    def check_grant(self, process: Process, configurations: Sequence[Configuration]) -> None:
        """This leader has just appended a grant, which was decided under one of these configurations."""
        if process.node.settings.standalone:
            return
        if not any(self._is_proved(process, configuration) for configuration in configurations):
            raise Violation("no grant while the clocks are unproven", f"{process.name} grants")

    def _is_proved(self, process: Process, configuration: Configuration) -> bool:
        return all(
            sum(self._counts(process, voter) for voter in voters) * 2 > len(voters)
            for voters in (configuration.voters, configuration.outgoing)
            if voters
        )

    def check_expiry(self, process: Process, raft: Raft) -> None:
        """This leader has just appended the end of a lease that is over by its own clock."""
        configuration = raft.configuration
        for voters in (configuration.voters, configuration.outgoing):
            against = sum(self._rate_is_proved(process, voter) for voter in voters if voter != raft.me)
            if against * 2 > len(voters):
                raise Violation("no expiry by a wrong clock", f"{process.name} lets a lease end")

    def _counts(self, process: Process, voter: Member) -> bool:
        other = self._lives.get(voter.incarnation)
        if other is process:
            return True
        if other is None:
            return False
        sampled_ns = other.shell.replied.get(process)
        if sampled_ns is None or sampled_ns < process.decided_from_ns - CLOCKS_KNOWN_NS:
            return False
        return self._is_near(process, other) and not self._rate_is_proved(process, voter)

    def _is_near(self, process: Process, other: Process) -> bool:
        # The clocks are read once a turn, which may stand still before it ends. Samples carry their error, so half of
        # delta is kept.
        late_ns = process.clock.elapsed_ns() - process.decided_from_ns + 50 * MS
        mine = process.clock.walls_of_late(late_ns)
        theirs = other.clock.walls_of_late(CLOCKS_KNOWN_NS + late_ns)
        # A sample is carried on by our elapsed clock: right as far as that runs like the other's wall clock.
        carried_ns = CLOCKS_KNOWN_NS + late_ns
        rates = process.clock.rates_since(process.world.now - carried_ns)
        slack_ns = 4 * MS + carried_ns * max(abs(other.clock.wall_ppb - rate) for rate in rates) // PPB
        return any(abs(a - b) <= self._delta_ns // 2 + slack_ns for a in mine for b in theirs)

    def _rate_is_proved(self, process: Process, voter: Member) -> bool:
        """Whether the samples that this process had when it decided prove that the true rates differ by more than rho.

        Of any two samples that lie a third of their span apart the widths are the error; the widest are taken here.
        """
        other = self._lives.get(voter.incarnation)
        peer = process.node.clock._peers.get(voter.incarnation)
        if other is None or peer is None:
            return False
        apart_ppb = abs(other.clock.rate_ppb - process.clock.rate_ppb)
        if apart_ppb <= RHO_PPB:
            return False
        beats = peer._beats
        moments = [beat.low_ns for beat in beats if beat.high_ns < process.decided_from_ns]
        if len(moments) < 2:
            return False
        since_ns = process.clock.true_ns(moments[0])
        if since_ns < max(process.clock.rate_since_ns, other.clock.rate_since_ns):
            return False
        width_ns = max(beat.high_ns - beat.low_ns for beat in beats)
        span_ns = moments[-1] - moments[0]
        error_ppb = 7 * width_ns * PPB // max(1, span_ns)
        return apart_ppb * 9 // 10 > RHO_PPB + error_ppb
