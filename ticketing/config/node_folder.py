"""Which node's folder is meant, and whether a process is running in it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

from ticketing.config.layout import CLUSTER_FOLDER, NODE_FILE, STATE_FOLDER
from ticketing.config.problems import ConfigError, Problem, wrong
from ticketing.config.reader import read_toml
from ticketing.server.files import running_pid


class Chosen(NamedTuple):
    """The file of the node to start, and what to say about the choice."""

    file: Path
    note: str = ""


def place_name(text: str) -> str:
    """`2` and `node-2` both name the place node-2."""
    return f"node-{int(text)}" if text.isascii() and text.isdigit() else text


def choose_node(here: Path, config: Path | None = None, node: str | None = None) -> Chosen:
    """The node that `node start` means; `ConfigError` says where was looked and what was found.

    `config` may be a node's file, its folder, or a cluster's folder. Where several nodes are, and none is
    named, the lowest that is not running.
    """
    if config is not None and not config.is_dir():
        return Chosen(_named(config, node))
    folders = [config] if config is not None else [here, here / CLUSTER_FOLDER]
    for folder in folders:
        if (folder / NODE_FILE).is_file():
            return Chosen(_named(folder / NODE_FILE, node))
        if files := node_files(folder):
            return _of_several(folder, files, node)
    looked = ", ".join(str(folder / NODE_FILE) for folder in folders)
    raise ConfigError(
        [
            Problem(
                None,
                "",
                f"no node is configured here (looked for {looked} and for node-1, node-2 ... beside)",
            )
        ],
        hint="`ticketing init` writes a cluster's folder; --config names a node's file or folder",
    )


def node_files(folder: Path) -> dict[str, Path]:
    """The nodes whose folders stand in `folder`, by place, lowest first."""
    found = {child.name: child / NODE_FILE for child in _children(folder) if (child / NODE_FILE).is_file()}
    return dict(sorted(found.items(), key=lambda item: _order(item[0])))


def is_running(file: Path) -> bool:
    """Whether a process runs on the state folder of the node that `file` configures."""
    table = _node_table(file)
    state = table.get("state", STATE_FOLDER)
    return running_pid(file.parent / (state if isinstance(state, str) else STATE_FOLDER)) is not None


def _named(file: Path, node: str | None) -> Path:
    if node is not None and file.is_file():
        place = _node_table(file).get("place")
        if isinstance(place, str) and place != place_name(node):
            raise wrong(f"is the file of {place}, not of {place_name(node)}", file=file, key="node.place")
    return file


def _node_table(file: Path) -> dict[str, Any]:
    table = read_toml(file).data.get("node")
    return table if isinstance(table, dict) else {}


def _of_several(folder: Path, files: dict[str, Path], node: str | None) -> Chosen:
    if node is not None:
        name = place_name(node)
        if name not in files:
            raise wrong(f"has no {name}; there are {', '.join(files)}", file=folder, key="--node")
        return Chosen(files[name])
    running = [name for name, file in files.items() if is_running(file)]
    free = [name for name in files if name not in running]
    if not free:
        raise wrong(f"every node here is running already ({', '.join(running)})", file=folder)
    verb = "run" if len(running) > 1 else "runs"
    beside = f" ({', '.join(running)} {verb} already)" if running else ""
    return Chosen(
        files[free[0]], f"starting {free[0]} of {', '.join(files)}{beside}" if len(files) > 1 else ""
    )


def _children(folder: Path) -> list[Path]:
    try:
        return [child for child in folder.iterdir() if child.is_dir()]
    except OSError:
        return []


def _order(name: str) -> tuple[str, int]:
    number = re.search(r"(\d+)$", name)
    return (name[: number.start()], int(number[1])) if number else (name, 0)
