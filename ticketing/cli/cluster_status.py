"""What the nodes' own statuses (docs/admin.md) say of the cluster as a whole: facts and faults, no printing."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from ticketing.cli.admin_client import Answer

SOON_DAYS = 30
"""Before its end a certificate is warned of for so long."""
DAY_MS = 86_400_000


def cluster_status(answers: Sequence[Answer]) -> dict[str, Any]:
    """The cluster as `status -o json` tells it, in configured order.

    Nodes of different domains are possible (an older one whose end nobody noticed): the leader that serves in the
    domain with the highest first token, and there in the highest term, counts.
    """
    heard = [answer.facts for answer in answers if answer.facts is not None]
    serving = max((facts for facts in heard if facts.get("serving")), key=_seniority, default=None)
    raft = (serving or {}).get("raft") or {}
    nodes = [_node(answer, serving) for answer in answers]
    return {
        "served": serving is not None,
        "domain": serving.get("domain") if serving else None,
        "leader": serving.get("place") if serving else None,
        "term": raft.get("term"),
        "commit_index": raft.get("commit_index"),
        "redundancy": raft.get("redundancy"),
        "serves_in_s": max((facts.get("serves_in_s") or 0 for facts in heard), default=0),
        "locks": serving.get("locks") if serving else None,
        "clock": {key: (serving.get("clock") or {}).get(key) for key in ("gate", "delta_ms")}
        if serving
        else None,
        "nodes": nodes,
        "faults": [
            *_faults(nodes, serving),
            *(fault for facts in heard for fault in unfit_certificate(facts)),
        ],
        "warnings": [warning for facts in heard for warning in _warnings(facts)],
    }


def _seniority(facts: dict[str, Any]) -> tuple[int, int]:
    first_token = str(facts.get("domain") or "0").partition(".")[0]
    return _whole(first_token), _whole((facts.get("raft") or {}).get("term"))


def _whole(text: object) -> int:
    return int(text) if isinstance(text, str | int) and str(text).isdigit() else 0


def _node(answer: Answer, serving: dict[str, Any] | None) -> dict[str, Any]:
    facts = answer.facts
    if facts is None:
        return {
            "place": answer.place,
            "admin": answer.address,
            "reachable": False,
            "error": str(answer.error),
        }
    raft = facts.get("raft") or {}
    return {
        "place": answer.place,
        "admin": answer.address,
        "reachable": True,
        "error": None,
        "role": facts.get("role"),
        "state": (facts.get("membership") or {}).get("state") or None,
        "waiting_for": (facts.get("membership") or {}).get("waiting_for") or [],
        "node_id": facts.get("node_id"),
        "domain": facts.get("domain"),
        "term": raft.get("term"),
        "commit_index": raft.get("commit_index"),
        "lag": _of_leader(serving, "raft", "members", facts, "lag"),
        "clock_difference_ms": _of_leader(serving, "clock", "peers", facts, "difference_ms"),
        "clock_error_ms": _of_leader(serving, "clock", "peers", facts, "error_ms"),
        "stopping": facts.get("stopping", False),
        "sessions": (facts.get("sessions") or {}).get("open"),
        "version": facts.get("version"),
    }


def _of_leader(
    serving: dict[str, Any] | None, group: str, listed: str, facts: dict[str, Any], key: str
) -> Any:
    """What the leader measures of the node that `facts` are of."""
    for row in ((serving or {}).get(group) or {}).get(listed) or []:
        if row.get("place") == facts.get("place"):
            return row.get(key)
    return None


def unfit_certificate(facts: dict[str, Any]) -> list[str]:
    """A certificate that would not pass: links that stand are kept, and none could be made anew, so no node that has
    one may be restarted.
    """
    fault = (facts.get("process") or {}).get("certificate_fault")
    return [f"{facts.get('place')}: {fault}"] if fault else []


def _warnings(facts: dict[str, Any]) -> list[str]:
    """What hinders nothing today, of one node: its certificate near its end, a file that it could not read anew."""
    place, process = facts.get("place"), facts.get("process") or {}
    found = []
    if not process.get("certificate_fault") and isinstance(
        ends_ms := process.get("certificate_ends_ms"), int
    ):
        days = (ends_ms - time.time_ns() // 1_000_000) // DAY_MS
        if days < SOON_DAYS:
            found.append(f"{place}'s certificate ends in {days} days: `ticketing cert renew`")
    if process.get("reload_fault"):
        found.append(f"{place} could not read its files anew: {process['reload_fault']}")
    return found


def _faults(nodes: Sequence[dict[str, Any]], serving: dict[str, Any] | None) -> list[str]:
    """What an operator should look at, one line each; empty for a cluster in full health."""
    faults = []
    for node in nodes:
        if not node["reachable"]:
            faults.append(f"{node['place']} does not answer ({node['error']})")
        elif node["stopping"]:
            faults.append(f"{node['place']} is stopping")
        elif node["role"] in ("waiting", "learner", "candidate"):
            waits = f": waits for {', '.join(map(str, node['waiting_for']))}" if node["waiting_for"] else ""
            faults.append(f"{node['place']} is {node['role']}, not a member that votes{waits}")
        elif serving is not None and node["domain"] != serving.get("domain"):
            faults.append(f"{node['place']} is in another domain, {node['domain']}")
    if serving is None:
        faults.append("no leader serves")
        return faults
    if (serving.get("clock") or {}).get("gate") == "closed":
        faults.append("the clocks are too far apart: nothing is granted (`ticketing clock` tells which)")
    redundancy = (serving.get("raft") or {}).get("redundancy")
    if isinstance(redundancy, int) and redundancy < 1 < len(nodes):
        faults.append("one more failure ends the domain")
    return faults
