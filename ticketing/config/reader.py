"""TOML into typed models: unknown keys refused with a suggestion, all faults collected before any is told."""

from __future__ import annotations

import functools
import math
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_args, get_origin, get_type_hints

from ticketing.config.lines import find_lines, line_of
from ticketing.config.problems import ConfigError, Problem

if TYPE_CHECKING:
    import msgspec

Model = TypeVar("Model")
"""A `NamedTuple`, or a msgspec `Struct` where ranges are checked. The former does without loading msgspec."""

FILE_BYTES_MAX = 1 << 20
"""A configuration file is smaller; a larger one is something else."""

_KINDS: dict[type, str] = {str: "a string", int: "a whole number", float: "a number", bool: "true or false"}
_MISSING = object()


class TomlFile:
    """One file that was read, and what is wrong with it so far."""

    def __init__(self, path: Path, data: dict[str, Any], text: str) -> None:
        self.path = path
        self.data = data
        self.problems: list[Problem] = []
        self.warnings: list[Problem] = []
        self._lines = find_lines(text)

    def line(self, key: str) -> int:
        """The line on which this very key stands, 0 where it does not."""
        return self._lines.get(key, 0)

    def problem(self, key: str, message: str) -> None:
        """Notes a fault of the value at `key`."""
        self.problems.append(Problem(self.path, key, message, line_of(self._lines, key)))

    def warning(self, key: str, message: str) -> None:
        """Notes something that works and is unwise."""
        self.warnings.append(Problem(self.path, key, message, line_of(self._lines, key)))

    def refuse_if_wrong(self) -> None:
        """Raises `ConfigError` with everything noted, in the order of the file, if anything was."""
        if self.problems:
            raise ConfigError(sorted(self.problems, key=lambda problem: problem.line))

    def read(self, model: type[Model]) -> Model | None:
        """The file as `model`; None where a required key is missing, which is then among the problems."""
        return self._table(model, self.data, "")

    def beside(self, text: str) -> Path:
        """A path of the file, which is meant from the folder of the file."""
        return self.path.parent / text

    def secret(self, key: str, text: str) -> str | None:
        """The content of the file at `text`, without its closing line break. Loose modes are warned of."""
        path = self.beside(text)
        content, fault = read_secret_file(path)
        if fault:
            self.problem(key, f"cannot read {path}: {fault}")
            return None
        self.check_mode(path, key)
        return content

    def check_mode(self, path: Path, key: str = "") -> None:
        """Warns of a file with secrets that others on this machine may read."""
        try:
            mode = path.stat().st_mode & 0o777
        except OSError:
            return
        if mode & 0o077 and os.name == "posix":
            self.warning(
                key, f"{path} holds secrets and others may open it (mode {mode:04o}): chmod 600 {path}"
            )

    def _table(self, model: type[Model], data: Mapping[str, Any], path: str) -> Model | None:
        fields = _fields(cast("Any", model))
        for key in data:
            if key not in fields:
                self.problem(f"{path}.{key}" if path else key, _unknown(key, list(fields)))
        values: dict[str, Any] = {}
        complete = True
        for name, (kind, limits, required) in fields.items():
            where = f"{path}.{name}" if path else name
            if name in data:
                value = self._value(kind, limits, data[name], where)
                if value is not _MISSING:
                    values[name] = value
                    continue
            elif required:
                self.problem(where, "is missing")
            if required:
                complete = False
        return model(**values) if complete else None

    def _value(self, kind: Any, limits: msgspec.Meta | None, value: Any, path: str) -> Any:
        if get_origin(kind) is tuple:
            return self._items(get_args(kind)[0], limits, value, path)
        if hasattr(kind, "_fields") or hasattr(kind, "__struct_fields__"):
            if isinstance(value, dict):
                table = self._table(kind, value, path)
                return _MISSING if table is None else table
            self.problem(path, f"must be a table ([{path}]), not {_shown(value)}")
            return _MISSING
        if not _is(kind, value):
            self.problem(path, f"must be {_KINDS[kind]}, not {_shown(value)}")
            return _MISSING
        if fault := _out_of_range(value, limits):
            self.problem(path, fault)
            return _MISSING
        return value

    def _items(self, kind: Any, limits: msgspec.Meta | None, value: Any, path: str) -> Any:
        if not isinstance(value, list):
            self.problem(path, f"must be a list, not {_shown(value)}")
            return _MISSING
        items = [self._value(kind, limits, item, f"{path}[{n}]") for n, item in enumerate(value, start=1)]
        return _MISSING if any(item is _MISSING for item in items) else tuple(items)


