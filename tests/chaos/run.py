"""One run: machines, a cluster, programs and a nemesis, and at the end the judges."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.chaos import ledger
from tests.chaos.clients import FINISH_S, Client
from tests.chaos.cluster import OPERATOR, ChaosCluster
from tests.chaos.forwarder import Paths
from tests.chaos.nemesis import Nemesis
from tests.chaos.network import Network, enter, network
from tests.chaos.plan import Plan
from tests.chaos.processes import start
from tests.chaos.record import Witness, read_lines, witness
from tests.chaos.report import LongGap, Report, read_node_logs
from tests.chaos.stalls import Stalls
from tests.chaos.workload import CONNECTIONS, HOT_KEYS
from tests.e2e.cluster import PROJECT, environment
from tests.e2e.waiting import until
from tests.fencing.postgres import Postgres, binaries
from tests.sim.world import S, Violation
from ticketing import __version__

SPARES = 1
PROGRAMS = 3
FORMED_S = 60.0
GRANTS_AGAIN_S = 30.0
"""After the last fault every hot key is granted within this: the longest lease, an election, and room."""
GAPS_TOLD = 5
BEFORE_GAP_S = 10.0
"""What was struck so long before a time without a grant is told with it."""
QUIET_S = 15.0
"""No longer than this nothing is granted while a majority could serve."""


@dataclass(frozen=True)
class Wanted:
    """The options of a run."""

    seed: int
    seconds: float
    nodes: int
    folder: Path
    """Where everything lies; made by the run."""
    longest_s: float = 60.0
    kinds: tuple[str, ...] = ()


async def run(wanted: Wanted) -> Report:
    """Runs it. Everything but the folder is gone afterwards, whatever happens."""
    found = binaries()
    if found is None:
        raise FileNotFoundError("the fence needs PostgreSQL (Debian: apt-get install postgresql)")
    nodes = [f"n{number}" for number in range(1, wanted.nodes + SPARES + 1)]
    programs = [f"c{number}" for number in range(1, PROGRAMS + 1)]
    wanted.folder.mkdir(parents=True)
    (wanted.folder / "programs").mkdir()
    with network([OPERATOR, *nodes, *programs]) as wires, _database(found) as dsn:
        enter(wires.namespace(OPERATOR))
        cluster = ChaosCluster(wanted.folder, wires, wanted.nodes, SPARES)
        clients = [
            Client(name, wanted.folder / "programs", wires, cluster.config / "client.toml", dsn, wanted.seed)
            for name in programs
        ]
        report = Report(wanted.seed, wanted.nodes, wanted.seconds / 60, __version__)
        try:
            with forwarder_process(wanted.seed, wires) as paths:
                seen = await _torment(wanted, wires, cluster, clients, paths, report)
            _judge(wanted.folder, cluster, seen, dsn, report)
        finally:
            for client in clients:
                client.end()
            for machine in cluster.machines.values():
                machine.end()
            await cluster.close()
    return report


async def _torment(
    wanted: Wanted,
    wires: Network,
    cluster: ChaosCluster,
    clients: list[Client],
    paths: Paths,
    report: Report,
) -> Witness:
    """The run itself, until every program has ended; what they saw."""
    plan = Plan(wanted.seed, wanted.nodes, longest_s=wanted.longest_s, kinds=wanted.kinds)
    with (wanted.folder / "chaos.log").open("w", buffering=1) as log, Stalls() as stalls:
        nemesis = Nemesis(cluster, wires, clients, plan, paths, lambda line: print(line, file=log))
        await cluster.make()
        for machine in cluster.placed:
            machine.start()
        began = time.monotonic()
        async with _meanwhile(cluster, nemesis):
            assert await cluster.until_whole(FORMED_S), _logs(cluster)
            for client in clients:
                client.start()
            try:
                await nemesis.rage(began + wanted.seconds)
                nemesis.timeline.finish(time.monotonic())
                await _calm_end(clients, nemesis, report)
            finally:
                nemesis.going_on = False
        for client in clients:
            client.finished(time.monotonic() + FINISH_S)
        seen = witness([file for client in clients for file in client.files])
        _liveness(nemesis, seen, stalls, report)
    report.seconds = time.monotonic() - began
    report.rounds = nemesis.rounds
    report.faults = dict(nemesis.struck)
    report.withheld = dict(nemesis.withheld)
    report.longest_refill_s = nemesis.longest_refill_s
    report.violations += nemesis.violations
    report.violations += [fault for client in clients for fault in client.faults]
    report.program_lives = sum(len(client.files) for client in clients)
    report.node_lives = sum(machine.lives for machine in cluster.machines.values())
    _judge_history(seen, report)
    return seen


@contextlib.asynccontextmanager
async def _meanwhile(cluster: ChaosCluster, nemesis: Nemesis) -> AsyncIterator[None]:
    """The cluster is watched and supervised meanwhile; what goes wrong with that goes wrong here."""
    tasks = [asyncio.create_task(cluster.watch()), asyncio.create_task(nemesis.supervise())]
    main = asyncio.current_task()
    assert main is not None
    failed: list[BaseException] = []

    def over(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            failed.append(error)
            main.cancel()

    for task in tasks:
        task.add_done_callback(over)
    try:
        yield
    except asyncio.CancelledError:
        if failed:
            raise failed[0] from None
        raise
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _calm_end(clients: list[Client], nemesis: Nemesis, report: Report) -> None:
    """All is well again: every key is granted again, and the programs give back what they have."""
    if nemesis.violations:
        for client in clients:
            client.tell_to_finish()
        return
    for client in clients:
        client.resume()
        if not client.running:
            client.start()
    read_from = {client.files[-1]: client.files[-1].stat().st_size for client in clients}
    deadline = time.monotonic() + GRANTS_AGAIN_S
    wanting = {f"hot-{number}" for number in range(HOT_KEYS)}
    while wanting and time.monotonic() < deadline:
        await asyncio.sleep(1)
        for file, offset in read_from.items():
            wanting -= {line.key for line in read_lines(file, offset) if line.what == "granted"}
    if wanting:
        report.violations.append(
            f"not granted within {GRANTS_AGAIN_S:g} s after all was mended: {sorted(wanting)}"
        )
    for client in clients:
        client.tell_to_finish()
    with contextlib.suppress(AssertionError):  # who does not end is told of when it is waited for
        await until(lambda: not any(client.running for client in clients), "the programs end", FINISH_S)


# --- what a run stands on


@contextlib.contextmanager
def _database(found: Path) -> Iterator[str]:
    """A PostgreSQL server of this run's own."""
    server = Postgres(found, connections=CONNECTIONS * PROGRAMS + 20)
    try:
        server.start()
        dsn = ledger.access(server)
        ledger.prepare(dsn)
        yield dsn
    finally:
        server.stop()


