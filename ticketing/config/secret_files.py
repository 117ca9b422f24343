"""Client tokens and peer secrets where `node.toml` has them: read, added to, and taken away, never shown."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ticketing.config.edit import replace_file, set_values
from ticketing.config.layout import CLUSTER_FOLDER, NODE_FILE
from ticketing.config.load import LoadedNode, load_node
from ticketing.config.node_folder import node_files
from ticketing.config.problems import ConfigError, Problem, wrong

KINDS = {"client": "client_tokens", "peer": "peer_secrets"}
"""What may be rotated, and its key under `[secrets]`."""

PEER_SECRETS_MAX = 2
_FINGERPRINT = 12


class NodeSecrets(NamedTuple):
    """The secrets of one kind in one node's files."""

    loaded: LoadedNode
    kind: str
    values: tuple[str, ...]

    @property
    def place(self) -> str:
        """The node's place."""
        return self.loaded.settings.node.place


def fingerprint(secret: str) -> str:
    """A name for a secret that gives nothing away: the beginning of its SHA-256, in hex."""
    return hashlib.sha256(secret.encode()).hexdigest()[:_FINGERPRINT]


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
        values = (
            node.client_tokens if kind == "client" else tuple(value.decode() for value in node.peer_secrets)
        )
        found.append(NodeSecrets(loaded, kind, values))
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
            "would be left without any: then everybody is let in",
            file=secrets.loaded.file,
            key=f"secrets.{KINDS[secrets.kind]}",
            hint="add the new one first: `ticketing token add`",
        )
    _write(secrets, left)
    return True


def _write(secrets: NodeSecrets, values: Sequence[str]) -> None:
    key = KINDS[secrets.kind]
    file = secrets.loaded.file
    own = getattr(secrets.loaded.model.secrets, f"{key}_file")
    if own:
        replace_file(file.parent / own, "".join(f"{value}\n" for value in values).encode())
    else:
        set_values(file, {f"secrets.{key}": list(values)})
    load_node(file)
