"""The frames of the client protocol as bytes (spec 3): opcodes, and one encoder for each row of both tables.

A frame is an opcode, a header of fixed size in big-endian, and a text that runs to a newline. The header may
itself contain newline bytes. Encoders are hot and trust their caller: a key has passed `fields.key_problem`
or a decoder. A newline, which would smuggle in a second frame, is still caught in requests. A number that
does not fit its field raises `struct.error`.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

# Client to server.
ACQUIRE: Final = 0x41
"""`A`: acquire as published clients ask for it; answered by GRANTED."""
Q: Final = 0x51
"""`Q`: acquire, answered by GRANTED_WAITED, and by NOT_LEADING where the node does not lead."""
RELEASE: Final = 0x52
CANCEL: Final = 0x43
EXTEND: Final = 0x58
HELLO: Final = 0x48
"""`H`: who the client is, for operators."""

# Server to client.
GRANTED: Final = 0x41
GRANTED_WAITED: Final = 0x47
TIMEOUT: Final = 0x54
BUSY: Final = 0x42
NOT_LEADING: Final = 0x56
RELEASED: Final = 0x52
NOT_HELD: Final = 0x4E
EXTENDED: Final = 0x58
LEADER: Final = 0x4C
MOVED: Final = 0x4D
ERROR: Final = 0x45

NEWLINE: Final = 0x0A
CARRIAGE_RETURN: Final = 0x0D
SPACE: Final = 0x20
KEEPALIVE: Final = b"\n"
"""In both directions; never an answer to anything."""

AUTH_FAILED: Final = "auth_failed"
AUTH_TIMEOUT: Final = "auth_timeout"
BAD_FRAME: Final = "bad_frame"
BAD_KEY: Final = "bad_key"
NO_LEADER: Final = "no_leader"
NOT_ACTIVE: Final = "not_active"
SHUTTING_DOWN: Final = "shutting_down"
SLOW_CONSUMER: Final = "slow_consumer"
TOO_MANY_SESSIONS: Final = "too_many_sessions"

ERROR_REASONS = (
    AUTH_FAILED,
    AUTH_TIMEOUT,
    BAD_FRAME,
    BAD_KEY,
    NO_LEADER,
    NOT_ACTIVE,
    SHUTTING_DOWN,
    SLOW_CONSUMER,
    TOO_MANY_SESSIONS,
)
"""Every reason that a server of ours gives in `E`."""

ID_HEADER = Struct(">BQ")
"""Opcode and one u64: `R C` from the client; `T B V R N X` from the server."""
ACQUIRE_HEADER = Struct(">BHHQ")
EXTEND_HEADER = Struct(">BQH")
GRANTED_HEADER = Struct(">BQQ")
GRANTED_WAITED_HEADER = Struct(">BQQI")

_pack_id: Final = ID_HEADER.pack
_pack_acquire: Final = ACQUIRE_HEADER.pack
_pack_extend: Final = EXTEND_HEADER.pack
_pack_granted: Final = GRANTED_HEADER.pack
_pack_granted_waited: Final = GRANTED_WAITED_HEADER.pack


def encode_acquire(wait: int, lease: int, owner: int, key: bytes) -> bytes:
    """`A`. Wait and lease in whole seconds; a server answers BUSY where they are out of range."""
    assert NEWLINE not in key
    return _pack_acquire(ACQUIRE, wait, lease, owner) + key + b"\n"


def encode_q(wait: int, lease: int, owner: int, key: bytes) -> bytes:
    """`Q`, only to a server whose banner is extended. Wait and lease in whole seconds."""
    assert NEWLINE not in key
    return _pack_acquire(Q, wait, lease, owner) + key + b"\n"


def encode_release(token: int, key: bytes) -> bytes:
    """`R`: release, only while `token` still holds the key."""
    assert NEWLINE not in key
    return _pack_id(RELEASE, token) + key + b"\n"


def encode_cancel(owner: int, key: bytes) -> bytes:
    """`C`, only to a server whose banner is extended and only for owners with their top bit set."""
    assert NEWLINE not in key
    return _pack_id(CANCEL, owner) + key + b"\n"


def encode_extend(token: int, lease: int, key: bytes) -> bytes:
    """`X`, only to a server whose banner is extended. The lease is 1..250 seconds, or the session ends."""
    assert NEWLINE not in key
    return _pack_extend(EXTEND, token, lease) + key + b"\n"


def encode_hello(text: bytes) -> bytes:
    """`H`, only to a server whose banner is extended; `text` as `fields.hello_text` makes it."""
    assert NEWLINE not in text
    return b"H%b\n" % text


def encode_granted(token: int, owner: int, key: bytes) -> bytes:
    """`A`: the answer to ACQUIRE."""
    return _pack_granted(GRANTED, token, owner) + key + b"\n"


def encode_granted_waited(token: int, owner: int, waited_ms: int, key: bytes) -> bytes:
    """`G`: the answer to Q. `waited_ms` by the leader's clock, from reading the request to its proposal."""
    return _pack_granted_waited(GRANTED_WAITED, token, owner, waited_ms) + key + b"\n"


def encode_timeout(owner: int, key: bytes) -> bytes:
    """`T`: the wait ran out, or it was 0 and the key was not free."""
    return _pack_id(TIMEOUT, owner) + key + b"\n"


def encode_busy(owner: int, key: bytes) -> bytes:
    """`B`: refused by capacity, range or clock safety."""
    return _pack_id(BUSY, owner) + key + b"\n"


def encode_not_leading(owner: int, key: bytes) -> bytes:
    """`V`: this node does not lead, and nothing was proposed. The answer to Q alone."""
    return _pack_id(NOT_LEADING, owner) + key + b"\n"


def encode_released(ident: int, key: bytes) -> bytes:
    """`R`; `ident` is the token of the RELEASE or the owner of the CANCEL that it answers."""
    return _pack_id(RELEASED, ident) + key + b"\n"


def encode_not_held(ident: int, key: bytes) -> bytes:
    """`N`; `ident` is the token of the RELEASE or EXTEND, or the owner of the CANCEL, that it answers."""
    return _pack_id(NOT_HELD, ident) + key + b"\n"


def encode_extended(token: int, key: bytes) -> bytes:
    """`X`: the lease of `token` is counted anew."""
    return _pack_id(EXTENDED, token) + key + b"\n"


def encode_leader(address: str) -> bytes:
    """`L`: the leader's client address. The session goes on."""
    return b"L%b\n" % address.encode("ascii")


def encode_moved(address: str) -> bytes:
    """`M`: a request could not be answered here; ask there. The session ends."""
    return b"M%b\n" % address.encode("ascii")


def encode_error(reason: str) -> bytes:
    """`E`, one of ERROR_REASONS. The session ends."""
    assert reason in ERROR_REASONS, reason
    return b"E%b\n" % reason.encode("ascii")
