"""Real node processes on loopback, in folders as `ticketing init` writes them.

Processes are signalled by the id of those that were started here and by nothing else. Should the test run itself be
killed, the kernel ends them.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import secrets
import signal
import socket
import ssl
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.e2e.waiting import until, until_told

HOST = "127.0.0.1"
COMMAND = (sys.executable, "-m", "ticketing")
PROJECT = Path(__file__).parents[2]
ANSWER_S = 1.0
"""A node that does not answer its admin plane within this is taken for one that does not answer."""


class Ended(NamedTuple):
    """How a command ended."""

    status: int
    out: str
    error: str


def run_ticketing(*words: str | Path, folder: Path, within_s: float = 20.0, program: Path = PROJECT) -> Ended:
    """Runs one command in `folder` to its end. `program`: where the program lies."""
    done = subprocess.run(
        [*COMMAND, *map(str, words)],
        cwd=folder,
        env=environment(PYTHONPATH=str(program)),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=within_s,
        check=False,
    )
    return Ended(done.returncode, done.stdout, done.stderr)


def environment(**more: str) -> dict[str, str]:
    """The environment of a command, free of what its user may have set for their own clusters."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TICKETING_")}
    return kept | {"PYTHONPATH": str(PROJECT)} | more


class NodeProcess:
    """One place: its folder, its addresses, and the process that runs there at the moment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        settings = tomllib.loads(self.config.read_text())
        self.place: str = settings["node"]["place"]
        own = next(node for node in settings["cluster"]["nodes"] if node["name"] == self.place)
        self.client: str = own["client"]
        self.peer: str = own.get("peer", "")
        self.admin: str = own["admin"]
        self.client_token: str = settings["secrets"]["client_tokens"][0]
        self.admin_token: str = settings["secrets"]["admin_token"]
        self.environment: dict[str, str] = {}
        """Set for the processes that are started here, besides what all have."""
        self.program = PROJECT
        """Where the program lies that is started here: a folder that Python finds it in."""
        self.before: tuple[str, ...] = ()
        """Stands before the command: a program that ends in running it."""
        self._process: subprocess.Popen[bytes] | None = None
        self.paused = False

    @property
    def config(self) -> Path:
        return self.folder / "node.toml"

    def tls(self) -> ssl.SSLContext | None:
        """What a client of this node needs, None where the cluster has no TLS."""
        authority = self.folder.parent / "ca" / "ca.pem"
        return ssl.create_default_context(cafile=authority) if authority.exists() else None

    @property
    def log(self) -> Path:
        return self.folder / "node.log"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self, *options: str) -> None:
        """Starts a process in the folder; its output goes to `node.log`."""
        assert not self.running, f"{self.place} runs already"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self.before, *COMMAND, "node", "start", "--config", str(self.config), *options],
                cwd=self.folder,
                env=environment(PYTHONPATH=str(self.program), **self.environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )
        self.paused = False

    def signal(self, number: int) -> None:
        """Sends a signal to the process, which must live."""
        assert self._process is not None
        assert self.running, f"{self.place} ended with status {self._process.returncode}:\n{self.log_end()}"
        self._process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, and the process is gone on return."""
        assert self._process is not None
        self.signal(signal.SIGKILL)
        self._process.wait(10)

    def terminate(self) -> None:
        self.signal(signal.SIGTERM)

    async def pause(self) -> None:
        """SIGSTOP; on return it stands still."""
        self.signal(signal.SIGSTOP)
        self.paused = True
        await until(lambda: _state(self.pid) == "T", f"{self.place} stands still")

    def resume(self) -> None:
        """SIGCONT."""
        self.signal(signal.SIGCONT)
        self.paused = False

    async def ended(self, within_s: float = 15.0) -> int:
        """Waits for the process to end by itself; its exit status."""
        assert self._process is not None
        await until(lambda: not self.running, f"{self.place} ends", within_s)
        return self._process.returncode

    async def status(self) -> dict[str, Any] | None:
        """`/v1/status`, or None where nothing answers."""
        if not self.running or self.paused:
            return None
        try:
            async with asyncio.timeout(ANSWER_S):
                return await self.ask_admin("GET", "/v1/status")
        except (OSError, asyncio.IncompleteReadError):  # a timeout is an OSError, too
            return None

    async def ask_admin(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """One request to the admin plane; ConnectionError with the answer where it is not 200."""
        host, _, port = self.admin.rpartition(":")
        content = json.dumps(body).encode() if body is not None else b""
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: {self.admin}\r\nAuthorization: Bearer {self.admin_token}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\nConnection: close\r\n\r\n"
        )
        reader, writer = await asyncio.open_connection(host, int(port), ssl=self.tls())
        try:
            writer.write(head.encode() + content)
            answer = await reader.read()
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
        first, _, said = answer.partition(b"\r\n\r\n")
        if not first.startswith(b"HTTP/1.1 200 "):
            raise ConnectionError(f"{method} {path}: {first[:40]!r} {said!r}")
        facts: dict[str, Any] = json.loads(said)
        return facts

    def log_end(self, lines: int = 40) -> str:
        """The last lines that the processes of this place wrote."""
        with contextlib.suppress(OSError):
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
        return ""

    def end(self) -> None:
        """Ends the process whatever it does, if there is one."""
        if self._process is not None and self.running:
            self._process.kill()
        if self._process is not None:
            self._process.wait(10)


