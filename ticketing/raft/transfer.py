"""Giving the lead to a chosen voter (Raft thesis, 3.10)."""

from __future__ import annotations

from ticketing.raft.types import Member


class Transfer:
    """One attempt: catch the target up, tell it to campaign, give up at the deadline.

    Proposals are refused meanwhile, so the target has a fixed end to reach. The word to campaign is repeated
    each round: the first one may be lost, and a second one finds the target in a later term.
    """

    __slots__ = ("deadline_ns", "target", "told_round")

    def __init__(self, target: Member, deadline_ns: int) -> None:
        self.target = target
        self.deadline_ns = deadline_ns
        self.told_round = 0

    def may_tell(self, match: int, last_index: int, round_: int) -> bool:
        """Whether the target is to be told now; notes that it was."""
        if match < last_index or self.told_round == round_:
            return False
        self.told_round = round_
        return True
