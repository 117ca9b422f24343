"""`ticketing bench`: load on a cluster, and what it answered how fast."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated, Any

import typer

from ticketing.cli.arguments import access_of, seconds, wants_json, whole_number
from ticketing.cli.bench_load import Load, Result, report, run_load
from ticketing.cli.errors import CommandFailed, ExitCode, say
from ticketing.cli.obtain import REACH_S, open_broker, reach
from ticketing.cli.options import Addr, Config, Output, Tls, TokenFile, invocation_of, new_app
from ticketing.cli.output import write_json, write_line
from ticketing.config.client_file import Access, Typed, read_client_file
from ticketing.protocol.fields import LEASE_MAX

CLIENTS_MAX = 100_000
_BAR = 40

app = new_app()


@app.command(epilog="Example: ticketing bench --dev --clients 100 --keys 10 --time 5")
def bench(
    context: typer.Context,
    dev: Annotated[
        bool, typer.Option("--dev", help="On a throw-away cluster of three nodes on this machine.")
    ] = False,
    clients: Annotated[
        str, typer.Option(metavar="N", help="So many at a time take a lock and give it back, over and over.")
    ] = "50",
    keys: Annotated[
        str | None,
        typer.Option(metavar="N", help="Fewer than clients: they queue. [default: one a client]"),
    ] = None,
    time_s: Annotated[str, typer.Option("--time", metavar="SECONDS", help="How long; 1 to 300.")] = "5",
    hold: Annotated[str, typer.Option(metavar="SECONDS", help="How long each holds its lock.")] = "0",
    config: Config = None,
    addr: Addr = None,
    token_file: TokenFile = None,
    tls: Tls = None,
    output: Output = "text",
) -> int:
    """Rates, latencies and a histogram, from one process with one session a node.

    Its keys begin with `bench/` and a random word: nobody else's are touched, and the load is real.
    """
    as_json = wants_json(output)
    count = whole_number(clients, "--clients", 1, CLIENTS_MAX)
    load = Load(
        clients=count,
        keys=count if keys is None else whole_number(keys, "--keys", 1, CLIENTS_MAX),
        seconds=seconds(time_s, "--time", 1, 300, above_zero=True),
        hold_s=seconds(hold, "--hold", 0, LEASE_MAX),
    )
    debug = invocation_of(context).debug
    if dev:
        from ticketing.cli.dev_cluster import DevCluster

        with DevCluster(3) as cluster:
            say("starting three nodes")
            cluster.wait_for(cluster.view, "the election of a leader")
            result = asyncio.run(_run(read_client_file(cluster.config), load, debug=debug))
    else:
        typed = Typed(config=config, addrs=addr or (), token_file=token_file, tls=tls)
        result = asyncio.run(_run(access_of(typed), load, debug=debug))
    facts = report(load, result)
    if as_json:
        write_json(facts)
    else:
        _show(facts)
    if not result.acquire_ns:
        reasons = ", ".join(f"{kind}: {number}" for kind, number in result.failures.items())
        raise CommandFailed(f"not one lock was had ({reasons or 'no answer in time'})")
    return ExitCode.DONE


async def _run(access: Access, load: Load, *, debug: bool) -> Result:
    broker = open_broker(access, debug=debug, name="ticketing-bench")
    try:
        await reach(broker, access, REACH_S)
        say(f"{load.clients} clients, {load.keys} keys, {load.seconds:g} s")
        return await run_load(broker, load, time.perf_counter_ns)
    finally:
        await broker.aclose()


def _show(facts: dict[str, Any]) -> None:
    write_line(f"{facts['pairs']} locks taken and given back, {facts['pairs_per_s']:.0f} a second")
    for name in ("acquire", "release"):
        row = facts[f"{name}_ms"]
        if row is not None:
            write_line(f"{name}  " + "  ".join(f"{key} {value:.2f} ms" for key, value in row.items()))
    most = max((row["count"] for row in facts["histogram"]), default=0)
    if most:
        write_line("acquire")
        for row in facts["histogram"]:
            bar = "#" * max(1 if row["count"] else 0, round(row["count"] * _BAR / most))
            write_line(f"  below {row['below_ms']:>8g} ms  {row['count']:>8}  {bar}".rstrip())
    for kind, number in facts["failures"].items():
        write_line(f"failed: {kind} {number}")
