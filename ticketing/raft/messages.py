"""What members say to each other. The link has established who speaks and in which domain; the term is always
said.

Every `term` here is the sender's real one: the term a pre-candidate would campaign in is `term + 1` and
written in no request, so it can never be taken for one that somebody has reached (spec 9).
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

from ticketing.raft.types import ConfigurationChange

Natural: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]


class WireEntry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A log entry under way. Its index is its place after `AppendEntries.prev_index`."""

    term: Natural
    kind: Natural
    data: bytes
    age_us: Natural
    """Microseconds since the sender's stamp, by its elapsed clock at this sending, rounded down (spec 7)."""


class PreVoteRequest(msgspec.Struct, frozen=True, array_like=True, tag=1, gc=False):
    """Would you vote for me in term + 1? Changes nothing at the receiver (thesis 9.6)."""

    term: Natural
    last_index: Natural
    last_term: Natural


class PreVoteAnswer(msgspec.Struct, frozen=True, array_like=True, tag=2, gc=False):
    """Answer to the pre-vote for `prospective`; `term` is the answerer's own."""

    term: Natural
    prospective: Natural
    granted: bool


class VoteRequest(msgspec.Struct, frozen=True, array_like=True, tag=3, gc=False):
    """Vote for me in `term` (thesis 3.4)."""

    term: Natural
    last_index: Natural
    last_term: Natural
    transfer: bool
    """The leader itself asked for this election: the leader lease does not stand against it (thesis 4.2.3).
    """


class VoteAnswer(msgspec.Struct, frozen=True, array_like=True, tag=4, gc=False):
    """Answer to the vote asked for in `term`; a refusal carries the answerer's own term."""

    term: Natural
    granted: bool


class AppendEntries(msgspec.Struct, frozen=True, array_like=True, tag=5, gc=False):
    """Replication and heartbeat in one (thesis 3.5). With prev_index 0 and no entries it fits every log."""

    term: Natural
    round: Natural
    """Counts the leader's rounds within its term; an answer repeats it, which shows how fresh the answer is.
    """
    prev_index: Natural
    prev_term: Natural
    commit: Natural
    entries: list[WireEntry]


class AppendReply(msgspec.Struct, frozen=True, array_like=True, tag=6, gc=False):
    """The log equals the leader's up to `match`. One answers all appends of one turn."""

    term: Natural
    round: Natural
    match: Natural
    last_index: Natural


class AppendRefusal(msgspec.Struct, frozen=True, array_like=True, tag=7, gc=False):
    """The entry at `prev_index` is missing here or of another term.

    The hint is the last entry not after `prev_index` that could agree, with its term here: the leader skips
    what is of a later term, so one exchange is needed per conflicting term at most (thesis 3.5).
    """

    term: Natural
    round: Natural
    prev_index: Natural
    last_index: Natural
    hint_index: Natural
    hint_term: Natural


class TimeoutNow(msgspec.Struct, frozen=True, array_like=True, tag=8, gc=False):
    """Campaign at once, without a pre-vote (thesis 3.10)."""

    term: Natural


class StaleTerm(msgspec.Struct, frozen=True, array_like=True, tag=9, gc=False):
    """Answer to a leader whose term is over."""

    term: Natural


Message: TypeAlias = (
    PreVoteRequest
    | PreVoteAnswer
    | VoteRequest
    | VoteAnswer
    | AppendEntries
    | AppendReply
    | AppendRefusal
    | TimeoutNow
    | StaleTerm
)

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Message)
_change_decoder = msgspec.msgpack.Decoder(ConfigurationChange)


def encode(message: Message) -> bytes:
    """The bytes of one message."""
    return _encoder.encode(message)


def decode(data: bytes | bytearray | memoryview) -> Message:
    """The message of these bytes. Raises `msgspec.DecodeError` for anything else."""
    return _decoder.decode(data)


def encode_change(change: ConfigurationChange) -> bytes:
    """The data of a CONFIGURATION entry."""
    return _encoder.encode(change)


def decode_change(data: bytes) -> ConfigurationChange:
    """The change in a CONFIGURATION entry. Raises `msgspec.DecodeError`."""
    return _change_decoder.decode(data)
