"""Systems side by side: `python -m benchmarks.compare ours`, or `single replicated open` for all of them.

Acts: `ours` (the product and the reference servers), `single` (the same, with Redis and dflockd), `replicated` (three
nodes: the product, etcd, ZooKeeper, PySyncObj), `open` (open loop; needs the closed-loop figures of the others in the
results). Client and all servers share the machine's cores; nothing is pinned. Each figure of each round is kept in
the results; medians are shown.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from benchmarks import plan
from benchmarks.figures import table
from benchmarks.load.figures import Figures
from benchmarks.load.process import LoadProcess
from benchmarks.peers import MissingError, install
from benchmarks.plan import Act, Entrant, Workload
from benchmarks.published import TOOLS, published_client
from benchmarks.results import Results
from benchmarks.systems.processes import cpu_ns
from benchmarks.systems.system import System

WARM_UP_S = 0.2
OPEN_WARM_UP_S = 0.5
WARMING_WORKERS = 64
IDLE_S = 2.0
OPEN = "open"


class Stage:
    """The running systems of an act, with a connected client process for each entrant."""

    def __init__(self, entrants: Sequence[Entrant], stack: contextlib.ExitStack) -> None:
        self.systems: dict[str, System] = {}
        self.loads: dict[Entrant, LoadProcess] = {}
        self.failed: dict[Entrant, str] = {}
        """Entrants whose client has ended, and why. The others go on; the whole ends with an error."""
        published = {"published": str(published_client())}
        for name in dict.fromkeys(one.system for one in entrants):
            self.systems[name] = stack.enter_context(plan.SYSTEMS[name]())
        for one in entrants:
            load = LoadProcess(
                self.systems[one.system],
                plan.CLIENTS[one.system][one.client],
                published if one.client == "published" else None,
            )
            stack.callback(load.close)
            load.ready()
            self.loads[one] = load
        for one, load in self.loads.items():
            warm_up_s = self.systems[one.system].warm_up_s
            if warm_up_s:
                load.closed(WARMING_WORKERS, WARMING_WORKERS, warm_up_s, 0.0)

    def run(self, one: Entrant, job: Callable[[LoadProcess], Figures]) -> Figures | None:
        """The figures of a job; None where it fails, as all further ones of that entrant will."""
        if one in self.failed:
            return None
        try:
            return job(self.loads[one])
        except RuntimeError as failure:
            self.failed[one] = str(failure)
            print(f"{one.system}, {one.client} is out: {failure}", file=sys.stderr, flush=True)
            return None

    def idle_share(self) -> float:
        """The share of one core that all systems together take while nobody asks."""
        pids = [pid for system in self.systems.values() for pid in system.pids()]
        before = cpu_ns(pids)
        time.sleep(IDLE_S)
        return (cpu_ns(pids) - before) / IDLE_S / 1e9


@contextlib.contextmanager
def staged(entrants: Sequence[Entrant]) -> Iterator[Stage]:
    with contextlib.ExitStack() as stack:
        yield Stage(entrants, stack)


def run_act(
    act: Act, results: Results, rounds: int, seconds: float, say: Callable[[str], None]
) -> dict[Entrant, str]:
    """Every workload of the act in each round; who failed, and how."""
    results.forget(act.name)
    with staged(act.entrants()) as stage:
        share = stage.idle_share()
        results.note(act.name, {name: one.version() for name, one in stage.systems.items()}, share)
        say(f"{act.name}: {len(stage.systems)} systems, idle {share:.1%} of a core together")
        for number in range(rounds):
            for workload in act.workloads:
                for one in in_turn(workload.entrants, number):
                    figures = stage.run(one, partial(run_workload, workload=workload, seconds=seconds))
                    if figures is None:
                        continue
                    results.add_run(act.name, workload.name, *one, number, figures)
                    say(
                        f"  {number + 1}/{rounds} {workload.name:10} {one.system:16} {one.client:16} {told(figures)}"
                    )
        return stage.failed


def run_workload(load: LoadProcess, workload: Workload, seconds: float) -> Figures:
    if workload.keys:
        return load.closed(workload.workers, workload.keys, seconds, WARM_UP_S)
    return load.burst(workload.workers, plan.HEADLINE_KEYS)


def run_open(
    entrants: Sequence[Entrant], results: Results, rounds: int, seconds: float, say: Callable[[str], None]
) -> dict[Entrant, str]:
    """Every rate in each round; who failed, and how."""
    results.forget(OPEN)
    with staged(entrants) as stage:
        results.note(OPEN, {name: one.version() for name, one in stage.systems.items()}, stage.idle_share())
        for number in range(rounds):
            for share in plan.OPEN_SHARES:
                for one in in_turn(entrants, number):
                    closed = results.median_of(("replicated", "single", "ours"), plan.OWN_64, one, "rate")
                    if closed is None:
                        raise SystemExit(f"no closed-loop figure of {one}: run the act that has it first")
                    rate = closed * share / 100
                    figures = stage.run(one, partial(run_rate, rate=rate, seconds=seconds))
                    if figures is None:
                        continue
                    results.add_run(OPEN, f"open-{share}", *one, number, figures, rate)
                    say(
                        f"  {number + 1}/{rounds} open {share} %  {one.system:16} {one.client:16} {told(figures)}"
                    )
        return stage.failed


def run_rate(load: LoadProcess, rate: float, seconds: float) -> Figures:
    return load.open(rate, seconds, OPEN_WARM_UP_S)


def in_turn(entrants: Sequence[Entrant], number: int) -> list[Entrant]:
    """Who goes first changes from round to round."""
    return list(entrants) if number % 2 == 0 else list(reversed(entrants))


def told(figures: Figures) -> str:
    return (
        f"{figures['rate']:>10,.0f}/s  p50 {figures['p50_us']:>9,.0f} µs  p99 {figures['p99_us']:>9,.0f} µs"
        f"  server {figures['server_cpu_us']:>7.1f} µs/pair  client {figures['client_cpu_us']:>6.1f}"
    )


def summary(results: Results, act: str) -> str:
    """Medians of an act, for the terminal."""
    rows = []
    seen = {
        (one["workload"], one["system"], one["client"]): None
        for one in results.facts["runs"]
        if one["act"] == act
    }
    for workload, system, client in seen:
        runs = list(results.runs(act, workload, Entrant(system, client)).values())

        def median(name: str, runs: list[Figures] = runs) -> float:
            return statistics.median(float(run[name]) for run in runs)  # type: ignore[literal-required]

        rows.append(
            [
                f"{workload}  {plan.SYSTEMS[system].title}, {client}",
                f"{median('rate'):,.0f}",
                f"{median('p50_us'):,.0f}",
                f"{median('p99_us'):,.0f}",
                f"{median('server_cpu_us'):.1f}",
                f"{median('client_cpu_us'):.1f}",
                str(sum(run["overtaken"] for run in runs)),
            ]
        )
    header = [
        "workload, system, client",
        "pairs/s",
        "p50 µs",
        "p99 µs",
        "server CPU µs",
        "client CPU µs",
        "overtaken",
    ]
    return table(header, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("acts", nargs="+", choices=[*plan.ACTS, OPEN])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0, help="measured time of each closed-loop run")
    parser.add_argument("--open-seconds", type=float, default=2.0, help="and of each open-loop run")
    parser.add_argument("--open-rounds", type=int, default=2)
    parser.add_argument(
        "--without", nargs="*", default=[], choices=list(plan.SYSTEMS), help="systems to leave out"
    )
    parser.add_argument("--results", type=Path, default=TOOLS / "results.json", help="the file to add to")
    arguments = parser.parse_args()
    if set(arguments.acts) != {"ours"}:
        try:
            install(without=arguments.without)
        except MissingError as missing:
            raise SystemExit(str(missing)) from None

    def say(line: str) -> None:
        print(line, flush=True)

    failed: dict[Entrant, str] = {}
    for name in arguments.acts:
        with Results.extend(arguments.results) as results:
            if name == OPEN:
                entrants = [one for one in plan.OPEN_ENTRANTS if one.system not in arguments.without]
                failed |= run_open(entrants, results, arguments.open_rounds, arguments.open_seconds, say)
            else:
                act = plan.ACTS[name].without(arguments.without)
                failed |= run_act(act, results, arguments.rounds, arguments.seconds, say)
        print(summary(results, name))
    if failed:
        sys.exit("\n".join(f"{one.system}, {one.client}: {why}" for one, why in failed.items()))


if __name__ == "__main__":
    main()
