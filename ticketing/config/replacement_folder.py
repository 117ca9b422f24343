"""The folder of a process that is to take a place over at an operator's command (spec 9, Replacement)."""

from __future__ import annotations

import datetime
import json
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

import msgspec

from ticketing.config.addresses import (
    Address,
    canonical_host,
    is_loopback,
    is_name,
    is_wildcard,
    parse_address,
)
from ticketing.config.client_file import read_admin_file, read_client_file
from ticketing.config.cluster_folder import certificate_hosts, make_folder, write_secret
from ticketing.config.edit import Scalar, edited, replace_files, set_values
from ticketing.config.layout import (
    ADMIN_FILE,
    CLIENT_FILE,
    FORMER_FOLDER,
    NODE_FILE,
    REPLACEMENTS_FOLDER,
    STATE_FOLDER,
    TLS_FOLDER,
)
from ticketing.config.load import LoadedNode, load_node
from ticketing.config.node_folder import node_files
from ticketing.config.owners import give_all_to_owner, give_folder_to_owner
from ticketing.config.problems import ConfigError, Problem, wrong
from ticketing.config.reader import reason
from ticketing.node.settings import OperatorCommand, Place
from ticketing.node.state_files import RECORD

REPLACE_FILE = "replace.json"
"""In `state/`: the command by which the process may take the place of one that lives."""


class Prepared(NamedTuple):
    """A folder that is ready to be started, here or on another host."""

    folder: Path
    place: Place
    """With the addresses that the new process will have."""
    command: OperatorCommand | None
    """None: a process has started in this folder and carried the command out."""
    resumed: bool
    """It was prepared by an earlier call, whose command goes on."""


def default_folder(cluster: Path, place: str) -> Path:
    """Where a place's replacement is prepared: the one that is under way, else a new one.

    Apart from the nodes' own folders, so that nothing takes it for one of these before it is.
    """
    folder = cluster / REPLACEMENTS_FOLDER
    numbers = [
        int(number[1])
        for child in (folder.iterdir() if folder.is_dir() else ())
        if (number := re.fullmatch(rf"{re.escape(place)}-(\d+)", child.name))
    ]
    newest = folder / f"{place}-{max(numbers, default=0)}"
    if not numbers or newest.resolve() == (cluster / place).resolve():
        return folder / f"{place}-{max(numbers, default=0) + 1}"
    return newest


def prepare(
    cluster: Path, place: str, target: Path, command: OperatorCommand, *, host: str | None = None
) -> Prepared:
    """Writes `target` from the cluster's folder, complete or not at all; `ConfigError` where it cannot.

    What was prepared there already is taken as it is, with its command. `host`: where the place moves to; the ports
    stay. With TLS a new certificate is signed, for the old host too, as which the other nodes know the place.
    """
    if target.exists():
        return _resumed(target, place, host)
    source = _source(cluster, place)
    loaded = load_node(source)
    own = next((p for p in loaded.settings.node.places if p.name == place), None)
    if own is None:
        raise wrong(f"has no place {place}", file=source)
    moved = _moved(own, host)
    try:
        _make_beside(target.parent, cluster)
        draft = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
        try:
            _write(draft, cluster, source, loaded, own, moved, command)
            give_all_to_owner(draft, source.parent)
            draft.rename(target)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    except OSError as error:
        raise wrong(f"cannot write: {reason(error)}", file=Path(error.filename or target)) from None
    load_node(target)
    return Prepared(target, moved, command, resumed=False)


def read_command(folder: Path) -> OperatorCommand | None:
    """The command in a prepared folder; None where there is none (any more)."""
    path = folder / STATE_FOLDER / REPLACE_FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=OperatorCommand)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise wrong(f"cannot be read: {error}", file=path) from None


def announce_move(cluster: Path, place: Place) -> list[Path]:
    """Writes a place's new addresses into the files of the cluster's folder; those that were changed.

    `ConfigError` where one cannot be: before any is, where that is seen by looking at it.
    """
    wanted: dict[Path, bytes] = {}
    for file in node_files(cluster).values():
        loaded = load_node(file)
        if loaded.settings.node.place == place.name:
            continue
        for number, known in enumerate(loaded.settings.node.places, start=1):
            if known.name == place.name and known != place:
                names = ("client", "peer", "admin") if place.peer else ("client", "admin")
                values: dict[str, Scalar | list[str]] = {
                    f"cluster.nodes[{number}].{name}": getattr(place, name) for name in names
                }
                wanted[file] = edited(file, values)
    return replace_files(wanted)


def announce_to_clients(cluster: Path, old: Place, new: Place) -> list[Path]:
    """The same for `client.toml` and `admin.toml`."""
    changed: list[Path] = []
    client, admin = cluster / CLIENT_FILE, cluster / ADMIN_FILE
    if client.is_file() and old.client != new.client:
        addrs = [new.client if addr == old.client else addr for addr in read_client_file(client).addrs]
        set_values(client, {"addrs": addrs})
        changed.append(client)
    if admin.is_file() and old.admin != new.admin:
        for number, (name, address) in enumerate(read_admin_file(admin).nodes, start=1):
            if name == new.name and address != new.admin:
                set_values(admin, {f"nodes[{number}].admin": new.admin})
                changed.append(admin)
    return changed


