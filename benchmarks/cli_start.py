"""`ticketing acquire` as a whole process, against `python -c 'import typer'` and a bare interpreter.

On a cluster of three node processes on this machine. The commands take turns, so that whatever else the machine does
meets all of them alike. The bytecode is cached, as it is for installed programs, whatever the environment says.

The goal: at most 1.3 times `import typer`, plus one round trip (an acquire on a session that stands already).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.figures import percentile, table
from ticketing.cli.dev_cluster import DevCluster
from ticketing.client import TicketBroker
from ticketing.config.client_file import Access, read_client_file

GOAL = 1.3
ROUND_TRIPS = 50


def run_once(words: list[str], environment: dict[str, str]) -> float:
    started = time.perf_counter()
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    took = time.perf_counter() - started
    assert done.returncode == 0, done.stderr
    return took


async def round_trips(access: Access) -> list[float]:
    """Acquires on a session that stands."""
    found = []
    async with TicketBroker(list(access.addrs), token=access.token) as broker:
        assert await broker.wait_ready(10)
        for number in range(ROUND_TRIPS):
            started = time.perf_counter()
            ticket = await broker.acquire(f"bench/trip/{number}", 5, 30, 0)
            found.append(time.perf_counter() - started)
            await ticket.release()
    return found


def measure(runs: int) -> dict[str, list[float]]:
    script = str(Path(sys.executable).with_name("ticketing"))
    with tempfile.TemporaryDirectory() as bytecode, DevCluster(3) as cluster:
        cluster.wait_for(cluster.view, "the election of a leader")
        environment = {**os.environ, "TICKETING_CONFIG": str(cluster.config), "PYTHONPYCACHEPREFIX": bytecode}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        found: dict[str, list[float]] = {
            "interpreter": [],
            "import typer": [],
            "acquire": [],
            "acquire -- true": [],
        }
        for number in range(-1, runs):
            commands = {
                "interpreter": [sys.executable, "-c", "pass"],
                "import typer": [sys.executable, "-c", "import typer"],
                "acquire": [script, "acquire", f"bench/{number}"],
                "acquire -- true": [script, "acquire", f"bench/c{number}", "--", "true"],
            }
            for name, words in commands.items():
                took = run_once(words, environment)
                if number >= 0:  # the first round fills the cache
                    found[name].append(took)
        found["round trip"] = asyncio.run(round_trips(read_client_file(cluster.config)))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=30)
    found = measure(parser.parse_args().runs)
    rows = [
        (
            name,
            *(f"{value * 1000:.1f}" for value in (min(took), percentile(took, 0.5), percentile(took, 0.9))),
        )
        for name, took in found.items()
    ]
    print(table(("ms", "least", "median", "p90"), rows))
    for name, share in (("least", 0.0), ("median", 0.5)):
        acquire, typer, trip = (
            percentile(found[key], share) for key in ("acquire", "import typer", "round trip")
        )
        print(f"{name}: (acquire - round trip) / import typer = {(acquire - trip) / typer:.2f}, goal {GOAL}")


if __name__ == "__main__":
    main()
