"""What a node says of itself (`status`): JSON-ready facts, one moment's worth, cheap enough for once a second.

Numbers that take 64 bits (tokens, NodeIds, terms, indexes, incarnations) are strings: many JSON readers round them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ticketing.locks.durations import BOUNDS_S
from ticketing.node.clock_health import ClockView, read_together
from ticketing.node.liveness import spare
from ticketing.node.members import MemberRecord
from ticketing.node.settings import S
from ticketing.raft.core import Raft
from ticketing.raft.election import Role
from ticketing.raft.types import MS, Configuration, Member

if TYPE_CHECKING:
    from ticketing.node.node import Node

STATUS_FORMAT = 1
WAIT_BOUNDS_MS = [bound_s * 1_000 for bound_s in BOUNDS_S]
HEARD_NS = 1 * S
"""A voter that was not heard for longer does not count as living in `redundancy`."""


def status(node: Node) -> dict[str, Any]:
    """Everything at once; the keys are documented in `docs/admin.md`."""
    now_ns, wall_ns = read_together(node.shell.elapsed_ns, node.shell.wall_ns)
    facts: dict[str, Any] = {
        "format": STATUS_FORMAT,
        "version": node.settings.version,
        "place": node.settings.place,
        "standalone": node.settings.standalone,
        "node_id": str(node.member.node_id) if node.raft is not None else None,
        "incarnation": str(node.incarnation),
        "domain": node.state.domain.shown if node.state is not None else None,
        "wall_ms": wall_ns // MS,
        "role": role(node),
        "serving": node.lead is not None and node.lead.serving,
        "leader": None,
        "leader_serves": _leader_serves(node),
        "stopping": node.membership.departure.stopping,
        "membership": node.membership.status(),
        "addresses": {
            "client": node.place.client,
            "peer": node.place.peer or None,
            "admin": node.place.admin or None,
        },
        "sessions": {"open": node.clients.ready_count, "unauthenticated": node.clients.opening_count},
        "links": {
            "missing": node.peers.missing(),
            "formats": node.peers.formats(),
            **node.peers.counters,
        },
        "loop": {"gaps": node.loop_turn.gaps, "foreign_messages": node.traffic.foreign_messages},
        "counters": dict(node.clients.counters),
        "clock": clock(node, now_ns, wall_ns),
        "raft": None,
        "locks": None,
    }
    raft, state = node.raft, node.state
    if raft is not None and state is not None:
        facts["raft"] = consensus(node, raft, now_ns)
        facts["leader"] = leader_facts(node)
        facts["locks"] = {"held": len(state.table.held), "next_token": str(state.table.next_token)}
        left_ns = state.domain.quarantine_s * S - (now_ns - state.quarantine_stamp_ns)
        facts["serves_in_s"] = round(left_ns / S, 1) if state.in_quarantine(now_ns) else 0
        if node.lead is not None:
            desk = node.lead.desk
            facts["locks"] |= {
                "waiting": desk.waiting,
                "keys_waited_for": desk.keys_waited_for,
                "waits": {"bounds_ms": WAIT_BOUNDS_MS, "counts": list(node.figures.waits.counts)},
            }
    facts["counters"] |= {f"lock_{name}": count for name, count in node.figures.counters.items()}
    return facts


def _leader_serves(node: Node) -> bool:
    """Whether somebody is known here to answer clients."""
    if node.lead is not None:
        return node.lead.serving
    # A standalone node names itself to its clients before it serves them.
    return not node.settings.standalone and node.clients.leader_address is not None


def leader_facts(node: Node) -> dict[str, Any] | None:
    """The leader's place and where it is reached, as far as it is known here."""
    raft, state = node.raft, node.state
    record = None
    if raft is not None and state is not None and raft.leader is not None:
        record = state.members.find(raft.leader)
    if record is None:
        return None
    return {"place": record.place, "client": record.client, "admin": record.admin or None}


def role(node: Node) -> str:
    """One word for people: leader, follower, candidate, learner, or waiting (no membership)."""
    raft = node.raft
    if raft is None:
        return "waiting"
    if raft.role is Role.LEADER:
        return "leader"
    if raft.role is not Role.FOLLOWER:
        return "candidate"
    return "follower" if raft.configuration.is_voter(raft.me) else "learner"


