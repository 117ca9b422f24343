"""Hunts for the planted bugs: `python -m tests.mutants [NAME ...] [--seeds N] [--minutes M]`.

For each in turn, prints the first seed that shows it and the violated rule. Afterwards the seeds that were found
are run without a bug: a seed that is violated then proves nothing. Ends with 1 where a bug was not found.
"""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from tests.mutants.copies import Find, copy_of_the_tree, hunt, hunt_for
from tests.mutants.planted import MUTATIONS, Mutation

SEEDS = 3_000
MINUTES = 30.0
JOBS = 2


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="these only")
    parser.add_argument("--first", type=int, default=0, help="the seed to begin with")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="how many for each at most")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="how long for each at most")
    parser.add_argument("--jobs", type=int, default=JOBS, help="how many hunts at a time")
    parser.add_argument("--failure", action="store_true", help="print what was violated in full")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - {mutation.name for mutation in MUTATIONS}
    if unknown:
        parser.error(f"no planted bug is named {', '.join(sorted(unknown))}")
    found: dict[str, Find] = {}
    wanted = [mutation for mutation in MUTATIONS if mutation.name in arguments.names] or list(MUTATIONS)
    last = arguments.first + arguments.seeds - 1
    began = time.monotonic()

    def hunted(mutation: Mutation) -> tuple[Mutation, Find]:
        return mutation, hunt_for(mutation, arguments.first, last, arguments.minutes * 60)

    with ThreadPoolExecutor(arguments.jobs) as pool:
        for mutation, find in pool.map(hunted, wanted):
            found[mutation.name] = find
            shown = f"seed {find.seed}: {find.rule}" if find.seed is not None else "NOT FOUND"
            if find.timed_out:
                shown += " in time"
            print(f"{mutation.name:36} {shown} ({find.cpu_s:.1f} s of CPU time)", flush=True)
            if arguments.failure and find.failure:
                print(f"    {find.failure[:600]}", flush=True)
    missed = [name for name, find in found.items() if find.seed is None]
    with copy_of_the_tree() as root:
        for seed in sorted({find.seed for find in found.values() if find.seed is not None}):
            plain = hunt(root, seed, seed, arguments.minutes * 60)
            if plain.seed is not None or plain.timed_out:
                print(f"seed {seed} proves nothing: it is violated without a bug: {plain.failure[:300]}")
                missed += [name for name, find in found.items() if find.seed == seed]
    spent_s = sum(find.cpu_s for find in found.values())
    print(
        f"{len(found) - len(set(missed))} of {len(found)} found; {spent_s:.0f} s of CPU time,"
        f" {time.monotonic() - began:.0f} s"
    )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
