"""Carries out all hostile cases and prints the table of docs/hostile.md.

    python -m tests.hostile [--long] [--flavour TEXT]

`--long` lets each flood go on for 20 s.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from pathlib import Path

from tests.hostile.bounds import latency_bound_ms
from tests.hostile.campaign import Measured, carry_out
from tests.hostile.cases import EVERYWHERE
from tests.hostile.targets import started

LONG_S = 20.0
SHORT_S = 2.0


def row(found: Measured) -> str:
    memory = f"{found.memory_peak_mib - found.memory_before_mib:+.1f} of {found.memory_bound_mib}"
    bound = latency_bound_ms(found.without.p95_ms)
    latency = f"{found.without.p95_ms:.1f} / {found.during.p95_ms:.1f} of {bound:.0f}"
    state = "; ".join(
        filter(None, (found.failed.strip().split("\n")[-1], found.lives, *found.during.errors[:1]))
    )
    lines = f"{len(found.log_lines)}"
    return (
        f"| {found.case} | {found.flavour} | {found.told} | {memory} | {latency} | {found.during.slowest_ms:.0f} "
        f"| {found.descriptors_left} | {lines} | {state or 'as it should'} |"
    )


async def campaign(flavours: list[str], seconds: float) -> None:
    print(
        "| case | against | what was done | memory, MiB | neighbour's p95 without / during, ms | slowest, ms "
        "| descriptors left | log lines | |"
    )
    print("| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | --- |")
    for flavour in flavours:
        with tempfile.TemporaryDirectory() as folder:
            async with started(flavour, Path(folder)) as target:
                for found in await carry_out(target, seconds):
                    print(row(found), flush=True)
                    if found.failed:
                        print(found.failed)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.hostile")
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--flavour", default="")
    asked = parser.parse_args()
    chosen = [flavour for flavour in EVERYWHERE if asked.flavour in flavour]
    asyncio.run(campaign(chosen, LONG_S if asked.long else SHORT_S))
