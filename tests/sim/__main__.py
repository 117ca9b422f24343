"""Runs the simulator: `python -m tests.sim --seed N [--no-log]`, or `--seeds A..B [--jobs N] [--resume FILE]`.

Ends with 1 where a promise was broken, and with 128 + the signal's number where a signal ended it early; the seeds
that were under way are run to their end first, and the file tells of all that was done.
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from types import FrameType

from tests.sim.campaign import Campaign
from tests.sim.record import Entry, Record
from tests.sim.run import run_seed


def run_one(seed: int, *, log: bool, digest: bool) -> int:
    """One seed; 1 where it breaks a promise."""
    result = run_seed(seed, log=log, digest=digest)
    if digest:
        print(f"digest {result.digest}")
    print(result.failure or "no violation")
    entry = Entry("this run")
    entry.add(result)
    entry.real_s = result.cpu_s
    print(entry)
    return 1 if result.failure else 0


def run_many(
    first: int, last: int, *, jobs: int, minutes: float, resume: Path | None, only_first: bool
) -> int:
    """Seeds first..last, as far as the time allows or up to the first violation."""
    record = Record() if resume is None else Record.load(resume)
    campaign = Campaign(record, resume, only_first=only_first)
    received: list[int] = []

    def stop(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        campaign.stop()

    former = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        campaign.run(first, last, jobs=jobs, minutes=minutes)
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
    print(campaign.own)
    if resume is not None:
        total = record.total()
        print(f"{resume}: {total}")
        print("seeds", " ".join(f"{low}..{high}" for low, high in total.seeds))
    if campaign.violated:
        return 1
    return 128 + received[0] if received else 0


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seed", type=int, help="replay one run")
    parser.add_argument(
        "--log", action=argparse.BooleanOptionalAction, default=True, help="print what happens in it"
    )
    parser.add_argument("--digest", action="store_true", help="print a digest of the log")
    parser.add_argument("--seeds", help="A..B, both included")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--minutes", type=float, default=0.0, help="stop after so long")
    parser.add_argument("--first", action="store_true", help="stop at the first violation")
    parser.add_argument(
        "--resume",
        type=Path,
        metavar="FILE",
        help="leave out the seeds that FILE tells of, and add the others",
    )
    arguments = parser.parse_args()
    if arguments.seed is not None:
        return run_one(arguments.seed, log=arguments.log, digest=arguments.digest)
    first, _, last = (arguments.seeds or "0..99").partition("..")
    return run_many(
        int(first),
        int(last or first),
        jobs=arguments.jobs,
        minutes=arguments.minutes,
        resume=arguments.resume,
        only_first=arguments.first,
    )


if __name__ == "__main__":
    sys.exit(main())
