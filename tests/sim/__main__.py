"""Runs the simulator: `python -m tests.sim --seed N [--log]`, or `--seeds A..B [--jobs N] [--minutes M]`."""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
import traceback
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

from tests.sim.scenario import Scenario
from tests.sim.world import S

CHUNK = 10


class Result(NamedTuple):
    """What one run came to."""

    seed: int
    failure: str
    """Empty where nothing was violated."""
    events: int
    virtual_ns: int
    real_s: float
    grants: int
    leads: int
    snapshots: int


def run_seed(seed: int, *, log: bool = False, digest: bool = False) -> Result:
    """One run; its log goes to standard output, or only its digest."""
    began = time.perf_counter()
    summed = hashlib.sha256()

    def say(line: str) -> None:
        if log:
            print(line)
        summed.update(line.encode())

    scenario = Scenario(seed, log=say if log or digest else None)
    failure = ""
    try:
        scenario.run()
    except AssertionError as error:
        failure = f"{type(error).__name__}: {error}" if str(error) else "AssertionError"
        if log:
            traceback.print_exc(file=sys.stdout)
    except BrokenPipeError:
        raise
    except Exception as error:  # whatever a node raises is a finding
        failure = f"{type(error).__name__}: {error}"
        if log:
            traceback.print_exc(file=sys.stdout)
    if digest:
        print(f"digest {summed.hexdigest()}")
    world, invariants = scenario.world, scenario.invariants
    return Result(
        seed,
        failure,
        world.events,
        world.now,
        time.perf_counter() - began,
        len(scenario.history.holds),
        invariants.leads,
        invariants.snapshots,
    )


def run_many(first: int, last: int, *, jobs: int, minutes: float, only_first: bool = False) -> int:
    """Seeds first..last, as far as the time allows or up to the first violation; 1 where one was violated."""
    began = time.monotonic()
    until = began + minutes * 60 if minutes else float("inf")
    results: list[Result] = []
    failed: list[Result] = []

    def note(result: Result) -> None:
        results.append(result)
        if result.failure:
            failed.append(result)
            print(f"seed {result.seed}: {result.failure[:600]}", flush=True)

    if jobs <= 1:
        for seed in range(first, last + 1):
            if time.monotonic() > until or (only_first and failed):
                break
            note(run_seed(seed))
    else:
        with ProcessPoolExecutor(jobs) as pool:
            seed = first
            while seed <= last and time.monotonic() < until:
                upto = min(seed + CHUNK * jobs, last + 1)
                for result in pool.map(run_seed, range(seed, upto)):
                    note(result)
                seed = upto
    summary(results, failed, time.monotonic() - began)
    return 1 if failed else 0


def summary(results: list[Result], failed: list[Result], real_s: float) -> None:
    """How much was seen, and how fast."""
    events = sum(result.events for result in results)
    virtual_s = sum(result.virtual_ns for result in results) / S
    print(
        f"{len(results)} seeds, {len(failed)} violated; {events} events, {events / max(real_s, 1e-9):.0f}/s; "
        f"virtual {virtual_s:.0f} s : real {real_s:.1f} s = {virtual_s / max(real_s, 1e-9):.0f}; "
        f"{sum(r.grants for r in results)} grants, {sum(r.leads for r in results)} leads, "
        f"{sum(r.snapshots for r in results)} snapshots"
    )


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seed", type=int, help="replay one run")
    parser.add_argument("--log", action="store_true", help="print what happens")
    parser.add_argument("--digest", action="store_true", help="print a digest of the log")
    parser.add_argument("--seeds", help="A..B, both included")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=0.0, help="stop after so long")
    parser.add_argument("--first", action="store_true", help="stop at the first violation")
    arguments = parser.parse_args()
    if arguments.seed is not None:
        result = run_seed(arguments.seed, log=arguments.log, digest=arguments.digest)
        print(result.failure or "no violation")
        summary([result], [result] if result.failure else [], result.real_s)
        return 1 if result.failure else 0
    first, _, last = (arguments.seeds or "0..99").partition("..")
    return run_many(
        int(first),
        int(last or first),
        jobs=arguments.jobs,
        minutes=arguments.minutes,
        only_first=arguments.first,
    )


if __name__ == "__main__":
    sys.exit(main())
