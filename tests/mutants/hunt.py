"""Runs seeds of the simulator until one is violated, in the tree that it stands in: `python -m tests.mutants.hunt`.

Prints one line of JSON: `seed` (null where none was violated), `failure`, `seeds` (how many were run).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import ticketing
from tests.sim.run import run_seed


def main(first: int, last: int) -> None:
    """Seeds first..last."""
    here = Path.cwd().resolve()
    assert here in Path(ticketing.__file__).resolve().parents, "another tree's program is being run"
    for seed in range(first, last + 1):
        failure = run_seed(seed).failure
        if failure:
            print(json.dumps({"seed": seed, "failure": failure, "seeds": seed - first + 1}))
            return
    print(json.dumps({"seed": None, "failure": "", "seeds": last - first + 1}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
