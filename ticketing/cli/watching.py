"""`--watch`: the same report again and again, until Ctrl-C."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from ticketing.cli.errors import CommandFailed, ExitCode, coloured, say, usage_error
from ticketing.cli.output import write_line

INTERVAL_S = 2.0
_CLEAR = "\x1b[H\x1b[2J"


def watch(
    report: Callable[[], object],
    *,
    every_s: float,
    as_json: bool,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Reports until it is interrupted. A cluster that does not answer for a while is told of and asked again.

    On a terminal each report takes the place of the one before; elsewhere, and as JSON, they follow each other.
    """
    clear = not as_json and coloured(sys.stdout.isatty())
    first = True
    told = ""
    while True:
        if clear:
            write_line(_CLEAR + f"every {every_s:g} s, Ctrl-C ends")
        elif not first and not as_json:
            write_line()
        first = False
        try:
            report()
            told = ""
        except CommandFailed as failed:
            if failed.code != ExitCode.UNREACHABLE:
                raise
            if str(failed) != told:
                say(f"error: {failed}")
                told = str(failed)
        sleep(every_s)


def interval(text: str) -> float:
    """Seconds between two reports."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.1 <= value <= 3600:
        raise usage_error(f"--interval must be from 0.1 to 3600 seconds, not {text!r}")
    return value
