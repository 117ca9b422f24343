"""What clients do and how often: drawn once a run, for all of its clients."""

from __future__ import annotations

from collections.abc import Sequence

from tests.sim.swarm import Theme
from tests.sim.world import MS, S, World


class Manners:
    """What clients do and how often; drawn once a run."""

    __slots__ = (
        "abandon",
        "cancel",
        "cancel_lost",
        "elsewhere",
        "extend",
        "extend_times",
        "garbage",
        "hold_ns",
        "keys",
        "late",
        "late_copies",
        "leases",
        "legacy",
        "mistakes",
        "outstanding",
        "prefix",
        "resend",
        "stray",
        "think_ns",
        "waits",
    )

    def __init__(self, world: World) -> None:
        choice = world.rng.choice
        self.keys = choice((1, 2, 5, 50, 1500))
        self.leases: Sequence[int] = choice(((1, 2, 2, 5, 10), (1,), (1, 2), (30, 250)))
        self.think_ns = (1 * MS, choice((20, 200, 1000)) * MS)
        """From one request of a client to its next."""
        self.outstanding = choice((1, 3, 10))
        self.hold_ns = (0, choice((5, 100, 1500)) * MS)
        self.waits: Sequence[int] = choice(((0,), (0, 1, 3), (1, 2, 5), (30,)))
        self.legacy = choice((0.0, 0.3))
        """`A` instead of `Q`."""
        self.cancel = choice((0.0, 0.1))
        self.cancel_lost = choice((0.0, 0.5, 1.0))
        self.elsewhere = choice((0.0, 0.3))
        """Releases and extensions that go over another client's session, perhaps to another node."""
        self.extend = choice((0.0, 0.2))
        self.extend_times = 1
        self.abandon = choice((0.0, 0.05, 0.2))
        """Holds that are never released."""
        self.late = choice((0.0, 0.1, 0.5))
        """Releases and extensions after the lease."""
        self.late_copies = choice((0.0, 0.3))
        """Requests that come again after their owner's cancel was answered."""
        self.mistakes = choice((0.0, 0.05))
        """Releases, extensions and cancels of what the key is not held or waited for by."""
        self.stray = choice((0.0, 0.1))
        """Acquires at a node that is known not to lead."""
        self.garbage = choice((0.0, 0.0, 0.002))
        self.resend = 0.0
        """Requests without an answer that are asked once more on the next session, under the same owner."""
        self.prefix = b"key"

    def follow(self, theme: Theme, world: World) -> None:
        """What the run's theme needs of its clients."""
        if theme is Theme.EXTENSIONS:
            self._extend(world)
        elif theme is Theme.TWO_LEADERS:
            self._meet_two_leaders(world)
        elif theme is Theme.TORN_LOGS:
            self._append(world)

    def _append(self, world: World) -> None:
        """A new entry with nearly every request: many keys, asked for one by one."""
        self.keys = world.rng.choice((50, 1500))
        self.outstanding = 30
        self.think_ns = (1 * MS, 100 * MS)
        self.hold_ns = (0, 300 * MS)
        self.waits = (0, 1, 3)

    def _extend(self, world: World) -> None:
        """Of who holds many keys for long and extends each again and again."""
        self.extend, self.extend_times = 1.0, 8
        self.keys = world.rng.choice((50, 1500))
        self.leases = (10, 30)
        self.outstanding = 10
        self.think_ns = (1 * MS, 50 * MS)
        self.hold_ns = (0, 8 * S)

    def _meet_two_leaders(self, world: World) -> None:
        """Much of what is asked goes over others' sessions, at short holds of few keys with long leases: an overtaken
        leader that answers from what it knows is wrong soon.
        """
        choice = world.rng.choice
        self.elsewhere = choice((0.3, 0.8))
        self.extend = choice((0.2, 0.6))
        self.keys = choice((1, 2, 5))
        self.leases = choice(((5, 10), (30,)))
        self.hold_ns = (0, choice((100, 1500)) * MS)
        self.think_ns = (1 * MS, choice((20, 100)) * MS)

    def calm_down(self) -> None:
        """Fewer requests: what is demanded then needs no more."""
        self.think_ns = (1 * MS, max(self.think_ns[1], 400 * MS))

    @classmethod
    def well_behaved(cls, world: World) -> Manners:
        """Of a client with keys of its own that takes what it can get and gives it back at once."""
        manners = cls(world)
        manners.prefix = b"calm"
        manners.keys, manners.leases, manners.waits, manners.outstanding = 5, (2,), (0, 1), 2
        manners.hold_ns = manners.think_ns = (1 * MS, 200 * MS)
        manners.elsewhere = manners.legacy = manners.cancel = manners.abandon = manners.late = (
            manners.garbage
        ) = manners.mistakes = 0.0
        return manners
