"""Telling running nodes to read their secrets and certificates anew."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ticketing.cli.admin_client import AdminAccess, AdminError, call
from ticketing.cli.admin_leader import new_id
from ticketing.config.load import LoadedNode
from ticketing.node.settings import Place


class Reloaded(NamedTuple):
    """What one node made of it."""

    place: str
    outcome: str
    """`reloaded`; `unreachable`: it does not run, or elsewhere, or shows a certificate that has ended; `refused`;
    `elsewhere`: it reads other files than these.
    """
    detail: str = ""


def reload_node(loaded: LoadedNode, reason: str) -> Reloaded:
    """Asks the node that a file configures, by what stands in that file."""
    place = _place(loaded)
    try:
        call(_access(loaded), place.admin, "POST", "/v1/reload", {"id": new_id(), "reason": reason})
    except AdminError as error:
        outcome = "unreachable" if error.code in ("unreachable", "tls") else "refused"
        return Reloaded(place.name, outcome, str(error))
    return Reloaded(place.name, "reloaded")


def shows_certificate(reloaded: Reloaded, loaded: LoadedNode, ends_ms: int) -> Reloaded:
    """Whether a node that has reloaded has the certificate that lies here, by its end: on another host it has not."""
    if reloaded.outcome != "reloaded":
        return reloaded
    try:
        process = call(_access(loaded), _place(loaded).admin, "GET", "/v1/status").get("process") or {}
    except AdminError:
        return reloaded
    if process.get("certificate_ends_ms") in (None, ends_ms):
        return reloaded
    return reloaded._replace(outcome="elsewhere")


def _place(loaded: LoadedNode) -> Place:
    node = loaded.settings.node
    return next(place for place in node.places if place.name == node.place)


def _access(loaded: LoadedNode) -> AdminAccess:
    place = _place(loaded)
    tls = "off" if loaded.settings.tls is None else str(loaded.settings.tls.ca)
    return AdminAccess(((place.name, place.admin),), loaded.settings.admin_token, tls)


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
                f"{one.place} runs with other files, on another host: copy the changed ones there and reload it"
            )
        elif one.outcome == "refused":
            lines.append(f"{one.place} did not reload: {one.detail}")
    return lines
