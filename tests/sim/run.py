"""One run from its seed, and what it came to."""

from __future__ import annotations

import hashlib
import sys
import time
import traceback
from typing import NamedTuple

from tests.sim.scenario import Scenario


class Result(NamedTuple):
    """What one run came to."""

    seed: int
    failure: str
    """Empty where nothing was violated."""
    events: int
    virtual_ns: int
    cpu_s: float
    grants: int
    leads: int
    conflicts: int
    changes: int
    snapshots: int
    digest: str = ""
    """Of the run's log, where that was asked for."""


class _Unraisable:
    """What is raised where Python can only print it: in the end of an object. A finding like any other.

    An object that stands in a cycle may end in a later run than its own.
    """

    def __init__(self) -> None:
        self.found: list[str] = []
        self._former = sys.unraisablehook

    def __enter__(self) -> _Unraisable:
        sys.unraisablehook = self._note
        return self

    def __exit__(self, *_error: object) -> None:
        sys.unraisablehook = self._former

    def _note(self, raised: sys.UnraisableHookArgs) -> None:
        self.found.append(f"Unraisable: {raised.exc_value!r} in {raised.object!r}")


def run_seed(seed: int, *, log: bool = False, digest: bool = False) -> Result:
    """One run; its log goes to standard output. `digest`: of the log, whether or not it is printed."""
    began_s = time.process_time()
    summed = hashlib.sha256()

    def say(line: str) -> None:
        if log:
            print(line)
        summed.update(line.encode())

    scenario = Scenario(seed, log=say if log or digest else None)
    failure = ""
    with _Unraisable() as unraisable:
        try:
            scenario.run()
        except BrokenPipeError:
            raise
        except Exception as error:  # whatever a node raises is a finding, as is a violated rule
            failure = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            if log:
                traceback.print_exc(file=sys.stdout)
    failure = failure or "; ".join(unraisable.found)
    world, invariants = scenario.world, scenario.invariants
    return Result(
        seed,
        failure,
        world.events,
        world.now,
        time.process_time() - began_s,
        len(scenario.history.holds),
        invariants.leads,
        invariants.conflicts,
        invariants.changes,
        invariants.snapshots,
        summed.hexdigest() if digest else "",
    )
