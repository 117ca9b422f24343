from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ticketing.locks.codec import ENTRY_OVERHEAD_MAX, UnknownEntry, decode_commands, encode_commands, size_of
from ticketing.locks.commands import FORMAT, Cancel, Extend, LockCommand, Revoke, Turn

NUMBERS = st.integers(0, (1 << 64) - 1)
TOKENS = st.integers(0, (1 << 62) - 1)
LEASES = st.integers(0, 250)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=64)
KEYS = st.binary(max_size=128)
TURNS = st.builds(
    Turn,
    key=KEYS,
    expect=TOKENS,
    owner=NUMBERS,
    lease=LEASES,
    wall_ms=TOKENS,
    name=TEXTS,
    renewal=st.integers(-1, 1 << 40),
)
COMMANDS = st.one_of(
    TURNS,
    st.builds(Extend, key=KEYS, expect=TOKENS, lease=LEASES),
    st.builds(Cancel, owners=st.lists(NUMBERS, max_size=20).map(tuple)),
    st.builds(Revoke, command_id=TEXTS, turn=TURNS, who=TEXTS, why=TEXTS),
)

TURN = Turn(b"k", 0, 1 << 63, 60, 1_700_000_000_000, "p@h:1")


@given(st.lists(COMMANDS, max_size=8))
@settings(max_examples=100)
def test_an_entry_is_read_back_as_it_was_written(commands: list[LockCommand]) -> None:
    data = encode_commands(commands)
    assert decode_commands(data) == commands
    assert decode_commands(memoryview(data)) == commands


@given(st.lists(COMMANDS, min_size=1, max_size=8), st.sampled_from([1, 20]))
@settings(max_examples=100)
def test_size_of_never_tells_less_than_an_entry_takes(commands: list[LockCommand], times: int) -> None:
    commands = commands * times
    assert len(encode_commands(commands)) <= ENTRY_OVERHEAD_MAX + sum(map(size_of, commands))


@pytest.mark.parametrize(
    "command",
    [
        Turn(b"k" * 128, (1 << 62) - 1, (1 << 64) - 1, 250, (1 << 62) - 1, "\U0001f3ab" * 16, (1 << 62) - 1),
        Extend(b"k" * 128, (1 << 62) - 1, 250),
        Cancel(((1 << 64) - 1,) * 1_000),
        Revoke("i" * 64, Turn(b"k", 1 << 61, 1 << 63, 250, 1 << 61, "n" * 64, 1 << 61), "w" * 64, "y" * 400),
    ],
    ids=["turn", "extend", "cancel", "revoke"],
)
def test_size_of_holds_for_the_largest_values(command: LockCommand) -> None:
    assert len(encode_commands([command] * 100)) <= ENTRY_OVERHEAD_MAX + 100 * size_of(command)


def test_size_of_is_near_for_what_is_usual() -> None:
    assert size_of(TURN) <= len(msgspec.msgpack.encode(TURN)) + 32


def test_an_entry_begins_with_its_format() -> None:
    assert encode_commands([TURN])[0] == FORMAT


@pytest.mark.parametrize(
    "data",
    [
        b"",
        bytes((FORMAT + 1,)) + encode_commands([TURN])[1:],
        bytes((0,)) + encode_commands([TURN])[1:],
        bytes((FORMAT,)),
        bytes((FORMAT,)) + msgspec.msgpack.encode([[9, b"k", 0]]),
        bytes((FORMAT,)) + msgspec.msgpack.encode([[1, b"k", "zero"]]),
        bytes((FORMAT,)) + msgspec.msgpack.encode({"turn": 1}),
        encode_commands([TURN])[:-1],
        encode_commands([TURN]) + b"\x00",
    ],
    ids=[
        "empty",
        "newer",
        "older",
        "no-list",
        "unknown-command",
        "wrong-field",
        "no-array",
        "cut",
        "trailing",
    ],
)
def test_an_entry_of_unknown_kind_or_format_is_refused(data: bytes) -> None:
    with pytest.raises(UnknownEntry):
        decode_commands(data)


def test_format_1_is_pinned() -> None:
    # Nodes of two versions share a log: other bytes need another format number.
    commands: list[LockCommand] = [
        Turn(b"k", 7, 1 << 63, 60, 1_000, "me", 2),
        Extend(b"k", 7, 9),
        Cancel((1 << 63,)),
        Revoke("id", Turn(b"k", 7), "who", "why"),
    ]
    assert encode_commands(commands).hex() == (
        "0194"
        "9801c4016b07cf80000000000000003ccd03e8a26d6502"
        "9402c4016b0709"
        "920391cf8000000000000000"
        "9504a26964" + "9801c4016b07000000a0ff" + "a377686f" + "a3776879"
    )
