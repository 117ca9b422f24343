"""When which node served: what the rig knows of leaders and the history's rules of time rest on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.sim.world import MS, World

if TYPE_CHECKING:
    from tests.sim.process import Process
    from ticketing.node.lead import Lead

NEVER_NS = 1 << 62
GAP_NS = 200 * MS
"""A leader has something to do every 50 ms: after a longer gap it stood still."""


class Stretch:
    """A time in which one node served as the same leader, in the same state, without standing still."""

    __slots__ = ("ends", "from_ns", "gate", "lead", "to_ns")

    def __init__(self, lead: int, from_ns: int, to_ns: int, *, ends: bool, gate: bool) -> None:
        self.lead = lead
        self.from_ns = from_ns
        self.to_ns = to_ns
        self.ends = ends
        """Leases that are over could be ended: its clock's rate is not proved wrong, and there was room in the log."""
        self.gate = gate
        """Keys could be granted."""

    def spans_ns(self, from_ns: int, to_ns: int) -> int:
        """How much of it lies between."""
        return min(self.to_ns, to_ns) - max(self.from_ns, from_ns)


class Serving:
    """All stretches of a run, by the address of the node."""

    def __init__(self, within_ns: int) -> None:
        self.within_ns = within_ns
        """Who leads on for so long has committed what it proposed before, or would have lost the lead."""
        self.nodes: dict[str, list[Stretch]] = {}
        self._long: list[tuple[Stretch, int]] | None = None
        """Those that were long enough, with when their leads began."""

    def add(self, node: str, stretch: Stretch) -> None:
        """One more; those of a node in their order."""
        self.nodes.setdefault(node, []).append(stretch)
        self._long = None

    def expired_by(self, granted_ns: int, lasts_ns: int, carried_ns: int) -> int:
        """When a lease has surely been ended that was granted, or extended, at that time at the latest.

        A leader's stamp is no younger than its lead, nor than what brought it the entry, or the snapshot, was under
        way after the grant.
        """
        if self._long is None:
            began: dict[int, int] = {}
            for stretches in self.nodes.values():
                for stretch in stretches:
                    began.setdefault(stretch.lead, stretch.from_ns)
            self._long = [
                (stretch, began[stretch.lead])
                for stretches in self.nodes.values()
                for stretch in stretches
                if stretch.ends and stretch.to_ns - stretch.from_ns >= self.within_ns
            ]
        found = NEVER_NS
        for stretch, began_ns in self._long:
            over_ns = max(granted_ns, min(granted_ns + carried_ns, began_ns)) + lasts_ns
            by_ns = max(stretch.from_ns, over_ns) + self.within_ns
            if by_ns <= stretch.to_ns:
                found = min(found, by_ns)
        return found

    def could_grant(self, node: str, from_ns: int, to_ns: int) -> bool:
        """Whether the node could have granted a free key to a head of its queue between these times."""
        return any(
            stretch.ends and stretch.gate and stretch.spans_ns(from_ns, to_ns) >= self.within_ns
            for stretch in self.nodes.get(node, ())
        )

    def gate_was_open(self, node: str, from_ns: int, to_ns: int) -> bool:
        """Whether it served with an open gate all the time.

        Nobody sees which gate the first turn of a stretch began with, nor that of a lead's last turn.
        """
        return any(
            stretch.gate and stretch.from_ns <= from_ns and stretch.to_ns >= to_ns
            for stretch in self.nodes.get(node, ())
        )

    def led_throughout(self, node: str, from_ns: int, to_ns: int) -> bool:
        """Whether it served as the same leader all the time."""
        stretches = self.nodes.get(node, ())
        before = {stretch.lead for stretch in stretches if stretch.from_ns <= from_ns}
        return any(stretch.lead in before for stretch in stretches if stretch.to_ns >= to_ns)


class ServingNotes:
    """Notes who serves."""

    def __init__(self, world: World, serving: Serving) -> None:
        self._world = world
        self._serving = serving
        self._present: dict[Process, tuple[Lead, Stretch]] = {}
        self._leads = 0

    def after_turn(self, process: Process) -> None:
        """To be called after every turn of a process."""
        lead = process.node.lead
        if lead is not None and lead.serving:
            self._note(process, lead)
        elif process in self._present:
            del self._present[process]

    def _note(self, process: Process, lead: Lead) -> None:
        now, desk = self._world.now, lead.desk
        ends, gate = desk.rate_ok and not desk.starved, desk.gate_open
        present = self._present.get(process)
        number = -1
        if present is not None and present[0] is lead:
            stretch = present[1]
            if stretch.ends is ends and stretch.gate is gate and now - stretch.to_ns <= GAP_NS:
                stretch.to_ns = now
                return
            number = stretch.lead
        if number < 0:
            self._leads = number = self._leads + 1
        stretch = Stretch(number, now, now, ends=ends, gate=gate)
        self._present[process] = lead, stretch
        self._serving.add(process.node.place.client, stretch)
