"""What processes say to each other while a domain forms (frames of kind FORMING).

    lowest place                     each other place
    Propose            ->
                       <-            Promise, or Decline with a reason
    Record             ->            (written and synced)
                       <-            Recorded
    Formed             ->

Every message names the proposal by the domain id that it would give, and may be said again at any time.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from ticketing.node.first_state import U63, DomainId, FirstState

REASON_MAX = 400
"""Characters of a reason to decline."""


class Propose(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """First round: are you ready? Nothing is written."""

    domain_id: DomainId
    operator: bool
    """Whether an operator asked for it; else a permit did."""
    permit: Annotated[str, msgspec.Meta(max_length=64)]
    cluster: Annotated[str, msgspec.Meta(max_length=128)]
    delta_ns: U63


class Promise(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Ready; holds for this process life of the proposer, until the link to it ends."""

    domain_id: DomainId
    proposer: U63
    """The proposer's incarnation."""
    earlier_first_token: U63
    """The greatest one in this process's `state/`, 0 for none."""
    permit_fresh: bool
    """Whether the permit is young enough by this process's wall clock."""


class Decline(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Not ready, or not any more."""

    domain_id: DomainId
    reason: Annotated[str, msgspec.Meta(max_length=REASON_MAX)]


class Record(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """Second round, once all have promised: write this down."""

    state: FirstState


class Recorded(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """It is on disk."""

    domain_id: DomainId


class Formed(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """All have recorded it: the domain exists."""

    domain_id: DomainId


FormingMessage = Propose | Promise | Decline | Record | Recorded | Formed

encode_forming = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(FormingMessage)


def decode_forming(payload: bytes) -> FormingMessage:
    """A FORMING frame's payload. Raises `msgspec.DecodeError` where it is none."""
    return _decoder.decode(payload)
