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

from ticketing.cli.admin_client import AdminAccess, AdminError, call
from ticketing.cli.arguments import wants_json
from ticketing.cli.confirm import confirm
from ticketing.cli.door import knock
from ticketing.cli.errors import CommandFailed, ExitCode, say, usage_error, warn
from ticketing.cli.options import Output, Yes, new_app
from ticketing.cli.output import write_json, write_line, write_table
from ticketing.cli.reloading import Reloaded, have_it, reload_node, told
from ticketing.client.tls import context
from ticketing.config.client_file import Access, read_admin_file, read_client_file
from ticketing.config.edit import replace_file, set_values
from ticketing.config.layout import ADMIN_FILE, CLIENT_FILE
from ticketing.config.load import LoadedNode
from ticketing.config.problems import ConfigError
from ticketing.config.reader import read_secret_file, read_toml
from ticketing.config.secret_files import (
    KINDS,
    NodeSecrets,
    fingerprint,
    nodes_of,
    read_secrets,
    with_secret,
    without_secrets,
    write_changes,
)

app = new_app(no_args_is_help=True)

_USER_FILES = {"client": CLIENT_FILE, "admin": ADMIN_FILE}
"""By kind: the file of the cluster's folder that uses one of the tokens. Peer secrets are the nodes' own affair."""
_USER_KEY = {"client": "client_config", "admin": "admin_config", "peer": "client_config"}
_OPENS = {"client": "no session", "peer": "no link between nodes", "admin": "no admin plane"}

Kind = Annotated[
    str,
    typer.Option(
        "--kind",
        metavar="KIND",
        help="client; peer: what nodes prove themselves with; admin: what operators use.",
    ),
]
Dir = Annotated[
    Path | None,
    typer.Option("--dir", metavar="DIR", help="A node's or a cluster's folder. [default: here]"),
]


@app.callback(epilog="Example: ticketing token add")
def token() -> None:
    """Rotate client tokens, peer secrets and the admin token without a pause: add, use, remove."""


