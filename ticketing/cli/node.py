"""`ticketing node ...`: running, moving and replacing nodes. What is not called is not loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ticketing.cli.arguments import wants_json, whole_number
from ticketing.cli.errors import say, warn
from ticketing.cli.options import (
    AdminConfig,
    Config,
    Interval,
    Node,
    Output,
    Reason,
    Watch,
    Yes,
    admin_and_folder,
    admin_of,
    new_app,
)
from ticketing.cli.watching import interval
from ticketing.config.client_file import Typed

app = new_app(no_args_is_help=True)

NeededNode = Annotated[
    str, typer.Option("--node", metavar="N", help="Which one: 2 and node-2 mean the same.")
]


@app.callback(epilog="Example: ticketing node list")
def node() -> None:
    """Run, stop, restart and replace the nodes of a cluster."""


@app.command(epilog="Example: ticketing node start --node 2")
def start(
    node: Node = None,
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
    from ticketing.config.node_folder import choose_node
    from ticketing.config.owners import strangers_warning

    chosen = choose_node(Path.cwd(), config, node)
    if chosen.note:
        say(chosen.note)
    loaded = load_node(chosen.file, rejoin=None if rejoin else False)
    for problem in loaded.warnings:
        if problem.key != "tls":  # the node itself says so of each listener, in its log
            warn(str(problem))
    if strange := strangers_warning(loaded.settings.state_dir):
        warn(strange)

    from ticketing.server.run import run_node

    return run_node(
        loaded.settings,
        ready_fd=ready_fd,
        load=lambda: load_node(chosen.file).settings,
        watch=loaded.files,
    )


@app.command("list", epilog="Example: ticketing node list --watch")
def list_nodes(
    watched: Watch = False,
    every: Interval = "2",
    config: Config = None,
    admin_config: AdminConfig = None,
    output: Output = "text",
) -> int:
    """Who fills which place, and what is being changed. Exit code 7 where no leader serves."""
    from ticketing.cli import node_list

    return node_list.list_nodes(
        admin_of(Typed(config=config, admin_config=admin_config)),
        as_json=wants_json(output),
        watched=watched,
        every_s=interval(every),
    )


@app.command(epilog="Example: ticketing node stop --node 2")
def stop(
    node: Node = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Every node at once. This ends the domain with all its locks.")
    ] = False,
    reason: Reason = "",
    yes: Yes = False,
    config: Config = None,
    admin_config: AdminConfig = None,
    output: Output = "text",
) -> int:
    """Stop a node with the leader's leave; refused where less than a majority would be left."""
    from ticketing.cli import node_stop

    return node_stop.stop(
        admin_of(Typed(config=config, admin_config=admin_config)),
        node,
        everything=everything,
        yes=yes,
        reason=reason,
        as_json=wants_json(output),
    )


@app.command(
    "can-stop", epilog="Example: ticketing node can-stop --node 2 && ssh host-2 systemctl stop ticketing"
)
def can_stop(
    node: Node = None,
    config: Config = None,
    admin_config: AdminConfig = None,
    output: Output = "text",
) -> int:
    """Whether a node (or each) might stop now. Changes nothing. Exit code 9: one of them may not."""
    from ticketing.cli import node_stop

    return node_stop.can_stop(
        admin_of(Typed(config=config, admin_config=admin_config)), node, as_json=wants_json(output)
    )


@app.command("transfer-leader", epilog="Example: ticketing node transfer-leader --to 3")
def transfer_leader(
    to: Annotated[
        str | None, typer.Option("--to", metavar="N", help="The place to lead; none: whoever is fit.")
    ] = None,
    reason: Reason = "",
    config: Config = None,
    admin_config: AdminConfig = None,
    output: Output = "text",
) -> int:
    """Give the lead to another node and wait until it serves there."""
    from ticketing.cli import node_stop

    return node_stop.transfer_leader(
        admin_of(Typed(config=config, admin_config=admin_config)),
        to,
        reason=reason,
        as_json=wants_json(output),
    )


@app.command(epilog="Example: ticketing node restart --rolling")
def restart(
    node: Node = None,
    rolling: Annotated[bool, typer.Option("--rolling", help="Every node, one after the other.")] = False,
    supervised: Annotated[
        bool, typer.Option("--supervised", help="Start none here: something else starts them again.")
    ] = False,
    wait: Annotated[
        str, typer.Option(metavar="SECONDS", help="How long a node may take to be back in its place.")
    ] = "300",
    reason: Reason = "",
    config: Config = None,
    admin_config: AdminConfig = None,
    output: Output = "text",
) -> int:
    """Stop a node with leave, have it started again, and wait until it votes in its place.

    A node that runs from this cluster's folder on this machine is started by this command; of any other it is
    awaited that a supervisor, or you, starts it.
    """
    from ticketing.cli import node_restart

    access, folder = admin_and_folder(Typed(config=config, admin_config=admin_config))
    return node_restart.restart(
        access,
        folder,
        node,
        rolling=rolling,
        supervised=supervised,
        wait_s=whole_number(wait, "--wait", 1, 86_400),
        reason=reason,
        as_json=wants_json(output),
    )


@app.command(epilog="Example: ticketing node replace --node 2 --host spare.example --reason 'disk broken'")
def replace(
    node: NeededNode,
    host: Annotated[
        str | None, typer.Option("--host", metavar="HOST", help="Where the place moves to; none: it stays.")
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--dir", metavar="DIR", help="The folder to prepare. [default: replacements/node-N here]"
        ),
    ] = None,
    begin: Annotated[
        bool, typer.Option("--start", help="Start the new node on this machine, detached.")
    ] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Take a replacement back, up to its swap.")] = False,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Follow it until the new process votes.")
    ] = True,
    reason: Reason = "",
    yes: Yes = False,
    config: Config = None,
    admin_config: AdminConfig = None,
    output: Output = "text",
) -> int:
    """Prepare a new node for a place, say how to start it (or start it), and show join, catch-up and swap.

    Run again it goes on where it stood. For a node whose folder and disk are whole, starting it is enough.
    """
    from ticketing.cli.node_replace import Replace, Wanted

    as_json = wants_json(output)
    access, cluster = admin_and_folder(Typed(config=config, admin_config=admin_config))
    wanted = Wanted(node, host, folder, reason, start=begin, undo=undo, wait=wait, yes=yes, as_json=as_json)
    command = Replace(access, cluster, wanted)
    return command.undo() if undo else command.run()
