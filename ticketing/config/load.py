"""`node.toml` into `ServerSettings`, with every fault of the file told at once."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec

from ticketing import __version__
from ticketing.config.addresses import is_loopback, parse_address
from ticketing.config.layout import NODE_FILE
from ticketing.config.models import NodeFile
from ticketing.config.places import check_places, listen_addresses
from ticketing.config.problems import Problem
from ticketing.config.reader import TomlFile, read_toml
from ticketing.config.shared import cluster_digest
from ticketing.node.settings import Limits, NodeSettings, Place, S
from ticketing.raft.types import MS, RaftSettings
from ticketing.server.settings import ServerSettings, ShellLimits, TlsFiles

SECRET_CHARS_MIN = 16
"""A peer secret or admin token that is shorter can be guessed from a recorded handshake."""

_LEVELS = ("debug", "info", "warning", "error")
_FORMATS = ("auto", "text", "json")


class LoadedNode(msgspec.Struct, frozen=True):
    """What a node's file says, and what is unwise about it."""

    file: Path
    settings: ServerSettings
    model: NodeFile
    files: tuple[Path, ...]
    """Everything that was read, which may change under a running node: the file, secrets, certificates."""
    warnings: tuple[Problem, ...] = ()


def load_node(path: Path, *, rejoin: bool | None = None) -> LoadedNode:
    """Reads a node's file, or the `node.toml` of a folder; `ConfigError` has every fault that was found.

    `rejoin`, where given, takes the place of the file's own. What `state/` holds is not read here.
    """
    if path.is_dir():
        path = path / NODE_FILE
    file = read_toml(path)
    model = file.read(NodeFile)
    if model is None:
        _check_what_is_there(file)
        file.refuse_if_wrong()
        raise AssertionError("a model is missing only where a problem was noted")
    places = check_places(file, model.cluster)
    _check_place(file, model)
    listen = listen_addresses(file, model, places)
    tokens, secrets, admin_tokens = _secrets(file, model, standalone=len(places) == 1)
    tls = _tls(file, model)
    _check_exposure(file, model, places, listen, tls=tls is not None, tokens=bool(tokens))
    _check_timing(file, model)
    _check_clock(file, model)
    file.refuse_if_wrong()
    raft = model.raft
    node = NodeSettings(
        place=model.node.place,
        places=places,
        standalone=len(places) == 1,
        client_tokens=tokens,
        peer_secrets=secrets,
        cluster=cluster_digest(
            places, delta_ms=model.cluster.delta_ms, first_token=model.cluster.first_token
        ),
        first_token_floor=model.cluster.first_token,
        rejoin=model.node.rejoin if rejoin is None else rejoin,
        legacy_resend=model.node.legacy_resend,
        delta_ns=model.cluster.delta_ms * MS,
        stop_wait_ns=model.node.stop_wait_s * S,
        raft=_raft(model),
        limits=Limits(**{name: getattr(model.limits, name) for name in Limits.__struct_fields__}),
        snapshot_bytes_per_s=raft.snapshot_bytes_per_s,
        version=__version__,
    )
    settings = ServerSettings(
        node=node,
        listen_client=listen[0],
        listen_peer=listen[1],
        listen_admin=listen[2],
        state_dir=file.beside(model.node.state).absolute(),
        tls=tls,
        admin_tokens=admin_tokens,
        metrics_open=model.admin.metrics_open,
        chronyc=model.clock.chronyc,
        log_format=model.log.format,
        log_level=model.log.level,
        insecure=model.node.insecure,
        limits=ShellLimits(
            unauthenticated=model.limits.unauthenticated,
            unauthenticated_per_source=model.limits.unauthenticated_per_source,
        ),
    )
    return LoadedNode(path, settings, model, _files(file, model), tuple(file.warnings))


