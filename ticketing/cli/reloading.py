"""Telling running nodes to read their secrets and certificates anew, and looking at what they have then.

A node reloads the files of its own host. Whether these are the ones that were changed here is told by what it has
loaded, by fingerprint, and by nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ticketing.cli.admin_client import AdminAccess, AdminError, call
from ticketing.cli.admin_leader import new_id
from ticketing.config.load import LoadedNode, load_node
from ticketing.node.settings import Place
from ticketing.server.loaded import Loaded, loaded_certificates, loaded_secrets

_NAMES = {
    "client_tokens": "client tokens",
    "peer_secrets": "peer secrets",
    "admin_tokens": "admin tokens",
    "certificate": "certificate",
    "authorities": "authorities",
}


class Reloaded(NamedTuple):
    """What one node made of it."""

    place: str
    outcome: str
    """`reloaded`: it has loaded what lies here. `elsewhere`: it has read its files, which are others than these.
    `unknown`: it has read its files and does not say what is in them (a former version). `unreachable`: it does not
    run, or on a host that is not reached, or shows a certificate that has ended. `refused`: it keeps what it had.
    """
    detail: str = ""


def reload_node(loaded: LoadedNode, reason: str) -> Reloaded:
    """Asks the node that a file configures, by what stood in that file, and compares with what stands there now."""
    place = place_of(loaded)
    try:
        body = {"id": new_id(), "reason": reason}
        answer = call(access_of(loaded), place.admin, "POST", "/v1/reload", body)
    except AdminError as error:
        outcome = "unreachable" if error.code in ("unreachable", "tls") else "refused"
        return Reloaded(place.name, outcome, str(error))
    theirs = answer.get("loaded")
    if not isinstance(theirs, dict):
        return Reloaded(place.name, "unknown")
    differing = [_NAMES[kind] for kind, own in loaded_here(loaded).items() if theirs.get(kind) != own]
    if differing:
        return Reloaded(place.name, "elsewhere", f"other {' and '.join(differing)} than in the files here")
    return Reloaded(place.name, "reloaded")


def loaded_here(loaded: LoadedNode) -> Loaded:
    """What a node would have loaded that reads the files here as they are now."""
    settings = load_node(loaded.file).settings
    return loaded_secrets(settings) | loaded_certificates(settings.tls)


def loaded_there(loaded: LoadedNode) -> dict[str, Any]:
    """What a node says that it has loaded now. `AdminError` where it does not answer or does not say."""
    place = place_of(loaded)
    process = call(access_of(loaded), place.admin, "GET", "/v1/status").get("process")
    found = process.get("loaded") if isinstance(process, dict) else None
    if not isinstance(found, dict):
        raise AdminError("unknown", f"{place.admin}: does not say what it has loaded")
    return found


def place_of(loaded: LoadedNode) -> Place:
    """The place that a node's file is for."""
    node = loaded.settings.node
    return next(place for place in node.places if place.name == node.place)


def access_of(loaded: LoadedNode) -> AdminAccess:
    """How to reach the node that a file configures."""
    place = place_of(loaded)
    tls = "off" if loaded.settings.tls is None else str(loaded.settings.tls.ca)
    return AdminAccess(((place.name, place.admin),), loaded.settings.admin_token, tls)


def have_it(reloaded: Iterable[Reloaded]) -> str:
    """The places that have loaded what lies here, for a person; empty where none has."""
    return ", ".join(one.place for one in reloaded if one.outcome == "reloaded")


def told(reloaded: Sequence[Reloaded]) -> list[str]:
    """What is to be done about those that did not, a line each."""
    lines = []
    for one in reloaded:
        if one.outcome == "unreachable":
            lines.append(
                f"{one.place} was not reached ({one.detail}): where it runs on another host, copy its changed files"
                " there; it reads them within ten seconds, on SIGHUP, and when it starts"
            )
        elif one.outcome == "elsewhere":
            lines.append(
                f"{one.place} has loaded {one.detail}: where it runs on another host, copy the changed ones there"
                " and reload it"
            )
        elif one.outcome == "unknown":
            lines.append(
                f"{one.place} has read its files and does not say what is in them (a former version): where it runs"
                " on another host, copy the changed ones there and reload it"
            )
        elif one.outcome == "refused":
            lines.append(f"{one.place} did not reload: {one.detail}")
    return lines