async def told_status(node: NodeProcess) -> dict[str, Any]:
    """The status of a node that must answer."""
    return await until_told(node.status, f"{node.place} answers")


class Cluster:
    """The nodes of one folder that `init` wrote."""

    def __init__(
        self, folder: Path, nodes: int = 3, options: Sequence[str] = (), program: Path = PROJECT
    ) -> None:
        self.folder = folder
        port = free_client_port(nodes)
        written = run_ticketing(
            *("init", "--nodes", str(nodes), "--dir", folder, "--client-port", str(port)),
            *options,
            folder=folder.parent,
            within_s=60,
            program=program,
        )
        assert written.status == 0, written
        self.nodes = [NodeProcess(folder / f"node-{number}") for number in range(1, nodes + 1)]
        for node in self.nodes:
            node.program = program
        self.token = self.nodes[0].client_token

    @property
    def addresses(self) -> list[str]:
        """Client addresses of all places."""
        return [node.client for node in self.nodes]

    def start(self) -> None:
        for node in self.nodes:
            node.start()

    def by_address(self, client: str) -> NodeProcess:
        return next(node for node in self.nodes if node.client == client)

    def others(self, *but: NodeProcess) -> list[NodeProcess]:
        return [node for node in self.nodes if node not in but]

    async def leader(self, among: Iterable[NodeProcess] = (), within_s: float = 20.0) -> NodeProcess:
        """The node that serves, and that every node which answers (of `among`, or all) names as its leader."""
        asked = list(among) or self.nodes

        async def agreed() -> NodeProcess | None:
            found = [status for status in await asyncio.gather(*(node.status() for node in asked)) if status]
            serving = [status for status in found if status["serving"]]
            if len(serving) != 1:
                return None
            place = serving[0]["place"]
            if any(status["leader"] is None or status["leader"]["place"] != place for status in found):
                return None
            return next(node for node in asked if node.place == place)

        return await until_told(agreed, "one node serves, and all agree who", within_s)

    async def whole(self, within_s: float = 30.0) -> NodeProcess:
        """Waits until each place has its one living voter and nothing is under way; the leader."""

        async def filled() -> NodeProcess | None:
            statuses = await asyncio.gather(*(node.status() for node in self.nodes))
            leading = next((status for status in statuses if status and status["serving"]), None)
            if leading is None or None in statuses:
                return None
            raft, places = leading["raft"], sorted(node.place for node in self.nodes)
            voters = [member for member in raft["members"] if member["role"] == "voter"]
            living = {(status["place"], status["node_id"]) for status in statuses if status}
            if (
                raft["joint"]
                or leading["membership"]["replacements"]
                or len(voters) != len(raft["members"])
                or sorted(voter["place"] for voter in voters) != places
                or {(voter["place"], voter["node_id"]) for voter in voters} != living
                or any(status and status["role"] not in ("leader", "follower") for status in statuses)
            ):
                return None
            return next(node for node in self.nodes if node.place == leading["place"])

        return await until_told(filled, "every place has its voter", within_s)

    def end(self) -> None:
        for node in self.nodes:
            node.end()

    def logs(self) -> str:
        """What the nodes said last, for the message of a test that failed."""
        return "\n".join(f"--- {node.place} ({node.folder})\n{node.log_end()}" for node in self.nodes)


def free_client_port(nodes: int) -> int:
    """A port from which `init` may count up: clients, peers + 1000, admins + 2000.

    From below the range that the system hands to outgoing connections.
    """
    for _ in range(1000):
        port = 10_000 + secrets.randbelow(20_000)
        wanted = [port + offset + number for offset in (0, 1000, 2000) for number in range(nodes)]
        if all(map(port_is_free, wanted)):
            return port
    raise AssertionError("no free ports on loopback")


def port_is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


@contextlib.contextmanager
def occupied(address: str) -> Iterator[None]:
    """Somebody else listens on this address meanwhile."""
    host, _, port = address.rpartition(":")
    with socket.create_server((host, int(port))):
        yield


def _state(pid: int) -> str:
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    return stat.rpartition(")")[2].split()[0]


_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def _die_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
