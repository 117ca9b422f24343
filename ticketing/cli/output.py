"""Results, and the only place that writes to standard output."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from ticketing.cli.errors import CommandFailed
from ticketing.protocol.fields import escaped

FORMATS = ("text", "json")


class ReaderGone(Exception):  # noqa: N818 - not an error of ours
    """Whoever read our output has closed the pipe: the command ends quietly."""


def write_line(text: str = "") -> None:
    """One line of a result, written at once; `ReaderGone` or `CommandFailed` where it cannot be."""
    try:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
    except OSError as error:
        silence()
        if error.errno == errno.EPIPE:
            raise ReaderGone from None
        raise unwritten(error) from None


def unwritten(error: OSError) -> CommandFailed:
    """Standard output cannot be written."""
    return CommandFailed(f"cannot write the result: {(error.strerror or str(error)).lower()}")


def write_json(value: Any) -> None:
    """One JSON object on one line, ASCII alone, so that any locale and any reader can take it."""
    import json

    write_line(json.dumps(value, ensure_ascii=True))


def write_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Columns aligned by spaces. Never wrapped: lines are read by other programs too."""
    table = [list(header), *(list(row) for row in rows)]
    widths = [max(len(row[n]) for row in table) for n in range(len(header))]
    for row in table:
        write_line("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def shown(text: str) -> str:
    """A key or name of a user's for a person's eyes: what could move the cursor is escaped."""
    return escaped(text.encode("utf-8", "surrogateescape"))


def silence() -> None:
    """Standard output becomes a hole, so that the interpreter's flush at exit has nothing to complain of."""
    hole = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(hole, sys.stdout.fileno())
    except (OSError, ValueError):
        pass
    finally:
        os.close(hole)