@contextlib.contextmanager
def forwarder_process(seed: int, wires: Network) -> Iterator[Paths]:
    """The process through which slow paths lead, until the block ends."""
    places = [f"{wires.namespace(machine)}={wires.address(machine)}" for machine in wires.machines]
    process = start(
        [sys.executable, "-m", "tests.chaos.forwarder", str(seed), *places],
        folder=PROJECT,
        environment=environment(),
        output=subprocess.PIPE,
        input_from=subprocess.PIPE,
    )
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        for machine in wires.machines:
            wires.device_up(machine)
        yield Paths(process.stdin)
    finally:
        process.kill()
        process.communicate()


# --- the judges


def _liveness(nemesis: Nemesis, seen: Witness, stalls: Stalls, report: Report) -> None:
    timeline = nemesis.timeline
    gaps = timeline.gaps([at / S for at in seen.grants_ns])
    report.majority_could_serve_s = round(timeline.total, 1)
    if not gaps:
        report.violations.append("a majority could never serve")
        return
    report.longest_without_grant_s = round(gaps[0].seconds, 3)
    report.gaps_over_1_s = sum(gap.seconds > 1 for gap in gaps)
    report.gaps_over_3_s = sum(gap.seconds > 3 for gap in gaps)
    report.longest_stall_s = round(stalls.longest_s, 2)
    for gap in gaps[:GAPS_TOLD]:
        end = gap.began + gap.seconds
        stalled_s = stalls.within(gap.began, end)
        lines = nemesis.noted(gap.began - BEFORE_GAP_S, end)
        report.longest_gaps.append(LongGap(round(gap.seconds, 3), round(gap.began - nemesis.began, 3), lines))
        nemesis.note_at(
            gap.began,
            f"nothing was granted for {gap.seconds:.3f} s while a majority could serve"
            f" (the machine served others for {stalled_s:.3f} s of it)",
        )
    if gaps[0].seconds > QUIET_S:
        report.violations.append(
            f"nothing was granted for {gaps[0].seconds:.2f} s while a majority could serve, "
            f"from second {gaps[0].began - nemesis.began:.2f} of the run on"
        )


def _judge_history(seen: Witness, report: Report) -> None:
    report.operations = seen.outcomes
    report.violations += seen.faults
    try:
        seen.history.check()
    except Violation as violation:
        report.violations.append(str(violation))
    if not seen.history.holds:
        report.violations.append("nothing was ever granted")


def _judge(folder: Path, cluster: ChaosCluster, seen: Witness, dsn: str, report: Report) -> None:
    books = ledger.read(dsn)
    report.fenced_writes = len(books.writes)
    report.stale_writes_refused = seen.outcomes.get("write refused as stale", 0)
    report.violations += ledger.judge(books, seen.owners)
    terms, report.gate_closings, bad = read_node_logs(folder.glob("hosts/*/node.log"))
    report.elections = len(terms)
    report.terms = max(terms, default=0)
    report.violations += bad
    (folder / "operator.log").write_text("\n".join(cluster.told) + "\n")
    if report.violations:
        ledger.keep(books, folder / "writes.json")


def _logs(cluster: ChaosCluster) -> str:
    return "\n".join(f"--- {machine}\n{machine.log_end()}" for machine in cluster.machines.values())
