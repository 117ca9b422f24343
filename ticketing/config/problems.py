"""What is wrong with a configuration: every fault at once, each with its file, line and key."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple


class Problem(NamedTuple):
    """One fault of one file."""

    file: Path | None
    """None: the fault is in what was typed, not in a file."""
    key: str
    """Dotted path, list items as `nodes[2]` counted from 1; empty: the file as a whole."""
    message: str
    """The bad value and what is allowed."""
    line: int = 0
    """Counted from 1; 0 where it is not known."""

    def __str__(self) -> str:
        place = "" if self.file is None else str(self.file)
        if place and self.line:
            place += f":{self.line}"
        return ": ".join(part for part in (place, self.key, self.message) if part)


class ConfigError(Exception):
    """A configuration that cannot be used: every fault that was found, and in `hint` what to do next."""

    def __init__(self, problems: Sequence[Problem], hint: str = "") -> None:
        assert problems, "a configuration error names at least one problem"
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = tuple(problems)
        self.hint = hint


def half_way(error: ConfigError, done: Sequence[str], what: str = "") -> ConfigError:
    """The same error where it has stopped a change to several things: which are done.

    `what`: stands before them, as in `the files of `.
    """
    if not done:
        return error
    so_far = Problem(None, "", f"until then only {what}{', '.join(done)} were changed")
    return ConfigError(
        [*error.problems, so_far], error.hint or "when that is mended, run the same again: it goes on"
    )


def wrong(message: str, *, key: str = "", file: Path | None = None, hint: str = "") -> ConfigError:
    """An error of a single problem."""
    return ConfigError([Problem(file, key, message)], hint)
