"""The same seeds, run by the sources and by the compiled build."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).parents[2]
COMPILED = PROJECT / ".compiled"
"""What `make compiled` makes."""

_RUN = """
import json, sys
from tests.sim.run import run_seed
from ticketing.native import is_compiled
told = []
for seed in json.loads(sys.argv[1]):
    result = run_seed(seed, digest=True)
    told.append([seed, result.digest, result.failure, result.events, result.grants])
print(json.dumps({"compiled": is_compiled(), "runs": told}))
"""


def modules() -> list[str]:
    """What is compiled, as paths below the project."""
    with (PROJECT / "pyproject.toml").open("rb") as file:
        named: list[str] = tomllib.load(file)["tool"]["ticketing"]["compiled"]
    return named


def is_current(tree: Path) -> bool:
    """Whether `tree` was compiled from the sources as they are."""
    return all(
        (tree / source).is_file()
        and (tree / source).read_bytes() == (PROJECT / source).read_bytes()
        and any((tree / source).parent.glob(Path(source).stem + ".*.so"))
        for source in modules()
    )


class Runs:
    """A process that runs seeds with the modules of one tree."""

    def __init__(self, tree: Path, seeds: list[int]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _RUN, json.dumps(seeds)],
            cwd=tree,
            env={**os.environ, "PYTHONPATH": str(tree)},
            stdout=subprocess.PIPE,
            text=True,
        )

    def told(self) -> dict[str, Any]:
        """`compiled`, and for each seed its number, digest, violation, events and grants."""
        output, _ = self._process.communicate()
        assert self._process.returncode == 0, self._process.returncode
        found: dict[str, Any] = json.loads(output)
        return found


def differences(seeds: list[int]) -> list[str]:
    """The seeds whose two runs differ, and how."""
    both = [Runs(tree, seeds) for tree in (PROJECT, COMPILED)]
    pure, compiled = (runs.told() for runs in both)
    assert not pure["compiled"]
    assert compiled["compiled"]
    runs = zip(pure["runs"], compiled["runs"], strict=True)
    return [f"sources {one}, compiled {other}" for one, other in runs if one != other]
