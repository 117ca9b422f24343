"""Which faults a run has, and how strong: a swarm drawn from its seed, some of them off, some extreme."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tests.sim.world import MS, PPB, S, World
from ticketing.raft.types import MIB

RHO_PPB = PPB // 1000


class Swarm:
    """Rates are mean numbers a virtual minute."""

    __slots__ = (
        "blinded",
        "clock_faults",
        "cut_changes",
        "cuts",
        "even_rates",
        "extensions",
        "far",
        "form",
        "form_first",
        "frames",
        "gate_swings",
        "isolations",
        "kills",
        "legacy_resend",
        "long_calm",
        "lost_disk",
        "nodes",
        "pauses",
        "phase_ns",
        "power",
        "rates_hold",
        "replaces",
        "resend",
        "revokes",
        "slice_records",
        "slow",
        "small_log",
        "snapshot_bytes_per_s",
        "standalone",
        "stops",
        "tight",
        "tiny",
        "transfers",
        "vanish",
        "wander",
    )

    def __init__(self, world: World) -> None:
        choice = world.rng.choice
        self.nodes = choice((3, 3, 5))
        self.phase_ns = choice((15, 30, 50)) * S
        self.kills = choice((0, 0, 4, 15, 40))
        self.power = choice((0.0, 0.5))
        """How many of the kills are losses of power."""
        self.pauses = choice((0, 0, 10, 60, 200))
        self.cuts = choice((0, 0, 10, 40, 120))
        self.slow = choice((0, 0, 10))
        self.frames = choice((0.0, 0.0, 0.01, 0.2))
        """How often a frame between peers is lost, doubled, or overtaken."""
        self.clock_faults = choice((0, 0, 5, 30))
        self.rates_hold = choice((True, True, True, True, False))
        self.even_rates = self.rates_hold and choice((True, True, False))
        """No two elapsed clocks differ by more than rho: only then is nobody's rate ever found wrong."""
        self.stops = choice((0, 0, 4, 15))
        self.vanish = choice((0, 0, 10))
        self.small_log = choice((True, True, False))
        self.tiny = choice((False, False, True))
        self.far = choice((1, 1, 1, 20, 150)) * MS
        """The greatest usual delay of every path."""
        self.tight = choice((False, False, True))
        """Election timeouts hardly differ: elections collide."""
        self.isolations = choice((0, 0, 15, 60))
        """Leaders that no peer hears any more while clients do: what they append meanwhile is in conflict later."""
        self._draw_later(world.rng_later.choice)

    def _draw_later(self, choice: Callable[[Sequence[Any]], Any]) -> None:
        self.form: bool = choice((False,) * 11 + (True,))
        """All voters but a minority die at once, for good; an operator forms a new domain after that."""
        self.form_first: bool = choice((True, True, False))
        """With `--first`, which skips the 250 s that the new domain waits otherwise."""
        self.standalone: bool = choice((False,) * 29 + (True,))
        """One node without peers."""
        self.legacy_resend: bool = choice((False,) * 7 + (True,))
        self.resend: float = choice((0.5, 1.0)) if self.legacy_resend else choice((0.0, 0.0, 0.0, 0.3))
        """How often clients ask once more, under the same owner, for what got no answer."""
        self.revokes: int = choice((0, 0, 0, 30))
        self.replaces: int = choice((0, 0, 0, 0, 4))
        self.transfers: int = choice((0, 0, 0, 20))
        self.lost_disk: float = choice((0.0, 0.0, 0.0, 0.5))
        """How often a machine, always the same one, comes back with an empty disk."""
        self.gate_swings: int = choice((0, 0, 0, 200))
        """Wall clocks that are set past half of delta and back, while keys are handed over."""
        self.long_calm: bool = choice((False, False, False, True))
        """Where elapsed clocks differed by more than rho: calm until that is over for every sample."""
        self.wander: float = choice((0.0, 0.0, 0.0, 0.5))
        """How many clients turn to any node when a leader is isolated or stands still: some meet the next leader
        while others are still with the former one, and release and extend for each other.
        """
        self.blinded: int = choice((0, 0, 0, 0, 6))
        """Leaders whose messages take so long that no clock can be measured any more, but that are heard."""
        self.cut_changes: float = choice((0.0, 0.0, 0.5))
        """How many leaders are isolated as soon as they have proposed a change of members."""
        self.snapshot_bytes_per_s: int = choice((64 * MIB, 64 * MIB, 64 * MIB, 100_000))
        self.slice_records: int = choice((500, 500, 2))
        """Held keys in each slice of a snapshot: few, so that there are many slices."""
        self.extensions: bool = choice((False,) * 7 + (True,))
        """Many keys that are held for long and extended all the time, while snapshots are made."""
        if self.extensions:
            self.small_log = True
            self.kills = max(self.kills, 15)
        if self.wander:
            self.tight = True
            self.isolations = max(self.isolations, 40)
        if self.form:
            self.replaces = 0  # what has moved is not formed anew here
        if self.standalone:
            self.nodes = 1
            self.form = False
            self.replaces = self.transfers = self.isolations = self.blinded = 0
            self.lost_disk = self.cut_changes = 0.0

    def __str__(self) -> str:
        return " ".join(f"{name}={getattr(self, name)}" for name in self.__slots__)
