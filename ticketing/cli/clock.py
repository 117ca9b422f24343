"""`ticketing clock`: how far the nodes' clocks are apart, as each of them measures it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from ticketing.cli.admin_client import Answer, all_failed, ask_all
from ticketing.cli.arguments import wants_json
from ticketing.cli.cells import cell, difference, seconds
from ticketing.cli.cluster_status import cluster_status
from ticketing.cli.errors import ExitCode, warn
from ticketing.cli.options import AdminConfig, Config, Interval, Output, Watch, admin_of, new_app
from ticketing.cli.output import write_json, write_line, write_table
from ticketing.cli.watching import interval, watch
from ticketing.config.client_file import Typed

app = new_app()


@app.command(epilog="Example: ticketing clock --watch")
def clock(
    check: Annotated[
        bool, typer.Option("--check", help="Exit with 9 where the gate is not open or a clock is outside.")
    ] = False,
    watched: Watch = False,
    every: Interval = "2",
    config: Config = None,
    admin_config: AdminConfig = None,
    output: Output = "text",
) -> int:
    """Each node's wall clock against each other's, with the error of the measurement, steps, and the verdict.

    Grants need a majority within Δ/2 of the leader. Exit code 7 where no leader serves.
    """
    as_json = wants_json(output)
    access = admin_of(Typed(config=config, admin_config=admin_config))

    def report() -> dict[str, Any]:
        answers = ask_all(access, "/v1/status")
        if all(answer.facts is None for answer in answers):
            raise all_failed(answers)
        view = clock_view(answers)
        if as_json:
            moment = {"time_ms": time.time_ns() // 1_000_000} if watched else {}
            write_json({**moment, **view})
        else:
            _show(view)
        return view

    if watched:
        watch(report, every_s=interval(every), as_json=as_json)
    view = report()
    if view["leader"] is None:
        return ExitCode.UNREACHABLE
    return ExitCode.UNHEALTHY if check and view["faults"] else ExitCode.DONE


def clock_view(answers: Sequence[Answer]) -> dict[str, Any]:
    """What each node says of the others' clocks. The leader's view decides on grants."""
    leader = cluster_status(answers)["leader"]
    nodes = [_node(answer) for answer in answers]
    of_leader = next((node for node in nodes if node["place"] == leader and node["reachable"]), {})
    return {
        "leader": leader,
        "gate": of_leader.get("gate"),
        "delta_ms": next((node["delta_ms"] for node in nodes if node.get("delta_ms")), None),
        "nodes": nodes,
        "faults": _faults(nodes, of_leader),
    }


def _node(answer: Answer) -> dict[str, Any]:
    facts = answer.facts
    if facts is None:
        return {"place": answer.place, "reachable": False, "error": str(answer.error)}
    own = facts.get("clock") or {}
    keys = ("gate", "delta_ms", "steps", "last_step_ms", "source")
    return {
        "place": answer.place,
        "reachable": True,
        "error": None,
        "wall_ms": facts.get("wall_ms"),
        **{key: own.get(key) for key in keys},
        "peers": own.get("peers") or [],
    }


def _faults(nodes: Sequence[dict[str, Any]], leader: dict[str, Any]) -> list[str]:
    faults = []
    if leader and leader.get("gate") != "open":
        faults.append(f"the gate is {leader.get('gate')}: nothing is granted until a majority is within Δ/2")
    for peer in leader.get("peers") or []:
        if peer.get("verdict") not in ("inside", None):
            found = difference(peer.get("difference_ms"), peer.get("error_ms"))
            faults.append(f"{peer.get('place')} is {peer['verdict']} for the leader ({found})")
    silent = (node for node in nodes if not node["reachable"])
    return faults + [f"{node['place']} does not answer ({node['error']})" for node in silent]


def _show(view: dict[str, Any]) -> None:
    delta = view["delta_ms"]
    half = "" if delta is None else f" (within {delta / 2:g} ms of the leader)"
    write_line(f"gate {cell(view['gate'])}  Δ {cell(delta)} ms{half}  leader {cell(view['leader'])}")
    rows = []
    for node in view["nodes"]:
        if not node["reachable"]:
            rows.append([node["place"], *["-"] * 5, "unreachable", "-", "-"])
            continue
        rows += [
            [
                node["place"],
                cell(peer.get("place")),
                difference(peer.get("difference_ms"), peer.get("error_ms")),
                _age(peer.get("age_s")),
                _milliseconds(peer.get("round_trip_ms")),
                _rate(peer),
                cell(peer.get("verdict")),
                cell(peer.get("steps")),
                cell(node["source"]),
            ]
            for peer in node["peers"]
        ]
    header = ("NODE", "OTHER", "DIFFERENCE", "AGE", "ROUND TRIP", "RATE", "VERDICT", "STEPS", "SOURCE")
    write_table(header, rows)
    for node in view["nodes"]:
        if node["reachable"] and node["steps"]:
            last = "" if node["last_step_ms"] is None else f", the last by {node['last_step_ms']:+.1f} ms"
            write_line(f"{node['place']}: its own wall clock was stepped {node['steps']} times{last}")
    for fault in view["faults"]:
        warn(fault)


def _age(value: object) -> str:
    return seconds(value * 1000) if isinstance(value, int | float) else "-"


def _milliseconds(value: object) -> str:
    return f"{value:.2f} ms" if isinstance(value, int | float) else "-"


def _rate(peer: dict[str, Any]) -> str:
    rate, error = peer.get("rate_ppm"), peer.get("rate_error_ppm")
    if not isinstance(rate, int | float):
        return "-"
    return f"{rate:+.0f} ppm" + (f" ± {error:.0f}" if isinstance(error, int | float) else "")
