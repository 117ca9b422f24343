"""One refresh as a JSON-ready object (`ticketing top -o json`); its keys stand in docs/dashboard.md."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ticketing.tui.board import Board
from ticketing.tui.history import SERIES
from ticketing.tui.model import ClusterView, LockList, LockRow, NodeView, age_ms

FORMAT = 1


def record(board: Board) -> dict[str, Any]:
    """The last reading. 64-bit numbers are strings, durations end in `_ms`; unknown is null."""
    reading = board.reading
    assert reading is not None, "there is a reading"
    return {
        "format": FORMAT,
        "wall_ms": reading.wall_ms,
        "data_age_ms": _rounded(age_ms(reading.fresh_ns, reading.taken_ns)),
        "cluster": _cluster(reading.view),
        "nodes": [_node(node, reading.taken_ns) for node in reading.view.nodes],
        "rates": {name: _rounded(board.history.latest(name)) for name in SERIES},
        "locks": _locks(reading.locks, reading.taken_ns),
        "changes": [asdict(change) for change in reading.changes],
        "events": [{"wall_ms": event.wall_ms, "text": event.text} for event in board.log.events],
    }


def _cluster(view: ClusterView) -> dict[str, Any]:
    return {
        "served": view.served,
        "leader": view.leader or None,
        "domain": view.domain or None,
        "term": _text(view.term),
        "redundancy": view.redundancy,
        "clock_gate": view.gate,
        "serves_in_s": view.serves_in_s,
        "held": view.held,
        "waiting": view.waiting,
        "keys_waited_for": view.keys_waited_for,
        "next_token": view.next_token or None,
        "answering": view.answering,
        "faults": list(view.faults),
    }


def _node(node: NodeView, now_ns: int) -> dict[str, Any]:
    return {
        "place": node.place,
        "admin": node.address,
        "reachable": node.reachable,
        "error": node.error or None,
        "age_ms": _rounded(age_ms(node.facts_ns, now_ns)),
        "role": node.role or None,
        "serving": node.serving,
        "stopping": node.stopping,
        "node_id": node.node_id or None,
        "domain": node.domain or None,
        "term": _text(node.term),
        "commit_index": _text(node.commit),
        "applied_index": _text(node.applied),
        "lag": node.lag,
        "clock_difference_ms": node.clock_ms,
        "clock_error_ms": node.clock_error_ms,
        "clock_verdict": node.clock_verdict or None,
        "connections": node.connections,
        "loop_busy": node.busy,
        "version": node.version or None,
        "certificate_days": _rounded(node.certificate_days),
        "waiting_for": list(node.waiting_for),
    }


def _locks(listed: LockList | None, now_ns: int) -> dict[str, Any] | None:
    if listed is None:
        return None
    return {
        "order": listed.order,
        "prefix": listed.prefix,
        "error": listed.error or None,
        "age_ms": _rounded(age_ms(listed.taken_ns, now_ns)),
        "locks": [_lock(row) for row in listed.locks],
        "next": listed.next,
    }


def _lock(row: LockRow) -> dict[str, Any]:
    return {
        "key": row.key,
        "token": row.token or None,
        "owner": row.owner or None,
        "name": row.name or None,
        "remote": row.remote or None,
        "lease_ms": row.lease_ms,
        "lease_left_ms": row.left_ms,
        "held_ms": _rounded(row.held_ms),
        "waiting": row.waiting,
        "longest_wait_ms": row.longest_wait_ms,
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)


def _text(value: int | None) -> str | None:
    return None if value is None else str(value)
