"""What is decided and applied: equal everywhere, entry by entry, and what grants do to tokens.

Entries are looked at as they are handed out: with a small log most of them are gone when the turn ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tests.sim.seen import Domain
from tests.sim.world import Violation, World
from ticketing.locks.codec import decode_commands
from ticketing.locks.commands import Extend, Revoke, Turn
from ticketing.node.state import ReplicatedState
from ticketing.raft.types import Configuration, Entry, EntryKind

if TYPE_CHECKING:
    from tests.sim.process import Process

CHECKSUM_EVERY = 16
"""A table is summed up at every index that this divides; in some of the short runs at every one."""

STAMP_SLACK_NS = 10
"""What integer arithmetic loses between two clocks."""


class Applied:
    """What all members have handed out and applied. `rates_hold` is false beyond the promised rates."""

    def __init__(self, world: World, *, rates_hold: bool, every_index: bool) -> None:
        self._world = world
        self._rates_hold = rates_hold
        self._sum_every = 1 if every_index else CHECKSUM_EVERY

    def handed_out(self, process: Process, domain: Domain, entries: Sequence[Entry]) -> None:
        """These are decided as far as this member knows; none of them is applied yet."""
        for entry in entries:
            fact = (entry.term, (entry.kind, entry.data))
            known = domain.decided.setdefault(entry.index, fact)
            if known != fact:
                raise Violation("state machine safety", f"{process.name} applies another {entry}")
            if entry.index > domain.highest:
                domain.highest = entry.index

    def applied(self, process: Process, domain: Domain, state: ReplicatedState, entry: Entry) -> None:
        """One more entry has been applied."""
        index = entry.index
        if index % self._sum_every == 0:
            self.check_sum(process, domain, state)
        if index > domain.applied:
            domain.applied = index
            if entry.kind == EntryKind.COMMANDS:
                self._note_grants(process, domain, state, entry)

    def check_sum(self, process: Process, domain: Domain, state: ReplicatedState) -> None:
        """Equal index, equal state."""
        found = state.checksum()
        if domain.sums.setdefault(state.applied_index, found) != found:
            raise Violation("table equality", f"{process.name} at index {state.applied_index}")

    def _note_grants(self, process: Process, domain: Domain, state: ReplicatedState, entry: Entry) -> None:
        """When the ownerships that this entry left began, or were extended, at the earliest; each new one has a token
        above all before it. Only one command of an entry can have an effect on a key.
        """
        appended_ns = domain.appended_ns.get((entry.index, entry.term))
        if appended_ns is None:  # its leader, all by itself, has appended and applied it in one turn
            appended_ns = min(self._world.now, process.clock.true_ns(entry.stamp_ns))
        for decoded in decode_commands(entry.data):
            command = decoded.turn if isinstance(decoded, Revoke) else decoded
            if not isinstance(command, Turn | Extend):
                continue
            held = state.table.held.get(command.key)
            # What had no effect, or began nothing, says nothing of an ownership that may be far older.
            if held is None:
                continue
            if isinstance(command, Turn):
                if held.owner != command.owner:
                    continue
                grant = (held.key, held.owner)
                if domain.token_of.get(grant) != held.token:
                    domain.token_of[grant] = held.token
                    if held.token <= domain.highest_token:
                        raise Violation("tokens rise", f"{process.name}: {held} after {domain.highest_token}")
                    domain.highest_token = held.token
            elif held.token != command.expect:
                continue
            domain.granted_ns.setdefault((held.token, held.renewal), appended_ns)
        if state.table.next_token <= domain.highest_token:
            raise Violation("tokens rise", f"{process.name}: {state.table.next_token} is next")

    def check_stamps(self, process: Process, state: ReplicatedState, domain: Domain) -> None:
        """After a snapshot: no ownership is older here than it is."""
        if not self._rates_hold:
            return
        for held in state.table.held.values():
            granted = domain.granted_ns.get((held.token, held.renewal))
            if granted is not None and process.clock.true_ns(held.stamp_ns) < granted - STAMP_SLACK_NS:
                raise Violation("no stamp before its grant", f"{process.name}: {held}")


def check_configuration(process: Process, configuration: Configuration) -> None:
    """3 or 5 voters, as many in either half of a joint configuration."""
    voters, outgoing = configuration.voters, configuration.outgoing
    if len(voters) not in (3, 5) or len(set(voters)) != len(voters):
        raise Violation("3 or 5 voters", f"{process.name}: {configuration}")
    if configuration.joint and len(set(outgoing)) != len(voters):
        raise Violation("3 or 5 voters", f"{process.name}: {configuration}")
