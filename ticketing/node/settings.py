"""What a node is told when it starts. Loading and checking the files is `ticketing.config`'s work."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from ticketing.raft.types import MIB, MS, RaftSettings

S = 1_000_000_000
"""Nanoseconds in a second."""


class Place(NamedTuple):
    """A configured name with its addresses, each `host:port` as others are to dial it."""

    name: str
    client: str
    peer: str
    admin: str


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of one node (spec 4). Beyond them an acquire is answered `B`, counted by reason."""

    waiters_per_session: int = 50_000
    waiters_per_key: int = 100_000
    waiters: int = 200_000
    keys: int = 1_000_000
    sessions: int = 20_000
    held_back: int = 100_000
    """Requests that a new leader holds until its own first entry is applied."""


class OperatorCommand(msgspec.Struct, frozen=True, kw_only=True):
    """An operator's command that a process was prepared by, to fill a place whose voter may still live."""

    command_id: str
    """What the leader's `replace` answered; at most 64 characters."""
    who: str = ""
    why: str = ""
    """For the audit, at most 256 characters each."""


class NodeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the sans-I/O node needs to know."""

    place: str
    """The name of this process's place, e.g. `node-2`; one of `places`."""
    places: tuple[Place, ...]
    """In configured order, lowest first; 1 (standalone), 3 or 5 of them."""
    standalone: bool = False
    client_tokens: tuple[str, ...] = ()
    """Any of them opens a session; none: the empty token."""
    peer_secrets: tuple[bytes, ...] = ()
    """The first is used to prove, each is accepted (two while one is rotated)."""
    cluster: str = ""
    """Digest of the part of the configuration that all places must share; nodes with another one do not form."""
    permit: str = ""
    """The one-time permit's random id found in `state/`, or empty."""
    permit_made_ms: int = 0
    """When `init` made the permit, Unix milliseconds."""
    earlier_first_token: int = 0
    """The greatest first token of any domain recorded in `state/`, 0 for none."""
    earlier_domain: str = ""
    """The id of the newest domain recorded in `state/`: this process starts where an earlier one ended."""
    operator_command: OperatorCommand | None = None
    """By which this process asks for its place, found in `state/`."""
    first_token_floor: int = 0
    """The operator's own number for a new domain's first token."""
    rejoin: bool = True
    legacy_resend: bool = False
    delta_ns: int = 500 * MS
    """Δ: the greatest difference between two nodes' wall clocks that still lets locks be granted (spec 8)."""
    stop_wait_ns: int = 25 * S
    raft: RaftSettings = RaftSettings()
    limits: Limits = Limits()
    snapshot_bytes_per_s: int = 64 * MIB
    version: str = ""
