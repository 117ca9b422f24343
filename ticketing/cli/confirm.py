"""Asking a person before something that cannot be taken back."""

from __future__ import annotations

import sys

from ticketing.cli.errors import CommandFailed, say, usage_error


def confirm(question: str, *, yes: bool) -> None:
    """Returns where the answer is yes, else ends the command. Never waits where no person can answer."""
    if yes:
        return
    say(question)
    if sys.stdin is None or not sys.stdin.isatty():
        raise usage_error(
            "this has to be confirmed, and standard input is no terminal",
            hint="nothing was done; --yes confirms it",
        )
    say("Type yes to go on:")
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandFailed("not confirmed, nothing was done")
