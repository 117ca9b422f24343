"""A throw-away cluster of real node processes on loopback: for `dev`, `demo` and `bench`."""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from ticketing.cli.admin_client import AdminAccess, ask_all
from ticketing.cli.errors import CommandFailed, ExitCode
from ticketing.config.cluster_folder import Cluster, make_cluster, write_cluster
from ticketing.config.layout import ADMIN_FILE, CLIENT_FILE, CLUSTER_FOLDER, NODE_FILE, STATE_FOLDER
from ticketing.node.settings import Place
from ticketing.server.files import running_pid

HOST = "127.0.0.1"
START_S = 20.0
"""A cluster whose nodes have not elected a leader by then is given up."""

STOP_S = 3.0
"""Between asking the nodes to stop and ending them."""

_POLL_S = 0.05
_PR_SET_PDEATHSIG = 1


class DevNode:
    """One node process of a throw-away cluster."""

    def __init__(self, place: Place, folder: Path) -> None:
        self.place = place
        self.folder = folder
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Of the running process."""
        assert self.process is not None, "a node has a pid once it was started"
        return self.process.pid

    @property
    def log(self) -> Path:
        """Where its standard error goes."""
        return self.folder / "node.log"

    def start(self) -> None:
        """Starts the process, in a group of its own: a terminal's Ctrl-C is for us, who stop all in order."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(  # noqa: S603 - our own program
                [
                    sys.executable,
                    "-m",
                    "ticketing",
                    "node",
                    "start",
                    "--config",
                    str(self.folder / NODE_FILE),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=_die_with(os.getpid()),  # noqa: PLW1509 - no threads run here
            )

    def running(self) -> bool:
        """Whether the process lives."""
        return self.process is not None and self.process.poll() is None

    def send(self, number: int) -> None:
        """Sends a signal, if the process still lives."""
        if self.process is not None and self.running():
            self.process.send_signal(number)

    def end_successor(self) -> None:
        """Ends a process that a command (`node restart`) started on this folder in the place of ours."""
        pid = running_pid(self.folder / STATE_FOLDER)
        if pid:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)

    def last_lines(self, count: int = 5) -> str:
        """The end of what it wrote, for an error message."""
        with contextlib.suppress(OSError):
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-count:])
        return ""


class DevCluster:
    """Node processes in a folder of their own; leaving the context ends them and removes the folder."""

    def __init__(self, nodes: int = 3, *, ports: Sequence[int] = ()) -> None:
        """`ports` are the client ports; none, or 0: free ones."""
        self.folder = Path(tempfile.gettempdir()) / f"ticketing-dev-{secrets.token_hex(6)}"
        chosen = list(ports) if ports else [0] * nodes
        self.cluster = _plan(chosen)
        self.nodes = [DevNode(place, self.home / place.name) for place in self.cluster.places]

    @property
    def home(self) -> Path:
        """The cluster's folder, as `init` writes it."""
        return self.folder / CLUSTER_FOLDER

    @property
    def config(self) -> Path:
        """`client.toml`."""
        return self.home / CLIENT_FILE

    @property
    def admin_config(self) -> Path:
        """`admin.toml`."""
        return self.home / ADMIN_FILE

    def __enter__(self) -> DevCluster:
        self.folder.mkdir(mode=0o700)
        try:
            write_cluster(self.cluster, self.home)
            for node in self.nodes:
                node.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def access(self) -> AdminAccess:
        """How to ask the nodes."""
        places = self.cluster.places
        return AdminAccess(tuple((place.name, place.admin) for place in places), self.cluster.admin_token)

    def statuses(self) -> dict[str, dict[str, Any]]:
        """What every node that answers says of itself, by place."""
        answers = ask_all(self.access(), "/v1/status", timeout_s=1.0)
        return {answer.place: answer.facts for answer in answers if answer.facts is not None}

    def view(self) -> dict[str, Any] | None:
        """The cluster as `dev -o json` tells it, once every node answers and a leader serves."""
        found = self.statuses()
        if len(found) < len(self.nodes) or not any(facts.get("serving") for facts in found.values()):
            return None
        return {
            "domain": next(facts["domain"] for facts in found.values() if facts.get("serving")),
            "config": str(self.config),
            "admin_config": str(self.admin_config),
            "token": self.cluster.client_token,
            "tls": "off",
            "nodes": [
                {
                    "place": node.place.name,
                    "node_id": found[node.place.name]["node_id"],
                    "client": node.place.client,
                    "peer": node.place.peer or None,
                    "admin": node.place.admin,
                    "pid": node.pid,
                }
                for node in self.nodes
            ],
        }

    def wait_for(self, ready: Callable[[], Any], what: str, within_s: float = START_S) -> Any:
        """Calls `ready` until it gives something true; `CommandFailed` when a node ends or time is up."""
        deadline = time.monotonic() + within_s
        while not (found := ready()):
            for node in self.nodes:
                if node.process is not None and node.process.poll() is not None:
                    raise CommandFailed(
                        f"{node.place.name} ended with status {node.process.returncode}:\n{node.last_lines()}"
                    )
            if time.monotonic() > deadline:
                raise CommandFailed(f"{what} did not happen within {within_s:g} s", ExitCode.UNREACHABLE)
            time.sleep(_POLL_S)
        return found

    def stop(self) -> None:
        """Ends every process and removes the folder. The domain ends on purpose: no node asks for leave."""
        for node in self.nodes:
            node.send(signal.SIGTERM)
            node.send(signal.SIGCONT)
        _until(STOP_S / 10, lambda: not any(node.running() for node in self.nodes))
        for node in self.nodes:
            node.send(signal.SIGTERM)
        _until(STOP_S, lambda: not any(node.running() for node in self.nodes))
        for node in self.nodes:
            node.send(signal.SIGKILL)
            if node.process is not None:
                node.process.wait()
        for node in self.nodes:
            node.end_successor()
        shutil.rmtree(self.folder, ignore_errors=True)


def _plan(client_ports: Sequence[int]) -> Cluster:
    standalone = len(client_ports) == 1
    wanted = [port for port in client_ports if port]
    free = free_ports(3 * len(client_ports), avoid=wanted)
    places = []
    for number, port in enumerate(client_ports, start=1):
        client, peer, admin = port or next(free), next(free), next(free)
        places.append(
            Place(
                name=f"node-{number}",
                client=f"{HOST}:{client}",
                peer="" if standalone else f"{HOST}:{peer}",
                admin=f"{HOST}:{admin}",
            )
        )
    return make_cluster(places, tls=False, permit=not standalone, now_ms=time.time_ns() // 1_000_000)


def free_ports(count: int, avoid: Sequence[int] = ()) -> Iterator[int]:
    """Ports that nobody listens on, from below the range that the system hands to outgoing connections."""
    found: list[int] = []
    for _ in range(1000):
        port = 10_000 + secrets.randbelow(22_000)
        if port in found or port in avoid:
            continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return iter(found)
    raise CommandFailed("no free ports between 10000 and 32000 on loopback")


def _until(seconds: float, done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + seconds
    while not done() and time.monotonic() < deadline:
        time.sleep(0.02)


def _die_with(parent: int) -> Callable[[], None] | None:
    """Run in the child before it becomes a node: the kernel ends it when `parent` does, however that ends."""
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def arrange() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    return arrange
