"""Notices what has changed on this node and says so as events: who leads, the clock gate, members, overload.

It looks a few times a second at what stands there anyway, so nothing on the way of a request tells it anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ticketing.node.clock_health import read_together
from ticketing.node.settings import S
from ticketing.node.status import clock, clock_gate, leader_facts, redundancy, role
from ticketing.raft.types import MS

if TYPE_CHECKING:
    from ticketing.node.node import Node

LOOK_NS = 200 * MS
SUM_NS = 1 * S
"""How often what comes in numbers (requests, sessions, refusals) is summed up."""

_DONE = ("granted", "handed_over", "released", "extended", "expired", "cancelled", "timeout", "not_free")
_OVERLOADS = ("busy_session", "busy_key", "busy_waiters", "busy_keys")
_CLIENT_OVERLOADS = ("too_many_sessions", "held_back_full")


class Watch:
    """What was seen when it looked last."""

    __slots__ = (
        "_counts",
        "_gaps",
        "_gate",
        "_leader",
        "_led",
        "_look_ns",
        "_members",
        "_redundancy",
        "_sessions",
        "_stages",
        "_sum_ns",
        "gate_closings",
        "leader_changes",
    )

    def __init__(self, now_ns: int) -> None:
        self._look_ns = now_ns
        self._sum_ns = now_ns
        self._leader: tuple[object, ...] | None = None
        self._led: tuple[object, int] | None = None
        self._gate = ""
        self._members: dict[tuple[str, str], str] = {}
        self._redundancy: int | None = None
        self._stages: dict[tuple[str, int], tuple[str, int]] = {}
        self._counts: dict[str, int] = {}
        self._sessions = (0, 0)
        self._gaps = 0
        self.leader_changes = 0
        """How often a lead was seen to begin, whoever leads."""
        self.gate_closings = 0

    def look(self, node: Node, now_ns: int) -> None:
        """Called with every housekeeping; looks when it is time."""
        if now_ns < self._look_ns:
            return
        self._look_ns = now_ns + LOOK_NS
        self._look_at_leader(node)
        self._look_at_clock(node)
        self._look_at_members(node, now_ns)
        if now_ns >= self._sum_ns:
            self._sum_ns = now_ns + SUM_NS
            self._sum_up(node)

    def since_ms(self, place: str, incarnation: int) -> int | None:
        """Since when a change of this place is in the stage that it is in; None where that was not seen."""
        stage = self._stages.get((place, incarnation))
        return None if stage is None else stage[1]

    def _look_at_leader(self, node: Node) -> None:
        raft = node.raft
        leader = None if raft is None else raft.leader
        serving = node.lead is not None and node.lead.serving
        seen = (leader, None if raft is None else raft.term, role(node), serving)
        if seen == self._leader:
            return
        self._leader = seen
        if raft is not None and leader is not None and (leader, raft.term) != self._led:
            self._led = (leader, raft.term)
            self.leader_changes += 1
        node.events.add(
            "leader",
            leader=leader_facts(node),
            term=None if raft is None else str(raft.term),
            role=seen[2],
            serving=serving,
        )

    def _look_at_clock(self, node: Node) -> None:
        health = node.clock
        step_ns = health.observe(*read_together(node.shell.elapsed_ns, node.shell.wall_ns))
        if step_ns:
            node.shell.log("warning", "the wall clock was set", ms=step_ns // MS)
            node.events.add("gate", what="step", step_ms=step_ns // MS)
        gate = clock_gate(node)
        if gate == self._gate:
            return
        first, self._gate = not self._gate, gate
        self.gate_closings += gate == "closed"
        outside = _outside(node) if gate == "closed" else []
        if not first:
            level = "warning" if gate == "closed" else "info"
            node.shell.log(level, "clock gate", gate=gate, source=health.source_detail, outside=outside)
        node.events.add("gate", what="gate", gate=gate, source=health.source_detail or None, outside=outside)

    def _look_at_members(self, node: Node, now_ns: int) -> None:
        raft, state = node.raft, node.state
        if raft is None or state is None:
            return
        configuration = raft.configuration
        seen: dict[tuple[str, str], str] = {}
        for record in state.members.records:
            if record.member in configuration.members():
                voter = record.member in configuration.voters
                seen[record.place, str(record.node_id)] = "voter" if voter else "not_voting"
        if seen != self._members:
            before, self._members = self._members, seen
            for (place, node_id), standing in seen.items():
                if before.get((place, node_id)) != standing:
                    node.events.add("member", what=standing, place=place, node_id=node_id)
            for place, node_id in before:
                if (place, node_id) not in seen:
                    node.events.add("member", what="removed", place=place, node_id=node_id)
        figure = redundancy(node, raft, now_ns)
        if figure != self._redundancy:
            self._redundancy = figure
            node.events.add("member", what="redundancy", redundancy=figure)
        self._look_at_changes(node, now_ns)

    def _look_at_changes(self, node: Node, now_ns: int) -> None:
        governing = node.membership.governing
        stages: dict[tuple[str, int], tuple[str, int]] = {}
        if governing is not None:
            for view in governing.views(now_ns):
                about = (view.place, view.incarnation)
                known = self._stages.get(about)
                if known is None or known[0] != view.stage:
                    known = (view.stage, node.shell.wall_ns() // MS)
                    node.events.add(
                        "member",
                        what="change",
                        place=view.place,
                        node_id=str(view.node_id) if view.node_id else None,
                        stage=view.stage,
                        text=view.text,
                        operator=view.operator,
                    )
                stages[about] = known
        self._stages = stages

    def _sum_up(self, node: Node) -> None:
        counts = {**node.figures.counters, **node.clients.counters}
        before, self._counts = self._counts, counts
        _say_rises(node, "lock", _DONE, counts, before)
        _say_rises(node, "overload", (*_OVERLOADS, *_CLIENT_OVERLOADS), counts, before)
        if node.loop_turn.gaps != self._gaps:
            self._gaps = node.loop_turn.gaps
            node.events.add("overload", what="loop", gaps=node.loop_turn.gaps)
        sessions = (node.clients.ready_count, node.clients.opening_count)
        if sessions != self._sessions:
            self._sessions = sessions
            node.events.add("session", open=sessions[0], unauthenticated=sessions[1])


def _outside(node: Node) -> list[str]:
    """The peers that are not inside as seen from here, and how far off they are, for people."""
    now_ns, wall_ns = read_together(node.shell.elapsed_ns, node.shell.wall_ns)
    return [
        f"{peer['place']}: {peer['verdict']}, {peer['difference_ms']} ms"
        for peer in clock(node, now_ns, wall_ns)["peers"]
        if peer["verdict"] != "inside"
    ]


def _say_rises(
    node: Node, kind: str, names: tuple[str, ...], counts: dict[str, int], before: dict[str, int]
) -> None:
    """One event with what has risen since the last look, if anything has."""
    rises: dict[str, Any] = {}
    for name in names:
        rise = counts[name] - before.get(name, 0)
        if rise:
            rises[name] = rise
    if rises:
        node.events.add(kind, what="counts", counts=rises)
