"""`ticketing release`: gives a lock back by its key and fencing token."""

from __future__ import annotations

from typing import Annotated

import typer

from ticketing.cli.options import Addr, Config, Output, Tls, TokenFile, invocation_of, new_app
from ticketing.cli.releasing import ReleaseWords
from ticketing.cli.releasing import release as run

app = new_app()


@app.command(epilog="Example: ticketing release stock/42 1883295816089600")
def release(
    context: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY TOKEN", help="TOKEN: what acquire printed.", show_default=False),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option("--key", metavar="KEY", help="For a key that starts with a hyphen; then only TOKEN."),
    ] = None,
    config: Config = None,
    addr: Addr = None,
    token_file: TokenFile = None,
    tls: Tls = None,
    output: Output = "text",
) -> int:
    """Release a lock. Exit code 10 where that token does not hold the key any more."""
    given = ReleaseWords(tuple(words or ()), key, config, tuple(addr or ()), token_file, tls, output)
    return run(given, invocation_of(context))
