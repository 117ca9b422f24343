"""`ticketing node ...`: running and moving nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ticketing.cli.errors import say, warn
from ticketing.cli.options import new_app
from ticketing.config.node_folder import choose_node

app = new_app(no_args_is_help=True)


@app.callback()
def node() -> None:
    """Run a node of a cluster."""


@app.command(epilog="Example: ticketing node start --node 2")
def start(
    node: Annotated[
        str | None, typer.Option("--node", metavar="N", help="Which one: 2 and node-2 mean the same.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="A node.toml, or a folder with nodes.")
    ] = None,
    rejoin: Annotated[
        bool,
        typer.Option(
            "--rejoin/--no-rejoin",
            help="Where an earlier process ended: take its place under a new NodeId, or stop and say so.",
        ),
    ] = True,
    ready_fd: Annotated[
        int | None,
        typer.Option(
            metavar="FD", help="A descriptor that gets one JSON line when the node listens.", hidden=True
        ),
    ] = None,
) -> int:
    """Run a node in the foreground: the one of this folder, or the lowest here that is not running."""
    from ticketing.config.load import load_node

    chosen = choose_node(Path.cwd(), config, node)
    if chosen.note:
        say(chosen.note)
    loaded = load_node(chosen.file, rejoin=None if rejoin else False)
    for problem in loaded.warnings:
        warn(str(problem))

    from ticketing.server.run import run_node

    return run_node(
        loaded.settings,
        ready_fd=ready_fd,
        load=lambda: load_node(chosen.file).settings,
        watch=loaded.files,
    )
