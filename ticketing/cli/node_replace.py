"""`ticketing node replace`: another process, here or on another host, takes a place over.

A folder is prepared for it, the leader is told, and once the process runs it joins, catches up, and is swapped in.
Every step may be interrupted: the same command goes on where it stood, and `--undo` takes it back up to the swap.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from ticketing.cli.admin_client import AdminAccess, AdminError, call, failed, operator
from ticketing.cli.admin_leader import Leader, new_id
from ticketing.cli.confirm import confirm
from ticketing.cli.errors import CommandFailed, ExitCode, say
from ticketing.cli.local_nodes import LOG, last_lines, running_here, start_detached
from ticketing.cli.node_list import describe_change
from ticketing.cli.node_stop import place_of
from ticketing.cli.output import write_json, write_line
from ticketing.config.addresses import is_loopback, parse_address
from ticketing.config.layout import NODE_FILE
from ticketing.config.load import load_node
from ticketing.config.replacement_folder import (
    Prepared,
    announce_move,
    announce_to_clients,
    default_folder,
    prepare,
    read_command,
    settle,
)
from ticketing.node.settings import OperatorCommand, Place

ENDED_S = 10.0
_POLL_S = 0.3


class Wanted(NamedTuple):
    """The options of the command."""

    node: str
    host: str | None = None
    folder: Path | None = None
    reason: str = ""
    start: bool = False
    undo: bool = False
    wait: bool = True
    yes: bool = False
    as_json: bool = False


class Seen(NamedTuple):
    """What the leader says of the place."""

    node_id: str | None
    """Of its voter."""
    came_by: str
    """The operator's command by which that voter came, or empty."""
    change: dict[str, Any] | None
    """What is under way for it."""


