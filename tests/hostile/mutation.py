"""Spoilt copies of examples, drawn from a seed."""

from __future__ import annotations

from random import Random

TELLING = (
    0,
    1,
    0x0A,
    0x20,
    0x7F,
    0x80,
    0x90,
    0x91,
    0xC0,
    0xC1,
    0xC4,
    0xC6,
    0xCF,
    0xD9,
    0xDB,
    0xDC,
    0xDD,
    0xDF,
    0xFF,
)
"""Bytes that mean something to a wire or to MessagePack."""
LENGTH_MAX = 4_096


def spoilt(rng: Random, examples: list[bytes]) -> bytes:
    """One example after one to six changes."""
    data = bytearray(rng.choice(examples))
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(7):
            case 0 if at < len(data):
                data[at] ^= 1 << rng.randrange(8)
            case 1 if at < len(data):
                data[at] = rng.choice(TELLING)
            case 2:
                data[at:at] = bytes(rng.choice(TELLING) for _ in range(rng.randint(1, 9)))
            case 3:
                del data[at : at + rng.randint(1, 16)]
            case 4:
                other = rng.choice(examples)
                data[at:at] = other[rng.randrange(len(other) + 1) :]
            case 5:
                data[at:at] = data[at : at + rng.randint(1, 32)] * rng.choice((1, 2, 40))
            case _:
                data[at:at] = rng.randbytes(rng.randint(1, 8))
        del data[LENGTH_MAX:]
    return bytes(data)
