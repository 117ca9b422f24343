"""The console script. Loads nothing before it can answer a Ctrl-C properly."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

INTERRUPTED = 130
NOT_INSTALLED = 2
_EXTRA = (
    "aiohttp",
    "cryptography",
    "msgspec",
    "prometheus_client",
    "rich",
    "textual",
    "tomli_w",
    "typer",
    "uvloop",
)
"""What the extra `server` brings. Who has installed the client alone has none of it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    try:
        if words and words[0] in ("acquire", "release"):
            from ticketing.cli.quick import run_quickly

            code = run_quickly(words)
            if code is not None:
                return code if arguments is not None else _leave(code)
        from ticketing.cli.app import run

        return run(words)
    except KeyboardInterrupt:
        return INTERRUPTED
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in _EXTRA:
            raise
        sys.stderr.write(
            f"ticketing: {missing} is not installed, only the client library is: "
            "pip install 'ticketing-server[server]'\n"
        )
        return NOT_INSTALLED


def _leave(code: int) -> int:
    """Ends the process. All is given back by now, and taking the interpreter down would double the command's time."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            return code
    os._exit(code)
