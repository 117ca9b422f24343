"""`ticketing acquire`: takes a lock, for a command or for whoever releases it later."""

from __future__ import annotations

from typing import Annotated

import typer

from ticketing.cli.acquiring import AcquireWords
from ticketing.cli.acquiring import acquire as run
from ticketing.cli.options import Addr, Config, Output, Tls, TokenFile, invocation_of, new_app
from ticketing.protocol.fields import LEASE_MAX, LEASE_MIN, WAIT_MAX

app = new_app()


@app.command(
    epilog="Example: ticketing acquire stock/42 --wait 5 --lease 30 -- ./take-stock --all"
    " (runs ./take-stock under the lock; without -- it prints the fencing token)"
)
def acquire(
    context: typer.Context,
    key: Annotated[str | None, typer.Argument(metavar="KEY", show_default=False)] = None,
    key_option: Annotated[
        str | None, typer.Option("--key", metavar="KEY", help="For a key that starts with a hyphen.")
    ] = None,
    wait: Annotated[str, typer.Option(metavar="SECONDS", help=f"0 to {WAIT_MAX}; 0 tries once.")] = "5",
    lease: Annotated[
        str,
        typer.Option(
            metavar="SECONDS", help=f"{LEASE_MIN} to {LEASE_MAX}; it ends the lock of a dead holder."
        ),
    ] = "30",
    budget: Annotated[
        str, typer.Option(metavar="SECONDS", help="What the work needs: less left of the lease is a failure.")
    ] = "0",
    extend: Annotated[
        bool, typer.Option("--extend", help="With a command: extend the lease as long as it runs.")
    ] = False,
    grace: Annotated[
        str | None,
        typer.Option(
            metavar="SECONDS",
            help="Between SIGTERM and SIGKILL at the lease's end. [default: 5, or lease / 4]",
        ),
    ] = None,
    on_lease_end: Annotated[
        str | None, typer.Option(metavar="WHAT", help="kill (default), or warn: leave the command alone.")
    ] = None,
    fail_code: Annotated[
        str | None, typer.Option(metavar="N", help="With a command: instead of our own codes 3 to 8.")
    ] = None,
    config: Config = None,
    addr: Addr = None,
    token_file: TokenFile = None,
    tls: Tls = None,
    output: Output = "text",
) -> int:
    """Acquire a lock. With -- CMD run CMD under it and release it after; without, print its fencing token."""
    words = AcquireWords(
        key,
        key_option,
        wait,
        lease,
        budget,
        extend,
        grace,
        on_lease_end,
        fail_code,
        config,
        tuple(addr or ()),
        token_file,
        tls,
        output,
    )
    return run(words, invocation_of(context))
