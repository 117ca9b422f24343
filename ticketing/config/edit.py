"""Changing single values of a TOML file as people wrote it: comments, order and everything else stay as they are.

Every change is checked by reading the result: it holds what was there before, the one value apart. Where a file is
written in a way that this cannot follow, nothing is changed and the person is told what to write.
"""

from __future__ import annotations

import copy
import json
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ticketing.config.lines import find_lines
from ticketing.config.owners import keep_owner
from ticketing.config.problems import ConfigError, half_way, wrong
from ticketing.config.reader import read_toml, reason

Scalar = str | int | bool
_PART = re.compile(r"([^.\[\]]+)(?:\[(\d+)\])?")


def with_value(text: str, key: str, value: Scalar | list[str]) -> str:
    """The text with `key` (`secrets.client_tokens`, `cluster.nodes[2].peer`) set, which is added to its table where it
    is missing. `ValueError` where that cannot be done.
    """
    before = tomllib.loads(text)
    lines = text.splitlines(keepends=True)
    known = find_lines(text)
    table, _, name = key.rpartition(".")
    new = f"{name} = {_literal(value)}\n"
    if key in known:
        start = known[key] - 1
        lines[start : start + _length(lines[start:])] = [new]
    elif table in known:
        lines.insert(known[table], new)
    elif not table:
        lines.insert(0, new)
    else:
        raise ValueError(f"there is no table [{table}]")
    result = "".join(lines)
    try:
        _set(before, key, value)
    except (TypeError, AttributeError, LookupError):
        raise ValueError(f"{key} is not where it is looked for") from None
    try:
        after = tomllib.loads(result)
    except tomllib.TOMLDecodeError:
        after = None
    if after != before:
        raise ValueError(f"{key} is written in a way that is not understood")
    return result


def set_values(path: Path, values: dict[str, Scalar | list[str]]) -> None:
    """Sets values in a file; `ConfigError` where that cannot be done, and then nothing is changed."""
    replace_file(path, edited(path, values))


def edited(path: Path, values: dict[str, Scalar | list[str]]) -> bytes:
    """A file's content with these values set; `ConfigError` where that cannot be done. Nothing is written."""
    read_toml(path)
    try:
        text = path.read_text(encoding="utf-8")
        for key, value in values.items():
            text = with_value(text, key, value)
    except ValueError as error:
        names = ", ".join(values)
        raise wrong(f"cannot be changed by program ({error}): set {names} by hand", file=path) from None
    return text.encode()


def replace_file(path: Path, content: bytes) -> None:
    """Puts new content into a file, all of it or nothing; the file's owner alone may open it.

    Its owner stays, whoever changes it, and a group that was let in (mode 0640): a node reads it as its own user. A
    link is followed: what it leads to is replaced.
    """
    path = path.resolve()
    fresh = path.with_name(f".{path.name}.new")
    try:
        fresh.unlink(missing_ok=True)
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                keep_owner(descriptor, path)
                os.fsync(descriptor)
            fresh.replace(path)
        except BaseException:
            fresh.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise wrong(f"cannot write: {reason(error)}", file=path) from None


def _literal(value: Scalar | list[str]) -> str:
    """JSON's strings, numbers, truth values and lists of strings are TOML's as well, but for one control character."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _length(lines: list[str]) -> int:
    """How many lines the value takes that begins on the first."""
    for count in range(1, len(lines) + 1):
        try:
            tomllib.loads("".join(lines[:count]))
        except tomllib.TOMLDecodeError:
            continue
        return count
    return 1


def _set(data: dict[str, Any], key: str, value: Scalar | list[str]) -> None:
    place: Any = data
    *tables, name = _PART.findall(key)
    for table, number in tables:
        place = place.setdefault(table, {})
        if number:
            place = place[int(number) - 1]
    place[name[0]] = copy.copy(value)


def replace_files(wanted: Mapping[Path, bytes]) -> list[Path]:
    """One after another; those that were written. `ConfigError` at the first that cannot be, with those before it."""
    written: list[Path] = []
    for file, content in wanted.items():
        try:
            replace_file(file, content)
        except ConfigError as error:
            raise half_way(error, [str(done) for done in written]) from None
        written.append(file)
    return written
