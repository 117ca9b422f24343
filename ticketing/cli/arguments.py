"""What was typed, checked and turned into values; without the framework that reads the command line."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import NamedTuple

from ticketing.cli.errors import usage_error, warn
from ticketing.cli.output import FORMATS
from ticketing.config.client_file import Access, Typed, find_access
from ticketing.protocol.fields import TOKEN_MAX, key_problem


class Invocation(NamedTuple):
    """What was typed beside the options of a sub-command."""

    command: list[str] | None
    """Everything after the first `--`, untouched; None where there is no `--`."""
    debug: bool = False


def access_of(typed: Typed) -> Access:
    """The cluster that is meant, with its warnings told."""
    access = find_access(typed, os.environ, Path.cwd())
    for problem in access.warnings:
        warn(str(problem))
    return access


def wants_json(output: str) -> bool:
    """Whether `-o json` was given; anything but the known formats is refused."""
    if output not in FORMATS:
        raise usage_error(f"--output must be one of {', '.join(FORMATS)}, not {output!r}")
    return output == "json"


def whole_number(text: str, option: str, low: int, high: int) -> int:
    """A whole number within its range; the message names both."""
    try:
        value = int(text)
    except ValueError:
        value = low - 1
    if not low <= value <= high or not text.strip().lstrip("+-").isascii():
        raise usage_error(f"{option} must be a whole number from {low} to {high}, not {text!r}")
    return value


def key_given(argument: str | None, option: str | None) -> str:
    """The key, from either place; refused before anything is sent if it can be no key."""
    if argument is not None and option is not None:
        raise usage_error("the key is given twice, as an argument and with --key")
    key = argument if argument is not None else option
    if key is None:
        raise usage_error("the key is missing", hint="a key that starts with a hyphen is given with --key")
    if problem := key_problem(key.encode("utf-8", "surrogateescape")):
        raise usage_error(problem)
    return key


def seconds(text: str, option: str, low: int, high: int, *, above_zero: bool = False) -> float:
    """Seconds, fractions allowed: on the wire they are rounded up to whole ones. Never clipped."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if math.isfinite(value) and value >= 0 and math.ceil(value) <= high and not (above_zero and value == 0):
        return value
    raise usage_error(f"{option} must be from {low} to {high} seconds, not {text!r}")


def fencing_token(text: str) -> int:
    """A token as `acquire` printed it."""
    if not (text.isascii() and text.isdigit()) or not 0 < int(text[:20]) < TOKEN_MAX:
        raise usage_error(f"TOKEN must be a whole number as acquire printed it, not {text!r}")
    return int(text)
