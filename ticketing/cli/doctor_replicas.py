"""`ticketing doctor`: whether all nodes have the same replicated state, on a cluster that is in use."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from ticketing.cli.admin_client import AdminAccess, Answer, ask_all
from ticketing.cli.doctor_checks import FAIL, OK, WARN, Finding

ROUNDS = 4
"""Nodes that are asked while entries come are asked for an index a little ahead, further ahead each time."""
AHEAD_S = 0.5
AHEAD_MIN = 2
PATIENCE_S = 30.0
"""A node waits 3 s for the index, and reckons a million locks in a few seconds."""

_SUBJECT = "replicas"


def replicas(
    access: AdminAccess, answers: Sequence[Answer], *, clock_s: Callable[[], float] = time.monotonic
) -> list[Finding]:
    """One finding, or none where fewer than two members answer. `answers`: of `/v1/status`."""
    places = [answer.place for answer in answers if _applied(answer.facts) is not None]
    if len(places) < 2:
        return []
    asked = access._replace(nodes=tuple(node for node in access.nodes if node[0] in places))
    ahead = 0
    began_s = clock_s()
    began_at = max(_applied(answer.facts) or 0 for answer in answers)
    seen: dict[str, dict[str, Any]] = {}
    for _ in range(ROUNDS):
        at = max((int(facts["index"]) for facts in seen.values()), default=began_at) + ahead
        told = ask_all(asked, f"/v1/checksum?at={at}", timeout_s=PATIENCE_S)
        if any(answer.error is not None for answer in told):
            silent = "; ".join(
                f"{answer.place} {answer.error}" for answer in told if answer.error is not None
            )
            return [Finding("state", _SUBJECT, WARN, f"cannot be compared: {silent}", "")]
        seen = {answer.place: answer.facts for answer in told if answer.facts is not None}
        if not all(str(facts.get("index")).isdigit() and facts.get("checksum") for facts in seen.values()):
            return [Finding("state", _SUBJECT, WARN, "cannot be compared: a node tells no checksum", "")]
        if len({str(facts["index"]) for facts in seen.values()}) == 1:
            return [_judged(seen)]
        newest = max(int(facts["index"]) for facts in seen.values())
        rate = (newest - began_at) / max(clock_s() - began_s, 0.1)
        ahead = max(AHEAD_MIN, 2 * ahead, round(rate * AHEAD_S))
    where = ", ".join(f"{place} at {facts['index']}" for place, facts in seen.items())
    return [Finding("state", _SUBJECT, WARN, f"were never met at the same index ({where})", "run it again")]


def _judged(seen: dict[str, dict[str, Any]]) -> Finding:
    index = next(iter(seen.values()))["index"]
    sums = {place: str(facts.get("checksum")) for place, facts in seen.items()}
    if len(set(sums.values())) == 1:
        held = next(iter(seen.values())).get("held")
        return Finding(
            "state", _SUBJECT, OK, f"{', '.join(sums)} are equal at index {index}, {held} locks held"
        )
    shown = ", ".join(f"{place} {checksum}" for place, checksum in sums.items())
    return Finding(
        "state",
        _SUBJECT,
        FAIL,
        f"differ at index {index}: {shown}",
        "a fault of ours: restart the nodes that are in the minority, one by one, and report it with all logs",
    )


def _applied(facts: dict[str, Any] | None) -> int | None:
    """How far a member has applied; None where it is none."""
    raft = (facts or {}).get("raft")
    text = raft.get("applied_index") if isinstance(raft, dict) else None
    return int(text) if isinstance(text, str) and text.isascii() and text.isdigit() else None
