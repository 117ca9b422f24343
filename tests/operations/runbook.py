"""The commands of docs/operations.md, section by section, as they stand there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

RUNBOOK = Path(__file__).parents[2] / "docs" / "operations.md"

_PROMPT = re.compile(r"^(?P<host>[a-z][a-z.]*)[$#] (?P<command>.*)$")


class Line(NamedTuple):
    """One command, and the machine on whose prompt it stands."""

    host: str
    command: str


def sections(text: str) -> dict[str, list[Line]]:
    """The commands of each `## ` section, in order: what follows a prompt in its ```console blocks."""
    found: dict[str, list[Line]] = {}
    title, inside = "", False
    for row in text.splitlines():
        if row.startswith("```"):
            inside = row == "```console"
        elif not inside and row.startswith("## "):
            title = row[3:]
            found[title] = []
        elif inside and (prompt := _PROMPT.match(row)):
            found[title].append(Line(prompt["host"], prompt["command"]))
    return found


def read_runbook() -> dict[str, list[Line]]:
    return sections(RUNBOOK.read_text())
