"""What happened, told from two readings of the cluster: a short log for the eyes, newest last."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ticketing.tui.model import ClusterView, KeyDetail, NodeView, table, text, whole
from ticketing.tui.render.text import Tone

EVENTS_MAX = 200
MOMENTS_MAX = 100


@dataclass(frozen=True, slots=True)
class Event:
    """One line of the log."""

    wall_ms: int
    """When it was seen, by this machine's wall clock."""
    text: str
    tone: Tone = Tone.PLAIN


def changes(before: ClusterView | None, after: ClusterView, wall_ms: int) -> Iterator[Event]:
    """What is different. Between two readings more may have happened; of that a risen term tells."""
    if before is None:
        first = f"{after.leader} leads in term {after.term}" if after.served else "no leader serves"
        yield Event(wall_ms, first, Tone.PLAIN if after.served else Tone.BAD)
        return
    yield from _lead(before, after, wall_ms)
    if before.gate != after.gate and after.served and before.served:
        tone = Tone.GOOD if after.gate == "open" else Tone.BAD
        yield Event(wall_ms, f"clock gate {after.gate}", tone)
    if before.domain and after.domain and before.domain != after.domain:
        yield Event(wall_ms, f"another domain: {after.domain} (was {before.domain})", Tone.BAD)
    former = {node.place: node for node in before.nodes}
    for node in after.nodes:
        yield from _node(former.get(node.place), node, wall_ms)
    present = {node.place for node in after.nodes}
    for node in before.nodes:
        if node.place not in present:
            yield Event(wall_ms, f"{node.place} is no member any more", Tone.WARN)


def _lead(before: ClusterView, after: ClusterView, wall_ms: int) -> Iterator[Event]:
    if not after.served:
        if before.served:
            yield Event(wall_ms, f"{before.leader} leads no more; no leader serves", Tone.BAD)
        return
    elections = (after.term or 0) - (before.term or 0) if before.term is not None else 0
    rounds = f" after {elections} elections" if elections > 1 else ""
    if not before.served:
        yield Event(wall_ms, f"{after.leader} leads in term {after.term}", Tone.GOOD)
    elif (before.leader, before.leader_node_id) != (after.leader, after.leader_node_id):
        yield Event(
            wall_ms,
            f"{after.leader} leads in term {after.term}{rounds}, before it {before.leader}",
            Tone.WARN,
        )
    elif before.term != after.term:
        yield Event(wall_ms, f"{after.leader} was elected again, term {after.term}", Tone.WARN)


def _node(before: NodeView | None, after: NodeView, wall_ms: int) -> Iterator[Event]:
    if before is None:
        yield Event(wall_ms, f"{after.place} is new", Tone.WARN)
        return
    if before.reachable and not after.reachable:
        yield Event(wall_ms, f"{after.place} does not answer", Tone.BAD)
    elif after.reachable and not before.reachable and before.facts_ns:
        yield Event(wall_ms, f"{after.place} answers again", Tone.GOOD)
    if before.node_id and after.node_id and before.node_id != after.node_id:
        yield Event(
            wall_ms, f"{after.place} was replaced: NodeId {before.node_id} became {after.node_id}", Tone.WARN
        )
    if not after.reachable or not before.role or before.role == after.role:
        return
    if "learner" in (before.role, after.role) or "waiting" in (before.role, after.role):
        yield Event(wall_ms, f"{after.place} is {after.role}, was {before.role}", Tone.WARN)


def _with_numbers(view: ClusterView, before: ClusterView) -> ClusterView:
    """A node that starts anew has no NodeId for a while; that of its former life is kept to compare with."""
    former = {node.place: node.node_id for node in before.nodes}
    nodes = tuple(
        node if node.node_id else replace(node, node_id=former.get(node.place, "")) for node in view.nodes
    )
    return replace(view, nodes=nodes)


TOLD_CHARS_MAX = 200


def told_event(line: Mapping[str, Any], place: str, wall_ms: int) -> Event | None:
    """A line of the event stream of `place` as a line of the log; None for what two readings tell anyway.

    Leader changes are among those: a reading names the former leader too.
    """
    moment = whole(line.get("time_ms")) or wall_ms
    match (line.get("kind"), line.get("what")):
        case ("gate", "step"):
            return Event(
                moment,
                f"{place}: its wall clock was set by {whole(line.get('step_ms')) or 0:+d} ms",
                Tone.WARN,
            )
        case ("overload", "loop"):
            return Event(moment, f"{place}: its loop stood still", Tone.WARN)
        case ("member", "change"):
            why = text(line.get("text"))
            stage = text(line.get("stage")).replace("_", " ")
            told = f"{text(line.get('place'))} is being replaced: {stage}" + (f", {why}" if why else "")
            return Event(moment, told[:TOLD_CHARS_MAX], Tone.WARN)
        case ("audit", _):
            facts = ", ".join(_facts(table(line.get("facts"))))
            told = f"{place}: {text(line.get('event'))}" + (f" ({facts})" if facts else "")
            return Event(moment, told[:TOLD_CHARS_MAX], Tone.NAME)
    return None


_FIRST = ("key", "token", "place", "of", "why", "reason", "who")
_LEFT_OUT = ("command", "id", "owner", "incarnation", "domain")
"""Nothing for eyes: the node's own log has them."""


def _facts(facts: Mapping[str, Any]) -> Iterator[str]:
    """Facts of an audit line, what it is about first."""
    names = [name for name in _FIRST if name in facts]
    names += [name for name in facts if name not in _FIRST and name not in _LEFT_OUT]
    return (f"{name} {facts[name]}" for name in names if facts[name] not in (None, ""))


class EventLog:
    """The last events, bounded."""

    def __init__(self) -> None:
        self.events: deque[Event] = deque(maxlen=EVENTS_MAX)
        self._before: ClusterView | None = None

    def note(self, event: Event) -> None:
        """An event that a node told."""
        self.events.append(event)

    def add(self, view: ClusterView, wall_ms: int) -> bool:
        """Takes a reading; True where something happened."""
        found = list(changes(self._before, view, wall_ms))
        self._before = view if self._before is None else _with_numbers(view, self._before)
        self.events.extend(found)
        return bool(found)


@dataclass(frozen=True, slots=True)
class Moment:
    """A change that was seen of one key."""

    wall_ms: int
    text: str


class KeyHistory:
    """What was seen of one key since its page was opened. Hand-overs between two readings are not seen."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.moments: deque[Moment] = deque(maxlen=MOMENTS_MAX)
        self._token: str | None = None
        self._renewal: int | None = None

    def add(self, detail: KeyDetail, wall_ms: int) -> None:
        """Takes a reading of the key; one that failed says nothing."""
        if detail.error or detail.key != self.key:
            return
        token = detail.lock.token if detail.lock is not None else ""
        renewal = detail.lock.renewal if detail.lock is not None else None
        if token != self._token:
            if token and detail.lock is not None:
                holder = detail.lock.name or f"owner {detail.lock.owner}"
                self.moments.append(Moment(wall_ms, f"held by {holder}, token {token}"))
            else:
                self.moments.append(Moment(wall_ms, "held by nobody"))
        elif token and renewal is not None and self._renewal is not None and renewal > self._renewal:
            self.moments.append(Moment(wall_ms, f"extended, token {token}"))
        self._token, self._renewal = token, renewal
