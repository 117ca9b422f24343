"""Carries out all hostile cases and prints the table of docs/hostile.md.

    python -m tests.hostile [--long] [--flavour TEXT]

`--long` lets each flood go on for 20 s.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from tests.hostile.bounds import SLOWEST_MS, TURN_CPU_MS, latency_bound_ms, log_lines_max
from tests.hostile.campaign import Measured, carry_out
from tests.hostile.cases import EVERYWHERE
from tests.hostile.targets import started

LONG_S = 20.0
SHORT_S = 2.0


def row(found: Measured) -> str:
    memory = f"{found.memory_peak_mib - found.memory_before_mib:+.1f} of {found.memory_bound_mib}"
    bound = latency_bound_ms(found.case, found.without.p95_ms)
    latency = f"{found.without.p95_ms:.1f} / {found.during.p95_ms:.1f} of {bound:.0f}"
    told = ", ".join(f"{event} {count}" for event, count in found.logged.most_common())
    return (
        f"| {found.case} | {found.flavour} | {found.told} | {memory} | {found.turn_cpu_ms:.1f} | {latency} "
        f"| {found.during.slowest_ms:.0f} | {told or 'none'} | {'; '.join(faults(found)) or 'as it should'} |"
    )


def faults(found: Measured) -> list[str]:
    """What is not as it should be, in the words of `tests/hostile/test_campaign.py`'s bounds."""
    grown = found.memory_peak_mib - found.memory_before_mib
    beyond = {
        "memory": grown > found.memory_bound_mib,
        "a turn": found.turn_cpu_ms > TURN_CPU_MS,
        "latency": found.during.p95_ms > latency_bound_ms(found.case, found.without.p95_ms)
        or found.during.slowest_ms > SLOWEST_MS,
        "descriptors": found.descriptors_left > 0,
        "log lines": len(found.log_lines) > log_lines_max(found.lasted_s),
    }
    said = [found.failed.strip().split("\n")[-1], found.lives, *found.during.errors[:1]]
    return [*filter(None, said), *(f"{what} beyond the bound" for what, is_so in beyond.items() if is_so)]


async def campaign(flavours: list[str], seconds: float) -> int:
    """How many cases were not as they should be."""
    print(
        "| case | against | what was done | memory, MiB | longest turn, CPU ms "
        "| neighbour's p95 without / during, ms | slowest, ms | log lines | |"
    )
    print("| --- | --- | --- | ---: | ---: | ---: | ---: | --- | --- |")
    bad = 0
    for flavour in flavours:
        with tempfile.TemporaryDirectory() as folder:
            async with started(flavour, Path(folder)) as target:
                for found in await carry_out(target, seconds):
                    print(row(found), flush=True)
                    bad += bool(faults(found))
                    if found.failed:
                        print(found.failed)
    return bad


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.hostile")
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--flavour", default="")
    asked = parser.parse_args()
    chosen = [flavour for flavour in EVERYWHERE if asked.flavour in flavour]
    sys.exit(asyncio.run(campaign(chosen, LONG_S if asked.long else SHORT_S)) > 0)
