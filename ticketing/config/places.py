"""Checks of the cluster's places: how many, their names, and their addresses."""

from __future__ import annotations

import re

from ticketing.config.addresses import (
    ADMIN_OFFSET,
    PEER_OFFSET,
    PORT_MAX,
    Address,
    is_loopback,
    is_wildcard,
    parse_address,
    same_place,
)
from ticketing.config.models import ClusterTable, NodeFile, PlaceTable
from ticketing.config.reader import TomlFile
from ticketing.node.settings import Place

NODE_COUNTS = (1, 3, 5)

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?")


def count_fault(count: int) -> str:
    """Why a cluster cannot have `count` nodes; empty where it can."""
    if count in NODE_COUNTS:
        return ""
    why = {
        0: "there is nothing to run",
        2: "when one of two fails, the other is no majority: two nodes fail more often than one",
        4: "four nodes survive one failure, as three do, and have one more to fail",
    }.get(count, "more than five make every lock slower and survive nothing that five do not in practice")
    return f"{count} nodes: {why}; use 3 or 5, or 1 for a standalone node"


def check_places(file: TomlFile, cluster: ClusterTable) -> tuple[Place, ...]:
    """The places in their one form. Faults are noted in `file`; a place with a bad address is left out."""
    if fault := count_fault(len(cluster.nodes)):
        file.problem("cluster.nodes", fault)
    standalone = len(cluster.nodes) == 1
    seen_names: dict[str, str] = {}
    seen: dict[tuple[str, int], str] = {}
    places = []
    hosts: list[tuple[str, str]] = []
    for number, table in enumerate(cluster.nodes, start=1):
        key = f"cluster.nodes[{number}]"
        _check_name(file, key, table.name, seen_names)
        found = _addresses(file, key, table, standalone=standalone)
        complete = True
        for which, address in found.items():
            if address is None:
                complete = False
                continue
            where = f"{key}.{which}"
            if earlier := seen.get(same_place(address)):
                file.problem(where, f"{address} is also {earlier}; every address needs its own host and port")
            seen.setdefault(same_place(address), where)
            hosts.append((where, address.host))
        if complete:
            text = {which: str(address) for which, address in found.items()}
            places.append(
                Place(name=table.name, client=text["client"], peer=text.get("peer", ""), admin=text["admin"])
            )
    _check_mixed(file, hosts)
    return tuple(places)


def listen_addresses(file: TomlFile, model: NodeFile, places: tuple[Place, ...]) -> tuple[str, str, str]:
    """Where this node listens: client, peer (empty where standalone), admin."""
    own = next((place for place in places if place.name == model.node.place), None)
    standalone = len(model.cluster.nodes) == 1
    chosen = []
    seen: dict[tuple[str, int], str] = {}
    for which in ("client", "peer", "admin"):
        text: str = getattr(model.listen, which)
        key = f"listen.{which}"
        if which == "peer" and standalone:
            if text:
                file.problem(key, "a standalone node has no peers; remove it")
            chosen.append("")
            continue
        address = None
        try:
            advertised = getattr(own, which) if own else ""
            address = (
                parse_address(text or advertised, default_port=_port_of(advertised)) if text or own else None
            )
        except ValueError as error:
            file.problem(key, str(error))
        if address is None:
            chosen.append("")
            continue
        if (earlier := seen.get(same_place(address))) and text:
            file.problem(key, f"{address} is also {earlier}; each listener needs its own port")
        seen.setdefault(same_place(address), key)
        chosen.append(str(address))
    return chosen[0], chosen[1], chosen[2]


def _port_of(address: str) -> int:
    return int(address.rpartition(":")[2]) if address else 0


def _check_name(file: TomlFile, key: str, name: str, seen: dict[str, str]) -> None:
    if not _NAME.fullmatch(name):
        file.problem(
            f"{key}.name",
            f"{name!r} is no name for a node; use up to 40 of a-z, 0-9 and hyphens, for example node-1",
        )
    elif name in seen:
        file.problem(f"{key}.name", f"{name!r} is also the name of {seen[name]}")
    seen.setdefault(name, key)


def _addresses(file: TomlFile, key: str, table: PlaceTable, *, standalone: bool) -> dict[str, Address | None]:
    found: dict[str, Address | None] = {"client": _address(file, f"{key}.client", table.client)}
    if standalone:
        if table.peer:
            file.problem(f"{key}.peer", "a standalone node has no peers; remove it, or list 3 or 5 nodes")
    else:
        found["peer"] = _or_derived(file, f"{key}.peer", table.peer, found["client"], PEER_OFFSET)
    found["admin"] = _or_derived(file, f"{key}.admin", table.admin, found["client"], ADMIN_OFFSET)
    return found


def _or_derived(file: TomlFile, key: str, text: str, client: Address | None, offset: int) -> Address | None:
    if text:
        return _address(file, key, text)
    if client is None:
        return None
    if client.port + offset > PORT_MAX:
        file.problem(
            key,
            f"is not given, and the client port {client.port} + {offset} is above {PORT_MAX}; write it out",
        )
        return None
    return Address(client.host, client.port + offset)


def _address(file: TomlFile, key: str, text: str) -> Address | None:
    try:
        address = parse_address(text)
    except ValueError as error:
        file.problem(key, str(error))
        return None
    if is_wildcard(address.host):
        file.problem(
            key,
            f"{text!r} is every address of a machine; others need one to dial, for example"
            f" 10.0.0.1:{address.port} (a wildcard may stand under [listen])",
        )
        return None
    return address


def _check_mixed(file: TomlFile, hosts: list[tuple[str, str]]) -> None:
    """A place on loopback cannot be reached by a place on another machine."""
    near = [key for key, host in hosts if is_loopback(host)]
    if near and len(near) < len(hosts):
        for key in near:
            file.problem(key, "is on loopback, where the other nodes' machines cannot reach it")
