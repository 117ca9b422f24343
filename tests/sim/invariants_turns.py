"""That nothing goes round in circles: turns of a node in which nothing is done, and events of a whole run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.sim.world import S, Violation

if TYPE_CHECKING:
    from tests.sim.process import Process

IDLE_MAX = 300
"""Turns of one process in a second of true time that time alone began, in which nothing was done and after which no
slice of anything was left. Housekeeping and Raft's own timers are 20 a second each, and 200 a leader's looks at leases
that are over while their ends are under way. Where the log has no room for what is due its leader looks again every
millisecond: such turns do not count.
"""


class Idle:
    """The idle turns of one process."""

    __slots__ = ("_acts", "_applied", "_count", "_second")

    def __init__(self) -> None:
        self._second = -1
        self._count = 0
        self._acts = 0
        self._applied = -1

    def after_turn(self, process: Process) -> None:
        """To be called after every turn that time began."""
        node = process.node
        acts, raft = process.shell.acts, node.raft
        applied = -1 if raft is None else raft.applied_index
        idle = acts == self._acts and applied == self._applied
        self._acts, self._applied = acts, applied
        lead = node.lead
        if (
            not idle
            or node.slices_left
            or node.loop_turn.work_left
            or (lead is not None and lead.desk._ends_short)
        ):
            return
        second = process.world.now // S
        if second != self._second:
            self._second, self._count = second, 0
        self._count += 1
        if self._count > IDLE_MAX:
            raise Violation("no idle turns", f"{process.name} had {self._count} within a second")
