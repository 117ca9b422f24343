"""`ticketing release`: gives a lock back by its key and fencing token."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from ticketing.cli.acquire import key_given
from ticketing.cli.errors import CommandFailed, ExitCode, usage_error
from ticketing.cli.obtain import REACH_S, failure, open_broker, reach
from ticketing.cli.options import (
    Addr,
    Config,
    Output,
    Tls,
    TokenFile,
    access_of,
    invocation_of,
    new_app,
    wants_json,
)
from ticketing.cli.output import shown, write_json, write_line
from ticketing.client import TicketError
from ticketing.config.client_file import Access, Typed
from ticketing.protocol.fields import TOKEN_MAX

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
    as_json = wants_json(output)
    given = list(words or ())
    if len(given) != (1 if key is not None else 2):
        raise usage_error("KEY and TOKEN are wanted", hint="ticketing release KEY TOKEN")
    name = key_given(given[0] if key is None else None, key)
    token = fencing_token(given[-1])
    access = access_of(Typed(config=config, addrs=addr or (), token_file=token_file, tls=tls))
    released = asyncio.run(_release(access, name, token, debug=invocation_of(context).debug))
    if as_json:
        write_json({"key": name, "token": str(token), "released": released})
    elif released:
        write_line("released")
    if not released:
        raise CommandFailed(f"{shown(name)} is not held by {token} any more", ExitCode.NOTHING_HELD)
    return ExitCode.DONE


async def _release(access: Access, key: str, token: int, *, debug: bool) -> bool:
    broker = open_broker(access, debug=debug)
    try:
        await reach(broker, access, REACH_S)
        return await broker.release(key, token)
    except TicketError as error:
        raise failure(error, access) from None
    finally:
        await broker.aclose()


def fencing_token(text: str) -> int:
    """A token as `acquire` printed it."""
    if not (text.isascii() and text.isdigit()) or not 0 < int(text[:20]) < TOKEN_MAX:
        raise usage_error(f"TOKEN must be a whole number as acquire printed it, not {text!r}")
    return int(text)
