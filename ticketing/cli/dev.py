"""`ticketing dev`: a throw-away cluster until it is told to stop."""

from __future__ import annotations

import signal
import time
from types import FrameType
from typing import Annotated, Any

import typer

from ticketing.cli.arguments import wants_json, whole_number
from ticketing.cli.dev_cluster import DevCluster
from ticketing.cli.errors import ExitCode, say, usage_error
from ticketing.cli.options import Output, new_app
from ticketing.cli.output import write_json, write_line
from ticketing.cli.top import live, need_terminal
from ticketing.config.addresses import PORT_MAX
from ticketing.config.client_file import read_client_file
from ticketing.config.places import count_fault
from ticketing.config.problems import wrong

app = new_app()


@app.command(epilog="Example: ticketing dev --nodes 3, then: ticketing status --config PATH-THAT-IT-PRINTS")
def dev(
    nodes: Annotated[str, typer.Option("--nodes", metavar="N", help="3 or 5; 1 is a standalone node.")] = "3",
    client_port: Annotated[
        str, typer.Option(metavar="PORT", help="The first node's, counted up; 0: free ports.")
    ] = "0",
    top: Annotated[bool, typer.Option("--top", help="Open the dashboard on it, with a little load.")] = False,
    output: Output = "text",
) -> int:
    """Run a throw-away cluster of real node processes on loopback. Ctrl-C stops all and cleans up."""
    as_json = wants_json(output)
    if top:
        if as_json:
            raise usage_error("--top draws on the terminal: leave -o json out")
        need_terminal()
    count = whole_number(nodes, "--nodes", 0, 1000)
    if fault := count_fault(count):
        raise wrong(fault, key="--nodes")
    first = whole_number(client_port, "--client-port", 0, PORT_MAX - count)
    stop = StopFlag()
    with DevCluster(count, ports=[first + n for n in range(count)] if first else ()) as cluster:
        say(f"starting {count} node{'s' if count > 1 else ''} in {cluster.folder}")
        view = cluster.wait_for(lambda: stop.wanted or cluster.view(), "the election of a leader")
        if isinstance(view, dict):
            if top:
                return _look(cluster, view)
            if as_json:
                write_json(view)
            else:
                _explain(view)
            _watch(cluster, stop)
        say("stopping")
    return ExitCode.DONE


class StopFlag:
    """Set by the first SIGTERM, SIGINT or SIGHUP. A flag and no event: a handler must not wait for a lock."""

    def __init__(self) -> None:
        self.wanted = False
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._set)

    def _set(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - the system's signature
        self.wanted = True


def _look(cluster: DevCluster, view: dict[str, Any]) -> int:
    """The dashboard, with something to see, until it is quit; commands of the operator's are bound too."""
    from ticketing.cli.dev_load import Load
    from ticketing.tui.want import Want

    with Load(read_client_file(cluster.config)):
        code = live(cluster.access(), Want(), interval_s=1.0, admin=True)
    say(f"stopping the cluster of {len(view['nodes'])} nodes")
    return code


def _watch(cluster: DevCluster, stop: StopFlag) -> None:
    """Waits for the end, and tells when a node ends by itself: the cluster goes on without it."""
    ended: set[str] = set()
    while not stop.wanted:
        time.sleep(0.1)
        for node in cluster.nodes:
            if not node.running() and node.place.name not in ended:
                ended.add(node.place.name)
                status = node.process.returncode if node.process is not None else None
                say(f"{node.place.name} ended with status {status}")


def _explain(view: dict[str, Any]) -> None:
    write_line(f"A cluster is up, domain {view['domain']}:")
    for node in view["nodes"]:
        write_line(f"  {node['place']}  clients at {node['client']}  pid {node['pid']}")
    write_line("Reach it from another terminal:")
    write_line(f"  export TICKETING_CONFIG={view['config']}")
    write_line("  ticketing acquire stock/42 --wait 5 --lease 30")
    write_line("Ctrl-C stops all and removes everything.")
