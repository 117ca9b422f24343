"""`ticketing node list`: the places, who fills them, and what is being changed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from ticketing.cli.admin_client import AdminAccess, AdminError, Answer, all_failed, ask_all
from ticketing.cli.admin_leader import Leader
from ticketing.cli.cells import cell, seconds, text
from ticketing.cli.cluster_status import cluster_status
from ticketing.cli.errors import CommandFailed, ExitCode, say, warn
from ticketing.cli.output import write_json, write_line, write_table
from ticketing.cli.watching import watch


def list_nodes(access: AdminAccess, *, as_json: bool, watched: bool, every_s: float) -> int:
    """The command. Exit code 7 where no leader serves: then the nodes' own words are all there is."""

    def report() -> bool:
        view = nodes_view(access)
        if as_json:
            moment = {"time_ms": time.time_ns() // 1_000_000} if watched else {}
            write_json({**moment, **view})
        else:
            _show(view)
        return bool(view["served"])

    if watched:
        watch(report, every_s=every_s, as_json=as_json)
    return ExitCode.DONE if report() else ExitCode.UNREACHABLE


def nodes_view(access: AdminAccess) -> dict[str, Any]:
    """The members as the leader tells them, beside what each node says of itself."""
    answers = ask_all(access, "/v1/status")
    if all(answer.facts is None for answer in answers):
        raise all_failed(answers)
    status = cluster_status(answers)
    members: list[dict[str, Any]] = []
    changes: list[dict[str, Any]] = []
    highest = None
    if status["served"]:
        try:
            told = Leader(access).try_ask("GET", "/v1/members", within_s=3.0)
        except (AdminError, CommandFailed) as error:
            warn(f"the leader does not tell its members ({error})")
        else:
            members, changes = told.get("members") or [], told.get("changes") or []
            highest = told.get("highest_node_id")
    return {
        "served": status["served"],
        "domain": status["domain"],
        "leader": status["leader"],
        "redundancy": status["redundancy"],
        "highest_node_id": highest,
        "nodes": [_node(answer, status, members) for answer in answers],
        "changes": changes,
    }


def _node(answer: Answer, status: dict[str, Any], members: Sequence[dict[str, Any]]) -> dict[str, Any]:
    own = next(node for node in status["nodes"] if node["place"] == answer.place)
    member = next(
        (row for row in members if row.get("place") == answer.place and row.get("role") != "learner"), {}
    )
    addresses = (answer.facts or {}).get("addresses") or {}
    return {
        "place": answer.place,
        "node_id": member.get("node_id") or own.get("node_id"),
        "role": own.get("role") if own["reachable"] else None,
        "member": member.get("role"),
        "reachable": own["reachable"],
        "error": own["error"],
        "linked": member.get("linked"),
        "heard_ms": member.get("heard_ms"),
        "lag": member.get("lag"),
        "client": member.get("client") or addresses.get("client"),
        "peer": member.get("peer") or addresses.get("peer"),
        "admin": answer.address,
        "version": own.get("version"),
    }


def _show(view: dict[str, Any]) -> None:
    if view["served"]:
        write_line(f"domain {view['domain']}  failures until lost {cell(view['redundancy'])}")
    write_table(
        ("PLACE", "NODE", "ROLE", "MEMBER", "HEARD", "LAG", "CLIENTS AT", "ADMIN", "VERSION"),
        [
            (
                node["place"],
                cell(node["node_id"]),
                cell(node["role"]) if node["reachable"] else "unreachable",
                cell(node["member"]),
                "-" if node["heard_ms"] is None else f"{seconds(node['heard_ms'])} ago",
                cell(node["lag"]),
                text(node["client"]),
                text(node["admin"]),
                cell(node["version"]),
            )
            for node in view["nodes"]
        ],
    )
    for change in view["changes"]:
        write_line(describe_change(change))
    for node in view["nodes"]:
        if not node["reachable"]:
            warn(f"{node['place']} does not answer ({node['error']})")
    if not view["served"]:
        say("no leader serves")


def describe_change(change: dict[str, Any]) -> str:
    """A replacement that is under way or waits, in one line."""
    learner = change.get("learner") or {}
    percent = learner.get("snapshot_percent")
    progress = "" if percent is None else f" (snapshot {percent} %)"
    who = f", node {learner['node_id']}" if learner.get("node_id") else ""
    return f"{change.get('place')}: {text(change.get('state'))}{who}{progress}: {text(change.get('why'))}"
