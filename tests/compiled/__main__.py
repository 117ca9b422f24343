"""`python -m tests.compiled --seeds A..B`: the simulator's runs by the sources and by the compiled build, compared."""

from __future__ import annotations

import argparse
import sys

from tests.compiled.runs import COMPILED, differences, is_current


def main() -> int:
    """1 where a run differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.compiled", description=__doc__)
    parser.add_argument("--seeds", default="0..199", help="A..B, both included")
    first, _, last = parser.parse_args().seeds.partition("..")
    if not is_current(COMPILED):
        sys.exit("there is no compiled build of these sources: make compiled")
    found = differences(list(range(int(first), int(last or first) + 1)))
    print("\n".join(found[:5]) or f"seeds {first}..{last or first}: the same, byte for byte")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
