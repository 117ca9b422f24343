"""`ticketing status`: how the nodes are."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ticketing.cli.admin_client import all_failed, ask_all
from ticketing.cli.arguments import wants_json
from ticketing.cli.cluster_status import cluster_status
from ticketing.cli.errors import ExitCode, warn
from ticketing.cli.options import AdminConfig, Config, Output, admin_of, new_app
from ticketing.cli.output import write_json, write_line, write_table
from ticketing.config.client_file import Typed

app = new_app()


@app.command(epilog="Example: ticketing status --check -o json")
def status(
    check: Annotated[
        bool, typer.Option("--check", help="Exit with 9 where anything is not as it should be.")
    ] = False,
    config: Config = None,
    admin_config: AdminConfig = None,
    output: Output = "text",
) -> int:
    """Nodes, roles, term, commit, lag, clocks, locks, versions. Exit code 7 where no leader serves."""
    as_json = wants_json(output)
    access = admin_of(Typed(config=config, admin_config=admin_config))
    answers = ask_all(access, "/v1/status")
    if all(answer.facts is None for answer in answers):
        raise all_failed(answers)
    view = cluster_status(answers)
    if as_json:
        write_json(view)
    else:
        _show(view)
    return exit_code(view, check=check)


def exit_code(view: dict[str, Any], *, check: bool) -> int:
    """0 where locks are served, 7 where no leader is; with `check` 9 for any other fault or warning."""
    if not view["served"]:
        return ExitCode.UNREACHABLE
    return ExitCode.UNHEALTHY if check and (view["faults"] or view["warnings"]) else ExitCode.DONE


def _show(view: dict[str, Any]) -> None:
    if view["served"]:
        locks = view["locks"] or {}
        write_line(
            f"domain {view['domain']}  leader {view['leader']}  term {view['term']}"
            f"  failures until lost {_cell(view['redundancy'])}"
        )
        write_line(
            f"locks {_cell(locks.get('held'))} held, {_cell(locks.get('waiting'))} waiting"
            f"  next token {_cell(locks.get('next_token'))}  clocks {_cell((view['clock'] or {}).get('gate'))}"
        )
    elif view["serves_in_s"]:
        write_line(f"a new domain, which serves in {view['serves_in_s']:g} s")
    else:
        write_line("no leader serves")
    write_table(
        ("PLACE", "ROLE", "NODE", "TERM", "COMMIT", "LAG", "CLOCK", "VERSION"),
        [_row(node) for node in view["nodes"]],
    )
    for told in (*view["faults"], *view["warnings"]):
        warn(told)


def _row(node: dict[str, Any]) -> list[str]:
    if not node["reachable"]:
        return [node["place"], "unreachable", "-", "-", "-", "-", "-", "-"]
    clock = "-"
    if node["clock_difference_ms"] is not None:
        clock = f"{node['clock_difference_ms']:+.1f} ms"
        if node["clock_error_ms"] is not None:
            clock += f" ± {node['clock_error_ms']:.1f}"
    keys = ("node_id", "term", "commit_index", "lag")
    return [
        node["place"],
        _cell(node["role"]),
        *(_cell(node[key]) for key in keys),
        clock,
        _cell(node["version"]),
    ]


def _cell(value: object) -> str:
    return "-" if value is None else str(value)
