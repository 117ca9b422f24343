"""The load of the runbook's test: started on the operator's machine, and judged by all that it saw."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.e2e.cluster import PROJECT
from tests.e2e.cluster import _die_with_parent as die_with_parent
from tests.operations.load_job import HELD
from tests.operations.machines import Machines


class Load:
    """One `load_job` process."""

    def __init__(self, machines: Machines, client_file: Path, seen: Path) -> None:
        self._seen = seen
        self._errors = seen.with_suffix(".err")
        with seen.open("wb") as out, self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [*machines.prefix(), sys.executable, "-m", "tests.operations.load_job", str(client_file)],
                cwd=PROJECT,
                env=machines.environment(),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=errors,
                preexec_fn=die_with_parent,
            )

    def events(self, what: str | None = None) -> list[dict[str, Any]]:
        """What it has told so far, whole lines only."""
        lines = self._seen.read_text().split("\n")[:-1]
        told = [json.loads(line) for line in lines]
        return [event for event in told if what in (None, event["what"])]

    def await_event(self, what: str, within_s: float = 20.0, count: int = 1) -> dict[str, Any]:
        """The last event of a kind, once there are so many."""
        deadline = time.monotonic() + within_s
        while len(found := self.events(what)) < count:
            assert self._process.poll() is None, self._errors.read_text()
            assert time.monotonic() < deadline, f"no {what!r} of the load within {within_s:g} s"
            time.sleep(0.05)
        return found[-1]

    def goes_on(self, within_s: float = 15.0) -> None:
        """A turn that is asked for from now on is had."""
        now = time.monotonic()
        deadline = now + within_s
        while not any(event["asked"] > now for event in self.events("turn")):
            assert time.monotonic() < deadline, f"no turn was had within {within_s:g} s"
            time.sleep(0.05)

    def reopen(self) -> None:
        """It uses what its file says now."""
        count = len(self.events("reopened"))
        self._process.send_signal(signal.SIGHUP)
        self.await_event("reopened", count=count + 1)

    def finish(self, within_s: float = 30.0) -> None:
        """It gives everything back and ends by itself."""
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(within_s) == 0, self._errors.read_text()

    def end(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(10)

    # --- judgement

    def judge(self, longest_pause_s: float) -> None:
        """Nothing that was answered was lost, nobody held what another held, and nothing stood still for long."""
        turns = self.events("turn")
        assert len(turns) > 100, turns
        lost = [turn for turn in turns if turn["held"] is False and turn["left_s"] > 0]
        assert not lost, f"granted, and not held before its end: {lost}"
        for key in sorted({turn["key"] for turn in turns}):
            own = sorted((turn for turn in turns if turn["key"] == key), key=lambda turn: turn["token"])
            for former, later in pairwise(own):
                assert later["token"] > former["token"], (former, later)
                assert later["granted"] >= former["released"], (former, later)
            pauses = [later["granted"] - former["granted"] for former, later in pairwise(own)]
            assert max(pauses) < longest_pause_s, f"{key}: nobody had a turn for {max(pauses):.1f} s"
        assert not self.events("not reopened")

    def judge_held(self) -> None:
        """What was held all along was held to its end: until it was given back, or its lease was over on a machine
        that took its time.
        """
        held = {event["key"]: event["token"] for event in self.events("held")}
        assert len(held) == HELD
        back = self.events("given back")
        assert {event["key"]: event["token"] for event in back} == held
        lost = [event for event in back if not event["held"] and event["left_s"] > 0]
        assert not lost, lost
