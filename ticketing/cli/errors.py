"""What goes wrong, told once: the exit codes, and the only place that writes to standard error."""

from __future__ import annotations

import contextlib
import os
import sys
from enum import IntEnum

from ticketing.config.problems import ConfigError


class ExitCode(IntEnum):
    """The exit status of every command. `acquire KEY -- CMD` passes CMD's own code through beside these."""

    DONE = 0
    FAILURE = 1
    USAGE = 2
    """Usage or configuration."""
    NOT_ACQUIRED = 3
    """The wait ran out, or `--wait 0` met a held key."""
    BUSY = 4
    """Refused by capacity, range or clock gate: not acquired."""
    INDETERMINATE = 5
    INSUFFICIENT_LEASE = 6
    UNREACHABLE = 7
    """No node can be reached, or no leader serves."""
    REFUSED = 8
    """Authentication."""
    UNHEALTHY = 9
    """Checked, and found unhealthy."""
    NOTHING_HELD = 10
    LEASE_RAN_OUT = 11
    """The lease ran out while the command ran."""
    REMOVED = 12
    """The node was removed from the cluster."""
    START_AGAIN = 13
    """The node was stopped for another process to be started in its place."""
    NOT_EXECUTABLE = 126
    NOT_FOUND = 127
    INTERRUPTED = 130
    READER_GONE = 141
    """Whoever read our output has closed the pipe (128 + SIGPIPE), as other tools have it."""


class CommandFailed(Exception):  # noqa: N818 - it is how a command ends, with a code of its own
    """Ends a command: what is wrong and where, the exit code, and what to do next."""

    def __init__(self, message: str, code: int = ExitCode.FAILURE, *, hint: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.hint = hint


def usage_error(message: str, *, hint: str = "") -> CommandFailed:
    """A command that was called in a wrong way."""
    return CommandFailed(message, ExitCode.USAGE, hint=hint)


def say(text: str) -> None:
    """One line for a person, beside the result. A standard error that nobody reads is no reason to stop."""
    with contextlib.suppress(OSError, ValueError):
        print(text, file=sys.stderr, flush=True)


def warn(text: str) -> None:
    """Something that works and is unwise."""
    say(f"warning: {text}")


def tell(error: BaseException, *, debug: bool = False) -> int:
    """Tells of an error in one line each for what is wrong and what to do; returns the exit code.

    Never a traceback without `debug`, and never the values of variables: they may be secrets.
    """
    if debug:
        import traceback

        with contextlib.suppress(OSError, ValueError):
            traceback.print_exception(error, file=sys.stderr)
    if isinstance(error, CommandFailed):
        _error(str(error), error.hint)
        return error.code
    if isinstance(error, ConfigError):
        for problem in error.problems:
            say(f"error: {problem}")
        if error.hint:
            say(f"hint: {error.hint}")
        return ExitCode.USAGE
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        _error(f"{where}{error.strerror.lower()}", "" if debug else _MORE)
        return ExitCode.FAILURE
    _error(f"unexpected {type(error).__name__}", "" if debug else _MORE)
    return ExitCode.FAILURE


_MORE = "run it again with --debug to see where"


def _error(message: str, hint: str) -> None:
    say(f"error: {message}")
    if hint:
        say(f"hint: {hint}")


def coloured(stream_is_terminal: bool) -> bool:
    """Whether colour may be used: on a terminal that can, unless `NO_COLOR` is set."""
    return stream_is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
