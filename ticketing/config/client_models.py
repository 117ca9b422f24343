"""`client.toml` and `admin.toml` as they are written; apart from `node.toml`, for commands that start fast."""

from __future__ import annotations

from typing import NamedTuple


class ClientFile(NamedTuple):
    """`client.toml`: what a program needs to reach the cluster."""

    addrs: tuple[str, ...]
    token: str = ""
    token_file: str = ""
    tls: str = "off"
    """`off`, `system-roots`, `insecure-skip-verify`, or a CA file (from the folder of the file)."""


class AdminPlaceTable(NamedTuple):
    """`[[nodes]]` of `admin.toml`."""

    name: str
    admin: str


class AdminFile(NamedTuple):
    """`admin.toml`: what an operator's commands need to reach every node."""

    nodes: tuple[AdminPlaceTable, ...]
    token: str = ""
    token_file: str = ""
    tls: str = "off"