class Replace:
    """One replacement, as far as it can be followed from here."""

    def __init__(
        self,
        access: AdminAccess,
        cluster: Path,
        wanted: Wanted,
        *,
        clock_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._access = access
        self._cluster = cluster
        self._wanted = wanted
        self._clock_s = clock_s
        self._sleep = sleep
        self._leader = Leader(access)
        self._place = place_of(access, wanted.node)[0]
        self._target = wanted.folder or default_folder(cluster, self._place)

    def run(self) -> int:
        """The command: prepares, starts or says how, and follows until the new process votes."""
        old_id = self._look().node_id
        if not (self._target / "state").exists():
            self._confirm()
        command = OperatorCommand(
            command_id=new_id(), who=operator(), why=self._wanted.reason or "ticketing node replace"
        )
        prepared = prepare(self._cluster, self._place, self._target, command, host=self._wanted.host)
        done = self._announce(prepared)
        if not done:
            self._begin(prepared)
            if not self._wanted.wait:
                self._tell({"place": self._place, "state": "announced", "folder": str(prepared.folder)})
                return ExitCode.DONE
            self._follow(prepared, old_id)
        self._finish(prepared)
        return ExitCode.DONE

    def undo(self) -> int:
        """Takes it back, if it has not come to the swap, and removes the prepared folder."""
        known = read_command(self._target) if self._target.exists() else None
        body = {"command_id": known.command_id if known is not None else "", "reason": self._wanted.reason}
        self._leader.post(f"/v1/members/{self._place}/replace", body, method="DELETE")
        if self._target.exists() and running_here(self._target) is None and known is not None:
            shutil.rmtree(self._target)
            say(f"removed {self._target}")
        if self._wanted.as_json:
            write_json({"place": self._place, "state": "undone"})
        else:
            write_line(f"the replacement of {self._place} is undone; a process started for it ends by itself")
        return ExitCode.DONE

    # --- steps

    def _confirm(self) -> None:
        try:
            call(self._access, dict(self._access.nodes)[self._place], "GET", "/livez", timeout_s=1.0)
        except AdminError:
            return
        confirm(
            f"The process that fills {self._place} now lives: it is ended for good once the new one has caught up.",
            yes=self._wanted.yes,
        )

    def _look(self) -> Seen:
        """How it stands with the place now."""
        told = self._leader.get("/v1/members")
        rows = told.get("members") or []
        voter = next((r for r in rows if r.get("place") == self._place and r.get("role") == "voter"), None)
        changes = (row for row in told.get("changes") or [] if row.get("place") == self._place)
        if voter is None:
            return Seen(None, "", next(changes, None))
        return Seen(str(voter.get("node_id")), str(voter.get("command_id") or ""), next(changes, None))

    def _announce(self, prepared: Prepared) -> bool:
        """Tells the leader. Whether it is all over already."""
        command = prepared.command
        if command is None:
            return self._look().change is None
        place = prepared.place
        body = {
            "client": place.client,
            "peer": place.peer,
            "admin": place.admin,
            "reason": command.why,
            "id": command.command_id,
        }
        try:
            self._leader.try_ask("POST", f"/v1/members/{self._place}/replace", body, within_s=45.0)
        except AdminError as error:
            if error.code == "no_replace" and "already" in str(error):
                return True
            if not prepared.resumed:
                shutil.rmtree(prepared.folder, ignore_errors=True)
            raise failed(error) from None
        return False

    def _begin(self, prepared: Prepared) -> None:
        what = "going on with" if prepared.resumed else "prepared"
        say(f"{what} {prepared.folder}")
        if running_here(prepared.folder) is not None:
            say("its process runs here")
        elif self._wanted.start:
            home = self._cluster / self._place
            if _place_in(home, self._place) == prepared.place and running_here(home) is not None:
                raise CommandFailed(
                    f"{self._place} runs on this machine and has the same addresses: two cannot",
                    hint=f"`ticketing node restart --node {self._place}` starts it anew; --host moves it",
                )
            pid = start_detached(prepared.folder)
            say(f"started it here, process {pid}; its log is {prepared.folder / LOG}")
        elif prepared.command is not None:
            host = parse_address(prepared.place.client).host
            if is_loopback(host):
                say("start it:")
                say(f"  ticketing node start --config {prepared.folder / NODE_FILE}")
            else:
                say(f"copy {prepared.folder}/ to {host} and start it there:")
                say(f"  ticketing node start --config {prepared.folder.name}/{NODE_FILE}")
            say(
                "or run this again with --start, to start it here. Ctrl-C leaves it to be gone on with later."
            )

    def _follow(self, prepared: Prepared, old_id: str | None) -> None:
        """Until another process is the voter of the place and nothing is under way for it.

        One that goes on with an earlier call may come when all is over: then the voter came by this very command.
        """
        command_id = prepared.command.command_id if prepared.command is not None else ""
        told = ""
        started = running_here(prepared.folder) is not None
        while True:
            voter, came_by, change = self._look()
            other = voter is not None and (voter != old_id or (came_by == command_id != ""))
            if change is None and other:
                return
            if change is not None:
                line = describe_change(change)
                if line != told:
                    told = line
                    if self._wanted.as_json:
                        write_json(change)
                    else:
                        say(line)
            if started and running_here(prepared.folder) is None:
                raise CommandFailed(
                    f"the new process has ended:\n{last_lines(prepared.folder / LOG)}",
                    hint="when its reason is mended, run this again with --start; --undo takes it back",
                )
            self._sleep(_POLL_S)

    def _finish(self, prepared: Prepared) -> None:
        home = self._cluster / self._place
        old = _place_in(home, self._place)
        if old is not None and old != prepared.place:
            changed = announce_move(self._cluster, prepared.place)
            changed += announce_to_clients(self._cluster, old, prepared.place)
            for file in changed:
                say(f"wrote the new address into {file}")
            say("copy the changed files to their hosts and programs: running nodes know already")
        if self._wanted.folder is None:
            self._until_ended(home)
            running = running_here(prepared.folder) is not None
            former = settle(self._cluster, self._place, prepared.folder, running=running)
            say(f"{home} is the new node's now" + (f"; the former one is {former}" if former else ""))
        self._tell({"place": self._place, "state": "done", "node_id": self._look().node_id})

    def _until_ended(self, home: Path) -> None:
        """The process that was replaced ends by itself; its folder is left to it until then."""
        deadline_s = self._clock_s() + ENDED_S
        while running_here(home) is not None and self._clock_s() < deadline_s:
            self._sleep(_POLL_S)

    def _tell(self, result: dict[str, Any]) -> None:
        if self._wanted.as_json:
            write_json(result)
        elif result["state"] == "done":
            write_line(f"{self._place} is filled by node {result['node_id']}")
        else:
            write_line(f"{self._place} waits for its new process, {result['folder']}")


def _place_in(folder: Path, name: str) -> Place | None:
    if not (folder / NODE_FILE).is_file():
        return None
    places = load_node(folder).settings.node.places
    return next((place for place in places if place.name == name), None)
