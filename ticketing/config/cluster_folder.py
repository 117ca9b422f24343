"""What `ticketing init` writes: a whole cluster's folder, complete or not at all."""

from __future__ import annotations

import datetime
import json
import os
import secrets
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ticketing.config.addresses import (
    ADMIN_OFFSET,
    CLIENT_PORT,
    PEER_OFFSET,
    PORT_MAX,
    Address,
    canonical_host,
    is_loopback,
    is_name,
    is_wildcard,
    parse_address,
)
from ticketing.config.layout import (
    ADMIN_FILE,
    AUTHORITY_FOLDER,
    CLIENT_FILE,
    NODE_FILE,
    STATE_FOLDER,
    TLS_FOLDER,
)
from ticketing.config.places import count_fault
from ticketing.config.problems import ConfigError, Problem, wrong
from ticketing.config.reader import reason
from ticketing.config.templates import admin_toml, client_toml, node_toml
from ticketing.node.settings import Place
from ticketing.node.state_files import PERMIT


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster to be written: what was asked for, and the secrets drawn for it."""

    places: tuple[Place, ...]
    tls: bool
    first_token: int = 0
    permit: str = ""
    """The one-time permit's random id; empty: none is written, the operator forms the domain."""
    permit_made_ms: int = 0
    client_token: str
    peer_secret: str
    admin_token: str


def plan_cluster(
    *,
    nodes: int,
    hosts: Sequence[str] = (),
    client_port: int = CLIENT_PORT,
    tls: bool | None = None,
    first_token: int = 0,
    permit: bool = True,
    now_ms: int,
) -> Cluster:
    """Places, addresses and secrets of a new cluster; `ConfigError` names every option that does not do.

    Hosts given: the same ports on each. None: loopback, ports counted up. `tls` left open: on beyond
    loopback. A standalone node forms anew at each start and needs no permit.
    """
    problems: list[Problem] = []
    if fault := count_fault(nodes):
        raise wrong(fault, key="--nodes")
    names = _hosts(hosts, nodes, problems)
    ports = [client_port] * nodes if hosts else [client_port + n for n in range(nodes)]
    if client_port < 1 or ports[-1] + ADMIN_OFFSET > PORT_MAX:
        highest = PORT_MAX - ADMIN_OFFSET - (ports[-1] - client_port)
        problems.append(
            Problem(
                None,
                "--client-port",
                f"must be from 1 to {highest}: peers use it + {PEER_OFFSET}, admins + {ADMIN_OFFSET}",
            )
        )
    if not 0 <= first_token < 1 << 62:
        problems.append(Problem(None, "--first-token", "must be from 0 to 2^62 - 1"))
    if problems:
        raise ConfigError(problems)
    places = tuple(
        _place(f"node-{n}", host, port, standalone=nodes == 1)
        for n, (host, port) in enumerate(zip(names, ports, strict=True), start=1)
    )
    return make_cluster(
        places,
        tls=any(not is_loopback(host) for host in names) if tls is None else tls,
        first_token=first_token,
        permit=permit and nodes > 1,
        now_ms=now_ms,
    )


def make_cluster(
    places: Sequence[Place], *, tls: bool, first_token: int = 0, permit: bool = True, now_ms: int
) -> Cluster:
    """Draws the secrets of a cluster with these places."""
    return Cluster(
        places=tuple(places),
        tls=tls,
        first_token=first_token,
        permit=secrets.token_hex(16) if permit else "",
        permit_made_ms=now_ms if permit else 0,
        client_token=secrets.token_urlsafe(32),
        peer_secret=secrets.token_urlsafe(32),
        admin_token=secrets.token_urlsafe(32),
    )


def write_cluster(cluster: Cluster, folder: Path) -> None:
    """Writes the cluster to `folder`, which must not be there yet or be empty; `ConfigError` where it cannot.

    Everything is written beside it first and moved there whole: an interrupted `init` leaves no half cluster.
    Files are born with mode 0600 in folders of mode 0700.
    """
    folder = folder.absolute()
    if problem := _occupied(folder):
        raise wrong(
            problem, file=folder, hint="choose another folder with --dir, or move this one away first"
        )
    try:
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        try:
            _write_all(cluster, draft)
            _move(draft, folder)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    except OSError as error:
        raise wrong(f"cannot write: {reason(error)}", file=Path(error.filename or folder)) from None


def _occupied(folder: Path) -> str:
    if folder.is_symlink() and not folder.exists():
        return "is a link that leads nowhere"
    if not folder.exists():
        return ""
    if not folder.is_dir():
        return "is there already and is no folder"
    if any(folder.iterdir()):
        return "is there already; nothing in it was touched"
    return ""


