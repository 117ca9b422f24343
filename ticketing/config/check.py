"""All that can be said of configuration files without running anything: `config check` and `config show`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ticketing.config.client_file import read_admin_file, read_client_file
from ticketing.config.layout import ADMIN_FILE, CLIENT_FILE, NODE_FILE
from ticketing.config.load import LoadedNode, load_node
from ticketing.config.node_folder import node_files
from ticketing.config.problems import ConfigError, Problem, wrong
from ticketing.config.reader import TomlFile, read_toml

SECRET_KEYS = frozenset(("client_tokens", "peer_secrets", "admin_token", "admin_tokens", "token"))


class Checked(NamedTuple):
    """One file: what it is, and what is wrong or unwise about it."""

    file: Path
    kind: str
    """`node`, `client` or `admin`."""
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()


class Value(NamedTuple):
    """One effective value. Secrets are not in it, only whether there is one."""

    key: str
    value: str
    source: str
    """`line N` of the file, or `default`."""


def check_path(path: Path) -> list[Checked]:
    """Checks a file, or every file of a node's or a cluster's folder, and that its nodes agree."""
    if not path.is_dir():
        return [_check_file(path)[0]]
    files = [path / name for name in (NODE_FILE, CLIENT_FILE, ADMIN_FILE) if (path / name).is_file()]
    files += node_files(path).values()
    if not files:
        raise wrong(f"holds none of {NODE_FILE}, {CLIENT_FILE}, {ADMIN_FILE} and no node's folder", file=path)
    found = [_check_file(file) for file in files]
    nodes = [loaded for _, loaded in found if loaded is not None]
    return [_agreeing(checked, loaded, nodes[0] if nodes else None) for checked, loaded in found]


def file_kind(path: Path) -> str:
    """Which of the three files it is: by its name, else by what is in it."""
    kinds = {NODE_FILE: "node", CLIENT_FILE: "client", ADMIN_FILE: "admin"}
    if path.name in kinds:
        return kinds[path.name]
    data = read_toml(path).data
    return "client" if "addrs" in data else "admin" if "nodes" in data else "node"


def node_values(path: Path) -> list[Value]:
    """Every effective value of a node's file, in the order of the model; `ConfigError` where it has faults."""
    loaded = load_node(path)
    return list(_values(loaded.model, read_toml(loaded.file), ""))


def _check_file(path: Path) -> tuple[Checked, LoadedNode | None]:
    kind = "node"
    try:
        kind = file_kind(path)
        if kind == "node":
            loaded = load_node(path)
            return Checked(path, kind, (), loaded.warnings), loaded
        read = read_client_file if kind == "client" else read_admin_file
        return Checked(path, kind, (), read(path).warnings), None
    except ConfigError as error:
        return Checked(path, kind, error.problems), None


def _agreeing(checked: Checked, loaded: LoadedNode | None, first: LoadedNode | None) -> Checked:
    if loaded is None or first is None or loaded.settings.node.cluster == first.settings.node.cluster:
        return checked
    message = f"differs from that of {first.file}: these nodes would not form a domain together"
    return checked._replace(problems=(Problem(checked.file, "cluster", message),))


def _values(model: msgspec.Struct, file: TomlFile, path: str) -> Iterator[Value]:
    for name in model.__struct_fields__:
        key = f"{path}.{name}" if path else name
        value = getattr(model, name)
        if isinstance(value, msgspec.Struct):
            yield from _values(value, file, key)
        elif isinstance(value, tuple) and value and isinstance(value[0], msgspec.Struct):
            for number, item in enumerate(value, start=1):
                yield from _values(item, file, f"{key}[{number}]")
        else:
            line = file.line(key)
            yield Value(key, _shown(name, value), f"line {line}" if line else "default")


def _shown(name: str, value: Any) -> str:
    if name in SECRET_KEYS:
        count = len(value) if isinstance(value, tuple) else int(bool(value))
        return f"({count} not shown)" if count else "(none)"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if value not in ("", None) else "-"
