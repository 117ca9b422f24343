"""`ticketing doctor`: everything that commonly goes wrong, checked."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated

import typer

from ticketing.cli import doctor_checks as checks
from ticketing.cli.admin_client import AdminAccess, ask_all
from ticketing.cli.arguments import wants_json
from ticketing.cli.doctor_checks import FAIL, OK, WARN, Finding
from ticketing.cli.doctor_replicas import replicas
from ticketing.cli.errors import ExitCode, say
from ticketing.cli.options import AdminConfig, Config, Output, new_app
from ticketing.cli.output import write_json, write_line, write_table
from ticketing.config.client_file import Access, AdminFacts, Typed, find_access, find_admin
from ticketing.config.layout import NODE_FILE
from ticketing.config.load import LoadedNode, load_node
from ticketing.config.node_folder import node_files
from ticketing.config.problems import ConfigError

app = new_app()


@app.command(epilog="Example: ticketing doctor --config ticketing-cluster")
def doctor(
    all_shown: Annotated[bool, typer.Option("--all", help="Show what is well too.")] = False,
    config: Config = None,
    admin_config: AdminConfig = None,
    output: Output = "text",
) -> int:
    """Files and modes, names, ports, certificates, tokens, clocks, versions, limits. Exit code 9 where one fails.

    On a node's host, without client.toml, it goes by the node.toml that is here.
    """
    as_json = wants_json(output)
    typed = Typed(config=config, admin_config=admin_config)
    try:
        access = find_access(typed, os.environ, Path.cwd())
    except ConfigError:
        node = _node_here() if typed == Typed() else None
        if node is None:
            raise
        found = examine(*_as_the_node(node), [], node.file.absolute().parent)
    else:
        folder = None if access.file is None else access.file.absolute().parent
        found = examine(access, *_admin(typed), folder)
    verdicts = [finding.verdict for finding in found]
    if as_json:
        write_json({"ok": FAIL not in verdicts, "findings": [finding._asdict() for finding in found]})
    else:
        _show(found, all_shown=all_shown)
    return ExitCode.UNHEALTHY if FAIL in verdicts else ExitCode.DONE


def examine(
    access: Access, admin: AdminFacts | None, problems: list[Finding], folder: Path | None
) -> list[Finding]:
    """Everything, from what lies in `folder` to what the nodes say."""
    found = list(problems)
    nodes: list[LoadedNode] = []
    if folder is not None:
        found += checks.files(folder)
        nodes = _nodes(folder)
    addresses = [*access.addrs, *(address for _, address in (admin.nodes if admin else ()))]
    found += checks.names(addresses)
    found += checks.doors(access)
    found += checks.certificates(nodes)
    found += checks.secrets(nodes, access, admin)
    if admin is None:
        return found
    answers = ask_all(AdminAccess(admin.nodes, admin.token, admin.tls), "/v1/status")
    found += checks.statuses(answers)
    peers = {
        answer.place: address
        for answer in answers
        if answer.facts is not None and (address := (answer.facts.get("addresses") or {}).get("peer"))
    }
    found += checks.peer_ports(peers.items())
    if peers or any(answer.facts is not None for answer in answers):
        found += checks.clocks(answers, time.time_ns() // 1_000_000)
    found += replicas(AdminAccess(admin.nodes, admin.token, admin.tls), answers)
    return found


def _admin(typed: Typed) -> tuple[AdminFacts | None, list[Finding]]:
    try:
        return find_admin(typed, os.environ, Path.cwd()), []
    except ConfigError as error:
        if typed.admin_config is not None:
            raise
        return None, [
            Finding("config", "admin.toml", WARN, str(problem), "without it the nodes cannot be asked")
            for problem in error.problems
        ]


def _node_here() -> LoadedNode | None:
    """The node of this folder, whose file is without fault or told with all of them."""
    if not (Path.cwd() / NODE_FILE).is_file():
        return None
    return load_node(Path.cwd())


def _as_the_node(loaded: LoadedNode) -> tuple[Access, AdminFacts]:
    """A way to the cluster by what a node knows itself."""
    settings = loaded.settings
    tls = "off" if settings.tls is None else str(settings.tls.ca)
    token = settings.node.client_tokens[0] if settings.node.client_tokens else ""
    places = settings.node.places
    return (
        Access(
            tuple(place.client for place in places),
            token,
            tls,
            None,
            sources=(("token", str(loaded.file)),),
        ),
        AdminFacts(
            tuple((place.name, place.admin) for place in places), settings.admin_token, tls, loaded.file
        ),
    )


def _nodes(folder: Path) -> list[LoadedNode]:
    found = []
    own = [folder / NODE_FILE] if (folder / NODE_FILE).is_file() else []
    for file in [*own, *node_files(folder).values()]:
        try:
            found.append(load_node(file))
        except ConfigError:
            continue  # told by the check of the files
    return found


def _show(found: list[Finding], *, all_shown: bool) -> None:
    shown = [finding for finding in found if all_shown or finding.verdict != OK]
    if shown:
        write_table(
            ("", "CHECK", "SUBJECT", "FOUND"),
            [(finding.verdict, finding.check, finding.subject, finding.detail) for finding in shown],
        )
    for hint in dict.fromkeys(finding.hint for finding in shown if finding.hint):
        say(f"hint: {hint}")
    counts = {verdict: sum(finding.verdict == verdict for finding in found) for verdict in (OK, WARN, FAIL)}
    write_line(f"{counts[OK]} well, {counts[WARN]} to look at, {counts[FAIL]} wrong")
