"""`ticketing config ...`: what the files say, and what is wrong with them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from ticketing.cli.arguments import wants_json
from ticketing.cli.errors import ExitCode, say, warn
from ticketing.cli.options import Addr, Config, Output, Tls, TokenFile, new_app
from ticketing.cli.output import write_json, write_line, write_table
from ticketing.config.check import Checked, check_path, node_values
from ticketing.config.client_file import Typed, find_access

app = new_app(no_args_is_help=True)


@app.callback(epilog="Example: ticketing config check ticketing-cluster")
def config_group() -> None:
    """Check and show configuration files."""


@app.command(epilog="Example: ticketing config check ticketing-cluster")
def check(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="node.toml, client.toml, admin.toml, or a folder.")
    ],
    output: Output = "text",
) -> int:
    """Every error at once, with file, line and key. Exit code 2 where there is one."""
    as_json = wants_json(output)
    found = check_path(file)
    bad = [problem for checked in found for problem in checked.problems]
    if as_json:
        write_json({"ok": not bad, "files": [_as_json(checked) for checked in found]})
    for checked in found:
        for warning in checked.warnings:
            warn(str(warning))
        for problem in checked.problems:
            say(f"error: {problem}")
        if not as_json and not checked.problems:
            write_line(f"{checked.file}: ok")
    return ExitCode.USAGE if bad else ExitCode.DONE


@app.command(epilog="Example: ticketing config show ticketing-cluster/node-1")
def show(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="A node's file or folder; none: how commands find the cluster."),
    ] = None,
    config: Config = None,
    addr: Addr = None,
    token_file: TokenFile = None,
    tls: Tls = None,
    output: Output = "text",
) -> int:
    """Effective values, with where each came from. Secrets are never shown."""
    as_json = wants_json(output)
    if file is not None:
        rows = [(value.key, value.value, value.source) for value in node_values(file)]
    else:
        typed = Typed(config=config, addrs=addr or (), token_file=token_file, tls=tls)
        access = find_access(typed, os.environ, Path.cwd())
        values = {
            "addrs": ", ".join(access.addrs),
            "token": "(1 not shown)" if access.token else "(none)",
            "tls": access.tls,
        }
        rows = [(key, values[key], source) for key, source in access.sources]
    if as_json:
        write_json(
            {"values": [{"key": key, "value": value, "source": source} for key, value, source in rows]}
        )
    else:
        write_table(("KEY", "VALUE", "FROM"), rows)
    return ExitCode.DONE


def _as_json(checked: Checked) -> dict[str, object]:
    return {
        "file": str(checked.file),
        "kind": checked.kind,
        "problems": [{"key": p.key, "line": p.line or None, "message": p.message} for p in checked.problems],
        "warnings": [{"key": p.key, "line": p.line or None, "message": p.message} for p in checked.warnings],
    }