@app.command("list", epilog="Example: ticketing token list --dir ticketing-cluster")
def list_tokens(kind: Kind = "client", folder: Dir = None, output: Output = "text") -> int:
    """Which tokens each node's file has, by fingerprint, and which one client.toml (admin.toml) uses."""
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

    When every node accepts it, client.toml (admin.toml with --kind admin) is changed to it.
    """
    as_json = wants_json(output)
    nodes = _nodes(kind, folder)
    secret = _given(given) if given is not None else _half_added(nodes) or secrets.token_urlsafe(32)
    _used(nodes, kind)  # a user's file that cannot be read is met before anything is changed
    changes = with_secret(nodes, secret)
    if out is not None:
        replace_file(out, secret.encode() + b"\n")
    changed = write_changes(changes)
    reloaded = _reload(nodes, f"{kind} token {fingerprint(secret)} added")
    switched = None
    missing: list[str] = []
    unwritten: ConfigError | None = None
    user = _user_file(nodes, kind)
    if user is not None:
        missing = _closed_doors(user, kind, secret)
        if not missing:
            try:
                _switch(user, secret)
                switched = user
            except ConfigError as error:
                unwritten = error
    if as_json:
        write_json(
            {
                "kind": kind,
                "fingerprint": fingerprint(secret),
                "changed": changed,
                "nodes": [one._asdict() for one in reloaded],
                _USER_KEY[kind]: None if switched is None else str(switched),
            }
        )
    else:
        files = f"the files of {', '.join(changed)}" if changed else "no further node's files"
        write_line(f"{kind} token {fingerprint(secret)} added to {files}")
        if loaded := have_it(reloaded):
            write_line(f"loaded by {loaded}")
        if switched is not None:
            write_line(f"every node accepts it, and {switched} uses it now")
    for line in missing:
        assert user is not None
        warn(f"{user.name} was not changed: {line}")
    option = "" if kind == "client" else f" --kind {kind}"
    use_it = f"ticketing token use {fingerprint(secret)}{option}"
    if missing:
        say(f"hint: when all accept it: {use_it}")
    code = _end(reloaded)
    if unwritten is not None:
        raise ConfigError(unwritten.problems, hint=f"when that is mended: {use_it}")
    return code


@app.command(epilog="Example: ticketing token use 3fa1c2d4")
def use(
    name: Annotated[str, typer.Argument(metavar="TOKEN", help="The beginning of its fingerprint.")],
    kind: Kind = "client",
    folder: Dir = None,
    output: Output = "text",
) -> int:
    """Change client.toml (admin.toml with --kind admin) to a token that every node accepts.

    Exit code 9 where one does not yet.
    """
    as_json = wants_json(output)
    nodes = _nodes(kind, folder)
    if kind == "peer":
        raise usage_error("peer secrets are used by the nodes alone: there is nothing to change")
    secret = _named(nodes, name)
    user = _user_file(nodes, kind)
    if user is None:
        raise CommandFailed(f"there is no {_USER_FILES[kind]} beside the nodes' folders", ExitCode.USAGE)
    missing = _closed_doors(user, kind, secret)
    if missing:
        raise CommandFailed("not every node accepts it: " + "; ".join(missing), ExitCode.UNHEALTHY)
    _switch(user, secret)
    if as_json:
        write_json({"fingerprint": fingerprint(secret), _USER_KEY[kind]: str(user)})
    else:
        to = "the hosts of programs" if kind == "client" else "the other operators"
        write_line(f"{user} uses {fingerprint(secret)} now; give it to {to}")
    return ExitCode.DONE


@app.command(epilog="Example: ticketing token remove --old")
def remove(
    name: Annotated[
        str | None,
        typer.Argument(metavar="TOKEN", help="The beginning of its fingerprint.", show_default=False),
    ] = None,
    old: Annotated[
        bool, typer.Option("--old", help="All but the one in use (peer: but the newest).")
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
        if gone[0] == used and kind in _USER_FILES:
            raise CommandFailed(
                f"{_USER_FILES[kind]} uses that token",
                hint="change it first: `ticketing token use` or `token add`",
            )
    else:
        if not used and kind in _USER_FILES:
            file = _USER_FILES[kind]
            fault = f"there is no {file} here" if used is None else f"{file} has none"
            raise usage_error(f"which one is in use is not known: {fault}", hint="name the token")
        gone = [value for node in nodes for value in node.values if value != used]
        gone = list(dict.fromkeys(gone))
    names = [fingerprint(value) for value in gone]
    changes = without_secrets(nodes, gone, kept=used if old else None)
    if gone:
        confirm(f"{', '.join(names)} will open {_OPENS[kind]} any more.", yes=yes)
    changed = write_changes(changes)
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
        write_line(f"{kind} token {', '.join(names)} removed from the files of {', '.join(changed)}")
        if loaded := have_it(reloaded):
            write_line(f"loaded by {loaded}")
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


def _user_file(nodes: Sequence[NodeSecrets], kind: str) -> Path | None:
    """The file of the cluster's folder that uses such a token."""
    if kind not in _USER_FILES:
        return None
    file = nodes[0].loaded.file.absolute().parent.parent / _USER_FILES[kind]
    return file if file.is_file() else None


def _used(nodes: Sequence[NodeSecrets], kind: str) -> str | None:
    if kind == "peer":
        return _newest(nodes)
    user = _user_file(nodes, kind)
    if user is None:
        return None
    return read_client_file(user).token if kind == "client" else read_admin_file(user).token


def _newest(nodes: Sequence[NodeSecrets]) -> str | None:
    """The peer secret that was added last; one that only some nodes have is newer than those that all have."""
    last = [node.values[-1] for node in nodes if node.values]
    partial = (value for value in last if any(value not in node.values for node in nodes if node.values))
    return next(partial, last[0] if last else None)


def _closed_doors(user: Path, kind: str, secret: str) -> list[str]:
    """The nodes that do not let this token in, each with its reason."""
    if kind == "client":
        return _closed_to_clients(read_client_file(user), secret)
    admin = read_admin_file(user)
    found = []
    for place, address in admin.nodes:
        try:
            call(AdminAccess(((place, address),), secret, admin.tls), address, "GET", "/v1/status")
        except AdminError as error:
            reason = "does not accept it yet" if error.code == "unauthorized" else str(error)
            found.append(f"{place}: {reason}")
    return found


def _closed_to_clients(access: Access, secret: str) -> list[str]:
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


def _switch(user: Path, secret: str) -> None:
    data = read_toml(user).data
    if data.get("token_file"):
        replace_file(user.parent / str(data["token_file"]), secret.encode() + b"\n")
    else:
        set_values(user, {"token": secret})


def _reload(nodes: Sequence[NodeSecrets], reason: str) -> list[Reloaded]:
    loaded: list[LoadedNode] = [node.loaded for node in nodes]
    return [reload_node(one, reason) for one in loaded]


def _end(reloaded: Sequence[Reloaded]) -> int:
    for line in told(reloaded):
        warn(line)
    return ExitCode.FAILURE if any(one.outcome == "refused" for one in reloaded) else ExitCode.DONE
