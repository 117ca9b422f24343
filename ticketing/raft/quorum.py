"""Majorities, alone and joint (thesis 4.3): pure functions over indexes, rounds and times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum

from ticketing.raft.types import Configuration, Member

EVERYTHING = 1 << 62
"""Above every index, round and time: what nobody has to agree to is agreed to without limit."""


class Vote(Enum):
    """How a vote stands."""

    PENDING = "pending"
    WON = "won"
    LOST = "lost"


def reached(values: Sequence[int]) -> int:
    """The greatest value that a majority has reached; of nobody: EVERYTHING."""
    if not values:
        return EVERYTHING
    return sorted(values)[(len(values) - 1) >> 1]


def reached_by_both(voters: Sequence[int], outgoing: Sequence[int]) -> int:
    """The greatest value that a majority of the voters and one of the outgoing voters have reached."""
    index = reached(voters)
    if outgoing:
        return min(index, reached(outgoing))
    return index


def outcome(configuration: Configuration, answers: Mapping[Member, bool]) -> Vote:
    """How a vote stands under a configuration. Answers of others than its voters count for nothing."""
    first = _outcome_of(configuration.voters, answers)
    if not configuration.outgoing:
        return first
    second = _outcome_of(configuration.outgoing, answers)
    if first is second:
        return first
    return Vote.LOST if Vote.LOST in (first, second) else Vote.PENDING


def _outcome_of(voters: Sequence[Member], answers: Mapping[Member, bool]) -> Vote:
    needed = len(voters) // 2 + 1
    granted = sum(1 for voter in voters if answers.get(voter) is True)
    refused = sum(1 for voter in voters if answers.get(voter) is False)
    if granted >= needed:
        return Vote.WON
    if len(voters) - refused < needed:
        return Vote.LOST
    return Vote.PENDING
