"""What the asyncio shell is told beside the node's own settings."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ticketing.node.settings import NodeSettings


class TlsFiles(msgspec.Struct, frozen=True, kw_only=True):
    """PEM files of one node. The certificate serves clients and admins, and proves the node to its peers."""

    ca: Path
    certificate: Path
    key: Path


class ShellLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of the listeners (spec 3 and 4). Times in seconds, sizes in bytes."""

    unauthenticated: int = 512
    unauthenticated_per_source: int = 256
    unauthenticated_buffer: int = 4096
    silent_s: float = 1.0
    """In a full pool, what has been silent for longer is dropped, oldest first."""
    handshake_s: float = 5.0
    tls_handshakes: int = 32
    accepts_per_turn: int = 16
    refusals: int = 64
    """Wrong tokens whose late answer is still to come."""
    refusal_delay_s: float = 1.0
    turn_bytes: int = 64 * 1024
    """What clients send that reaches the node in one turn: some 1,400 requests, a few milliseconds."""
    held_bytes: int = 32 * 1024 * 1024
    """What clients have sent beyond that, read and held back in full reads; past it, a read brings a kilobyte."""
    write_buffer: int = 256 * 1024
    slow_consumer_s: float = 5.0
    drain_s: float = 1.0
    user_timeout_ms: int = 9_000
    """TCP_USER_TIMEOUT of client connections."""


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One node process. Addresses are `host:port` to listen on; port 0 takes a free one."""

    node: NodeSettings
    listen_client: str
    listen_peer: str = ""
    """Empty where standalone."""
    listen_admin: str = ""
    """Empty: no admin plane."""
    state_dir: Path
    tls: TlsFiles | None = None
    admin_tokens: tuple[str, ...] = ()
    """Each opens the admin plane: two while one is rotated. None: it stays shut."""
    metrics_open: bool = False
    """`/metrics` needs no token."""
    chronyc: str = ""
    """Program that tells whether chrony has this machine's clock synchronised; empty: it is not asked."""
    log_format: str = "auto"
    """`text`, `json`, or `auto`: text on a terminal."""
    log_level: str = "info"
    insecure: bool = False
    """Listen beyond loopback without TLS or without tokens: only where told so explicitly."""
    limits: ShellLimits = ShellLimits()

    @property
    def admin_token(self) -> str:
        """The first of them, or empty."""
        return self.admin_tokens[0] if self.admin_tokens else ""
