"""The lock commands that go through the log (spec 5), and the bytes of the entry that carries a turn's worth.

All that one turn of the leader's loop proposes travels as one log entry (several where it is much): a format byte and
a list of commands, applied in that order. Each command is complete in itself; one that does not match has no effect on
the others.
"""

from __future__ import annotations

import msgspec

FORMAT = 1
"""Version of the encoding below. A node reads its own version and the one before (spec 6)."""

ANY_RENEWAL = -1


class Turn(msgspec.Struct, frozen=True, array_like=True, tag=1, gc=False):
    """Ends the ownership of `expect` and begins the next one, both or neither.

    `expect` is the token that must hold the key, 0 for free. An expiry also states the `renewal` it saw. `owner` 0
    means that nobody is next: the key becomes free.
    """

    key: bytes
    expect: int
    owner: int = 0
    lease: int = 0
    """Whole seconds, 1..250."""
    wall_ms: int = 0
    """The proposer's wall clock, Unix milliseconds: for people only."""
    name: str = ""
    """What the client called itself (`H`), for operators."""
    renewal: int = ANY_RENEWAL


class Extend(msgspec.Struct, frozen=True, array_like=True, tag=2, gc=False):
    """Counts the lease of `expect` anew from this entry; the lease never becomes shorter."""

    key: bytes
    expect: int
    lease: int


class Cancel(msgspec.Struct, frozen=True, array_like=True, tag=3, gc=False):
    """Puts owners into the ring of the last 65,536 cancelled ones; touches no key."""

    owners: tuple[int, ...]


class Revoke(msgspec.Struct, frozen=True, array_like=True, tag=4, gc=False):
    """An operator's turn: idempotent by `command_id`, and an audit line on every node that applies it."""

    command_id: str
    turn: Turn
    who: str
    why: str


LockCommand = Turn | Extend | Cancel | Revoke
