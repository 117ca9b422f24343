"""`ticketing token ...`: client tokens and peer secrets changed without a pause.

Add the new one to every node, move the clients to it, take the old one away. Nothing here ever shows a secret: they
are named by the beginning of their SHA-256.
"""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from ticketing.cli.arguments import wants_json
from ticketing.cli.confirm import confirm
from ticketing.cli.door import knock
from ticketing.cli.errors import CommandFailed, ExitCode, say, usage_error, warn
from ticketing.cli.options import Output, Yes, new_app
from ticketing.cli.output import write_json, write_line, write_table
from ticketing.cli.reloading import Reloaded, reload_node, told
from ticketing.client.tls import context
from ticketing.config.client_file import Access, read_client_file
from ticketing.config.edit import replace_file, set_values
from ticketing.config.layout import CLIENT_FILE
from ticketing.config.load import LoadedNode
from ticketing.config.reader import read_secret_file, read_toml
from ticketing.config.secret_files import (
    KINDS,
    NodeSecrets,
    fingerprint,
    nodes_of,
    read_secrets,
    with_secret,
    without_secrets,
)

app = new_app(no_args_is_help=True)

Kind = Annotated[
    str, typer.Option("--kind", metavar="KIND", help="client, or peer: what nodes prove themselves with.")
]
Dir = Annotated[
    Path | None,
    typer.Option("--dir", metavar="DIR", help="A node's or a cluster's folder. [default: here]"),
]


@app.callback(epilog="Example: ticketing token add")
def token() -> None:
    """Rotate client tokens and peer secrets without a pause: add, use, remove."""


@app.command("list", epilog="Example: ticketing token list --dir ticketing-cluster")
def list_tokens(kind: Kind = "client", folder: Dir = None, output: Output = "text") -> int:
    """Which tokens each node accepts, by fingerprint, and which one client.toml uses."""
    as_json = wants_json(output)
    nodes = _nodes(kind, folder)
    used = _used(nodes, kind)
    rows = [
        {"place": node.place, "fingerprint": fingerprint(value), "used": value == used}
        for node in nodes
        for value in node.values
    ]
    if as_json:
        write_json({"kind": kind, "tokens": rows})
    else:
        write_table(
            ("PLACE", "TOKEN", "USED HERE"),
            [(str(row["place"]), str(row["fingerprint"]), "yes" if row["used"] else "") for row in rows],
        )
    return ExitCode.DONE


@app.command(
    epilog="Example: ticketing token add --dir ticketing-cluster (then `token use`, then `token remove --old`)"
)
def add(
    kind: Kind = "client",
    given: Annotated[
        Path | None,
        typer.Option("--from", metavar="FILE", help="Holds the token. [default: a new one is drawn]"),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write the token to this file as well.")
    ] = None,
    folder: Dir = None,
    output: Output = "text",
) -> int:
    """Let a further token in on every node of a folder, and have the running ones reload.

    When every node of client.toml accepts it, client.toml is changed to it.
    """
    as_json = wants_json(output)
    nodes = _nodes(kind, folder)
    secret = _given(given) if given is not None else _half_added(nodes) or secrets.token_urlsafe(32)
    if out is not None:
        replace_file(out, secret.encode() + b"\n")
    changed = [node.place for node in nodes if with_secret(node, secret)]
    reloaded = _reload(nodes, f"{kind} token {fingerprint(secret)} added")
    switched = None
    missing: list[str] = []
    client = _client_file(nodes)
    if kind == "client" and client is not None:
        missing = _closed_doors(read_client_file(client), secret)
        if not missing:
            _switch(client, secret)
            switched = client
    if as_json:
        write_json(
            {
                "kind": kind,
                "fingerprint": fingerprint(secret),
                "changed": changed,
                "nodes": [one._asdict() for one in reloaded],
                "client_config": None if switched is None else str(switched),
            }
        )
    else:
        write_line(f"{kind} token {fingerprint(secret)} added on {', '.join(changed) or 'no further node'}")
        if switched is not None:
            write_line(f"every node accepts it, and {switched} uses it now")
    for line in missing:
        warn(f"client.toml was not changed: {line}")
    if missing:
        say(f"hint: when all accept it: ticketing token use {fingerprint(secret)}")
    return _end(reloaded)


@app.command(epilog="Example: ticketing token use 3fa1c2d4")
def use(
    name: Annotated[str, typer.Argument(metavar="TOKEN", help="The beginning of its fingerprint.")],
    folder: Dir = None,
    output: Output = "text",
) -> int:
    """Change client.toml to a token that every node accepts. Exit code 9 where one does not yet."""
    as_json = wants_json(output)
    nodes = _nodes("client", folder)
    secret = _named(nodes, name)
    client = _client_file(nodes)
    if client is None:
        raise CommandFailed("there is no client.toml beside the nodes' folders", ExitCode.USAGE)
    missing = _closed_doors(read_client_file(client), secret)
    if missing:
        raise CommandFailed("not every node accepts it: " + "; ".join(missing), ExitCode.UNHEALTHY)
    _switch(client, secret)
    if as_json:
        write_json({"fingerprint": fingerprint(secret), "client_config": str(client)})
    else:
        write_line(f"{client} uses {fingerprint(secret)} now; give it to the hosts of programs")
    return ExitCode.DONE


