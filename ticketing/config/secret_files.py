"""Client tokens and peer secrets where `node.toml` has them: read, added to, and taken away, never shown.

What is to be written is worked out for every node before the first file is touched: a change that one node refuses
must not part those before it from the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ticketing.config.edit import edited, replace_file
from ticketing.config.layout import CLUSTER_FOLDER, NODE_FILE
from ticketing.config.load import LoadedNode, load_node
from ticketing.config.node_folder import node_files
from ticketing.config.problems import ConfigError, Problem, half_way, wrong
from ticketing.server.loaded import fingerprint

__all__ = [
    "KINDS",
    "Change",
    "NodeSecrets",
    "fingerprint",
    "nodes_of",
    "read_secrets",
    "with_secret",
    "without_secrets",
    "write_changes",
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


class Change(NamedTuple):
    """What one node's file is to become. Nothing of it is written yet."""

    place: str
    values: tuple[str, ...]
    file: Path
    content: bytes


def with_secret(nodes: Sequence[NodeSecrets], secret: str) -> list[Change]:
    """Adds one as the last, where it is missing. The first, with which peers prove themselves, stays."""
    lacking = [node for node in nodes if secret not in node.values]
    for node in lacking:
        if node.kind == "peer" and len(node.values) >= PEER_SECRETS_MAX:
            raise wrong(
                "two peer secrets are accepted already: a rotation is under way",
                file=node.loaded.file,
                hint="end it first: `ticketing token remove --kind peer --old`",
            )
    return [_change(node, (*node.values, secret)) for node in lacking]


def without_secrets(
    nodes: Sequence[NodeSecrets], old: Sequence[str], *, kept: str | None = None
) -> list[Change]:
    """Takes some away. `ConfigError` where a node would be left without any, or without `kept`, or where peers would
    know each other no more.
    """
    left = [tuple(value for value in node.values if value not in old) for node in nodes]
    lacking = [node for node in nodes if kept is not None and node.values and kept not in node.values]
    if kept is not None and lacking:
        kind = lacking[0].kind
        raise wrong(
            f"{fingerprint(kept)}, which would be kept, is missing on {_listed(lacking)}",
            hint=f"add it there first: `ticketing token add --kind {kind}`",
        )
    for node, values in zip(nodes, left, strict=True):
        if node.values and not values:
            raise wrong(
                "would be left without any: then " + _WITHOUT[node.kind],
                file=node.loaded.file,
                key=f"secrets.{KINDS[node.kind]}",
                hint=f"add the new one first: `ticketing token add --kind {node.kind}`",
            )
    _refuse_parting(nodes, left)
    pairs = zip(nodes, left, strict=True)
    return [_change(node, values) for node, values in pairs if values != node.values]


def write_changes(changes: Sequence[Change]) -> list[str]:
    """Writes them, one node after the other; the places. Where one cannot be written the error names those that are."""
    done: list[str] = []
    for change in changes:
        try:
            replace_file(change.file, change.content)
        except ConfigError as error:
            raise half_way(error, done, "the files of ") from None
        done.append(change.place)
    return done


def _refuse_parting(nodes: Sequence[NodeSecrets], left: Sequence[tuple[str, ...]]) -> None:
    """Peers prove themselves with their first secret: whoever accepted it must not be left without it."""
    if any(node.kind != "peer" for node in nodes):
        return
    for prover, proof in zip(nodes, left, strict=True):
        deaf = [
            other
            for other, accepted in zip(nodes, left, strict=True)
            if prover.values and prover.values[0] in other.values and proof[0] not in accepted
        ]
        if deaf:
            raise wrong(
                f"{prover.place} would prove itself with {fingerprint(proof[0])}, which is missing on"
                f" {_listed(deaf)}",
                hint="`ticketing token list --kind peer` tells what each node has: keep one that all have",
            )


def _listed(nodes: Sequence[NodeSecrets]) -> str:
    return " and ".join(node.place for node in nodes)


def _change(secrets: NodeSecrets, values: tuple[str, ...]) -> Change:
    key = KINDS[secrets.kind]
    file = secrets.loaded.file
    own = getattr(secrets.loaded.model.secrets, f"{key}_file")
    if own:
        content = "".join(f"{value}\n" for value in values).encode()
        return Change(secrets.place, values, file.parent / own, content)
    if secrets.kind == "admin":
        further = {"secrets.admin_tokens": list(values[1:])} if values[1:] or _has_further(secrets) else {}
        content = edited(file, {"secrets.admin_token": values[0], **further})
    else:
        content = edited(file, {f"secrets.{key}": list(values)})
    return Change(secrets.place, values, file, content)


def _has_further(secrets: NodeSecrets) -> bool:
    return bool(secrets.loaded.model.secrets.admin_tokens)
