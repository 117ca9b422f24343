"""Runs seeds of the simulator until one is violated, in the tree that it stands in: `python -m tests.mutants.hunt`.

Prints one line of JSON: `seed` (null where none was violated), `failure`, `seeds` (how many were run) and `cpu_s`.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import ticketing
from tests.sim.run import run_seed

FOUND = ("Violation", "AssertionError")
"""A promise of the simulator's, or an assertion of the program's own."""


def main(first: int, last: int) -> None:
    """Seeds first..last."""
    here = Path.cwd().resolve()
    assert here in Path(ticketing.__file__).resolve().parents, "another tree's program is being run"
    found: dict[str, object] = {"seed": None, "failure": "", "seeds": last - first + 1}
    for seed in range(first, last + 1):
        failure = run_seed(seed).failure
        # A bug that only crashes is not found by what the simulator knows of right and wrong.
        if failure.startswith(FOUND):
            found = {"seed": seed, "failure": failure, "seeds": seed - first + 1}
            break
    print(json.dumps({**found, "cpu_s": time.process_time()}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
