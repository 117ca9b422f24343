"""A follower's answers to its leader: at most one acknowledgement a turn, whatever came in it."""

from __future__ import annotations

from ticketing.raft.messages import AppendEntries, AppendRefusal, AppendReply
from ticketing.raft.replica import Replica
from ticketing.raft.types import Base, Member


class Follower:
    """The acknowledgement of this turn. If its term is over by the turn's end, it is not sent."""

    __slots__ = ("_last_index", "_leader", "_match", "_replica", "_round", "_term")

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._leader: Member | None = None
        """Whom an acknowledgement is owed, None if nobody."""
        self._term = 0
        self._round = 0
        self._match = 0
        self._last_index = 0

    def on_append(self, leader: Member, message: AppendEntries, now_ns: int) -> None:
        """Replicates what the leader of the present term sent."""
        answer = self._replica.accept(message, now_ns)
        if isinstance(answer, AppendRefusal):
            self.flush()
            self._replica.send(leader, answer)
            return
        if self._term != answer.term:
            self._term = answer.term
            self._round = self._match = 0
        self._leader = leader
        # Within a term a match never becomes untrue, so the greatest ones answer for all.
        if answer.round > self._round:
            self._round = answer.round
        if answer.match > self._match:
            self._match = answer.match
        self._last_index = answer.last_index

    def on_restored(self, leader: Member, base: Base) -> None:
        """Tells the leader at once that the log can go on after a snapshot."""
        replica = self._replica
        if self._term != replica.term:
            return  # it has not been heard as leader of this term: its next append will be answered
        self._leader = leader
        self._match = max(self._match, base.index)
        self._last_index = replica.log.last_index

    @property
    def owes_answer(self) -> bool:
        """Whether `flush` will queue an acknowledgement."""
        return self._leader is not None

    def flush(self) -> None:
        """Queues the acknowledgement, if one is owed."""
        leader = self._leader
        if leader is None:
            return
        self._leader = None
        if self._term == self._replica.term:
            self._replica.send(leader, AppendReply(self._term, self._round, self._match, self._last_index))
