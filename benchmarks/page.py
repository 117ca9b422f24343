"""Makes the tables and plots of docs/performance.md from the results: `python -m benchmarks.page`.

A table stands between `<!-- NAME: made by benchmarks.page -->` and `<!-- end -->`; what is between them is replaced.
Plots are docs/images/throughput.svg and docs/images/open-loop.svg.
"""

from __future__ import annotations

import argparse
import re
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks import plan
from benchmarks.failover import KINDS
from benchmarks.figures import percentile
from benchmarks.goals import GOALS, Goal
from benchmarks.plan import Entrant
from benchmarks.plot import Line, plot
from benchmarks.results import FILE, Results
from benchmarks.systems.processes import PROJECT

PAGE = PROJECT / "docs" / "performance.md"
IMAGES = PROJECT / "docs" / "images"
NOTHING = "\N{EN DASH}"
REFERENCES = ("null", "bare", "bare-replicated")

ROWS = (
    *(plan.NULL, plan.BARE, plan.BARE_REPLICATED, plan.STANDALONE, plan.CLUSTER, plan.CLUSTER_TLS),
    *(plan.STANDALONE_OURS, plan.CLUSTER_OURS, plan.CLUSTER_TLS_OURS),
    *(plan.REDIS, plan.DFLOCKD, plan.ETCD, plan.ETCD_FSYNC, plan.ZOOKEEPER, plan.PYSYNCOBJ),
)
RAW_ROWS = (
    *(plan.NULL_RAW, plan.BARE_RAW, plan.BARE_REPLICATED_RAW, plan.STANDALONE_RAW, plan.CLUSTER_RAW),
    *(plan.REDIS_RAW, plan.REDIS_RAW_OWNER),
)


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def name_of(entrant: Entrant) -> str:
    return f"{plan.SYSTEMS[entrant.system].title}; {entrant.client}"


class Reader:
    """Medians of the closed-loop workloads, from the act that an entrant runs in."""

    def __init__(self, results: Results) -> None:
        self.results = results

    def median(self, workload: str, entrant: Entrant, figure: str) -> float | None:
        acts = ("single", "ours", "replicated")
        return self.results.median_of(acts, workload, entrant, figure)

    def cell(self, workload: str, entrant: Entrant, figure: str, digits: int = 0) -> str:
        found = self.median(workload, entrant, figure)
        return NOTHING if found is None else f"{found:,.{digits}f}"


def goals(results: Results) -> str:
    rows = []
    for goal in GOALS:
        value, reached = goal.value(results), goal.reached(results)
        told = NOTHING if value is None else _with_unit(value, goal.unit)
        verdict = {True: "met", False: f"missed{_by(goal, value)}", None: "not measured"}[reached]
        rows.append(
            [goal.title, f"{'≤' if goal.at_most else '≥'} {_with_unit(goal.bound, goal.unit)}", told, verdict]
        )
    return markdown(["workload", "goal", "reached", ""], rows)


def _by(goal: Goal, value: float | None) -> str:
    if not value or not goal.bound:
        return ""
    return f", by a factor of {value / goal.bound if goal.at_most else goal.bound / value:.2f}"


def _with_unit(value: float, unit: str) -> str:
    if unit == "s":
        return f"{value:.3f} s"
    return f"{value:.1f} {unit}" if unit else f"{value:.2f}".removesuffix(".00")


def throughput(results: Results) -> str:
    read = Reader(results)
    rows = [
        [
            name_of(one),
            *(read.cell(workload, one, "rate") for workload in (plan.OWN_1, plan.OWN_16, plan.OWN_64)),
            read.cell(plan.OWN_1, one, "p50_us"),
            read.cell(plan.OWN_64, one, "p99_us"),
            read.cell(plan.HAND_OVER, one, "rate"),
            read.cell(plan.OWN_64, one, "server_cpu_us", 1),
            read.cell(plan.OWN_64, one, "client_cpu_us", 1),
        ]
        for one in ROWS
        if read.median(plan.OWN_64, one, "rate") is not None
    ]
    header = [
        *("system; client", "own keys: 1", "16", "64 workers, pairs/s", "1 worker: p50 µs", "64: p99 µs"),
        *("hand-overs/s, 4 keys, 64 workers", "64: server CPU µs/pair", "client CPU µs/pair"),
    ]
    return markdown(header, rows)


def raw(results: Results) -> str:
    read = Reader(results)
    rows = [
        [
            name_of(one),
            read.cell(plan.OWN_1, one, "p50_us"),
            read.cell(plan.OWN_64, one, "rate"),
            read.cell(plan.OWN_64, one, "p99_us"),
            read.cell(plan.OWN_64, one, "server_cpu_us", 1),
            read.cell(plan.OWN_64, one, "client_cpu_us", 1),
        ]
        for one in RAW_ROWS
        if read.median(plan.OWN_64, one, "rate") is not None
    ]
    header = [
        "system; client",
        "1 in flight: p50 µs",
        "64 in flight, pairs/s",
        "p99 µs",
        "server CPU µs/pair",
        "client CPU µs/pair",
    ]
    return markdown(header, rows)


def contended(results: Results) -> str:
    read = Reader(results)
    rows = []
    for one in ROWS:
        runs = [
            run
            for act in plan.ACTS
            for workload in (plan.HAND_OVER, plan.HEADLINE)
            for run in results.runs(act, workload, one).values()
        ]
        rate = read.median(plan.HAND_OVER, one, "rate")
        if rate is None:
            continue
        pairs, overtaken = sum(run["pairs"] for run in runs), sum(run["overtaken"] for run in runs)
        headline = read.median(plan.HEADLINE, one, "rate")
        rows.append(
            [
                name_of(one),
                f"{rate:,.0f}",
                read.cell(plan.HAND_OVER, one, "p50_us"),
                read.cell(plan.HAND_OVER, one, "max_us"),
                f"{plan.HEADLINE_REQUESTS / headline:.2f}" if headline else NOTHING,
                f"{overtaken / pairs:.0%}" if overtaken else f"0 of {pairs:,}",
            ]
        )
    header = [
        "system; client",
        "hand-overs/s",
        "wait p50 µs",
        "longest µs",
        "headline job, s",
        "grants out of order",
    ]
    return markdown(header, rows)


