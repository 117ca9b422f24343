"""Lock commands as the bytes of a log entry: one format byte, then one MessagePack list (spec 6)."""

from __future__ import annotations

import msgspec

from ticketing.locks.commands import FORMAT, Cancel, Extend, LockCommand, Revoke, Turn

ENTRY_OVERHEAD_MAX = 64
"""What an entry's bytes take beyond the sum of `size_of` of its commands, at most."""

_FORMAT_BYTE = bytes((FORMAT,))
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[LockCommand])

# Encoded bytes without key, texts and owners: array header and tag 2, `bin8` 2, an integer at most 9,
# a lease 3, a text header 5.
_TURN_FIXED = 2 + 2 + 9 + 9 + 3 + 9 + 5 + 9
_EXTEND_FIXED = 2 + 2 + 9 + 3
_CANCEL_FIXED = 2 + 5
_REVOKE_FIXED = 2 + 5 + 5 + 5 + _TURN_FIXED


class UnknownEntry(Exception):  # noqa: N818
    """The log holds what this program cannot read. Skipping it would part nodes: this one stops (spec 6)."""


def encode_commands(commands: list[LockCommand]) -> bytes:
    """The data of one entry that applies `commands` in order."""
    return _FORMAT_BYTE + _encoder.encode(commands)


def decode_commands(data: memoryview | bytes) -> list[LockCommand]:
    """The commands of an entry's data; nothing of the result refers to `data`.

    Raises `UnknownEntry` for another format, an unknown command or anything else that `encode_commands`
    never wrote.
    """
    if not len(data) or data[0] != FORMAT:
        found = f"format {data[0]}" if len(data) else "no format"
        raise UnknownEntry(f"lock entry of {len(data)} bytes has {found}, this program reads format {FORMAT}")
    try:
        return _decoder.decode(memoryview(data)[1:])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnknownEntry(f"lock entry of {len(data)} bytes cannot be read: {error}") from error


def size_of(command: LockCommand) -> int:
    """An upper bound of the encoded bytes of `command`, cheap to take, for the byte bound of the log."""
    if type(command) is Turn:
        name = command.name
        return _TURN_FIXED + len(command.key) + (len(name) if name.isascii() else 4 * len(name))
    if type(command) is Extend:
        return _EXTEND_FIXED + len(command.key)
    if isinstance(command, Cancel):
        return _CANCEL_FIXED + 9 * len(command.owners)
    assert isinstance(command, Revoke), f"not a lock command: {command!r}"
    texts = len(command.command_id) + len(command.who) + len(command.why)
    return _REVOKE_FIXED + 4 * (texts + len(command.turn.name)) + len(command.turn.key)
