"""`ticketing cert add-ca`, `use-ca`, `remove-ca`: another certificate authority without a pause."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ticketing.cli.admin_client import AdminError
from ticketing.cli.confirm import confirm
from ticketing.cli.errors import CommandFailed, ExitCode, warn
from ticketing.cli.output import write_json, write_line
from ticketing.cli.reloading import Reloaded, have_it, loaded_here, loaded_there, reload_node, told
from ticketing.config.load import load_node
from ticketing.config.node_folder import node_files

if TYPE_CHECKING:
    from ticketing.config.load import LoadedNode


def cluster_of(nodes: Sequence[LoadedNode]) -> Path:
    """The folder that has `ca/`."""
    return nodes[0].file.absolute().parent.parent


def _everybody(nodes: Sequence[LoadedNode]) -> list[LoadedNode]:
    """With those of the cluster's folder that are not meant: an authority is theirs as well."""
    known = {loaded.file.absolute() for loaded in nodes}
    others = [file for file in node_files(cluster_of(nodes)).values() if file.absolute() not in known]
    return [*nodes, *(other for other in map(load_node, others) if other.settings.tls is not None)]


def add(nodes: Sequence[LoadedNode], *, as_json: bool) -> int:
    """A new authority that everybody trusts beside the present one; it signs nothing yet."""
    from ticketing.config.authority_files import add_next

    name, changed = add_next(cluster_of(nodes), nodes, datetime.datetime.now(datetime.UTC))
    reloaded = [reload_node(loaded, f"authority {name} added") for loaded in nodes]
    if as_json:
        write_json({"authority": name, **_what(changed, reloaded)})
    else:
        write_line(f"authority {name} is trusted beside the present one in {len(changed)} changed files")
        _tell_loaded(reloaded)
        write_line("copy each node's tls/ to its host, and ca/ca.pem to operators and programs; then: use-ca")
    return _end(reloaded)


def use(nodes: Sequence[LoadedNode], *, yes: bool, as_json: bool) -> int:
    """The new authority signs from now on, first of all a new certificate for every node."""
    from ticketing.cli.cert import renew_all
    from ticketing.config.authority_files import promote_next

    everybody = _everybody(nodes)
    _need_loaded(everybody, "authorities", "does not trust both authorities yet")
    confirm("Programs that do not have the new ca/ca.pem reach no node any more.", yes=yes)
    name, _ = promote_next(cluster_of(nodes), everybody)
    rows, outcomes = renew_all(nodes)
    if as_json:
        write_json({"authority": name, "renewed": rows})
    else:
        write_line(f"authority {name} signs now")
        for row in rows:
            write_line(f"{row['place']}: renewed, {row['reload']}")
    return _end(outcomes)


def remove(nodes: Sequence[LoadedNode], *, yes: bool, as_json: bool) -> int:
    """Nobody trusts the former authority any more."""
    from ticketing.config.authority_files import remove_former

    everybody = _everybody(nodes)
    _need_loaded(everybody, "certificate", "does not show the certificate that lies here")
    confirm(
        "Whoever has only the former authority, in a copy of ca/ca.pem, reaches no node any more.", yes=yes
    )
    names, changed = remove_former(cluster_of(nodes), nodes, everybody)
    reloaded = [reload_node(loaded, "former authority removed") for loaded in nodes] if changed else []
    if as_json:
        write_json({"authorities": names, **_what(changed, reloaded)})
    elif changed:
        write_line(f"authority {', '.join(names)} is trusted no more in {len(changed)} changed files")
        _tell_loaded(reloaded)
    if not changed:
        raise CommandFailed("only one authority is trusted here: nothing to remove", ExitCode.NOTHING_HELD)
    return _end(reloaded)


def _need_loaded(nodes: Sequence[LoadedNode], kind: str, fault: str) -> None:
    """Every node has loaded what lies here: a step further would part it from the others."""
    faults = []
    for loaded in nodes:
        place = loaded.settings.node.place
        try:
            same = loaded_there(loaded).get(kind) == loaded_here(loaded)[kind]
        except AdminError as error:
            faults.append(f"{place}: {error}")
        else:
            if not same:
                faults.append(f"{place} {fault}")
    if faults:
        raise CommandFailed(
            "; ".join(faults),
            ExitCode.UNHEALTHY,
            hint="copy each node's tls/ to its host and reload it: `ticketing cert show` tells what lies here",
        )


def _what(changed: Sequence[Path], reloaded: Sequence[Reloaded]) -> dict[str, Any]:
    return {"changed": [str(file) for file in changed], "nodes": [one._asdict() for one in reloaded]}


def _tell_loaded(reloaded: Sequence[Reloaded]) -> None:
    if loaded := have_it(reloaded):
        write_line(f"loaded by {loaded}")


def _end(reloaded: Sequence[Reloaded]) -> int:
    for line in told(reloaded):
        warn(line)
    return ExitCode.FAILURE if any(one.outcome == "refused" for one in reloaded) else ExitCode.DONE
