"""On which line of a TOML file a key stands; the standard reader does not say."""

from __future__ import annotations

import re

_HEADER = re.compile(r"^\s*(\[\[?)\s*([^\[\]#]+?)\s*\]\]?\s*(?:#.*)?$")
_KEY = re.compile(
    r"""^\s*((?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*'))*)\s*=(.*)$"""
)


def find_lines(text: str) -> dict[str, int]:
    """The line, counted from 1, of every table and key, under the paths that `Problem.key` uses.

    Made for files that people write: one key a line. What it misreads costs a line number, never a verdict.
    """
    lines: dict[str, int] = {}
    counts: dict[str, int] = {}
    prefix = ""
    closing = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if closing:
            if closing in line:
                closing = ""
            continue
        if header := _HEADER.match(line):
            name = _plain(header[2])
            if header[1] == "[[":
                counts[name] = counts.get(name, 0) + 1
            prefix = _numbered(name, counts)
            lines.setdefault(prefix, number)
        elif key := _KEY.match(line):
            path = _plain(key[1])
            lines.setdefault(f"{prefix}.{path}" if prefix else path, number)
            closing = _left_open(key[2])
    return lines


def line_of(lines: dict[str, int], key: str) -> int:
    """The line of `key`, else of the nearest table or list around it, else 0."""
    while key:
        if key in lines:
            return lines[key]
        key = re.sub(r"(\.[^.\[]+|\[\d+\]|^[^.\[]+)$", "", key)
    return 0


def _plain(path: str) -> str:
    return ".".join(part.strip().strip("\"'") for part in path.split("."))


def _numbered(name: str, counts: dict[str, int]) -> str:
    """`cluster.nodes` -> `cluster.nodes[2]` for every part of the path that is a list of tables."""
    parts = name.split(".")
    path, numbered = "", ""
    for part in parts:
        path = f"{path}.{part}" if path else part
        numbered = f"{numbered}.{part}" if numbered else part
        if path in counts:
            numbered += f"[{counts[path]}]"
    return numbered


def _left_open(value: str) -> str:
    """What ends a value that goes on below its own line, else an empty string."""
    for quotes in ('"""', "'''"):
        if value.count(quotes) % 2:
            return quotes
    bare = re.sub(r'"(?:\\.|[^"\\])*"|\'[^\']*\'', "", value).split("#")[0]
    return "]" if bare.count("[") > bare.count("]") else ""
