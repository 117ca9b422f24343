"""Planted bugs: each line of `MUTANTS` is one fault in the core, and the simulator must find every one of them.

`python -m tests.sim.mutants [NAME ...] [--seeds N]` copies the sources, plants one fault after the other, runs seeds
until one is violated, and prints a table of which seed and invariant found what.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
SEEDS = 60


class Mutant(NamedTuple):
    """A fault: in `path` the one place that reads `old` reads `new`."""

    name: str
    path: str
    old: str
    new: str


MUTANTS = (
    Mutant(
        "commit without a majority",
        "raft/quorum.py",
        "return sorted(values)[(len(values) - 1) >> 1]",
        "return max(values)",
    ),
    Mutant(
        "vote twice in a term",
        "raft/election.py",
        "replica.vote == sender or (replica.vote is None and self.leader is None)",
        "True or (replica.vote is None and self.leader is None)",
    ),
    Mutant(
        "vote for a shorter log",
        "raft/election.py",
        "        if not self._replica.is_behind(last_index, last_term):",
        "        if True:",
    ),
    Mutant(
        "follow a leader of an earlier term",
        "raft/core.py",
        "case AppendEntries():\n                if message.term < replica.term:",
        "case AppendEntries():\n                if message.term + 1 < replica.term:",
    ),
    Mutant(
        "keep what conflicts with the leader's log",
        "raft/replica.py",
        "                if log.term_at(index) != entry.term:",
        "                if log.term_at(index) > entry.term:",
    ),
    Mutant(
        "commit an earlier term's entry by counting",
        "raft/lead.py",
        "if index <= replica.commit_index or index < self.term_start_index:",
        "if index <= replica.commit_index:",
    ),
    Mutant(
        "serve before the own first entry is applied",
        "node/node.py",
        "raft.confirmed and state.applied_term == raft.term and not quarantine",
        "raft.confirmed and not quarantine",
    ),
    Mutant(
        "answer after a gap without a majority's word",
        "raft/core.py",
        "            lead.doubt()",
        "            pass",
    ),
    Mutant(
        "never step down for want of a majority",
        "raft/lead.py",
        "if self.replication.majority_heard_ns() < now_ns - settings.quorum_check_ns:",
        "if False:",
    ),
    Mutant(
        "a barrier that asks nobody",
        "raft/lead.py",
        "round_ = self.replication.majority_round()",
        "round_ = self.replication.round + 9",
    ),
    Mutant(
        "expire early",
        "locks/table.py",
        "stamped_until_ns = now_ns - lease * SECOND_NS",
        "stamped_until_ns = now_ns - lease * SECOND_NS * 9 // 10",
    ),
    Mutant(
        "stamp an entry with the age it did not have",
        "raft/replica.py",
        "stamp = now_ns - entry.age_us * 998",
        "stamp = now_ns - entry.age_us * 998 - 2_000_000_000",
    ),
    Mutant(
        "stamps of a snapshot as old as the machine",
        "node/snapshots.py",
        "SnapshotLoader(message.table, now_ns, message.sender_clock_ns)",
        "SnapshotLoader(message.table, now_ns - 3_000_000_000, message.sender_clock_ns)",
    ),
    Mutant(
        "free the key between release and grant",
        "locks/turns.py",
        "        if self._gate_open and state.first is not None:\n"
        "            waiter = self._head(state, now_ns)\n"
        "            if waiter is None and self._cut:\n"
        "                self._cut = False\n"
        "                return False\n"
        "        turn = self._turn_for(state, held.token, renewal, waiter)",
        "        turn = self._turn_for(state, held.token, renewal, waiter)",
    ),
    Mutant(
        "an extension that shortens nothing but counts nothing anew",
        "locks/table.py",
        "        held.stamp_ns = max(held.stamp_ns, stamp_ns)\n",
        "",
    ),
    Mutant(
        "the last waiter first",
        "locks/turns.py",
        "        waiter = state.first\n        while waiter is not None:",
        "        waiter = state.last\n        while waiter is not None:",
    ),
    Mutant(
        "forget who waits when the key is free",
        "locks/turns.py",
        "                if held is None:\n                    self._pump(state, now_ns)\n                break",
        "                break",
    ),
    Mutant(
        "the gate is always open",
        "node/lead.py",
        "        return self._clock.gate(now_ns, wall_ns, raft.me, configuration.voters, configuration.outgoing)",
        "        return True",
    ),
    Mutant(
        "a wall clock measured long ago still counts",
        "node/peer_clock.py",
        "SAMPLE_VALID_NS = 3 * S",
        "SAMPLE_VALID_NS = 300 * S",
    ),
    Mutant(
        "a joint change that one half decides",
        "raft/quorum.py",
        "        return min(index, reached(outgoing))",
        "        return max(index, reached(outgoing))",
    ),
    Mutant(
        "keep what a cancel names",
        "locks/table.py",
        "                self.ring.extend(command.owners)\n",
        "",
    ),
)


def plant(mutant: Mutant, tree: Path) -> bool:
    """Writes the fault into a copy of the sources; False where the sources have changed under it."""
    path = tree / "ticketing" / mutant.path
    text = path.read_text()
    if text.count(mutant.old) != 1:
        return False
    path.write_text(text.replace(mutant.old, mutant.new))
    return True


def copy_sources(tree: Path) -> None:
    """What a run needs."""
    leave_out = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "ticketing", tree / "ticketing", ignore=leave_out)
    (tree / "tests").mkdir()
    shutil.copy(ROOT / "tests" / "__init__.py", tree / "tests")
    shutil.copytree(ROOT / "tests" / "sim", tree / "tests" / "sim", ignore=leave_out)


def hunt(mutant: Mutant, seeds: int) -> str:
    """Which seed and invariant finds it; empty where none of the seeds does."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        copy_sources(tree)
        if not plant(mutant, tree):
            return "STALE: the sources do not read so (any more)"
        command = [sys.executable, "-m", "tests.sim", "--seeds", f"1..{seeds}", "--first"]
        done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
        found = [line for line in done.stdout.splitlines() if line.startswith("seed ")]
        if found:
            return found[0]
        return "" if done.returncode == 0 else f"BROKEN: {done.stderr[-200:]}"


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of names; all where none is given")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    arguments = parser.parse_args()
    missed = 0
    for mutant in MUTANTS:
        if arguments.names and not any(name in mutant.name for name in arguments.names):
            continue
        began = time.monotonic()
        found = hunt(mutant, arguments.seeds)
        missed += not found.startswith("seed ")
        print(
            f"{mutant.name:<55} {time.monotonic() - began:5.0f} s  {(found or 'NOT FOUND')[:160]}", flush=True
        )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
