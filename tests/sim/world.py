"""Virtual time: the event queue, true time, and the clocks of machines that only approximate it.

True time is an integer of nanoseconds since the beginning of the run. Nothing reads a real clock and all chance is
drawn from one generator, so a seed is a run. What is due at the same time happens in an order drawn from the seed:
asyncio's loop keeps one fixed order, and a fault that needs another one would never show.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from random import Random

MS = 1_000_000
S = 1_000_000_000
PPB = 1_000_000_000

WALL_START_NS = 1_900_000_000 * S
"""Unix time at the beginning of a run."""

EVENTS_MAX = 500_000
"""In one run: the busiest have a fifth of it."""


class Violation(AssertionError):  # noqa: N818 - what the simulator looks for, not an error of its own
    """Something happened that the service promises never to happen."""

    def __init__(self, rule: str, detail: str) -> None:
        super().__init__(f"{rule}: {detail}")
        self.rule = rule
        """The invariant's name, as `docs/simulation.md` lists it."""


class World:
    """The queue of what happens when, and the one source of chance."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = Random(seed)
        self._random = self.rng.random
        self.now = 0
        self.events = 0
        self.log: Callable[[str], None] | None = None
        """Takes the lines of the run's log; None where nobody reads along."""
        self._heap: list[tuple[int, float, int, Callable[[], None]]] = []
        self._sequence = 0

    def at(self, when: int, what: Callable[[], None]) -> None:
        """Has `what` happen at true time `when`, now at the earliest."""
        self._sequence += 1
        now = self.now
        heappush(self._heap, (max(now, when), self._random(), self._sequence, what))

    def after(self, wait: int, what: Callable[[], None]) -> None:
        """Has `what` happen in `wait` ns."""
        self._sequence += 1
        heappush(self._heap, (self.now + wait, self._random(), self._sequence, what))

    def run(self, until: int) -> None:
        """Everything up to and including true time `until`."""
        heap = self._heap
        while heap and heap[0][0] <= until:
            self.now, _, _, what = heappop(heap)
            self.events += 1
            what()
            if self.events > EVENTS_MAX:
                raise Violation("bounded run", f"{self.events} events in {self.now / S:.1f} s")
        self.now = until

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return probability > 0 and self._random() < probability

    def between(self, low: int, high: int) -> int:
        """A number from low to high, both included, small ones more often than large ones."""
        return low + int((high - low) * self._random() ** 3)

    def say(self, who: str, what: str, detail: str = "") -> None:
        """One line of the run's log."""
        if self.log is not None:
            self.log(f"{self.now / S:12.6f}  {who:<14.14}  {what:<32.32}  {detail}")


class Clock:
    """The elapsed and the wall clock of one machine.

    The elapsed clock has a rate error and an arbitrary origin; its rate may change, it never goes back. The wall
    clock has an offset that steps, and a drift of its own.
    """

    __slots__ = ("_base", "_rate", "_segments", "_since", "_wall_base_ns", "_wall_ppb", "_world", "steps")

    def __init__(self, world: World, *, origin_ns: int, rate_ppb: int, wall_ns: int, wall_ppb: int) -> None:
        self._world = world
        self._since, self._base, self._rate = world.now, origin_ns, rate_ppb
        self._segments = [(world.now, origin_ns, rate_ppb)]
        """Every rate that it had: since when, from which reading on."""
        self._wall_base_ns = WALL_START_NS + wall_ns
        self._wall_ppb = wall_ppb
        self.steps: list[tuple[int, int]] = []
        """Steps of the wall clock: true time, size."""

    @property
    def rate_ppb(self) -> int:
        """The present error of the elapsed clock's rate."""
        return self._rate

    @property
    def rate_since_ns(self) -> int:
        """Since when, by true time, it has that rate."""
        return self._since

    @property
    def wall_ppb(self) -> int:
        """The present drift of the wall clock."""
        return self._wall_ppb

    def elapsed_ns(self) -> int:
        """The elapsed clock now."""
        passed = self._world.now - self._since
        return self._base + passed + passed * self._rate // PPB

    def true_ns(self, elapsed_ns: int) -> int:
        """When the elapsed clock showed `elapsed_ns`, within a nanosecond or two."""
        for since, base, rate in reversed(self._segments):
            if elapsed_ns >= base:
                return since + (elapsed_ns - base) * PPB // (PPB + rate)
        since, base, rate = self._segments[0]
        return since + (elapsed_ns - base) * PPB // (PPB + rate)

    def rates_since(self, true_ns: int) -> list[int]:
        """The errors of its rate since then, ppb."""
        rates = [self._rate]
        for since, _base, rate in reversed(self._segments):
            rates.append(rate)
            if since <= true_ns:
                break
        return rates

    def set_rate(self, rate_ppb: int) -> None:
        """The elapsed clock runs at another rate from now on."""
        self._base = self.elapsed_ns()
        self._since, self._rate = self._world.now, rate_ppb
        self._segments.append((self._since, self._base, rate_ppb))

    def wall_ns(self) -> int:
        """The wall clock now, Unix ns."""
        now = self._world.now
        return self._wall_base_ns + now + now * self._wall_ppb // PPB

    def step(self, size_ns: int) -> None:
        """The wall clock is set."""
        self._wall_base_ns += size_ns
        self.steps.append((self._world.now, size_ns))

    def set_wall(self, offset_ns: int) -> None:
        """The wall clock is set to the true time plus an offset, and drifts no more."""
        before = self.wall_ns()
        self._wall_ppb = 0
        self._wall_base_ns = WALL_START_NS + offset_ns
        self.steps.append((self._world.now, self.wall_ns() - before))

    def walls_of_late(self, within_ns: int) -> list[int]:
        """The wall clock now, and what it would show now without its steps of the last `within_ns`."""
        wall = self.wall_ns()
        walls = [wall]
        for when, size in reversed(self.steps):
            if self._world.now - when > within_ns:
                break
            wall -= size
            walls.append(wall)
        return walls
