"""Strikes a real cluster, and judges: `python -m tests.chaos --seed 7 --minutes 5 --nodes 5`.

Ends with 0 where no promise was broken, with 1 where one was, with 2 where the machine lacks what it takes, with 130 at
Ctrl-C and SIGTERM. What was written is kept where there is something to look at, and it says where. Namespaces and
processes are gone in any case.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from tests.chaos.needs import lacking
from tests.chaos.plan import SHORT, WEIGHTS, Plan
from tests.chaos.processes import served_first
from tests.chaos.report import Report
from tests.chaos.run import Wanted, run

INTERRUPTED = 130


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=5.0, help="how long the nemesis rages")
    parser.add_argument("--nodes", type=int, choices=(3, 5), default=5)
    parser.add_argument("--short", action="store_true", help="short faults, the most telling ones first")
    parser.add_argument("--first", default="", help="kinds of faults that come first, one a round: kill,move")
    parser.add_argument("--folder", type=Path, help="kept there in any case; must not exist")
    parser.add_argument("--plan", action="store_true", help="print the first rounds of the schedule and end")
    arguments = parser.parse_args()
    longest_s, kinds = (4.0, SHORT) if arguments.short else (60.0, ())
    kinds = tuple(filter(None, arguments.first.split(","))) or kinds
    if unknown := set(kinds) - set(WEIGHTS):
        parser.error(f"--first: no such fault: {', '.join(sorted(unknown))}; there are {', '.join(WEIGHTS)}")
    if arguments.plan:
        plan = Plan(arguments.seed, arguments.nodes, longest_s=longest_s, kinds=kinds)
        for _ in range(20):
            planned = plan.next_round()
            print(f"round {planned.number}", *(f"  {fault}" for fault in planned.faults), sep="\n")
        return 0
    if missing := lacking():
        print(*missing, sep="\n", file=sys.stderr)
        return 2
    served_first()
    base = Path(tempfile.mkdtemp(prefix="ticketing-chaos-")) if arguments.folder is None else None
    folder = arguments.folder if base is None else base / "run"
    wanted = Wanted(arguments.seed, arguments.minutes * 60, arguments.nodes, folder, longest_s, kinds)
    try:
        report = asyncio.run(_interruptible(wanted))
    except (KeyboardInterrupt, asyncio.CancelledError):
        print(f"interrupted; what there is of it: {folder}", file=sys.stderr)
        return INTERRUPTED
    if base is not None and not report.telling:
        shutil.rmtree(base)
    else:
        report.kept = str(folder)
        report.write(folder / "report.json")
    print(report.text())
    return 1 if report.violations else 0


async def _interruptible(wanted: Wanted) -> Report:
    """SIGTERM ends a run as Ctrl-C does: everything that was made is removed."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await run(wanted)


if __name__ == "__main__":
    sys.exit(main())
