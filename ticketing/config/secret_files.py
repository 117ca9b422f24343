"""Client tokens and peer secrets where `node.toml` has them: read, added to, and taken away, never shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ticketing.config.edit import replace_file, set_values
from ticketing.config.layout import CLUSTER_FOLDER, NODE_FILE
from ticketing.config.load import LoadedNode, load_node
from ticketing.config.node_folder import node_files
from ticketing.config.problems import ConfigError, Problem, wrong
from ticketing.server.loaded import fingerprint

__all__ = [
    "KINDS",
    "NodeSecrets",
    "fingerprint",
    "nodes_of",
    "read_secrets",
    "with_secret",
    "without_secrets",
]

KINDS = {"client": "client_tokens", "peer": "peer_secrets", "admin": "admin_token"}
"""What may be rotated, and its key under `[secrets]`."""

PEER_SECRETS_MAX = 2


_WITHOUT = {
    "client": "everybody is let in",
    "peer": "nodes could not prove themselves to each other",
    "admin": "nobody could operate the node",
}


class NodeSecrets(NamedTuple):
    """The secrets of one kind in one node's files."""

    loaded: LoadedNode
    kind: str
    values: tuple[str, ...]

    @property
    def place(self) -> str:
        """The node's place."""
        return self.loaded.settings.node.place


def nodes_of(here: Path, folder: Path | None, environment: Mapping[str, str]) -> list[LoadedNode]:
    """The nodes whose files are in a node's or a cluster's folder; `ConfigError` says where was looked.

    Without `folder`: where `TICKETING_CONFIG` points to, else here, else `./ticketing-cluster`.
    """
    folders = [folder] if folder is not None else [here, here / CLUSTER_FOLDER]
    if folder is None and (named := environment.get("TICKETING_CONFIG")):
        folders = [here / named if (here / named).is_dir() else (here / named).parent]
    for candidate in folders:
        if (candidate / NODE_FILE).is_file():
            return [load_node(candidate)]
        if files := node_files(candidate):
            return [load_node(file) for file in files.values()]
    looked = ", ".join(str(candidate) for candidate in folders)
    raise ConfigError(
        [
            Problem(
                None, "", f"there is no node's file here (looked in {looked} and in node-1, node-2 ... there)"
            )
        ],
        hint="--dir names a node's or a cluster's folder",
    )


def read_secrets(nodes: Sequence[LoadedNode], kind: str) -> list[NodeSecrets]:
    """What each node accepts."""
    found = []
    for loaded in nodes:
        node = loaded.settings.node
        values = {
            "client": node.client_tokens,
            "peer": tuple(value.decode() for value in node.peer_secrets),
            "admin": loaded.settings.admin_tokens,
        }
        found.append(NodeSecrets(loaded, kind, values[kind]))
    return found


def with_secret(secrets: NodeSecrets, secret: str) -> bool:
    """Adds one as the last; whether the files were changed. The first, with which peers prove themselves, stays."""
    if secret in secrets.values:
        return False
    if secrets.kind == "peer" and len(secrets.values) >= PEER_SECRETS_MAX:
        raise wrong(
            "two peer secrets are accepted already: a rotation is under way",
            file=secrets.loaded.file,
            hint="end it first: `ticketing token remove --kind peer --old`",
        )
    _write(secrets, (*secrets.values, secret))
    return True


def without_secrets(secrets: NodeSecrets, old: Sequence[str]) -> bool:
    """Takes some away; whether the files were changed. The last one is never taken: none would let everybody in."""
    left = tuple(value for value in secrets.values if value not in old)
    if left == secrets.values:
        return False
    if not left:
        raise wrong(
            "would be left without any: then " + _WITHOUT[secrets.kind],
            file=secrets.loaded.file,
            key=f"secrets.{KINDS[secrets.kind]}",
            hint=f"add the new one first: `ticketing token add --kind {secrets.kind}`",
        )
    _write(secrets, left)
    return True


def _write(secrets: NodeSecrets, values: Sequence[str]) -> None:
    key = KINDS[secrets.kind]
    file = secrets.loaded.file
    own = getattr(secrets.loaded.model.secrets, f"{key}_file")
    if own:
        replace_file(file.parent / own, "".join(f"{value}\n" for value in values).encode())
    elif secrets.kind == "admin":
        further = {"secrets.admin_tokens": list(values[1:])} if values[1:] or _has_further(secrets) else {}
        set_values(file, {"secrets.admin_token": values[0], **further})
    else:
        set_values(file, {f"secrets.{key}": list(values)})
    load_node(file)


def _has_further(secrets: NodeSecrets) -> bool:
    return bool(secrets.loaded.model.secrets.admin_tokens)
