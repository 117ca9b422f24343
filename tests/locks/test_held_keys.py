"""The held keys in parts: what is found, in what order it is visited, and that no part is ever large."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.locks.table_twin import FIRST_TOKEN, filled
from ticketing.locks.commands import Turn
from ticketing.locks.held_keys import PARTS, HeldKeys

COUNT = 20_000


def test_every_key_is_in_one_part_and_no_part_grows_far_beyond_its_share() -> None:
    """What a dict does in one piece when it grows is bounded by its size: a `PARTS`th of all, and some."""
    table = filled(COUNT)
    keys = table.held
    sizes = [len(part) for part in keys._parts]
    assert (len(sizes), sum(sizes), len(keys)) == (PARTS, COUNT, COUNT)
    assert max(sizes) < 2 * COUNT / PARTS
    assert all(keys._parts[hash(key) >> (sys.hash_info.width - 8)][key] is keys[key] for key in keys)


def test_the_parts_are_filled_as_a_dict_likes_it() -> None:
    """Keys of one part differ in the lower bits of their hashes: those that a dict goes by."""
    table = filled(COUNT)
    part = max(table.held._parts, key=len)
    assert len({hash(key) & 0xFF for key in part}) > len(part) / 2


def test_visits_go_by_token_whatever_the_hashes_are() -> None:
    """The same in processes that hash differently."""
    program = (
        "from tests.locks.table_twin import filled\n"
        "from ticketing.locks.commands import Turn\n"
        "table = filled(500)\n"
        "thirds = [held for held in table.held.values() if held.token % 3 == 0]\n"
        "table.apply([Turn(held.key, held.token) for held in thirds], 0)\n"
        "print(list(table.held), [held.token for held in table.held.values()], table.checksum())\n"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | {"PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(said) == 1
    assert said.pop().count("key-") == 334


def test_a_key_is_found_until_it_is_free() -> None:
    table = filled(3)
    keys: HeldKeys = table.held
    first = keys[b"key-000000"]
    assert keys.get(b"key-000000") is first
    assert b"key-000000" in keys
    table.apply([Turn(b"key-000000", first.token)], 0)
    assert keys.get(b"key-000000") is None
    assert b"key-000000" not in keys
    with pytest.raises(KeyError):
        keys[b"key-000000"]
    assert list(keys.items()) == [(held.key, held) for held in keys.values()]
    assert len(keys) == 2


def test_taking_apart_takes_every_key_once() -> None:
    table = filled(1_000)
    keys = table.held
    taken = []
    while (held := keys.take_any()) is not None:
        taken.append(held.token)
        assert len(keys) == 1_000 - len(taken)
    assert sorted(taken) == list(range(FIRST_TOKEN, FIRST_TOKEN + 1_000))
