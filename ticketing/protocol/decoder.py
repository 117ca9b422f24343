"""Bytes of an authenticated session into requests (the server's side) and replies (the client's side).

Both decoders are sans-I/O and total: any bytes give frames and at most one problem, after which nothing more
is decoded. What they give depends on the bytes alone, never on how the bytes were cut into pieces, and they
keep at most one unfinished frame. A loop recognises whole and valid frames only; whatever it stops at,
unfinished or wrong, is judged by code of its own that need not be fast.
"""

from __future__ import annotations

from typing import Final

from ticketing.protocol import frames
from ticketing.protocol.fields import (
    ADDRESS_BYTES_MAX,
    HELLO_BYTES_MAX,
    KEY_BYTES_MAX,
    KEY_LINE_MAX,
    LEASE_MAX,
    OWNER_TOP_BIT,
    REASON_BYTES_MAX,
    TOKEN_MAX,
    address_problem,
    escaped,
    is_utf8,
    key_problem,
)
from ticketing.protocol.frames import (
    ACQUIRE,
    BAD_FRAME,
    BAD_KEY,
    CANCEL,
    CARRIAGE_RETURN,
    ERROR,
    EXTEND,
    GRANTED,
    GRANTED_WAITED,
    HELLO,
    LEADER,
    MOVED,
    NEWLINE,
    NOT_HELD,
    RELEASE,
    RELEASED,
    SPACE,
    Q,
)

Request = tuple[int, int, int, int, bytes]
"""(opcode, wait, lease, owner or token, key). What a frame lacks is 0. `H` has its text as key."""

Reply = tuple[int, int, int, int, bytes]
"""(opcode, token, owner, waited_ms, key). What a frame lacks is 0. `L M E` have their text as key.

`R N X` have what they echo in place of the token, also where that is the owner of a cancel.
"""

MALFORMED: Final = "malformed"
"""The problem of a reply decoder. It is the client's word alone: a client sends no `E`."""


def _sizes(table: dict[int, int]) -> bytes:
    return bytes(table.get(opcode, 0) for opcode in range(256))


_ACQUIRE_SIZE: Final = frames.ACQUIRE_HEADER.size
_EXTEND_SIZE: Final = frames.EXTEND_HEADER.size
_ID_SIZE: Final = frames.ID_HEADER.size
_GRANTED_SIZE: Final = frames.GRANTED_HEADER.size
_WAITED_SIZE: Final = frames.GRANTED_WAITED_HEADER.size

# By opcode: the size of the header, opcode included, of a frame that ends with a key; 0 for all other bytes.
_REQUEST_SIZES: Final = _sizes(
    {
        ACQUIRE: _ACQUIRE_SIZE,
        Q: _ACQUIRE_SIZE,
        RELEASE: _ID_SIZE,
        CANCEL: _ID_SIZE,
        EXTEND: _EXTEND_SIZE,
    }
)
_REPLY_SIZES: Final = _sizes(
    {
        GRANTED: _GRANTED_SIZE,
        GRANTED_WAITED: _WAITED_SIZE,
        frames.TIMEOUT: _ID_SIZE,
        frames.BUSY: _ID_SIZE,
        frames.NOT_LEADING: _ID_SIZE,
        RELEASED: _ID_SIZE,
        NOT_HELD: _ID_SIZE,
        frames.EXTENDED: _ID_SIZE,
    }
)

# Which keyed replies with one number echo a token there (or, for a cancel, an owner) and not an owner.
_ECHOES_TOKEN: Final = bytes([RELEASED, NOT_HELD, frames.EXTENDED])

# By opcode: how many bytes the text of a frame without header may have.
_REQUEST_TEXTS = {HELLO: HELLO_BYTES_MAX}
_REPLY_TEXTS = {LEADER: ADDRESS_BYTES_MAX, MOVED: ADDRESS_BYTES_MAX, ERROR: REASON_BYTES_MAX}

_unpack_acquire: Final = frames.ACQUIRE_HEADER.unpack_from
_unpack_id: Final = frames.ID_HEADER.unpack_from
_unpack_extend: Final = frames.EXTEND_HEADER.unpack_from
_unpack_granted: Final = frames.GRANTED_HEADER.unpack_from
_unpack_waited: Final = frames.GRANTED_WAITED_HEADER.unpack_from


