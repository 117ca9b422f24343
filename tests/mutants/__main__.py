"""Hunts for the planted bugs: `python -m tests.mutants [NAME ...] [--seeds N] [--minutes M]`.

For each in turn, prints the first seed that shows it and the violated rule. Afterwards the seeds that were found
are run without a bug: a seed that is violated then proves nothing. Ends with 1 where a bug was not found.
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.mutants.copies import Find, copy_of_the_tree, hunt, hunt_for
from tests.mutants.planted import MUTATIONS, UNFOUND

SEEDS = 200
MINUTES = 5.0


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="these only, also of those that are not found yet")
    parser.add_argument("--first", type=int, default=0, help="the seed to begin with")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="how many for each at most")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="how long for each at most")
    parser.add_argument("--failure", action="store_true", help="print what was violated in full")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - {mutation.name for mutation in MUTATIONS + UNFOUND}
    if unknown:
        parser.error(f"no planted bug is named {', '.join(sorted(unknown))}")
    found: dict[str, Find] = {}
    wanted = [mutation for mutation in MUTATIONS + UNFOUND if mutation.name in arguments.names]
    for mutation in wanted or MUTATIONS:
        began = time.monotonic()
        last = arguments.first + arguments.seeds - 1
        find = hunt_for(mutation, arguments.first, last, arguments.minutes * 60)
        found[mutation.name] = find
        shown = f"seed {find.seed}: {find.rule}" if find.seed is not None else "NOT FOUND"
        if find.timed_out:
            shown += " in time"
        print(f"{mutation.name:36} {shown} ({time.monotonic() - began:.0f} s)", flush=True)
        if arguments.failure and find.failure:
            print(f"    {find.failure[:600]}", flush=True)
    missed = [name for name, find in found.items() if find.seed is None]
    with copy_of_the_tree() as root:
        for seed in sorted({find.seed for find in found.values() if find.seed is not None}):
            plain = hunt(root, seed, seed, arguments.minutes * 60)
            if plain.seed is not None or plain.timed_out:
                print(f"seed {seed} proves nothing: it is violated without a bug: {plain.failure[:300]}")
                missed += [name for name, find in found.items() if find.seed == seed]
    print(f"{len(found) - len(set(missed))} of {len(found)} found")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
