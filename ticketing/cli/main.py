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
    _fill_closed_streams()
    if arguments is None and [word for word in words if word != "--debug"][:2] == ["node", "start"]:
        _hold_back_reloads()
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


def _fill_closed_streams() -> None:
    """A descriptor that leads nowhere for each standard stream that the caller has closed.

    First of all, or a socket gets its number. A result that cannot be written is then an error as on a full disk, and
    what is said for people never gets into it. Commands that we run find the stream closed, as the caller meant it.
    """
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR if name == "stderr" else os.O_RDONLY)
        if getattr(sys, name) is None:
            stream = open(number, mode, errors="backslashreplace", closefd=False)  # noqa: SIM115 - it stays
            setattr(sys, name, stream)


def _hold_back_reloads() -> None:
    """SIGHUP waits until the node can listen to it: before that it would end the process, and as if it was told to."""
    import signal

    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})


def _leave(code: int) -> int:
    """Ends the process. All is given back by now, and taking the interpreter down would double the command's time."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            return code
    os._exit(code)
