"""Framing of the peer link (spec 9, Peer link): u32 big-endian length, one kind byte, payload.

A link carries frames one way. Its dialler speaks; the acceptor only answers the handshake
(`ticketing.node.handshake`), and what it has to say travels on the link that it dialled itself.
"""

from __future__ import annotations

import struct
from enum import IntEnum

HANDSHAKE_BYTES_MAX = 4 * 1024
"""Bound of a frame's length field before both ends have proved themselves."""

FRAME_BYTES_MAX = 4 * 1024 * 1024
"""Bound of a frame's length field after the handshake, where nothing else is said."""

PARTS_MAX = 256
"""Pieces of a frame kept apart: many small ones would take many times their bytes."""

HEADER = struct.Struct(">IB")
"""Length of kind and payload together, then the kind."""

_HEADER_BYTES = HEADER.size
_unpack_header = HEADER.unpack_from


class PeerKind(IntEnum):
    """What the payload of a frame is."""

    HANDSHAKE = 0
    """Never after the handshake."""
    RAFT = 1
    FORMING = 2
    CLOCK = 3
    MEMBERSHIP = 4
    SNAPSHOT = 5
    LEAVE = 6


def encode_frame(kind: int, *payload: bytes) -> bytes:
    """One whole frame; the payload, in one piece or several, is copied once."""
    return b"".join((HEADER.pack(sum(map(len, payload)) + 1, kind), *payload))


class FrameDecoder:
    """Cuts a stream of chunks, in any pieces, into frames.

    Memory is bounded by `limit` plus the chunk at hand: a frame above the limit is refused by its header,
    before anything is kept of it. A payload is copied once, out of the chunks that it came in, or twice where they were
    many and small. After a failure nothing more is decoded: the stream has lost its place and the link must be closed.
    """

    __slots__ = ("_head", "_joined", "_kind", "_missing", "_parts", "failure", "limit")

    def __init__(self, limit: int = FRAME_BYTES_MAX) -> None:
        self.limit = limit
        """Greatest accepted value of a frame's length field: kind byte and payload."""
        self.failure = ""
        """Why the stream cannot be read on, for the log; empty while all is well."""
        self._head = b""
        self._kind = 0
        self._missing = 0
        self._parts: list[bytes | memoryview] = []
        self._joined: list[bytes] = []
        """What came before `_parts`, in longer pieces."""

    @property
    def partial(self) -> bool:
        """Whether part of a frame has arrived and its rest has not."""
        return bool(self._missing or self._head)

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """The frames that `data` completes, each as (kind, payload), in order."""
        frames: list[tuple[int, bytes]] = []
        if self.failure:
            return frames
        offset = 0
        size = len(data)
        if self._missing:
            if size < self._missing:
                self._keep(data)
                return frames
            offset = self._missing
            self._parts.append(memoryview(data)[:offset])
            frames.append((self._kind, b"".join((*self._joined, *self._parts))))
            self._joined.clear()
            self._parts.clear()
            self._missing = 0
        elif self._head:
            offset = HEADER.size - len(self._head)
            head = self._head + data[:offset]
            if len(head) < HEADER.size:
                self._head = head
                return frames
            self._head = b""
            offset = self._frame(head, 0, data, offset, frames)
        while size - offset >= _HEADER_BYTES and not self.failure:
            length, kind = _unpack_header(data, offset)
            end = offset + _HEADER_BYTES - 1 + length
            if 0 < length <= self.limit and end <= size:
                # Whole and in one piece, as nearly all are.
                frames.append((kind, data[offset + _HEADER_BYTES : end]))
                offset = end
            else:
                offset = self._frame(data, offset, data, offset + _HEADER_BYTES, frames)
        if offset < size and not self.failure:
            self._head = data[offset:]
        return frames

    def _frame(
        self, head: bytes, head_at: int, data: bytes, offset: int, frames: list[tuple[int, bytes]]
    ) -> int:
        """Takes one frame whose header stands in `head` and whose payload begins in `data`; the offset
        behind it.
        """
        length, kind = HEADER.unpack_from(head, head_at)
        if not 0 < length <= self.limit:
            self.failure = oversize(length, self.limit)
            return len(data)
        end: int = offset + length - 1
        if end <= len(data):
            frames.append((kind, data[offset:end]))
            return end
        self._kind = kind
        self._missing = length - 1
        if offset < len(data):
            self._keep(memoryview(data)[offset:])
        return len(data)

    def _keep(self, part: bytes | memoryview) -> None:
        self._parts.append(part)
        self._missing -= len(part)
        if len(self._parts) == PARTS_MAX:
            self._joined.append(b"".join(self._parts))
            self._parts.clear()


def oversize(length: int, limit: int) -> str:
    """What to log about a length field outside 1..`limit`."""
    if length == 0:
        return "an empty frame"
    return f"a frame of {length} bytes where at most {limit} are taken"


_FOREIGN = (
    (
        b"TICKETING/",
        "the banner of a Ticketing client port: the address names a client port, not a peer port",
    ),
    (b"HTTP/", "an HTTP server's answer"),
    (b"SSH-", "SSH"),
    (b"\x16\x03", "a TLS handshake: this end has no TLS on its peer port"),
    (b"\x15\x03", "a TLS alert: the other end has TLS on its peer port"),
)
_HTTP_METHODS = (
    b"GET ",
    b"POST ",
    b"PUT ",
    b"HEAD ",
    b"DELETE ",
    b"OPTIONS ",
    b"PATCH ",
    b"CONNECT ",
    b"PRI * ",
)


def describe_foreign(head: bytes) -> str:
    """What speaks here, judged by its first bytes, or empty where they tell nothing."""
    for prefix, name in _FOREIGN:
        if head.startswith(prefix):
            return name
    if head.startswith(_HTTP_METHODS):
        return "an HTTP request"
    if len(head) >= 4 and all(0x20 <= byte < 0x7F or byte in b"\r\n\t" for byte in head[:16]):
        return "plain text"
    return ""