@app.command(epilog="Example: ticketing token remove --old")
def remove(
    name: Annotated[
        str | None,
        typer.Argument(metavar="TOKEN", help="The beginning of its fingerprint.", show_default=False),
    ] = None,
    old: Annotated[
        bool, typer.Option("--old", help="All but the one that client.toml uses (peer: but the newest).")
    ] = False,
    kind: Kind = "client",
    folder: Dir = None,
    yes: Yes = False,
    output: Output = "text",
) -> int:
    """Let a token in no more. Sessions that stand are kept; whoever still has only this one gets no new session."""
    as_json = wants_json(output)
    nodes = _nodes(kind, folder)
    if (name is None) == (not old):
        raise usage_error("either TOKEN or --old is wanted")
    used = _used(nodes, kind)
    if name is not None:
        gone = [_named(nodes, name)]
        if gone[0] == used and kind == "client":
            raise CommandFailed(
                "client.toml uses that token", hint="change it first: `ticketing token use` or `token add`"
            )
    else:
        if used is None:
            raise usage_error(
                "which one is in use is not known: there is no client.toml here", hint="name the token"
            )
        gone = [value for node in nodes for value in node.values if value != used]
        gone = list(dict.fromkeys(gone))
    names = [fingerprint(value) for value in gone]
    if gone:
        confirm(f"{', '.join(names)} will open no session any more.", yes=yes)
    changed = [node.place for node in nodes if without_secrets(node, gone)]
    reloaded = _reload(nodes, f"{kind} tokens {', '.join(names)} removed") if changed else []
    if as_json:
        write_json(
            {
                "kind": kind,
                "fingerprints": names,
                "changed": changed,
                "nodes": [one._asdict() for one in reloaded],
            }
        )
    elif changed:
        write_line(f"{kind} token {', '.join(names)} removed from {', '.join(changed)}")
    if not changed:
        raise CommandFailed("no node here has such a token: nothing to remove", ExitCode.NOTHING_HELD)
    return _end(reloaded)


def _nodes(kind: str, folder: Path | None) -> list[NodeSecrets]:
    if kind not in KINDS:
        raise usage_error(f"--kind must be one of {', '.join(KINDS)}, not {kind!r}")
    return read_secrets(nodes_of(Path.cwd(), folder, os.environ), kind)


def _given(path: Path) -> str:
    secret, fault = read_secret_file(path)
    if fault or not secret.strip():
        raise usage_error(f"--from {path}: {fault or 'is empty'}")
    if len(secret.strip().split()) != 1 or len(secret.strip()) < 16:
        raise usage_error(f"--from {path}: one word of at least 16 characters is wanted")
    return secret.strip()


def _half_added(nodes: Sequence[NodeSecrets]) -> str | None:
    """A token that some nodes have and others have not: an earlier call was interrupted."""
    everywhere = dict.fromkeys(value for node in nodes for value in node.values)
    for value in everywhere:
        if any(value not in node.values for node in nodes):
            say(f"going on with {fingerprint(value)}, which not every node here has")
            return value
    return None


def _named(nodes: Sequence[NodeSecrets], name: str) -> str:
    known = list(dict.fromkeys(value for node in nodes for value in node.values))
    fitting = [value for value in known if name and fingerprint(value).startswith(name.lower())]
    if len(fitting) != 1:
        what = "several tokens" if fitting else "no token"
        raise usage_error(
            f"{what} here begin{'' if fitting else 's'} with {name!r}; there are"
            f" {', '.join(fingerprint(value) for value in known) or 'none'}"
        )
    return fitting[0]


def _client_file(nodes: Sequence[NodeSecrets]) -> Path | None:
    """`client.toml` of the cluster's folder."""
    file = nodes[0].loaded.file.absolute().parent.parent / CLIENT_FILE
    return file if file.is_file() else None


def _used(nodes: Sequence[NodeSecrets], kind: str) -> str | None:
    if kind == "peer":
        return nodes[0].values[-1] if nodes[0].values else None
    client = _client_file(nodes)
    return None if client is None else read_client_file(client).token


def _closed_doors(access: Access, secret: str) -> list[str]:
    """The nodes that do not let this token in, each with its reason."""
    made = context(access.tls, logging.getLogger("ticketing.quiet"))
    found = []
    for address in access.addrs:
        done = knock(address, secret, made)
        if done.outcome != "in":
            reason = (
                "does not accept it yet" if done.outcome == "auth_failed" else done.detail or done.outcome
            )
            found.append(f"{address}: {reason}")
    return found


def _switch(client: Path, secret: str) -> None:
    data = read_toml(client).data
    if data.get("token_file"):
        replace_file(client.parent / str(data["token_file"]), secret.encode() + b"\n")
    else:
        set_values(client, {"token": secret})


def _reload(nodes: Sequence[NodeSecrets], reason: str) -> list[Reloaded]:
    loaded: list[LoadedNode] = [node.loaded for node in nodes]
    return [reload_node(one, reason) for one in loaded]


def _end(reloaded: Sequence[Reloaded]) -> int:
    for line in told(reloaded):
        warn(line)
    return ExitCode.FAILURE if any(one.outcome == "refused" for one in reloaded) else ExitCode.DONE
