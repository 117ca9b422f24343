"""`ticketing node restart`: one node after the other, each back in its place before the next goes.

A node that runs from a folder of this machine is started again by this command, detached. Any other ends with the
status that asks whatever supervises it to start it again, or a person does; this command waits for that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ticketing.cli.admin_client import AdminAccess, Answer, all_failed, ask_all
from ticketing.cli.admin_leader import Leader
from ticketing.cli.cluster_status import cluster_status
from ticketing.cli.errors import CommandFailed, ExitCode, say, usage_error
from ticketing.cli.local_nodes import home_here, start_detached
from ticketing.cli.node_stop import place_of, serving, stop_node, wait_for_leader
from ticketing.cli.output import write_json, write_line

MAY_STOP_S = 60.0
"""A replacement or an election that is under way is waited for."""

_POLL_S = 0.3


class Restart:
    """One run over some places."""

    def __init__(
        self,
        access: AdminAccess,
        folder: Path,
        *,
        supervised: bool,
        wait_s: float,
        reason: str,
        clock_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`folder`: the cluster's, in which nodes of this machine are looked for. `supervised`: start none here."""
        self._access = access
        self._folder = folder
        self._supervised = supervised
        self._wait_s = wait_s
        self._reason = reason
        self._clock_s = clock_s
        self._sleep = sleep
        self._leader = Leader(access)

    def run(self, places: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
        """Restarts these places (name and admin address), the leader's last; what came of each."""
        answers = self._healthy()
        leader = serving(answers)
        ordered = sorted(places, key=lambda place: place[0] == leader)
        return [self._one(place, address) for place, address in ordered]

    def _one(self, place: str, address: str) -> dict[str, Any]:
        started_s = self._clock_s()
        old = self._incarnation(place)
        if serving(ask_all(self._access, "/v1/status")) == place:
            self._leader.post("/v1/transfer", {"to": None, "reason": self._reason})
            after = wait_for_leader(self._access, lambda found: found != place)
            say(f"{place}: gave the lead to {after}")
        self._until_it_may_stop(place)
        home = None if self._supervised else home_here(self._folder, place)
        stop_node(self._access, place, address, reason=self._reason, again=home is None)
        if home is not None:
            start_detached(home)
            say(f"{place}: stopped and started again; it asks for its place")
        else:
            say(f"{place}: stopped; waiting for it to be started again on its host")
        node_id = self._until_back(place, old)
        took_s = self._clock_s() - started_s
        say(f"{place}: back as node {node_id} after {took_s:.1f} s")
        return {"place": place, "node_id": node_id, "seconds": round(took_s, 1)}

    def _healthy(self) -> list[Answer]:
        answers = ask_all(self._access, "/v1/status")
        if all(answer.facts is None for answer in answers):
            raise all_failed(answers)
        faults = cluster_status(answers)["faults"]
        if serving(answers) is None:
            raise CommandFailed("no leader serves: " + "; ".join(faults), ExitCode.UNREACHABLE)
        if len(answers) == 1:
            raise CommandFailed("a standalone node takes its locks along: stop and start it by hand")
        if faults:
            raise CommandFailed(
                "nothing is restarted while something is wrong: " + "; ".join(faults),
                ExitCode.UNHEALTHY,
                hint="`ticketing doctor` and `ticketing status` tell more",
            )
        return answers

    def _incarnation(self, place: str) -> str:
        facts = self._facts(place)
        return str((facts or {}).get("incarnation"))

    def _facts(self, place: str) -> dict[str, Any] | None:
        answers = ask_all(self._access, "/v1/status", timeout_s=1.0)
        return next((answer.facts for answer in answers if answer.place == place), None)

    def _until_it_may_stop(self, place: str) -> None:
        deadline_s = self._clock_s() + MAY_STOP_S
        told = ""
        while True:
            answer = self._leader.get("/v1/can-stop", {"place": place})
            if answer.get("can_stop"):
                return
            reason = str(answer.get("reason"))
            if self._clock_s() > deadline_s:
                raise CommandFailed(
                    f"{place} may not stop: {reason}", hint="those before it are done; run it again later"
                )
            if reason != told:
                say(f"{place}: waiting until it may stop: {reason}")
                told = reason
            self._sleep(_POLL_S)

    def _until_back(self, place: str, old: str) -> str:
        """Its NodeId, once a new process votes in its place and as many nodes may fail as before."""
        deadline_s = self._clock_s() + self._wait_s
        full = (len(self._access.nodes) - 1) // 2
        while self._clock_s() < deadline_s:
            answers = ask_all(self._access, "/v1/status", timeout_s=1.0)
            facts = next((a.facts for a in answers if a.place == place and a.facts is not None), None)
            view = cluster_status(answers)
            if (
                facts is not None
                and str(facts.get("incarnation")) != old
                and facts.get("role") in ("follower", "leader")
                and view["served"]
                and view["redundancy"] == full
            ):
                return str(facts.get("node_id"))
            self._sleep(_POLL_S)
        raise CommandFailed(
            f"{place} did not come back within {self._wait_s:g} s",
            ExitCode.UNREACHABLE,
            hint="start it in its folder with `ticketing node start`; when `ticketing status` shows it as a voter,"
            " run this again for the rest (--node N)",
        )


def restart(
    access: AdminAccess,
    folder: Path,
    node: str | None,
    *,
    rolling: bool,
    supervised: bool,
    wait_s: float,
    reason: str,
    as_json: bool,
) -> int:
    """The command."""
    if rolling == (node is not None):
        raise usage_error("either --rolling (every node, one after the other) or --node N is wanted")
    places = list(access.nodes) if node is None else [place_of(access, node)]
    done = Restart(access, folder, supervised=supervised, wait_s=wait_s, reason=reason).run(places)
    if as_json:
        write_json({"restarted": done})
    else:
        write_line(f"restarted {', '.join(row['place'] for row in done)}")
    return ExitCode.DONE
