"""Which faults a run has, and how strong: a swarm drawn from its seed, some of them off, some extreme."""

from __future__ import annotations

from enum import Enum

from tests.sim.world import MS, PPB, S, World
from ticketing.raft.types import MIB

RHO_PPB = PPB // 1000

LONG_EVERY = 32
"""Every so manieth seed is a long run."""
DENSER = 4
"""How many times as often faults happen in a short run."""


class Theme(Enum):
    """What comes together in a run, where it is more than chance."""

    ANY = "any"
    EXTENSIONS = "extensions"
    """Many keys that are held for long and extended all the time, while snapshots are made, slowly, in many slices."""
    TWO_LEADERS = "two leaders"
    """Leaders that are cut off or stand still, and clients on either side of them that release and extend for each
    other.
    """
    TORN_LOGS = "torn logs"
    """Leaders that are cut off and go on appending, while the next one appends less and keeps hardly any log: it sends
    a snapshot that ends within what its predecessor appended.
    """
    CHANGES = "changes"
    """Members that die and come back, and leaders that are cut off as soon as they have proposed a change of them."""
    CLOCKS = "clocks"
    """Wall clocks that are set while nobody can measure them, and while keys are handed over."""


class Swarm:
    """Rates are mean numbers a virtual minute.

    Most bugs need one or two faults and one or two elections: short runs have them within seconds, on a cluster that
    has just formed. What takes its time (domains that are lost, quarantines, leases and samples that run out, many
    changes of members one after another) is left to the long ones.
    """

    __slots__ = (
        "at_once",
        "blinded",
        "clients",
        "clock_faults",
        "cut_changes",
        "cuts",
        "even_rates",
        "far",
        "form",
        "form_first",
        "frames",
        "gate_swings",
        "isolations",
        "kills",
        "legacy_resend",
        "log_keep_bytes",
        "long",
        "long_calm",
        "lost_disk",
        "nodes",
        "overtakes",
        "pauses",
        "phase_ns",
        "power",
        "rates_hold",
        "replaces",
        "resend",
        "revokes",
        "slice_records",
        "slow",
        "snapshot_bytes_per_s",
        "spares_majority",
        "stalls",
        "standalone",
        "start_within_ns",
        "stops",
        "theme",
        "tight",
        "tiny",
        "transfers",
        "vanish",
        "wander",
    )

    def __init__(self, world: World) -> None:
        choice, chance = world.rng.choice, world.chance
        self.long = world.seed % LONG_EVERY == 0

        def a_minute(*rates: int) -> int:
            return choice(rates) * (1 if self.long else DENSER)

        self.nodes = choice((3, 3, 5) if self.long else (3, 3, 3, 5))
        self.phase_ns = choice((15, 30, 50) if self.long else (2, 4, 6)) * S
        self.clients = choice((1, 3, 6) if self.long else (1, 2, 4))
        self.start_within_ns = 2 * S if self.long else choice((5, 5, 500)) * MS
        """All processes start within this time."""
        self.at_once = chance(0.1)
        """Faults begin before a leader serves."""
        self.kills = a_minute(0, 0, 4, 15, 40)
        self.power = choice((0.0, 0.5))
        """How many of the kills are losses of power."""
        self.spares_majority = not (self.long and chance(0.5))
        """Nobody is killed or stopped whom a majority of the voters needs: without it there would be nothing to see."""
        self.pauses = a_minute(0, 0, 10, 40, 120)
        self.stalls = a_minute(0, 0, 0, 15)
        """Leaders that stand still for somewhat longer than an election timeout, with requests in their sockets."""
        self.cuts = a_minute(0, 0, 10, 40, 120)
        self.slow = a_minute(0, 0, 10)
        self.frames = choice((0.0, 0.0, 0.02, 0.2))
        """How often a frame between peers is lost, doubled, or overtaken."""
        self.clock_faults = a_minute(0, 0, 5, 30)
        self.rates_hold = choice((True, True, True, True, False))
        self.even_rates = self.rates_hold and choice((True, True, False))
        """No two elapsed clocks differ by more than rho: only then is nobody's rate ever found wrong."""
        self.stops = a_minute(0, 0, 4, 15)
        self.vanish = a_minute(0, 0, 10)
        self.log_keep_bytes = choice((300, 2_000, 20_000, 60_000))
        """Small logs, so that snapshots are the rule."""
        self.tiny = choice((False, False, True))
        """Nodes' limits of a few waiters and a few kilobytes."""
        self.far = choice((1, 1, 1, 20, 150)) * MS
        """The greatest usual delay of every path."""
        self.tight = choice((False, True))
        """Election timeouts hardly differ: elections collide."""
        self.isolations = a_minute(0, 0, 10, 20)
        """Leaders that no peer hears any more while clients do: what they append meanwhile is in conflict later."""
        self.form = chance(1 / 12 if self.long else 1 / 80)
        """All voters but a minority die at once, for good; an operator forms a new domain after that."""
        self.form_first = not self.long or choice((True, True, False))
        """With `--first`, which skips the 250 s that the new domain waits otherwise."""
        self.standalone = chance(1 / 30)
        """One node without peers."""
        self.legacy_resend = chance(1 / 8)
        self.resend: float = choice((0.5, 1.0)) if self.legacy_resend else choice((0.0, 0.0, 0.0, 0.3))
        """How often clients ask once more, under the same owner, for what got no answer."""
        self.revokes = a_minute(0, 0, 0, 30)
        self.replaces = a_minute(0, 0, 0, 0, 4)
        self.transfers = a_minute(0, 0, 0, 20)
        self.overtakes = a_minute(0, 0, 0, 20)
        """Leads that go away and come back at operators' words, while an answer to the former one is under way."""
        self.lost_disk = choice((0.0, 0.0, 0.0, 0.5))
        """How often a machine, always the same one, comes back with an empty disk."""
        self.gate_swings = a_minute(0, 0, 0, 150)
        """Wall clocks that are set past half of delta and back, while keys are handed over."""
        self.long_calm = self.long and choice((False, False, False, True))
        """Where elapsed clocks differed by more than rho: calm until that is over for every sample."""
        self.wander = 0.0
        """How many clients turn to any node when a leader is isolated or stands still: some meet the next leader
        while others are still with the former one, and release and extend for each other.
        """
        self.blinded = 0
        """Leaders whose messages take so long that no clock can be measured any more, but that are heard."""
        self.cut_changes = choice((0.0, 0.0, 0.5, 1.0))
        """How many leaders are isolated, or killed, as soon as they have proposed a change of members, or a little
        later.
        """
        self.snapshot_bytes_per_s = choice((64 * MIB, 64 * MIB, 64 * MIB, 100_000))
        self.slice_records = choice((500, 500, 2))
        """Held keys in each slice of a snapshot: few, so that there are many slices."""
        self.theme = choice((Theme.ANY,) * 6 + tuple(Theme)[1:])
        self._agree()

    def _agree(self) -> None:
        """Some faults show only together with others."""
        match self.theme:
            case Theme.EXTENSIONS:
                self.log_keep_bytes = min(self.log_keep_bytes, 2_000)
                self.slice_records, self.snapshot_bytes_per_s = 2, 20_000
                self.kills = max(self.kills, 60)
            case Theme.TWO_LEADERS:
                self.wander = 0.5
                self.tight = True
                self.isolations = max(self.isolations, 40)
                self.stalls = max(self.stalls, 30)
            case Theme.TORN_LOGS:
                self.wander = 0.2
                self.tight = True
                self.log_keep_bytes = 200
                self.isolations = max(self.isolations, 60)
                self.clients = 5
                self.tiny = False
            case Theme.CHANGES:
                self.cut_changes = 1.0
                self.kills = max(self.kills, 30)
                self.phase_ns = max(self.phase_ns, 6 * S)
            case Theme.CLOCKS:
                self.blinded = max(self.blinded, 15)
                self.gate_swings = max(self.gate_swings, 60)
                self.phase_ns = max(self.phase_ns, 6 * S)
            case Theme.ANY:
                pass
        if self.form:
            self.replaces = 0  # what has moved is not formed anew here
        if self.standalone:
            self.nodes = 1
            self.form = False
            self.replaces = self.transfers = self.overtakes = self.isolations = self.blinded = 0
            self.lost_disk = self.cut_changes = 0.0

    def __str__(self) -> str:
        return " ".join(f"{name}={getattr(self, name)}" for name in self.__slots__)
