"""The work of `ticketing release`: gives a lock back by its key and fencing token."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from ticketing.cli.arguments import Invocation, access_of, fencing_token, key_given, wants_json
from ticketing.cli.errors import CommandFailed, ExitCode, usage_error
from ticketing.cli.obtain import REACH_S, failure, open_broker, reach
from ticketing.cli.output import shown, write_json, write_line
from ticketing.client import TicketError
from ticketing.config.client_file import Access, Typed


class ReleaseWords(NamedTuple):
    """The options of `release` as they were typed."""

    words: tuple[str, ...] = ()
    key: str | None = None
    config: str | None = None
    addr: tuple[str, ...] = ()
    token_file: str | None = None
    tls: str | None = None
    output: str = "text"


def release(words: ReleaseWords, invocation: Invocation) -> int:
    """The exit code; `CommandFailed` or `ConfigError` where it comes to nothing."""
    as_json = wants_json(words.output)
    given = words.words
    if len(given) != (1 if words.key is not None else 2):
        raise usage_error("KEY and TOKEN are wanted", hint="ticketing release KEY TOKEN")
    name = key_given(given[0] if words.key is None else None, words.key)
    token = fencing_token(given[-1])
    typed = Typed(config=words.config, addrs=words.addr, token_file=words.token_file, tls=words.tls)
    released = asyncio.run(_release(access_of(typed), name, token, debug=invocation.debug))
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
