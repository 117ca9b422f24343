"""The cluster as its operator has it: made by `ticketing init`, watched over the admin plane, changed by commands."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp

from tests.chaos.machines import Machine
from tests.chaos.network import Network
from tests.e2e.cluster import COMMAND, Ended, environment
from ticketing.config.client_file import read_admin_file

OPERATOR = "ops"
LOOK_EVERY_S = 0.4
ANSWER_S = 1.0
FOLDER = "ticketing-cluster"


class Look(NamedTuple):
    """What was seen at one moment."""

    at: float
    leader: str | None
    """The machine that serves."""
    voters: frozenset[str]
    """Machines whose present process votes, by the leader's word and its own."""
    whole: bool
    """Every place has its voter and no change is under way."""


NOTHING = Look(0.0, None, frozenset(), whole=False)


class ChaosCluster:
    """Folders, machines and eyes."""

    def __init__(self, folder: Path, network: Network, nodes: int, spares: int) -> None:
        self.folder = folder
        self.home = folder / "ops"
        self.home.mkdir(parents=True)
        self.nodes = nodes
        names = [f"n{number}" for number in range(1, nodes + spares + 1)]
        self.machines = {name: Machine(name, folder / "hosts" / name, network) for name in names}
        self.seen = NOTHING
        self.on_look: Callable[[], None] = lambda: None
        self.told: list[str] = []
        """The operator's commands that did not end with 0, and what they said."""
        self._voters: dict[str, int] = {}
        """By machine: the process that was seen to vote last."""
        self._http: aiohttp.ClientSession | None = None

    @property
    def config(self) -> Path:
        return self.home / FOLDER

    @property
    def placed(self) -> list[Machine]:
        """The hosts that have a place, in the order of the places."""
        found = [machine for machine in self.machines.values() if machine.place is not None]
        return sorted(found, key=lambda machine: machine.place or "")

    async def make(self) -> None:
        """Writes the cluster and copies each node's folder to its host."""
        hosts = list(self.machines.values())[: self.nodes]
        words = [word for machine in hosts for word in ("--host", machine.address)]
        ended = await self.run("init", "--nodes", str(self.nodes), *words, must=True)
        assert ended.status == 0
        for number, machine in enumerate(hosts, start=1):
            machine.receive(f"node-{number}", self.config / f"node-{number}")
        access = read_admin_file(self.config / "admin.toml")
        authority = str(self.config / "ca" / "ca.pem")
        self._http = aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {access.token}"},
            connector=aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=authority)),
            timeout=aiohttp.ClientTimeout(total=ANSWER_S),
        )

    async def close(self) -> None:
        if self._http is not None:
            await self._http.close()

    # --- the operator's hand

    async def run(self, *words: str, within_s: float = 60.0, must: bool = False) -> Ended:
        """One command of the operator's."""
        process = await asyncio.create_subprocess_exec(
            *COMMAND,
            *words,
            cwd=self.home,
            env=environment(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(within_s):
                out, error = await process.communicate()
        except TimeoutError:
            process.kill()
            out, error = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert process.returncode is not None
        ended = Ended(process.returncode, out.decode(), error.decode())
        if ended.status:
            self.told.append(f"ticketing {' '.join(words)} -> {ended.status}: {ended.error.strip()[-500:]}")
            assert not must, self.told[-1]
        assert "Traceback" not in ended.error, f"ticketing {' '.join(words)}: {ended.error}"
        return ended

    async def post(self, machine: Machine, path: str, body: dict[str, Any]) -> int:
        """A command of the admin plane; the status of its answer, 0 without one."""
        assert self._http is not None
        try:
            async with self._http.post(f"https://{machine.address}:7225{path}", json=body) as answer:
                await answer.read()
                return answer.status
        except (aiohttp.ClientError, TimeoutError, OSError):
            return 0

    # --- the operator's eyes

    async def watch(self) -> None:
        """Looks again and again, until it is cancelled."""
        while True:
            began = time.monotonic()
            await self.look()
            await asyncio.sleep(max(0.05, began + LOOK_EVERY_S - time.monotonic()))

    async def look(self) -> Look:
        """Asks every node that can answer, and puts together what they say."""
        asked = [machine for machine in self.placed if machine.running and not machine.paused]
        answers = await asyncio.gather(*(self._status(machine) for machine in asked))
        statuses = {
            machine.name: answer
            for machine, answer in zip(asked, answers, strict=True)
            if answer is not None and answer["process"]["pid"] == machine.pid
        }
        self.seen = _put_together(statuses, [machine.name for machine in self.placed])
        self._voters.update({name: int(statuses[name]["process"]["pid"]) for name in self.seen.voters})
        self.on_look()
        return self.seen

    def votes(self, machine: Machine) -> bool:
        """Whether its present process is known as a voter, be there a leader now or not."""
        return machine.running and self._voters.get(machine.name) == machine.pid

    async def _status(self, machine: Machine) -> dict[str, Any] | None:
        assert self._http is not None
        try:
            async with self._http.get(f"https://{machine.address}:7225/v1/status") as answer:
                return json.loads(await answer.read()) if answer.status == 200 else None
        except (aiohttp.ClientError, TimeoutError, OSError):
            return None

    async def until(self, ready: Callable[[Look], bool], within_s: float) -> bool:
        """Whether it comes to that within the time."""
        deadline = time.monotonic() + within_s
        while not ready(self.seen):
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(0.05)
        return True

    async def until_whole(self, within_s: float) -> bool:
        """Whether every place gets its voter."""
        since = time.monotonic()
        return await self.until(lambda seen: seen.whole and seen.at > since, within_s)

    def leader(self) -> Machine | None:
        """Who served when it was last looked at."""
        return self.machines[self.seen.leader] if self.seen.leader is not None else None


def _put_together(statuses: Mapping[str, Any], placed: list[str]) -> Look:
    now = time.monotonic()
    serving = [name for name, status in statuses.items() if status["serving"]]
    if not serving:
        return Look(now, None, frozenset(), whole=False)
    # Two may say so for a moment: the one with the higher term is right.
    leader = max(serving, key=lambda name: int(statuses[name]["raft"]["term"]))
    told = statuses[leader]
    raft = told["raft"]
    members = {member["incarnation"]: member for member in raft["members"]}
    voters = frozenset(
        name
        for name, status in statuses.items()
        if status["role"] in ("leader", "follower")
        and members.get(status["incarnation"], {}).get("role") == "voter"
    )
    whole = (
        not raft["joint"]
        and not told["membership"]["replacements"]
        and len(members) == len(placed)
        and voters == frozenset(placed)
    )
    return Look(now, leader, voters, whole)
