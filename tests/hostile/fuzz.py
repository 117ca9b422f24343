"""Fuzzes the parsers with coverage for as long as one likes.

    python -m tests.hostile.fuzz [--seconds N] [PARSER...]

Uses atheris (`pip install atheris`), each parser in a process of its own for its share of the time. What a run finds
belongs into `tests/hostile/parsers.py` as an example, so that every test run looks at it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

LENGTH_MAX = 4_096


def fuzz_one(name: str, seconds: int, corpus: Path) -> None:
    """Does not return: libFuzzer ends the process."""
    import atheris

    with atheris.instrument_imports(include=["ticketing", "tests.hostile.parsers"]):
        from tests.hostile.parsers import EXAMPLES, PARSERS
    for number, example in enumerate(EXAMPLES[name]):
        (corpus / f"example-{number}").write_bytes(example)
    options = [f"-max_total_time={seconds}", f"-max_len={LENGTH_MAX}", "-verbosity=0", "-print_final_stats=1"]
    atheris.Setup([sys.argv[0], *options, f"-artifact_prefix={name}-", str(corpus)], PARSERS[name])
    atheris.Fuzz()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.fuzz")
    parser.add_argument("--seconds", type=int, default=300, help="all parsers together")
    parser.add_argument("--corpus", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("parsers", nargs="*")
    asked = parser.parse_args()
    if asked.corpus is not None:
        fuzz_one(asked.parsers[0], asked.seconds, asked.corpus)
    from tests.hostile.parsers import PARSERS

    names = asked.parsers or list(PARSERS)
    failed = []
    for name in names:
        with tempfile.TemporaryDirectory() as corpus:
            share = str(max(1, asked.seconds // len(names)))
            words = [sys.executable, "-m", "tests.hostile.fuzz", "--seconds", share, "--corpus", corpus, name]
            done = subprocess.run(words, capture_output=True, text=True, check=False)
        executed = [line for line in done.stderr.splitlines() if "number_of_executed_units" in line]
        print(f"{name}: {'failed' if done.returncode else 'nothing found'} {' '.join(executed)}", flush=True)
        if done.returncode:
            failed.append(name)
            print(done.stderr[-4_000:])
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
