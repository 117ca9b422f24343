"""Telling running nodes to read their secrets and certificates anew."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ticketing.cli.admin_client import AdminAccess, AdminError, call
from ticketing.cli.admin_leader import new_id
from ticketing.config.load import LoadedNode


class Reloaded(NamedTuple):
    """What one node made of it."""

    place: str
    outcome: str
    """`reloaded`; `unreachable`: it does not run, or elsewhere; `refused`."""
    detail: str = ""


def reload_node(loaded: LoadedNode, reason: str) -> Reloaded:
    """Asks the node that a file configures, by what stands in that file."""
    node = loaded.settings.node
    place = next(place for place in node.places if place.name == node.place)
    tls = "off" if loaded.settings.tls is None else str(loaded.settings.tls.ca)
    access = AdminAccess(((place.name, place.admin),), loaded.settings.admin_token, tls)
    try:
        call(access, place.admin, "POST", "/v1/reload", {"id": new_id(), "reason": reason})
    except AdminError as error:
        outcome = "unreachable" if error.code == "unreachable" else "refused"
        return Reloaded(place.name, outcome, str(error))
    return Reloaded(place.name, "reloaded")


def told(reloaded: Sequence[Reloaded]) -> list[str]:
    """What is to be done about those that did not, a line each."""
    lines = []
    for one in reloaded:
        if one.outcome == "unreachable":
            lines.append(
                f"{one.place} was not reached ({one.detail}): where it runs on another host, copy its changed files"
                " there; it reads them within ten seconds, on SIGHUP, and when it starts"
            )
        elif one.outcome == "refused":
            lines.append(f"{one.place} did not reload: {one.detail}")
    return lines
