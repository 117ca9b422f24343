"""Finds the sub-command, runs it, and turns what ends it into an exit code."""

from __future__ import annotations

import errno
import importlib
import io
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperGroup

from ticketing.cli.arguments import Invocation
from ticketing.cli.ending import ended
from ticketing.cli.errors import CommandFailed, ExitCode, say, tell
from ticketing.cli.output import silence, unwritten, write_line

COMMANDS: dict[str, str] = {
    "init": "ticketing.cli.init",
    "node": "ticketing.cli.node",
    "form": "ticketing.cli.form",
    "config": "ticketing.cli.config",
    "dev": "ticketing.cli.dev",
    "demo": "ticketing.cli.demo",
    "acquire": "ticketing.cli.acquire",
    "release": "ticketing.cli.release",
    "locks": "ticketing.cli.locks",
    "status": "ticketing.cli.status",
    "clock": "ticketing.cli.clock",
    "doctor": "ticketing.cli.doctor",
    "token": "ticketing.cli.tokens",
    "cert": "ticketing.cli.cert",
    "bench": "ticketing.cli.bench",
    "completion": "ticketing.cli.completion",
    "top": "ticketing.cli.top",
}
"""Each sub-command's module, which has it as `app`. Nothing is imported that the called one does not need."""


class LazyGroup(TyperGroup):
    """Sub-commands that are imported when they are called."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - the framework's signature
        """The names, in the order in which they are told."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        """The sub-command itself, or None."""
        module = COMMANDS.get(cmd_name)
        if module is None:
            return None
        command = typer.main.get_command(importlib.import_module(module).app)
        command.name = cmd_name
        return command


app = typer.Typer(
    cls=LazyGroup,
    name="ticketing",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Example: ticketing dev, and in another terminal: ticketing acquire stock/42 --wait 5",
)


def _version(value: bool) -> None:
    if value:
        from ticketing import __version__
        from ticketing.native import is_compiled

        write_line(f"ticketing {__version__}" + " (compiled)" * is_compiled())
        raise typer.Exit


@app.callback()
def root(
    debug: bool = typer.Option(False, "--debug", help="Show where an error came from."),
    version: bool = typer.Option(
        False, "--version", help="Print the version.", callback=_version, is_eager=True
    ),
) -> None:
    """A distributed lock service: a queue per key, leases, and fencing tokens."""


def run(arguments: Sequence[str]) -> int:
    """Runs one command; returns its exit code. What the user or the network got wrong is told in a line."""
    given = list(arguments)
    if given[:1] == ["__complete"]:
        return _complete(given[1:])
    words, command = _split(given)
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"]
    stdout = sys.stdout
    if isinstance(stdout, io.TextIOWrapper):
        # A locale that cannot show a key must not end the command that found it.
        stdout.reconfigure(errors="backslashreplace")
    return ended(lambda: _dispatch(words, Invocation(command, debug), stdout), debug=debug)


def _complete(words: Sequence[str]) -> int:
    """For the completion scripts: candidates, one a line, and never a word about anything else."""
    from ticketing.cli.complete import complete

    root = typer.main.get_command(app)

    def run() -> None:
        for word in complete(words, root):
            write_line(word)

    return ended(run, debug=False)


def _dispatch(words: list[str], invocation: Invocation, stdout: object) -> object:
    try:
        return typer.main.get_command(app).main(
            args=words, prog_name="ticketing", standalone_mode=False, obj=invocation
        )
    except SystemExit as end:
        if sys.stdout is stdout:
            raise
        # The framework met a closed pipe while it printed a help, and has put something harmless in its place.
        silence()
        return ExitCode.READER_GONE if end.code else ExitCode.DONE
    except OSError as error:
        if error.errno == errno.EPIPE or not _framework_wrote(error):
            raise
        silence()
        raise unwritten(error) from None
    except typer.Abort:
        return ExitCode.INTERRUPTED
    except _UsageError as error:
        return _usage(error, words)


def _framework_wrote(error: OSError) -> bool:
    """Whether the framework has met it while it printed a help: all other output is ours."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return str(frames[-1].f_globals.get("__name__")).partition(".")[0] in ("typer", "click")


def _split(words: list[str]) -> tuple[list[str], list[str] | None]:
    """Our own words, and all that stands after the first `--` of `acquire`, which is not looked at."""
    command = next((word for word in words if not word.startswith("-")), "")
    if "--" not in words or command != "acquire" or words.index(command) > words.index("--"):
        return words, None
    cut = words.index("--")
    return words[:cut], words[cut + 1 :]


# The framework's base of everything that is wrong with a command line. It has had several homes.
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]


def _usage(error: Any, words: list[str]) -> int:
    """The framework's own complaint in our form."""
    message = error.format_message()
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        say(message)
        return ExitCode.USAGE
    path = context.command_path if context is not None else "ticketing"
    hint = f"see `{path} --help`"
    if words[:1] == ["acquire"] and "unexpected extra argument" in message:
        hint = "put -- before the command that is to run under the lock: ticketing acquire KEY -- CMD ARG..."
    return tell(CommandFailed(message[:1].lower() + message[1:].rstrip("."), ExitCode.USAGE, hint=hint))