def consensus(node: Node, raft: Raft, now_ns: int) -> dict[str, Any]:
    """Raft's state, and every member as this node sees it."""
    assert node.state is not None
    configuration = raft.configuration
    members = [
        _member(node, raft, record, configuration, now_ns)
        for record in node.state.members.records
        if record.member in configuration.members()
    ]
    return {
        "term": str(raft.term),
        "commit_index": str(raft.commit_index),
        "applied_index": str(raft.applied_index),
        "last_index": str(raft.last_index),
        "joint": configuration.joint,
        "members": members,
        "redundancy": redundancy(node, raft, now_ns),
        "transferring": raft.transferring is not None,
    }


def _member(
    node: Node, raft: Raft, record: MemberRecord, configuration: Configuration, now_ns: int
) -> dict[str, Any]:
    member = record.member
    progress = raft.progress(member)
    heard_ns = node.peers.heard_ns.get(record.incarnation)
    own = member == raft.me
    return {
        "place": record.place,
        "node_id": str(record.node_id),
        "incarnation": str(record.incarnation),
        "role": "voter"
        if member in configuration.voters
        else "leaving"
        if configuration.joint
        else "learner",
        "client": record.client,
        "peer": record.peer or None,
        "admin": record.admin or None,
        "command_id": record.command_id or None,
        "linked": own or node.peers.is_up(record.incarnation),
        "heard_ms": 0 if own else None if heard_ns is None else (now_ns - heard_ns) // MS,
        "match_index": str(progress.match) if progress is not None else None,
        "lag": max(0, raft.last_index - progress.match) if progress is not None else None,
    }


def redundancy(node: Node, raft: Raft, now_ns: int) -> int:
    """How many more voters may be lost before the domain is; the smaller figure of both halves of a change.

    Below zero: a majority is not seen from here.
    """

    def living(voter: Member) -> bool:
        heard_ns = node.peers.heard_ns.get(voter.incarnation)
        return voter == raft.me or (heard_ns is not None and now_ns - heard_ns <= 2 * HEARD_NS)

    configuration = raft.configuration
    figure = spare(configuration.voters, living)
    if configuration.joint:
        figure = min(figure, spare(configuration.outgoing, living))
    return figure


def clock(node: Node, now_ns: int, wall_ns: int) -> dict[str, Any]:
    """The gate, and every peer's clocks against ours (spec 8)."""
    places = {peer.facts.incarnation: peer.place for peer in node.peers.reachable()}
    if node.state is not None:
        places |= {record.incarnation: record.place for record in node.state.members.records}
    views = node.clock.verdicts(now_ns, wall_ns)
    return {
        "gate": clock_gate(node),
        "delta_ms": node.clock.delta_ns // MS,
        "steps": node.clock.steps,
        "last_step_ms": _ms(node.clock.last_step_ns),
        "source": node.clock.source_detail or None,
        "peers": [_clock_of(places.get(peer, "?"), view) for peer, view in views.items()],
    }


def clock_gate(node: Node) -> str:
    """`open`, `closed`, or `unknown` without membership: where grants may be made, or could if this node led."""
    if node.settings.standalone:
        return "open"
    inside = node.traffic.inside(*read_together(node.shell.elapsed_ns, node.shell.wall_ns))
    return "unknown" if inside is None else "open" if inside else "closed"


def _clock_of(place: str, view: ClockView) -> dict[str, Any]:
    return {
        "place": place,
        "verdict": view.verdict,
        "difference_ms": _ms(view.difference_ns),
        "error_ms": _ms(view.error_ns),
        "age_s": None if view.age_ns is None else round(view.age_ns / S, 2),
        "round_trip_ms": _ms(view.round_trip_ns),
        "rate_ppm": None if view.rate_ppb is None else round(view.rate_ppb / 1000, 3),
        "rate_error_ppm": None if view.rate_error_ppb is None else round(view.rate_error_ppb / 1000, 3),
        "steps": view.steps,
        "thrown_away": view.thrown_away,
    }


def _ms(nanoseconds: int | None) -> float | None:
    return None if nanoseconds is None else round(nanoseconds / MS, 3)
