"""Options that several commands share, so that they read and mean the same everywhere."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from ticketing.cli.admin_client import AdminAccess
from ticketing.cli.errors import usage_error, warn
from ticketing.cli.output import FORMATS
from ticketing.config.client_file import Access, Typed, find_access, find_admin

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


class Invocation(NamedTuple):
    """What was typed beside the options of a sub-command."""

    command: list[str] | None
    """Everything after the first `--`, untouched; None where there is no `--`."""
    debug: bool = False


def invocation_of(context: typer.Context) -> Invocation:
    """The call that a sub-command is part of."""
    invocation = context.obj
    assert isinstance(invocation, Invocation), "main() hands it to every command"
    return invocation


def access_of(typed: Typed) -> Access:
    """The cluster that is meant, with its warnings told."""
    access = find_access(typed, os.environ, Path.cwd())
    for problem in access.warnings:
        warn(str(problem))
    return access


def admin_of(typed: Typed) -> AdminAccess:
    """The admin planes of the cluster that is meant, with the file's warnings told."""
    facts = find_admin(typed, os.environ, Path.cwd())
    for problem in facts.warnings:
        warn(str(problem))
    return AdminAccess(facts.nodes, facts.token, facts.tls)


def wants_json(output: str) -> bool:
    """Whether `-o json` was given; anything but the known formats is refused."""
    if output not in FORMATS:
        raise usage_error(f"--output must be one of {', '.join(FORMATS)}, not {output!r}")
    return output == "json"


def whole_number(text: str, option: str, low: int, high: int) -> int:
    """A whole number within its range; the message names both."""
    try:
        value = int(text)
    except ValueError:
        value = low - 1
    if not low <= value <= high or not text.strip().lstrip("+-").isascii():
        raise usage_error(f"{option} must be a whole number from {low} to {high}, not {text!r}")
    return value


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
