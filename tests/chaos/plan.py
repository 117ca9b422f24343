"""The schedule of a run, drawn from its seed before anything runs: rounds of faults, each with its time and strength.

The same seed, length and number of nodes give the same plan, whatever the machine does meanwhile. Who leads is not
known beforehand, so victims are named by their part (`leader`, `follower-2`) and found when the time has come.

Within a round faults overlap; at its end everything is mended, and the next one begins when every place has its voter.
At most as many voters lose their state in a round as the domain survives.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

LOSES_STATE = frozenset(
    {
        "kill",
        "kill_two",
        "kill_twice",
        "stop",
        "slow_clock",
        "replace",
        "move",
        "rolling_restart",
        "little_memory",
    }
)
"""Kinds by which processes end: one of them a round."""

_ONLY_FIVE = frozenset({"kill_two"})

WEIGHTS = {
    "kill": 12,
    "kill_two": 5,
    "kill_twice": 4,
    "stop": 6,
    "slow_clock": 3,
    "replace": 3,
    "move": 3,
    "rolling_restart": 2,
    "little_memory": 3,
    "pause": 14,
    "pause_long": 3,
    "pause_majority": 3,
    "halves": 6,
    "isolated": 10,
    "leader_without_peers": 5,
    "one_way": 8,
    "one_link": 7,
    "clients_cut": 5,
    "delay": 8,
    "reordering": 5,
    "loss": 6,
    "narrow": 3,
    "resets": 5,
    "clock_step": 6,
    "clocks_apart": 2,
    "few_files": 4,
    "transfer": 4,
    "client_killed": 8,
    "client_paused": 5,
}


@dataclass(frozen=True)
class Fault:
    """One fault: when in its round it begins, how long it lasts, whom it meets and how strong it is."""

    kind: str
    at_s: float
    for_s: float
    victim: str
    facts: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        facts = "".join(f" {name}={value}" for name, value in self.facts.items())
        return f"+{self.at_s:.2f} s {self.kind} {self.victim} for {self.for_s:.2f} s{facts}"


@dataclass(frozen=True)
class Round:
    """Faults that overlap, and how long it is calm afterwards."""

    number: int
    faults: tuple[Fault, ...]
    calm_s: float


class Plan:
    """An endless row of rounds; a run takes as many as it has time for."""

    def __init__(
        self, seed: int, nodes: int, *, longest_s: float = 60.0, kinds: tuple[str, ...] = ()
    ) -> None:
        """`longest_s` bounds every fault; `kinds`: these come first, one a round, so that a short run has them."""
        self._rng = Random(f"chaos {seed} {nodes}")
        self._nodes = nodes
        self._longest_s = longest_s
        self._first = list(kinds)
        self._number = 0

    def next_round(self) -> Round:
        """The round that comes next."""
        rng = self._rng
        self._number += 1
        count = rng.choice((1, 1, 2, 2, 2, 3, 3, 4))
        kinds = [self._first.pop(0)] if self._first else []
        while len(kinds) < count:
            kind = rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
            if kind in _ONLY_FIVE and self._nodes < 5:
                continue
            if kind in kinds or (kind in LOSES_STATE and LOSES_STATE.intersection(kinds)):
                continue
            kinds.append(kind)
        faults = tuple(sorted((self._fault(kind) for kind in kinds), key=lambda fault: fault.at_s))
        return Round(self._number, faults, rng.uniform(0.5, 4.0))

    def _fault(self, kind: str) -> Fault:
        rng = self._rng
        at_s = rng.choice((0.0, rng.uniform(0, 1), rng.uniform(0, 6)))
        for_s = min(_length_s(rng, kind), self._longest_s)
        victim = rng.choice(("leader", "leader", "any", *(f"follower-{n}" for n in range(1, self._nodes))))
        return Fault(kind, round(at_s, 3), round(for_s, 3), victim, _facts(rng, kind))


def _length_s(rng: Random, kind: str) -> float:
    match kind:
        case "pause":
            return rng.choice((rng.uniform(0.1, 0.6), rng.uniform(0.3, 3), rng.uniform(2, 12)))
        case "pause_long":
            return rng.uniform(15, 60)
        case "pause_majority":
            return rng.uniform(0.3, 8)
        case "resets":
            return rng.uniform(0.05, 0.5)
        case "clock_step" | "clocks_apart":
            return rng.uniform(6, 20)
        case "slow_clock":
            return rng.uniform(8, 25)
        case "client_paused":
            return rng.uniform(1, 15)
        case "kill" | "kill_two" | "kill_twice" | "stop" | "client_killed":
            return rng.choice((0.0, rng.uniform(0, 2), rng.uniform(0, 10)))
        case _:
            return rng.choice((rng.uniform(0.2, 2), rng.uniform(1, 8), rng.uniform(5, 25)))


def _facts(rng: Random, kind: str) -> dict[str, Any]:
    match kind:
        case "delay":
            return {
                "delay_ms": rng.choice((2, 10, 40, 90)),
                "jitter_ms": rng.choice((0, 1, 20)),
                "wide": rng.random() < 0.4,
            }
        case "reordering":
            return {
                "delay_ms": rng.choice((2, 5, 20)),
                "twice": rng.choice((0.0, 0.02)),
                "wide": rng.random() < 0.4,
            }
        case "loss":
            return {"percent": rng.choice((1, 5, 20, 50)), "wide": rng.random() < 0.5}
        case "narrow":
            return {"bytes_per_s": rng.choice((4_000, 20_000, 100_000))}
        case "clock_step":
            return {"offset_s": rng.choice((-1, 1)) * rng.choice((0.1, 0.4, 2.0, 30.0))}
        case "clocks_apart":
            return {"offset_s": rng.choice((1.0, 5.0))}
        case "slow_clock":
            return {"rate": rng.choice((0.9996, 0.99, 0.97))}
        case "one_way":
            return {"deaf": rng.random() < 0.5}
        case "few_files":
            return {"room": rng.choice((0, 1, 3))}
        case "little_memory":
            return {"room": rng.choice((0, 1 << 16, 1 << 20))}
        case "halves" | "kill_two" | "pause_majority":
            return {"draw": rng.randrange(1 << 16)}
        case "client_killed" | "client_paused" | "clients_cut":
            return {"draw": rng.randrange(1 << 16)}
        case _:
            return {}


SHORT = ("isolated", "kill", "pause", "one_way", "stop", "clock_step")
"""What a run of a minute has seen at least, a round each, in this order."""