def _check_what_is_there(file: TomlFile) -> None:
    """A file that lacks a table is still searched for faults in those that it has."""
    cluster = file.data.get("cluster")
    nodes = cluster.get("nodes") if isinstance(cluster, dict) else None
    for number, table in enumerate(nodes if isinstance(nodes, list) else [], start=1):
        for key in ("client", "peer", "admin"):
            text = table.get(key) if isinstance(table, dict) else None
            if isinstance(text, str) and text:
                try:
                    parse_address(text)
                except ValueError as error:
                    file.problem(f"cluster.nodes[{number}].{key}", str(error))


def _check_place(file: TomlFile, model: NodeFile) -> None:
    names = [place.name for place in model.cluster.nodes]
    if model.node.place not in names:
        known = ", ".join(names) or "none"
        file.problem("node.place", f"{model.node.place!r} is not among cluster.nodes ({known})")
    for key, value, allowed in (
        ("log.format", model.log.format, _FORMATS),
        ("log.level", model.log.level, _LEVELS),
    ):
        if value not in allowed:
            file.problem(key, f"must be one of {', '.join(allowed)}, not {value!r}")


def _secrets(
    file: TomlFile, model: NodeFile, *, standalone: bool
) -> tuple[tuple[str, ...], tuple[bytes, ...], tuple[str, ...]]:
    """Client tokens, peer secrets and admin tokens, from the file itself or from files of their own."""
    table = model.secrets
    tokens = _either(file, "client_tokens", table.client_tokens, table.client_tokens_file)
    peers = _either(file, "peer_secrets", table.peer_secrets, table.peer_secrets_file)
    here = ((table.admin_token,) if table.admin_token else ()) + table.admin_tokens
    admins = _either(file, "admin_token", here, table.admin_token_file)
    if any((table.client_tokens, table.peer_secrets, here)):
        file.check_mode(file.path)
    for number, token in enumerate(tokens, start=1):
        if not token:
            file.problem(
                f"secrets.client_tokens[{number}]",
                "is an empty string, which would let everybody in; remove it (an empty list means: no token)",
            )
    for number, secret in enumerate(peers, start=1):
        if len(secret) < SECRET_CHARS_MIN:
            file.problem(f"secrets.peer_secrets[{number}]", f"is shorter than {SECRET_CHARS_MIN} characters")
    if len(peers) > 2:
        file.problem("secrets.peer_secrets", "has more than two: the one in use, and one being rotated out")
    if not peers and not standalone and not table.peer_secrets_file:
        file.problem("secrets.peer_secrets", "is missing: nodes prove themselves to each other with it")
    if any(len(admin) < SECRET_CHARS_MIN for admin in admins):
        key = "admin_tokens" if len(table.admin_token) >= SECRET_CHARS_MIN else "admin_token"
        file.problem(f"secrets.{key}", f"is shorter than {SECRET_CHARS_MIN} characters")
    return tokens, tuple(secret.encode() for secret in peers), admins


def _either(file: TomlFile, key: str, here: tuple[str, ...], path: str) -> tuple[str, ...]:
    if here and path:
        file.problem(f"secrets.{key}_file", f"stands beside secrets.{key}; keep one of them")
    if not path:
        return here
    content = file.secret(f"secrets.{key}_file", path)
    if content is None:
        return ()
    lines = tuple(line.strip() for line in content.splitlines() if line.strip())
    if not lines:
        file.problem(f"secrets.{key}_file", f"{file.beside(path)} holds no secret")
    return lines


def _tls(file: TomlFile, model: NodeFile) -> TlsFiles | None:
    if model.tls is None:
        return None
    for key in ("ca", "certificate", "key"):
        path = file.beside(getattr(model.tls, key))
        if not path.is_file():
            file.problem(f"tls.{key}", f"there is no file {path}")
    file.check_mode(file.beside(model.tls.key), "tls.key")
    return TlsFiles(
        ca=file.beside(model.tls.ca).absolute(),
        certificate=file.beside(model.tls.certificate).absolute(),
        key=file.beside(model.tls.key).absolute(),
    )


