"""Copies of the tree in which one bug is planted, and the simulator run in them. The work tree is never changed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from tests.mutants.planted import Mutation

ROOT = Path(__file__).parents[2]
NEEDED = ("ticketing", "tests/sim", "tests/mutants")


class Find(NamedTuple):
    """What a hunt came to."""

    seed: int | None
    """The first seed that was violated; None where none was, or the time was over."""
    failure: str
    timed_out: bool
    cpu_s: float = 0.0

    @property
    def rule(self) -> str:
        """The violated rule's name, or the kind of error that the program itself raised."""
        kind, _, rest = self.failure.partition(": ")
        return rest.partition(": ")[0] if kind == "Violation" else kind


def apply(mutation: Mutation, root: Path) -> None:
    """Plants the bug below `root`. The text must be there exactly once."""
    path = root / mutation.file
    text = path.read_text()
    found = text.count(mutation.old)
    assert found == 1, f"{mutation.name}: its text is found {found} times in {mutation.file}"
    path.write_text(text.replace(mutation.old, mutation.new))


@contextmanager
def copy_of_the_tree() -> Iterator[Path]:
    """A copy of the program and the simulator as they stand in the work tree."""
    with TemporaryDirectory(prefix="planted-") as name:
        root = Path(name)
        ignored = shutil.ignore_patterns("__pycache__")
        for part in NEEDED:
            shutil.copytree(ROOT / part, root / part, ignore=ignored)
        shutil.copy(ROOT / "tests/__init__.py", root / "tests/__init__.py")
        yield root


def hunt(root: Path, first: int, last: int, timeout_s: float) -> Find:
    """Runs seeds first..last in a tree until one is violated."""
    command = [sys.executable, "-m", "tests.mutants.hunt", str(first), str(last)]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("PYTHONPATH", None)
    try:
        done = subprocess.run(
            command, cwd=root, env=environment, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired:
        return Find(None, "", timed_out=True)
    if done.returncode:
        # The bug keeps the simulator itself from running: nothing was proved.
        raise RuntimeError(f"the hunt ended with {done.returncode}: {done.stderr[-2000:]}")
    found = json.loads(done.stdout.splitlines()[-1])
    return Find(found["seed"], found["failure"], timed_out=False, cpu_s=found["cpu_s"])


def hunt_for(mutation: Mutation, first: int, last: int, timeout_s: float) -> Find:
    """Plants the bug in a copy and runs seeds there until one is violated."""
    with copy_of_the_tree() as root:
        apply(mutation, root)
        return hunt(root, first, last, timeout_s)
