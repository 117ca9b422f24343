"""Options that several commands share, so that they read and mean the same everywhere."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from ticketing.cli.admin_client import AdminAccess
from ticketing.cli.arguments import Invocation
from ticketing.cli.errors import warn
from ticketing.config.client_file import Typed, find_admin

Output = Annotated[str, typer.Option("--output", "-o", metavar="FORMAT", help="text or json.")]


Config = Annotated[
    str | None, typer.Option("--config", metavar="FILE", help="The cluster's client.toml, or its folder.")
]
AdminConfig = Annotated[
    str | None, typer.Option("--admin-config", metavar="FILE", help="Default: admin.toml beside client.toml.")
]
Addr = Annotated[
    list[str] | None,
    typer.Option("--addr", metavar="HOST:PORT", help="A node's client address; may be repeated."),
]
TokenFile = Annotated[
    str | None,
    typer.Option("--token-file", metavar="FILE", help="Holds the client token (or: TICKETING_TOKEN)."),
]
Tls = Annotated[
    str | None,
    typer.Option("--tls", metavar="MODE", help="off, system-roots, insecure-skip-verify, or a CA file."),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing.")]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Again and again, until Ctrl-C.")]
Interval = Annotated[str, typer.Option("--interval", metavar="SECONDS", help="With --watch.")]
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="For the nodes' audit logs.")]
Node = Annotated[
    str | None, typer.Option("--node", metavar="N", help="Which one: 2 and node-2 mean the same.")
]


def invocation_of(context: typer.Context) -> Invocation:
    """The call that a sub-command is part of."""
    invocation = context.obj
    assert isinstance(invocation, Invocation), "main() hands it to every command"
    return invocation


def admin_of(typed: Typed) -> AdminAccess:
    """The admin planes of the cluster that is meant, with the file's warnings told."""
    facts = find_admin(typed, os.environ, Path.cwd())
    for problem in facts.warnings:
        warn(str(problem))
    return AdminAccess(facts.nodes, facts.token, facts.tls)


def admin_and_folder(typed: Typed) -> tuple[AdminAccess, Path]:
    """The same, and the folder of `admin.toml`: the cluster's, where `init` wrote it."""
    facts = find_admin(typed, os.environ, Path.cwd())
    for problem in facts.warnings:
        warn(str(problem))
    return AdminAccess(facts.nodes, facts.token, facts.tls), facts.file.absolute().parent


def new_app(**settings: object) -> typer.Typer:
    """A sub-command's own application, with what all of them have in common."""
    context = {"help_option_names": ["-h", "--help"]}
    return typer.Typer(
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        add_completion=False,
        context_settings=context,
        **settings,  # type: ignore[arg-type]
    )
