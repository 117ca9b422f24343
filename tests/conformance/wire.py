"""The client wire, byte by byte, as a server has it. Written from sections 2 and 3 of the specification.

It shares no code with the product: what is checked here must not be checked against itself.
"""

from __future__ import annotations

import base64
import hashlib
import struct
from typing import NamedTuple

TOP_BIT = 1 << 63
KEEP_ALIVE = b"\n"
ID_HEADERS = {"R": 9, "C": 9, "X": 11, "A": 13, "Q": 13}
"""Bytes before the key, the opcode included."""


class Frame(NamedTuple):
    """A frame of a client: `raw` are its very bytes."""

    opcode: str
    raw: bytes
    key: bytes = b""
    number: int = 0
    """The owner, or the token."""
    wait: int = 0
    lease: int = 0


def frames(buffer: bytearray) -> list[Frame]:
    """Takes the whole frames out of the buffer. ValueError for what no client may send."""
    found = []
    while buffer:
        opcode = chr(buffer[0])
        header = ID_HEADERS.get(opcode, 1)
        if opcode not in ID_HEADERS and opcode not in ("H", "\n"):
            raise ValueError(f"no frame of a client begins with {opcode!r}: {bytes(buffer[:40])!r}")
        end = 0 if opcode == "\n" else buffer.find(b"\n", header)
        if end < 0:
            break
        raw = bytes(buffer[: end + 1])
        del buffer[: end + 1]
        found.append(_frame(opcode, raw, raw[header:-1]))
    return found


def _frame(opcode: str, raw: bytes, text: bytes) -> Frame:
    if opcode in "AQ":
        wait, lease, owner = struct.unpack_from(">HHQ", raw, 1)
        return Frame(opcode, raw, text, owner, wait, lease)
    if opcode == "X":
        token, lease = struct.unpack_from(">QH", raw, 1)
        return Frame(opcode, raw, text, token, 0, lease)
    if opcode in "RC":
        return Frame(opcode, raw, text, struct.unpack_from(">Q", raw, 1)[0])
    return Frame(opcode, raw, text if opcode == "H" else b"")


def acquire(opcode: str, wait: int, lease: int, owner: int, key: bytes) -> bytes:
    """`A` or `Q`."""
    return opcode.encode() + struct.pack(">HHQ", wait, lease, owner) + key + b"\n"


def numbered(opcode: str, number: int, key: bytes) -> bytes:
    """`R` and `C` of a client; `T`, `B`, `V`, `R`, `N`, `X` of a server."""
    return opcode.encode() + struct.pack(">Q", number) + key + b"\n"


def extend(token: int, lease: int, key: bytes) -> bytes:
    """`X` of a client."""
    return b"X" + struct.pack(">QH", token, lease) + key + b"\n"


def granted(token: int, owner: int, key: bytes) -> bytes:
    """`A` of a server."""
    return b"A" + struct.pack(">QQ", token, owner) + key + b"\n"


def granted_waited(token: int, owner: int, waited_ms: int, key: bytes) -> bytes:
    """`G` of a server."""
    return b"G" + struct.pack(">QQI", token, owner, waited_ms) + key + b"\n"


def text(opcode: str, words: str) -> bytes:
    """`L`, `M` and `E` of a server."""
    return opcode.encode() + words.encode() + b"\n"


def digest(token: str, nonce: str) -> bytes:
    """A client's response to the nonce, newline included."""
    hashed = hashlib.sha256(token.encode() + nonce.encode()).digest()
    return base64.urlsafe_b64encode(hashed).rstrip(b"=") + b"\n"
