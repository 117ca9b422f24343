"""How a command ends: its result or what was raised, turned into an exit code. Without the framework."""

from __future__ import annotations

from collections.abc import Callable

from ticketing.cli.errors import ExitCode, tell
from ticketing.cli.output import ReaderGone, silence


def ended(command: Callable[[], object], *, debug: bool) -> int:
    """Runs a command. What the user or the network got wrong is told in a line, never in a traceback."""
    try:
        result = command()
    except ReaderGone:
        return ExitCode.READER_GONE
    except BrokenPipeError:
        silence()
        return ExitCode.READER_GONE
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except Exception as error:
        return tell(error, debug=debug)
    return result if isinstance(result, int) else ExitCode.DONE
