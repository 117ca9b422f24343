"""Options that several commands share, so that they read and mean the same everywhere."""

from __future__ import annotations

from typing import Annotated

import typer

from ticketing.cli.errors import usage_error
from ticketing.cli.output import FORMATS

Output = Annotated[str, typer.Option("--output", "-o", metavar="FORMAT", help="text or json.")]


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


def new_app(**settings: object) -> typer.Typer:
    """A sub-command's own application, with what all of them have in common."""
    context = {"help_option_names": ["-h", "--help"]}
    return typer.Typer(
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        add_completion=False,
        context_settings=context,
        **settings,  # type: ignore[arg-type]
    )