def _check_exposure(
    file: TomlFile,
    model: NodeFile,
    places: tuple[Place, ...],
    listen: tuple[str, str, str],
    *,
    tls: bool,
    tokens: bool,
) -> None:
    """Beyond loopback: TLS and a client token, or the operator's explicit word that there be none."""
    hosts = [parse_address(place.client).host for place in places]
    hosts += [parse_address(text).host for text in listen if text]
    if all(is_loopback(host) for host in hosts):
        return
    note = file.warning if model.node.insecure else file.problem
    ask = "" if model.node.insecure else "; or say `insecure = true` in [node] to do without"
    if not tls:
        note(
            "tls",
            f"is missing, and this node can be reached from other machines: tokens and locks are open{ask}",
        )
    if not tokens:
        note("secrets.client_tokens", f"is missing: everybody who reaches the client port is let in{ask}")


def _check_clock(file: TomlFile, model: NodeFile) -> None:
    if model.clock.chronyc and shutil.which(model.clock.chronyc) is None:
        file.warning(
            "clock.chronyc",
            f"there is no program {model.clock.chronyc!r} here: this node would count as one whose clock is off",
        )


def _check_timing(file: TomlFile, model: NodeFile) -> None:
    raft = model.raft
    if raft.heartbeat_ms * 4 > raft.leader_lease_ms:
        file.problem(
            "raft.heartbeat_ms",
            f"must be at most a quarter of leader_lease_ms ({raft.leader_lease_ms}), not {raft.heartbeat_ms}",
        )
    if raft.election_timeout_min_ms < raft.leader_lease_ms:
        file.problem(
            "raft.election_timeout_min_ms",
            f"must be at least leader_lease_ms ({raft.leader_lease_ms}), not {raft.election_timeout_min_ms}",
        )
    if raft.election_timeout_max_ms < raft.election_timeout_min_ms * 3 // 2:
        file.problem(
            "raft.election_timeout_max_ms",
            "must be at least one and a half times election_timeout_min_ms"
            f" ({raft.election_timeout_min_ms}), not {raft.election_timeout_max_ms}: votes would split",
        )
    if raft.quorum_check_ms < raft.election_timeout_min_ms:
        file.problem(
            "raft.quorum_check_ms",
            f"must be at least election_timeout_min_ms ({raft.election_timeout_min_ms}),"
            f" not {raft.quorum_check_ms}",
        )
    if raft.uncommitted_bytes_reserved * 2 > raft.uncommitted_bytes_max:
        file.problem(
            "raft.uncommitted_bytes_reserved",
            f"must be at most half of uncommitted_bytes_max ({raft.uncommitted_bytes_max})",
        )


def _files(file: TomlFile, model: NodeFile) -> tuple[Path, ...]:
    names = [
        model.secrets.client_tokens_file,
        model.secrets.peer_secrets_file,
        model.secrets.admin_token_file,
    ]
    if model.tls is not None:
        names += [model.tls.ca, model.tls.certificate, model.tls.key]
    return (file.path.absolute(), *(file.beside(name).absolute() for name in names if name))


def _raft(model: NodeFile) -> RaftSettings:
    table = model.raft
    return RaftSettings(
        heartbeat_ns=table.heartbeat_ms * MS,
        election_timeout_min_ns=table.election_timeout_min_ms * MS,
        election_timeout_max_ns=table.election_timeout_max_ms * MS,
        leader_lease_ns=table.leader_lease_ms * MS,
        quorum_check_ns=table.quorum_check_ms * MS,
        uncommitted_bytes_max=table.uncommitted_bytes_max,
        uncommitted_bytes_reserved=table.uncommitted_bytes_reserved,
        inflight_bytes_max=table.inflight_bytes_max,
        log_keep_bytes=table.log_keep_bytes,
        learner_log_bytes_max=table.learner_log_bytes_max,
    )