def read_toml(path: Path) -> TomlFile:
    """Reads a file; `ConfigError` where it is not there, not a file, not UTF-8 or not TOML."""

    def fail(message: str, line: int = 0) -> ConfigError:
        return ConfigError([Problem(path, "", message, line)])

    try:
        if path.is_dir():
            raise fail("is a folder, not a file")
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise fail(reason(error)) from None
    if len(content) > FILE_BYTES_MAX:
        raise fail("is larger than 1 MiB: not a configuration file")
    try:
        text = content.decode("utf-8-sig").replace("\r\n", "\n")
        data = tomllib.loads(text)
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise fail(f"is not UTF-8 (byte 0x{content[error.start]:02x})", line) from None
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"at line (\d+)", str(error))
        raise fail(f"is not valid TOML: {error}", int(found[1]) if found else 0) from None
    if not data:
        raise fail("is empty")
    return TomlFile(path, data, text)


def read_secret_file(path: Path) -> tuple[str, str]:
    """The content of a file without its closing line break, and what is wrong where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8").rstrip("\r\n"), ""
    except (OSError, UnicodeDecodeError) as error:
        return "", reason(error)


def reason(error: OSError | UnicodeDecodeError) -> str:
    """An error of the system in a few words, without its number."""
    if isinstance(error, OSError):
        return (error.strerror or str(error)).lower()
    return "it is not UTF-8"


@functools.cache
def _fields(model: type[Any]) -> dict[str, tuple[Any, msgspec.Meta | None, bool]]:
    hints = get_type_hints(model, include_extras=True)
    names: tuple[str, ...] = getattr(model, "_fields", ()) or model.__struct_fields__
    required = _required(model)
    found: dict[str, tuple[Any, msgspec.Meta | None, bool]] = {}
    for name in names:
        kind, limits = hints[name], None
        if hasattr(kind, "__metadata__"):
            limits = kind.__metadata__[0]
            kind = kind.__origin__
        if type(None) in get_args(kind):
            kind = get_args(kind)[0]
        found[name] = (kind, limits, name in required)
    return found


def _required(model: type[Any]) -> frozenset[str]:
    """The fields without a default."""
    if hasattr(model, "_field_defaults"):
        return frozenset(model._fields) - frozenset(model._field_defaults)
    import msgspec

    return frozenset(field.name for field in msgspec.structs.fields(model) if field.required)


def _is(kind: type, value: Any) -> bool:
    """Whether `value` may stand where `kind` is asked for: true is no number, 1 is a good enough 1.0."""
    if isinstance(value, bool):
        return kind is bool
    if kind is float:
        return isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))
    return isinstance(value, kind)


def _out_of_range(value: Any, limits: msgspec.Meta | None) -> str:
    if limits is None:
        return ""
    low, high = limits.ge, limits.le
    if (low is None or value >= low) and (high is None or value <= high):
        return ""
    allowed = (
        f"at least {low}" if high is None else f"at most {high}" if low is None else f"from {low} to {high}"
    )
    return f"must be {allowed}, not {_shown(value)}"


def _unknown(key: str, known: list[str]) -> str:
    import difflib

    close = difflib.get_close_matches(key, known, n=1)
    return (
        f"unknown key; did you mean `{close[0]}`?"
        if close
        else f"unknown key; known here: {', '.join(known)}"
    )


def _shown(value: Any) -> str:
    """A value for a message, short. Values of the wrong type are never secrets that were written as such."""
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
