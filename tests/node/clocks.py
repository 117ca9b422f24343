"""Simulated clocks: true time, and machines whose wall and elapsed clocks leave it by known amounts."""

from __future__ import annotations

from ticketing.node.clock_health import ClockHealth
from ticketing.raft.types import MS, Member

S = 1000 * MS


class Machine:
    """Clocks as integer functions of true time. Rates in parts per billion."""

    def __init__(self, number: int, *, wall_offset: int = 0, elapsed_ppb: int = 0, wall_ppb: int = 0) -> None:
        self.member = Member(number, number * 1000)
        self.elapsed_offset = number * 17 * S
        self.elapsed_ppb = elapsed_ppb
        self.wall_offset = wall_offset
        self.wall_ppb = wall_ppb
        self.health = ClockHealth(500 * MS)

    def elapsed(self, true: int) -> int:
        return self.elapsed_offset + true + true * self.elapsed_ppb // 10**9

    def wall(self, true: int) -> int:
        return 1_700_000_000 * S + self.wall_offset + true + true * self.wall_ppb // 10**9

    def clocks(self, true: int) -> tuple[int, int]:
        return self.elapsed(true), self.wall(true)

    @property
    def life(self) -> int:
        return self.member.incarnation


def exchange(
    a: Machine,
    b: Machine,
    true: int,
    *,
    out: int = 1 * MS,
    takes: int = 0,
    back: int = 1 * MS,
    inside: bool | None = None,
) -> str | None:
    """One probe of `b` by `a` that begins at `true`; returns what `a` says to the reply."""
    a.health.watch(b.life, a.elapsed(true))
    b.health.watch(a.life, b.elapsed(true))
    probe = a.health.probe(b.life, *a.clocks(true), inside)
    received, replied, read = true + out, true + out + takes, true + out + takes + back
    reply = b.health.answer(a.life, probe, *b.clocks(received), *b.clocks(replied))
    return a.health.reply(b.life, reply, *a.clocks(read))
