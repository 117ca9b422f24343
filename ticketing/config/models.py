"""`node.toml` as it is written; the two small files are in `client_models`.

Times end in their unit. What is left out of a file has the default that stands here.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from ticketing.config.layout import STATE_FOLDER
from ticketing.node.settings import Limits
from ticketing.raft.types import MIB, MS, RaftSettings
from ticketing.server.settings import ShellLimits

FIRST_TOKEN_MAX = (1 << 62) - 1
_RAFT = RaftSettings()
_LIMITS = Limits()
_SHELL = ShellLimits()

Count = Annotated[int, msgspec.Meta(ge=1, le=100_000_000)]
Millis = Annotated[int, msgspec.Meta(ge=1, le=600_000)]
Bytes = Annotated[int, msgspec.Meta(ge=64 * 1024, le=64 * 1024 * MIB)]


class PlaceTable(msgspec.Struct, frozen=True, kw_only=True):
    """`[[cluster.nodes]]`: one place, with its addresses as others are to dial it."""

    name: str
    """`node-1`; commands and files name places."""
    client: str
    peer: str = ""
    """Left out: the client port + 1000 on the same host. A standalone node has none."""
    admin: str = ""
    """Left out: the client port + 2000 on the same host."""


class ClusterTable(msgspec.Struct, frozen=True, kw_only=True):
    """`[cluster]`: must be the same in every node's file, or the nodes do not form a domain."""

    nodes: tuple[PlaceTable, ...]
    delta_ms: Annotated[int, msgspec.Meta(ge=10, le=60_000)] = 500
    """Δ: wall clocks further apart than this close the clock gate (spec 8)."""
    first_token: Annotated[int, msgspec.Meta(ge=0, le=FIRST_TOKEN_MAX)] = 0
    """A new domain's first token is at least this."""


class NodeTable(msgspec.Struct, frozen=True, kw_only=True):
    """`[node]`: which of the places this process fills, and how it lives."""

    place: str
    state: str = STATE_FOLDER
    """Folder of the permit and of the records of earlier domains; from the folder of the file."""
    rejoin: bool = True
    """Take an ended process's place under a new NodeId without being told to."""
    insecure: bool = False
    """Listen beyond loopback without TLS or without client tokens."""
    legacy_resend: bool = False
    """For clients of version 0.3.0 that never fork after import (spec 5)."""
    stop_wait_s: Annotated[int, msgspec.Meta(ge=0, le=600)] = 25
    """How long a node that is told to stop asks the leader for leave."""


class ListenTable(msgspec.Struct, frozen=True, kw_only=True):
    """`[listen]`: where to listen, when that is not where others dial. A wildcard host is allowed here."""

    client: str = ""
    peer: str = ""
    admin: str = ""


class SecretsTable(msgspec.Struct, frozen=True, kw_only=True):
    """`[secrets]`: each here or in a file of its own (`*_file`, one secret a line where there may be two)."""

    client_tokens: tuple[str, ...] = ()
    client_tokens_file: str = ""
    peer_secrets: tuple[str, ...] = ()
    """The first is used to prove, each is accepted: two while one is rotated."""
    peer_secrets_file: str = ""
    admin_token: str = ""
    admin_tokens: tuple[str, ...] = ()
    """Further ones that open the admin plane as well, while the token is rotated."""
    admin_token_file: str = ""


class TlsTable(msgspec.Struct, frozen=True, kw_only=True):
    """`[tls]`: PEM files, from the folder of the file. Without this table there is no TLS."""

    ca: str
    certificate: str
    key: str


class AdminTable(msgspec.Struct, frozen=True, kw_only=True):
    """`[admin]`: the admin plane of this node."""

    metrics_open: bool = False
    """`/metrics` without the admin token."""


class ClockTable(msgspec.Struct, frozen=True, kw_only=True):
    """`[clock]`: further sources on this machine's wall clock."""

    chronyc: str = ""
    """chrony's tool, by name or path. While it does not call the clock synchronised, this node counts as outside."""


class LogTable(msgspec.Struct, frozen=True, kw_only=True):
    """`[log]`."""

    format: str = "auto"
    level: str = "info"


class LimitsTable(msgspec.Struct, frozen=True, kw_only=True):
    """`[limits]`: bounds of this node (spec 3, 4); beyond them an acquire is answered `B` at once."""

    waiters_per_session: Count = _LIMITS.waiters_per_session
    waiters_per_key: Count = _LIMITS.waiters_per_key
    waiters: Count = _LIMITS.waiters
    keys: Count = _LIMITS.keys
    sessions: Count = _LIMITS.sessions
    held_back: Count = _LIMITS.held_back
    unauthenticated: Count = _SHELL.unauthenticated
    unauthenticated_per_source: Count = _SHELL.unauthenticated_per_source


class RaftTable(msgspec.Struct, frozen=True, kw_only=True):
    """`[raft]`: timing and bounds of consensus (spec 9)."""

    heartbeat_ms: Millis = _RAFT.heartbeat_ns // MS
    election_timeout_min_ms: Millis = _RAFT.election_timeout_min_ns // MS
    election_timeout_max_ms: Millis = _RAFT.election_timeout_max_ns // MS
    leader_lease_ms: Millis = _RAFT.leader_lease_ns // MS
    quorum_check_ms: Millis = _RAFT.quorum_check_ns // MS
    uncommitted_bytes_max: Bytes = _RAFT.uncommitted_bytes_max
    uncommitted_bytes_reserved: Bytes = _RAFT.uncommitted_bytes_reserved
    inflight_bytes_max: Bytes = _RAFT.inflight_bytes_max
    log_keep_bytes: Bytes = _RAFT.log_keep_bytes
    learner_log_bytes_max: Bytes = _RAFT.learner_log_bytes_max
    snapshot_bytes_per_s: Bytes = 64 * MIB


class NodeFile(msgspec.Struct, frozen=True, kw_only=True):
    """`node.toml`."""

    node: NodeTable
    cluster: ClusterTable
    listen: ListenTable = ListenTable()
    secrets: SecretsTable = SecretsTable()
    tls: TlsTable | None = None
    admin: AdminTable = AdminTable()
    clock: ClockTable = ClockTable()
    log: LogTable = LogTable()
    limits: LimitsTable = LimitsTable()
    raft: RaftTable = RaftTable()
