"""What a member may truthfully say to this one: looked at before anything is changed.

A process that has proved itself can still be broken, or lie. Raft does not bear that (thesis 2.1: faults are those of
Byzantium to it), and nothing here makes it safe. What it does is keep the fault where it is: a message that no member
could have sent ends its sender's link and stays without effect, where it would otherwise break an invariant and end
this process as well, and with it perhaps the domain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ticketing.raft.messages import AppendEntries, AppendRefusal, AppendReply, Message
from ticketing.raft.types import Base, Configuration

if TYPE_CHECKING:
    from ticketing.raft.replica import Replica
    from ticketing.raft.replication import Replication

TERMS_AHEAD_MAX = 1 << 32
"""How far another's term may lie above our own: more elections than 50 years hold. Without a bound one message would
take all members to the last term that can be written, and no election could follow."""
NUMBER_MAX = 1 << 62
"""Indexes and rounds end here, terms a little above: their successors can always be written."""


class ImplausibleError(Exception):
    """A member says what cannot be true. Nothing has changed, but for entries before a wrong configuration."""


def check_message(replica: Replica, replication: Replication | None, message: Message) -> None:
    """Raises `ImplausibleError` for a message that no working member sends to one that stands as this does.

    `replication`: of this member's own lead, where it leads. Two that lead one term are no matter of this: each may be
    right about its votes, so whoever sees both stops.
    """
    if message.term > replica.term:
        _check_term(replica.term, message.term)
    if type(message) is AppendEntries:
        _check_append(replica, message)
    elif replication is None or message.term != replica.term:
        return
    elif type(message) is AppendReply or type(message) is AppendRefusal:
        _check_answer(replica.log.last_index, replication.round, message)


def check_base(term: int, base: Base) -> None:
    """Raises `ImplausibleError` for a snapshot's base that none has, at a member in `term`."""
    _check_term(term, base.term)
    if not 0 < base.index < NUMBER_MAX:
        raise ImplausibleError(f"a snapshot at index {base.index}")
    check_configuration(base.configuration)


def check_configuration(configuration: Configuration) -> None:
    """Raises `ImplausibleError` for a configuration that no leader proposes (`ticketing.raft.membership.problem`)."""
    members = configuration.members()
    if not configuration.voters:
        raise ImplausibleError("a configuration without voters")
    if len({member.node_id for member in members}) != len(members):
        raise ImplausibleError("a configuration in which two members share a NodeId")


def _check_term(own: int, said: int) -> None:
    if said > own + TERMS_AHEAD_MAX:
        raise ImplausibleError(f"term {said}, where this member is in term {own}")


def _check_append(replica: Replica, message: AppendEntries) -> None:
    last = message.prev_index + len(message.entries)
    if last >= NUMBER_MAX or message.round >= NUMBER_MAX:
        raise ImplausibleError(f"entries up to index {last} in round {message.round}")
    term = message.prev_term
    for entry in message.entries:
        if entry.term < term:
            raise ImplausibleError(f"an entry of term {entry.term} after one of term {term}")
        term = entry.term
    if term > message.term:
        raise ImplausibleError(f"an entry of term {term}, in term {message.term}")
    commit = replica.commit_index
    if message.term >= replica.term and message.prev_index < commit < last:
        # The part up to our commit index is not compared: it is the same in every later leader's log. It need not be
        # in that of a leader whose term is over: what such a one sends late is no lie, and answered by our term.
        following = message.entries[commit - message.prev_index]
        known = replica.log.term_at(commit)
        if following.term < known:
            raise ImplausibleError(
                f"an entry of term {following.term} after the committed one of term {known}"
            )


def _check_answer(last_index: int, round_: int, message: AppendReply | AppendRefusal) -> None:
    if message.round > round_:
        raise ImplausibleError(f"answers round {message.round}, where round {round_} is the newest")
    reached = message.match if isinstance(message, AppendReply) else message.prev_index
    if reached > last_index:
        raise ImplausibleError(f"answers for index {reached}, where the log ends at {last_index}")