def open_loop(results: Results) -> str:
    rows = []
    for one in plan.OPEN_ENTRANTS:
        for share in plan.OPEN_SHARES:
            runs = results.runs("open", f"open-{share}", one).values()
            if runs:
                cells = [
                    f"{statistics.median(values):,.0f}"
                    for values in (
                        [results.arrivals("open", f"open-{share}", one)],
                        [run["rate"] for run in runs],
                        [run["p50_us"] for run in runs],
                        [run["p90_us"] for run in runs],
                        [run["p99_us"] for run in runs],
                        [run["p999_us"] for run in runs],
                    )
                ]
                rows.append([name_of(one), f"{share} %", *cells])
    header = ["system; client", "load", "arrivals/s", "done/s", "p50 µs", "p90 µs", "p99 µs", "p99.9 µs"]
    return markdown(header, rows)


def failover(results: Results) -> str:
    rows = []
    for system, client in dict.fromkeys((one["system"], one["client"]) for one in results.facts["failovers"]):
        for kind in KINDS:
            gaps = [gap * 1000 for gap in results.gaps_s(system, client, kind)]
            if gaps:
                lost = results.lost(system, client, kind)
                rows.append(
                    [
                        f"{plan.SYSTEMS[system].title}; {client}",
                        kind,
                        str(len(gaps)),
                        *(
                            f"{cell:,.0f}"
                            for cell in (statistics.median(gaps), percentile(gaps, 0.9), max(gaps))
                        ),
                        str(lost) if system == "cluster" else NOTHING,
                    ]
                )
    header = ["system; asked by", "the leader", "trials", "median ms", "p90", "most", "answered grants lost"]
    return markdown(header, rows)


def promises(results: Results) -> str:
    versions = results.facts["run"].get("versions", {})
    return markdown(
        ["system", "version", "what a grant means there"],
        [[one.title, versions.get(one.name, "this commit"), one.promises] for one in plan.SYSTEMS.values()],
    )


def run_facts(results: Results) -> str:
    run = results.facts["run"]
    idle = ", ".join(f"{act} {share:.0%}" for act, share in run.get("idle", {}).items())
    return (
        f"Run of {run['date']}, commit {run['commit']}: {run['cores']} cores, Linux {run['kernel']},"
        f" Python {run['python']}."
        f" CPU that all systems of an act took together while nobody asked, in percent of one core: {idle}."
    )


BLOCKS: dict[str, Callable[[Results], str]] = {
    "run": run_facts,
    "goals": goals,
    "throughput": throughput,
    "raw": raw,
    "contended": contended,
    "open-loop": open_loop,
    "failover": failover,
    "promises": promises,
}


def with_blocks(page: str, results: Results) -> str:
    """The page with every block made anew. ValueError for a block that is not known or missing."""

    def made(found: re.Match[str]) -> str:
        name = found[1]
        if name not in BLOCKS:
            raise ValueError(f"{PAGE}: nothing makes a block {name!r}")
        seen.append(name)
        return f"<!-- {name}: made by benchmarks.page -->\n{BLOCKS[name](results)}\n<!-- end -->"

    seen: list[str] = []
    page = re.sub(r"<!-- (\S+): made by benchmarks\.page -->\n.*?<!-- end -->", made, page, flags=re.DOTALL)
    if missing := set(BLOCKS) - set(seen):
        raise ValueError(f"{PAGE}: no place for {', '.join(sorted(missing))}")
    return page


def throughput_plot(results: Results) -> str:
    read = Reader(results)
    workloads = {1: plan.OWN_1, 16: plan.OWN_16, 64: plan.OWN_64}
    lines = []
    for one in ROWS:
        rates = {workers: read.median(workload, one, "rate") for workers, workload in workloads.items()}
        points = [(float(workers), rate) for workers, rate in rates.items() if rate is not None]
        if len(points) == len(workloads):
            lines.append(Line(plan.SYSTEMS[one.system].title, points, dashed=one.system in REFERENCES))
    return plot(
        "Own keys, closed loop: acquire+release pairs per second",
        "workers",
        "pairs/s",
        lines,
        tuple(workloads),
    )


def open_loop_plot(results: Results) -> str:
    lines = []
    for one in plan.OPEN_ENTRANTS:
        points = []
        for share in plan.OPEN_SHARES:
            runs = results.runs("open", f"open-{share}", one).values()
            if runs:
                points.append(
                    (
                        results.arrivals("open", f"open-{share}", one),
                        statistics.median(run["p99_us"] for run in runs),
                    )
                )
        if points:
            lines.append(Line(plan.SYSTEMS[one.system].title, points, dashed=one.system in REFERENCES))
    return plot(
        "Open loop: 99th percentile of an acquire at 25, 50, 75 % of the closed-loop rate",
        "arrivals per second",
        "p99, µs",
        lines,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=FILE)
    arguments = parser.parse_args()
    results = Results.read(arguments.results)
    PAGE.write_text(with_blocks(PAGE.read_text(), results))
    IMAGES.mkdir(exist_ok=True)
    (IMAGES / "throughput.svg").write_text(throughput_plot(results))
    (IMAGES / "open-loop.svg").write_text(open_loop_plot(results))
    print(goals(results))


if __name__ == "__main__":
    main()