def _source(cluster: Path, place: str) -> Path:
    files = node_files(cluster)
    if place in files:
        return files[place]
    raise ConfigError(
        [Problem(cluster / place / NODE_FILE, "", "no such file: the new node's is made from it")],
        hint="run this where `ticketing init` wrote the cluster's folder, and name its admin.toml with --admin-config",
    )


def _resumed(target: Path, place: str, host: str | None) -> Prepared:
    command = read_command(target)
    if command is None and not (target / STATE_FOLDER / RECORD).is_file():
        raise wrong(
            "is there already and was not prepared for a replacement",
            file=target,
            hint="move it away, or choose another folder with --dir",
        )
    loaded = load_node(target)
    settings = loaded.settings.node
    if settings.place != place:
        raise wrong(f"was prepared for {settings.place}, not for {place}", file=target)
    own = next(p for p in settings.places if p.name == place)
    if host is not None and _moved(own, host) != own:
        raise wrong(
            f"was prepared with the address {own.client}, not for {host}",
            file=target,
            hint="undo that replacement first (--undo)",
        )
    return Prepared(target, own, command, resumed=True)


def _moved(place: Place, host: str | None) -> Place:
    if host is None:
        return place
    try:
        name = canonical_host(host)
    except ValueError as error:
        raise wrong(f"{error} (only the host; the ports stay)", key="--host") from None
    if is_wildcard(name):
        raise wrong(f"{host!r} is every address of a machine", key="--host")

    def at(address: str) -> str:
        return str(Address(name, parse_address(address).port)) if address else ""

    return Place(place.name, at(place.client), at(place.peer), at(place.admin))


def _write(
    draft: Path,
    cluster: Path,
    source: Path,
    loaded: LoadedNode,
    old: Place,
    new: Place,
    command: OperatorCommand,
) -> None:
    make_folder(draft / STATE_FOLDER)
    write_secret(
        draft / STATE_FOLDER / REPLACE_FILE,
        json.dumps({"command_id": command.command_id, "who": command.who, "why": command.why}).encode(),
    )
    write_secret(draft / NODE_FILE, source.read_bytes())
    values: dict[str, Scalar | list[str]] = {}
    if loaded.model.node.state != STATE_FOLDER:
        values["node.state"] = STATE_FOLDER
    if new != old:
        number = [place.name for place in loaded.settings.node.places].index(old.name) + 1
        for name in ("client", "peer", "admin"):
            if getattr(new, name):
                values[f"cluster.nodes[{number}].{name}"] = getattr(new, name)
        values.update(_listen(new))
    for key in ("client_tokens_file", "peer_secrets_file", "admin_token_file"):
        if path := getattr(loaded.model.secrets, key):
            name = Path(path).name
            write_secret(draft / name, (source.parent / path).read_bytes())
            values[f"secrets.{key}"] = name
    if loaded.settings.tls is not None:
        values |= {"tls.ca": f"{TLS_FOLDER}/ca.pem", "tls.certificate": f"{TLS_FOLDER}/node.pem"}
        values["tls.key"] = f"{TLS_FOLDER}/node.key"
        _sign(draft, cluster, loaded, old, new)
    if values:
        set_values(draft / NODE_FILE, values)


def _listen(place: Place) -> dict[str, Scalar | list[str]]:
    """As `init` has it: a host given by name is listened for on every address."""
    host = parse_address(place.client).host
    by_name = is_name(host) and not is_loopback(host)
    return {
        f"listen.{name}": f"0.0.0.0:{parse_address(address).port}" if by_name else ""
        for name, address in (("client", place.client), ("peer", place.peer), ("admin", place.admin))
        if address
    }


def _sign(draft: Path, cluster: Path, loaded: LoadedNode, old: Place, new: Place) -> None:
    from ticketing.config.certificate_files import signing_authority
    from ticketing.config.certificates import make_node_certificate

    assert loaded.settings.tls is not None, "only with TLS"
    authority = signing_authority(cluster)
    hosts = tuple(dict.fromkeys((*certificate_hosts(new), *certificate_hosts(old))))
    pair = make_node_certificate(authority, new.name, hosts, datetime.datetime.now(datetime.UTC))
    make_folder(draft / TLS_FOLDER)
    write_secret(draft / TLS_FOLDER / "ca.pem", loaded.settings.tls.ca.read_bytes())
    write_secret(draft / TLS_FOLDER / "node.pem", pair.certificate)
    write_secret(draft / TLS_FOLDER / "node.key", pair.key)


def _make_beside(folder: Path, cluster: Path) -> None:
    """A folder that goes with the nodes' own."""
    if not folder.is_dir():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        give_folder_to_owner(folder, cluster)


def settle(cluster: Path, place: str, prepared: Path, *, running: bool) -> Path | None:
    """After the swap: `prepared` becomes the place's own folder. Where the former one was put; None: there was none.

    `running`: a process runs in it, which knows its files by their names: then a link leads there.
    """
    home = cluster / place
    former = None
    if home.is_symlink() or home.exists():
        former = cluster / FORMER_FOLDER / f"{place}-{os.urandom(4).hex()}"
        _make_beside(former.parent, cluster)
        home.rename(former)
    if running:
        home.symlink_to(prepared.absolute().relative_to(cluster.absolute()))
    else:
        prepared.rename(home)
    return former
