"""`ticketing cert ...`: the nodes' certificates, shown and renewed without a restart."""

from __future__ import annotations

import datetime
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ticketing.cli.arguments import wants_json, whole_number
from ticketing.cli.errors import CommandFailed, ExitCode, usage_error, warn
from ticketing.cli.options import Node, Output, Yes, new_app
from ticketing.cli.output import write_json, write_line, write_table
from ticketing.cli.reloading import Reloaded, reload_node, told
from ticketing.config.node_folder import place_name
from ticketing.config.problems import ConfigError, half_way
from ticketing.config.secret_files import nodes_of

if TYPE_CHECKING:
    from ticketing.config.certificate_files import Shown
    from ticketing.config.load import LoadedNode

app = new_app(no_args_is_help=True)

Dir = Annotated[
    Path | None,
    typer.Option("--dir", metavar="DIR", help="A node's or a cluster's folder. [default: here]"),
]


@app.callback(epilog="Example: ticketing cert show")
def cert() -> None:
    """Show and renew the nodes' certificates."""


@app.command(epilog="Example: ticketing cert show --check --days 60")
def show(
    check: Annotated[
        bool, typer.Option("--check", help="Exit with 9 also where one ends within --days.")
    ] = False,
    days: Annotated[str, typer.Option(metavar="N", help="How soon is soon.")] = "30",
    folder: Dir = None,
    output: Output = "text",
) -> int:
    """Dates, names and chain of every certificate here. Exit code 9 where one would not pass."""
    as_json = wants_json(output)
    soon = whole_number(days, "--days", 0, 10_000)
    now = datetime.datetime.now(datetime.UTC)
    rows = [row for loaded in _with_tls(folder) for row in _rows(loaded, now)]
    if as_json:
        write_json({"certificates": rows})
    else:
        write_table(
            ("PLACE", "ENDS", "DAYS", "NAMES", "FILE"),
            [
                (
                    str(row["place"] or "authority"),
                    _day(row["ends_ms"]),
                    str(row["days_left"]),
                    ", ".join(row["names"]) or "-",
                    str(row["file"]),
                )
                for row in rows
            ],
        )
    late = [row for row in rows if not row["faults"] and row["days_left"] < soon]
    for row in rows:
        for fault in row["faults"]:
            warn(f"{row['file']}: {fault}")
    for row in late:
        warn(f"{row['file']}: ends in {row['days_left']} days: `ticketing cert renew`")
    bad = any(row["faults"] for row in rows) or (check and late)
    return ExitCode.UNHEALTHY if bad else ExitCode.DONE


@app.command(epilog="Example: ticketing cert renew --dir ticketing-cluster --node 2")
def renew(node: Node = None, folder: Dir = None, output: Output = "text") -> int:
    """Sign new certificates with the cluster's authority, and have the running nodes reload. Links are kept."""
    as_json = wants_json(output)
    nodes = _with_tls(folder)
    if node is not None:
        name = place_name(node)
        nodes = [loaded for loaded in nodes if loaded.settings.node.place == name]
        if not nodes:
            raise usage_error(f"--node: there is no {name} here")
    rows, outcomes = renew_all(nodes)
    if as_json:
        write_json({"renewed": rows})
    else:
        for row in rows:
            write_line(f"{row['place']}: renewed until {_day(row['ends_ms'])}, {row['reload']}")
    for line in told(outcomes):
        warn(line)
    return ExitCode.FAILURE if any(one.outcome == "refused" for one in outcomes) else ExitCode.DONE


def renew_all(nodes: Sequence[LoadedNode]) -> tuple[list[dict[str, Any]], list[Reloaded]]:
    """A new certificate for each node, one after the other; what `-o json` tells, and what each node made of it."""
    from ticketing.config.certificate_files import put, sign_anew

    now = datetime.datetime.now(datetime.UTC)
    # All are signed before the first is changed: what one node would not trust none gets.
    signed = [(loaded, sign_anew(loaded, loaded.file.absolute().parent.parent, now)) for loaded in nodes]
    rows: list[dict[str, Any]] = []
    outcomes: list[Reloaded] = []
    for loaded, pair in signed:
        try:
            made = put(loaded, pair)
        except ConfigError as error:
            raise half_way(error, [one.place for one in outcomes], "the certificates of ") from None
        reloaded = reload_node(loaded, "certificate renewed")
        outcomes.append(reloaded)
        rows.append(_row(loaded.settings.node.place, made, now) | {"reload": reloaded.outcome})
    return rows, outcomes


@app.command(
    "add-ca", epilog="Example: ticketing cert add-ca --dir ticketing-cluster (then use-ca, then remove-ca)"
)
def add_authority(folder: Dir = None, output: Output = "text") -> int:
    """Make a new certificate authority and have it trusted beside the present one. It signs nothing yet."""
    from ticketing.cli import cert_authority

    as_json = wants_json(output)
    return cert_authority.add(_with_tls(folder), as_json=as_json)


@app.command("use-ca", epilog="Example: ticketing cert use-ca --dir ticketing-cluster")
def use_authority(folder: Dir = None, yes: Yes = False, output: Output = "text") -> int:
    """Have the new authority sign, first of all every node's certificate.

    Exit code 9 where a node does not trust it yet.
    """
    from ticketing.cli import cert_authority

    as_json = wants_json(output)
    return cert_authority.use(_with_tls(folder), yes=yes, as_json=as_json)


@app.command("remove-ca", epilog="Example: ticketing cert remove-ca --dir ticketing-cluster")
def remove_authority(folder: Dir = None, yes: Yes = False, output: Output = "text") -> int:
    """Trust the former authority no more. Exit code 10 where there is none.

    Exit code 9 where a node does not show the certificate that lies here.
    """
    from ticketing.cli import cert_authority

    as_json = wants_json(output)
    return cert_authority.remove(_with_tls(folder), yes=yes, as_json=as_json)


def _with_tls(folder: Path | None) -> list[LoadedNode]:
    nodes = [loaded for loaded in nodes_of(Path.cwd(), folder, os.environ) if loaded.settings.tls is not None]
    if not nodes:
        raise CommandFailed(
            "no node here has TLS",
            ExitCode.USAGE,
            hint="`ticketing init --tls` writes a cluster with certificates",
        )
    return nodes


def _rows(loaded: LoadedNode, now: datetime.datetime) -> list[dict[str, Any]]:
    from ticketing.config.certificate_files import node_certificate

    return [_row(loaded.settings.node.place, node_certificate(loaded, now), now)] + [
        _row(None, authority, now) for authority in _authorities(loaded, now)
    ]


def _authorities(loaded: LoadedNode, now: datetime.datetime) -> list[Shown]:
    from ticketing.config.certificate_files import authority_faults, read_certificates

    assert loaded.settings.tls is not None, "only where there is TLS"
    found = read_certificates(loaded.settings.tls.ca)
    return [shown._replace(names=(), faults=authority_faults(shown, now)) for shown in found]


def _row(place: str | None, shown: Shown, now: datetime.datetime) -> dict[str, Any]:
    return {
        "place": place,
        "file": str(shown.file),
        "subject": shown.subject,
        "names": list(shown.names),
        "begins_ms": int(shown.begins.timestamp() * 1000),
        "ends_ms": int(shown.ends.timestamp() * 1000),
        "days_left": shown.days_left(now),
        "faults": list(shown.faults),
    }


def _day(moment_ms: int) -> str:
    return f"{datetime.datetime.fromtimestamp(moment_ms / 1000, datetime.UTC):%Y-%m-%d}"
