"""Whether a run finds what it is there to find: `python -m tests.chaos.planted [NAME …]` plants a bug and strikes.

Each bug goes into a copy of the tree, in which a short run must end with a violation. Some are of those that the
simulator is tried with (`tests/mutants`); the others are in what the simulator does not have: library and fence.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.e2e.cluster import environment
from tests.mutants.copies import ROOT, apply
from tests.mutants.planted import MUTATIONS, Mutation

NEEDED = ("ticketing", "tests", "deploy", "pyproject.toml")
SHARED = (
    "expires-early",
    "extension-not-counted",
    "second-in-queue",
    "releases-for-anybody",
    "token-twice",
    "wait-too-short",
)
OWN = (
    Mutation(
        "end-too-late",
        "ticketing/client/acquire.py",
        "by_request = sent_ns + (lease_ns + waited_ms * MILLISECOND) * 998 // 1000\n"
        "    by_answer = read_ns + lease_ns * 998 // 1000",
        "by_request = sent_ns + (lease_ns + waited_ms * MILLISECOND) * 15 // 10\n"
        "    by_answer = read_ns + lease_ns * 15 // 10",
        "the library believes in its lease for half as long again",
        "one holder",
    ),
    Mutation(
        "writes-without-mark",
        "tests/chaos/ledger.py",
        "        await advance_mark_async(connection, key, token)\n",
        "",
        "the programs write without the fence",
        "writes of one key went backwards",
    ),
)
PLANTED = (*(mutation for mutation in MUTATIONS if mutation.name in SHARED), *OWN)
RUN_S = 600.0


@contextlib.contextmanager
def copy_of_the_tree() -> Iterator[Path]:
    """A copy of all that a run is made of."""
    with tempfile.TemporaryDirectory(prefix="planted-") as name:
        root = Path(name)
        for part in NEEDED:
            if (ROOT / part).is_dir():
                shutil.copytree(ROOT / part, root / part, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / part, root / part)
        yield root


def struck(root: Path, seed: int, minutes: float) -> list[str]:
    """The violations of a short run in a tree."""
    words = ["--nodes", "3", "--short", "--seed", str(seed), "--minutes", str(minutes)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos", *words, "--folder", str(root / "run")],
        cwd=root,
        env=environment(PYTHONPATH=str(root)),
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )
    report = root / "run" / "report.json"
    if not report.exists():
        return [f"the run itself broke: {done.stderr.strip().splitlines()[-1]}"]
    found: list[str] = json.loads(report.read_text())["violations"]
    return found


def main() -> int:
    names = [mutation.name for mutation in PLANTED]
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.planted", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(names))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=1.0)
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(names):
        parser.error(f"no such bug: {', '.join(sorted(unknown))}")
    missed = 0
    for mutation in PLANTED:
        if arguments.names and mutation.name not in arguments.names:
            continue
        with copy_of_the_tree() as root:
            apply(mutation, root)
            found = struck(root, arguments.seed, arguments.minutes)
        missed += not found
        print(f"{mutation.name}: {mutation.why}: {found[0][:160] if found else 'not found'}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