def _write_all(cluster: Cluster, folder: Path) -> None:
    write_secret(
        folder / CLIENT_FILE,
        client_toml(cluster.places, token=cluster.client_token, tls=cluster.tls).encode(),
    )
    write_secret(
        folder / ADMIN_FILE, admin_toml(cluster.places, token=cluster.admin_token, tls=cluster.tls).encode()
    )
    for place in cluster.places:
        home = folder / place.name
        make_folder(home)
        make_folder(home / STATE_FOLDER)
        write_secret(home / NODE_FILE, _node_file(cluster, place).encode())
        if cluster.permit:
            permit = {"permit": cluster.permit, "made_ms": cluster.permit_made_ms}
            write_secret(home / STATE_FOLDER / PERMIT, json.dumps(permit).encode() + b"\n")
    if cluster.tls:
        _write_certificates(cluster, folder)


def _write_certificates(cluster: Cluster, folder: Path) -> None:
    from ticketing.config.certificates import make_authority, make_node_certificate

    now = datetime.datetime.now(datetime.UTC)
    authority = make_authority(f"ticketing cluster of {cluster.places[0].client}"[:64], now)
    make_folder(folder / AUTHORITY_FOLDER)
    write_secret(folder / AUTHORITY_FOLDER / "ca.pem", authority.certificate)
    write_secret(folder / AUTHORITY_FOLDER / "ca.key", authority.key)
    for place in cluster.places:
        pair = make_node_certificate(authority, place.name, certificate_hosts(place), now)
        home = folder / place.name / TLS_FOLDER
        make_folder(home)
        write_secret(home / "ca.pem", authority.certificate)
        write_secret(home / "node.pem", pair.certificate)
        write_secret(home / "node.key", pair.key)


def certificate_hosts(place: Place) -> tuple[str, ...]:
    """The hosts that a place's certificate names: its addresses', and on loopback all of its names."""
    hosts = [parse_address(address).host for address in (place.client, place.peer, place.admin) if address]
    if any(is_loopback(host) for host in hosts):
        hosts += ["localhost", "127.0.0.1", "::1"]
    return tuple(dict.fromkeys(hosts))


def write_secret(path: Path, content: bytes) -> None:
    """Creates a file that only its owner may open, from its first moment; never touches one that is there."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(descriptor)


def make_folder(path: Path) -> None:
    """Creates a folder that only its owner may enter."""
    path.mkdir(mode=0o700)


def _move(draft: Path, folder: Path) -> None:
    if not folder.exists():
        draft.rename(folder)
        return
    # The caller may stand in an empty folder of this name: it is filled, not replaced.
    folder.chmod(0o700)
    for child in sorted(draft.iterdir()):
        child.rename(folder / child.name)


def _node_file(cluster: Cluster, place: Place) -> str:
    beyond = not is_loopback(parse_address(place.client).host)
    return node_toml(
        place,
        cluster.places,
        listen=_listen(place),
        client_token=cluster.client_token,
        peer_secret=cluster.peer_secret,
        admin_token=cluster.admin_token,
        first_token=cluster.first_token,
        tls=cluster.tls,
        insecure=beyond and not cluster.tls,
    )


def _listen(place: Place) -> tuple[str, str, str]:
    """A host given by name is listened for on every address: it may mean another one in a container."""
    host = parse_address(place.client).host
    if is_loopback(host) or not is_name(host):
        return "", "", ""
    client, peer, admin = (
        f"0.0.0.0:{parse_address(address).port}" if address else ""
        for address in (place.client, place.peer, place.admin)
    )
    return client, peer, admin


def _hosts(hosts: Sequence[str], nodes: int, problems: list[Problem]) -> list[str]:
    if not hosts:
        return ["127.0.0.1"] * nodes
    if len(hosts) != nodes:
        problems.append(
            Problem(
                None, "--host", f"given {len(hosts)} times for {nodes} nodes; give it once a node, in order"
            )
        )
    found: list[str] = []
    for text in hosts:
        try:
            host = canonical_host(text)
        except ValueError as error:
            problems.append(
                Problem(None, "--host", f"{error} (only the host; ports come from --client-port)")
            )
            continue
        if is_wildcard(host):
            problems.append(
                Problem(
                    None, "--host", f"{text!r} is every address of a machine; give one that others can dial"
                )
            )
        elif host in found:
            problems.append(
                Problem(
                    None,
                    "--host",
                    f"{host} is given twice; several nodes on one host are for loopback, without --host",
                )
            )
        found.append(host)
    if found and any(is_loopback(host) for host in found) and not all(is_loopback(host) for host in found):
        problems.append(
            Problem(None, "--host", "some are on loopback, where the other machines cannot reach them")
        )
    return found


def _place(name: str, host: str, port: int, *, standalone: bool) -> Place:
    return Place(
        name=name,
        client=str(Address(host, port)),
        peer="" if standalone else str(Address(host, port + PEER_OFFSET)),
        admin=str(Address(host, port + ADMIN_OFFSET)),
    )