class RequestDecoder:
    """What one client sends after its response was accepted.

    Wait and lease of an acquire are passed on as they are: out of range they are answered BUSY, not by an
    error that would take the session's other requests along (spec 2). The text of `H` may be any bytes.
    """

    __slots__ = ("_tail", "detail", "problem")

    def __init__(self) -> None:
        self._tail = b""
        self.problem: str | None = None
        """`bad_frame` or `bad_key`, the reason for `E`, once the bytes were at fault: decoding is over."""
        self.detail = ""
        """What the fault was, for the log: one line, escaped."""

    @property
    def pending(self) -> int:
        """How many bytes of an unfinished frame have arrived."""
        return len(self._tail)

    def feed(self, data: bytes) -> list[Request]:
        """Takes the next bytes and returns what they complete, in order; also what stands before a fault."""
        requests: list[Request] = []
        if self.problem is not None:
            return requests
        if self._tail:
            data = self._tail + data
            self._tail = b""
        position = 0
        size = len(data)
        append = requests.append
        find = data.find
        while position < size:
            opcode = data[position]
            header = _REQUEST_SIZES[opcode]
            if header:
                start = position + header
                end = find(b"\n", start)
                if not start < end <= start + KEY_BYTES_MAX:
                    break
                key = data[start:end]
                if SPACE in key or CARRIAGE_RETURN in key or not (key.isascii() or is_utf8(key)):
                    break
                if header == _ACQUIRE_SIZE:
                    _, wait, lease, owner = _unpack_acquire(data, position)
                    append((opcode, wait, lease, owner, key))
                elif opcode == EXTEND:
                    _, token, lease = _unpack_extend(data, position)
                    if not 0 < lease <= LEASE_MAX:
                        break
                    append((opcode, 0, lease, token, key))
                else:
                    _, ident = _unpack_id(data, position)
                    if opcode == CANCEL and ident < OWNER_TOP_BIT:
                        break
                    append((opcode, 0, 0, ident, key))
                position = end + 1
            elif opcode == NEWLINE:
                position += 1
            elif opcode == HELLO:
                end = find(b"\n", position)
                if not position < end <= position + 1 + HELLO_BYTES_MAX:
                    break
                append((opcode, 0, 0, 0, data[position + 1 : end]))
                position = end + 1
            else:
                break
        if position < size:
            self._stop(data, position)
        return requests

    def _stop(self, data: bytes, position: int) -> None:
        """Judges the frame at `position`, which is not whole or not valid."""
        opcode = data[position]
        fault, line = _line(data, position, _REQUEST_SIZES, _REQUEST_TEXTS)
        if fault:
            self.problem, self.detail = BAD_FRAME, fault
        elif line is None:
            self._tail = data[position:]
        elif opcode == CANCEL and data[position + 1] < OWNER_TOP_BIT >> 56:
            self.problem, self.detail = BAD_FRAME, "a cancel for an owner whose top bit is clear"
        elif opcode == EXTEND and not 0 < (lease := _unpack_extend(data, position)[2]) <= LEASE_MAX:
            self.problem, self.detail = BAD_FRAME, f"an extension with a lease of {lease} s"
        else:
            problem = key_problem(line)
            assert problem is not None, (opcode, line)
            self.problem, self.detail = BAD_KEY, problem


class ReplyDecoder:
    """What one server sends after its first line."""

    __slots__ = ("_tail", "detail", "problem")

    def __init__(self) -> None:
        self._tail = b""
        self.problem: str | None = None
        """`malformed` once the bytes were at fault: decoding is over."""
        self.detail = ""
        """What the fault was, for the log: one line, escaped."""

    @property
    def pending(self) -> int:
        """How many bytes of an unfinished frame have arrived."""
        return len(self._tail)

    def feed(self, data: bytes) -> list[Reply]:
        """Takes the next bytes and returns what they complete, in order; also what stands before a fault."""
        replies: list[Reply] = []
        if self.problem is not None:
            return replies
        if self._tail:
            data = self._tail + data
            self._tail = b""
        position = 0
        size = len(data)
        append = replies.append
        find = data.find
        while position < size:
            opcode = data[position]
            header = _REPLY_SIZES[opcode]
            if header:
                start = position + header
                end = find(b"\n", start)
                if not start < end <= start + KEY_BYTES_MAX:
                    break
                key = data[start:end]
                if SPACE in key or CARRIAGE_RETURN in key or not (key.isascii() or is_utf8(key)):
                    break
                if header == _ID_SIZE:
                    _, ident = _unpack_id(data, position)
                    if opcode in _ECHOES_TOKEN:
                        append((opcode, ident, 0, 0, key))
                    else:
                        append((opcode, 0, ident, 0, key))
                else:
                    waited = 0
                    if header == _WAITED_SIZE:
                        _, token, owner, waited = _unpack_waited(data, position)
                    else:
                        _, token, owner = _unpack_granted(data, position)
                    if not 0 < token < TOKEN_MAX:
                        break
                    append((opcode, token, owner, waited, key))
                position = end + 1
            elif opcode == NEWLINE:
                position += 1
            elif opcode in _REPLY_TEXTS:
                end = find(b"\n", position)
                if end < 0 or _text_problem(opcode, data[position + 1 : end]) is not None:
                    break
                append((opcode, 0, 0, 0, data[position + 1 : end]))
                position = end + 1
            else:
                break
        if position < size:
            self._stop(data, position)
        return replies

    def _stop(self, data: bytes, position: int) -> None:
        """Judges the frame at `position`, which is not whole or not valid."""
        opcode = data[position]
        fault, line = _line(data, position, _REPLY_SIZES, _REPLY_TEXTS)
        if fault:
            self.problem, self.detail = MALFORMED, fault
        elif line is None:
            self._tail = data[position:]
        else:
            problem = _text_problem(opcode, line) if opcode in _REPLY_TEXTS else key_problem(line)
            self.problem, self.detail = MALFORMED, problem or "a grant whose token is out of range"


def _line(data: bytes, position: int, sizes: bytes, texts: dict[int, int]) -> tuple[str, bytes | None]:
    """Looks for the key or text of the frame at `position`; says what is wrong with the frame as such.

    Returns ("", None) where more bytes have to come first. No more than the longest text there is, and its
    newline, are waited for.
    """
    opcode = data[position]
    header = sizes[opcode]
    if not header and opcode not in texts:
        return f"a frame that begins with '{escaped(bytes([opcode]))}'", None
    line_max = texts.get(opcode, KEY_LINE_MAX)
    start = position + (header or 1)
    end = data.find(b"\n", start, start + line_max + 1)
    if end >= 0:
        return "", data[start:end]
    if len(data) - start > line_max:
        return f"the text of a frame '{chr(opcode)}' runs beyond {line_max} bytes", None
    return "", None


def _text_problem(opcode: int, text: bytes) -> str | None:
    if opcode == ERROR:
        if 0 < len(text) <= REASON_BYTES_MAX and text.isascii() and text.replace(b"_", b"").isalnum():
            return None
        return f"an error with the reason '{escaped(text[:REASON_BYTES_MAX])}'"
    return address_problem(text.decode("latin-1"))
