"""What two nodes say to each other about their clocks (spec 8). All times in nanoseconds."""

from __future__ import annotations

import msgspec


class ClockProbe(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Asks a peer for its clocks. Sent about once a second over the authenticated link."""

    sent_ns: int
    """The prober's elapsed clock just before sending; echoed by the reply, which it is matched by."""
    inside: bool | None = None
    """Whether the prober finds itself within Δ/2 of a majority of the voters; `None` where it cannot tell
    yet."""


class ClockReply(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """The peer's clocks at two moments: after the probe was read, and before this reply leaves."""

    sent_ns: int
    received_ns: int
    """Elapsed clock after the probe's bytes were read."""
    received_wall_ns: int
    replied_ns: int
    """Elapsed clock just before the reply is written."""
    replied_wall_ns: int


ClockMessage = ClockProbe | ClockReply

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[ClockMessage] = msgspec.msgpack.Decoder(ClockMessage)


def encode(message: ClockMessage) -> bytes:
    """The payload of one clock frame."""
    return _encoder.encode(message)


def decode(payload: bytes | memoryview) -> ClockMessage:
    """The message in a clock frame's payload; anything else raises `msgspec.DecodeError`."""
    return _decoder.decode(payload)
