"""`ticketing init`: writes a whole cluster's folder."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from ticketing.cli.arguments import wants_json, whole_number
from ticketing.cli.errors import ExitCode, say, warn
from ticketing.cli.options import Output, new_app
from ticketing.cli.output import write_json, write_line
from ticketing.config.addresses import CLIENT_PORT, PORT_MAX, is_loopback, parse_address
from ticketing.config.cluster_folder import Cluster, plan_cluster, write_cluster
from ticketing.config.layout import ADMIN_FILE, AUTHORITY_FOLDER, CLIENT_FILE, CLUSTER_FOLDER
from ticketing.config.models import FIRST_TOKEN_MAX

app = new_app()


@app.command(epilog="Example: ticketing init --nodes 3 --host a.example --host b.example --host c.example")
def init(
    nodes: Annotated[str, typer.Option(metavar="N", help="3 or 5; 1 is a standalone node.")] = "3",
    host: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST", help="Once a node, in order; none: all on loopback, ports counted up."),
    ] = None,
    folder: Annotated[Path, typer.Option("--dir", metavar="DIR", help="The folder to write.")] = Path(
        CLUSTER_FOLDER
    ),
    tls: Annotated[
        bool | None, typer.Option("--tls/--no-tls", help="Default: on beyond loopback.", show_default=False)
    ] = None,
    client_port: Annotated[
        str, typer.Option(metavar="PORT", help="Peers use it + 1000, admins + 2000.")
    ] = str(CLIENT_PORT),
    first_token: Annotated[
        str, typer.Option(metavar="N", help="Fencing tokens start at this or above.")
    ] = "0",  # noqa: S107 - a number
    permit: Annotated[
        bool,
        typer.Option(
            "--permit/--no-permit",
            help="Put the one-time formation permit into each node's folder (not where disks do not last).",
        ),
    ] = True,
    output: Output = "text",
) -> int:
    """Write a whole cluster: addresses, secrets, certificates, and one folder a node. Never overwrites."""
    as_json = wants_json(output)
    cluster = plan_cluster(
        nodes=whole_number(nodes, "--nodes", 0, 1000),
        hosts=host or (),
        client_port=whole_number(client_port, "--client-port", 1, PORT_MAX),
        tls=tls,
        first_token=whole_number(first_token, "--first-token", 0, FIRST_TOKEN_MAX),
        permit=permit,
        now_ms=time.time_ns() // 1_000_000,
    )
    write_cluster(cluster, folder)
    if as_json:
        write_json(_summary(cluster, folder))
    else:
        _explain(cluster, folder)
    if not cluster.tls and not _local(cluster):
        warn("without TLS everybody on the way can take over sessions; this is for networks of your own")
    return ExitCode.DONE


def _local(cluster: Cluster) -> bool:
    return all(is_loopback(parse_address(place.client).host) for place in cluster.places)


def _summary(cluster: Cluster, folder: Path) -> dict[str, object]:
    return {
        "folder": str(folder.absolute()),
        "config": str(folder.absolute() / CLIENT_FILE),
        "admin_config": str(folder.absolute() / ADMIN_FILE),
        "tls": str(folder.absolute() / AUTHORITY_FOLDER / "ca.pem") if cluster.tls else "off",
        "permit": bool(cluster.permit),
        "nodes": [
            {
                "place": place.name,
                "folder": str(folder.absolute() / place.name),
                "client": place.client,
                "peer": place.peer or None,
                "admin": place.admin,
            }
            for place in cluster.places
        ],
    }


def _explain(cluster: Cluster, folder: Path) -> None:
    write_line(f"Wrote {folder}{'/' if not str(folder).endswith('/') else ''}")
    write_line("  client.toml   for programs and for `ticketing acquire`")
    write_line("  admin.toml    for the operator alone")
    if cluster.tls:
        write_line("  ca/           the certificate authority; its key stays here, with the operator")
    for place in cluster.places:
        write_line(f"  {place.name + '/':13} clients at {place.client}")
    if _local(cluster):
        write_line(
            f"Next: `cd {folder}` and `ticketing node start`, once a node, each in a terminal of its own."
        )
    else:
        write_line("Next: copy each node's folder to its host and run `ticketing node start` in it.")
    if cluster.permit:
        say("The nodes form a domain by themselves within one hour from now; later: `ticketing form`.")
        say(
            "If all nodes are lost within that hour and the folders are copied anew, wait until every lease"
            " that was granted is over (at most 250 s) before you start them: they would serve at once."
        )
    elif len(cluster.places) > 1:
        say(
            "No permit was written: once all nodes run, `ticketing form` makes the domain. It serves 250 s later;"
            " with --first at once, which is safe where no domain ever ran."
        )
