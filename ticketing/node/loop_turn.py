"""One turn of a node: all that happens between two flushes of the loop (see `ticketing.node.shell`).

It begins with the look for a gap in the own loop, and ends with one pass through Raft: what was gathered becomes one
log entry and one message a follower, what is committed is applied, and what that answers is written (spec 6, 8; the
order is the invariant: nothing is answered before its entry is applied, nothing is applied before it is committed).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ticketing.locks.codec import UnknownEntry
from ticketing.node.clock_health import read_together
from ticketing.node.lead import RETRY_NS
from ticketing.node.link import PeerKind, encode_frame
from ticketing.raft import messages as raft_messages
from ticketing.raft.core import Output, Raft
from ticketing.raft.types import MS, Entry, EntryKind

if TYPE_CHECKING:
    from ticketing.node.node import Node

# A member of an Enum class costs a search at each use, a name of the module none.
_RAFT = PeerKind.RAFT
_CONFIGURATION = EntryKind.CONFIGURATION

GAP_NS = 150 * MS
"""A turn that begins this much later than the former one ended shows that the own loop stood still."""
PASSES_MAX = 8
"""Rounds of propose, commit and apply in one flush; what is left then waits for the next turn."""


class LoopTurn:
    """The present turn of a node, or the time between two."""

    def __init__(self, node: Node, now_ns: int) -> None:
        self._node = node
        self._begun = False
        self.busy = False
        """Its flush has something to do; see `begin_work`."""
        self.seen_ns = now_ns
        """When the former turn ended, or this one began."""
        self.gaps = 0
        """How often the own loop stood still."""
        self.work_left = False
        self.committed_left = False
        self._other_applied = False
        """Among what the last output committed was an entry without lock commands: there may be more to do."""

    # --- its beginning

    def begin(self) -> int:
        """Every call from outside begins with this. A fresh reading of the elapsed clock."""
        now_ns = self.look_up()
        if not self.busy:
            self.begin_work(now_ns)
        return now_ns

    def look_up(self) -> int:
        """The part of a turn's beginning that is never left out: the look for a gap in the own loop."""
        shell = self._node.shell
        now_ns = shell.elapsed_ns()
        if not self._begun:
            self._begun = True
            shell.request_flush()
            gap_ns = now_ns - self.seen_ns
            if gap_ns > GAP_NS:
                self.begin_work(now_ns)
                self._after_gap(gap_ns, now_ns)
            self.seen_ns = now_ns
        return now_ns

    def begin_work(self, now_ns: int) -> None:
        """Something is to be decided, sent or answered in this turn. Not so where all that has come is word of what is
        known already. `now_ns`: a reading of this turn.
        """
        self.busy = True
        self.work_left = self.committed_left = False
        node = self._node
        lead = node.lead
        if lead is not None and lead.serving:
            lead.begin_turn(*read_together(node.shell.elapsed_ns, node.shell.wall_ns, now_ns))

    def _after_gap(self, gap_ns: int, now_ns: int) -> None:
        """The own loop stood still. A leader may have been deposed meanwhile: nothing is answered before a
        majority has confirmed it (spec 9).
        """
        node = self._node
        self.gaps += 1
        node.shell.log("warning", "the loop stood still", ms=gap_ns // MS)
        if node.raft is not None:
            node.raft.after_gap(gap_ns, now_ns)
            node.leading.follow(now_ns)

    # --- its end

    def flush(self) -> None:
        """Ends a turn."""
        node = self._node
        now_ns = node.shell.elapsed_ns()
        gap_ns = now_ns - self.seen_ns
        if gap_ns > GAP_NS:
            # Between the reading and here. What was decided stands under this turn's gate and may be proposed.
            if node.lead is not None and node.lead.serving:
                node.lead.propose(now_ns)
            if not self.busy:
                self.begin_work(now_ns)
            self._after_gap(gap_ns, now_ns)
        if self.busy:
            self._work(now_ns)
        self._begun = self.busy = False
        self.seen_ns = now_ns

    def _work(self, now_ns: int) -> None:
        node = self._node
        clients = node.clients
        if node.leading.closing:
            node.leading.go_on_closing(now_ns)
        if clients.may_drain and clients.drain():
            self.work_left = True
        if node.raft is not None:
            self._pass(node.raft, now_ns)
        if clients.run_announcement():
            self.work_left = True
        if clients.run_probes(now_ns):
            self.work_left = True
        if not clients.mute:
            clients.write_out(now_ns)

    def _pass(self, raft: Raft, now_ns: int) -> None:
        node = self._node
        lead = node.lead
        if lead is not None and lead.serving:
            lead.run_due(now_ns)
        applying = 0
        for _ in range(PASSES_MAX):
            if lead is not None and lead.serving:
                lead.propose(now_ns)
            output = raft.take_output(now_ns)
            began = node.lead is not None and node.lead.serving
            self.carry_out(output, now_ns)
            lead = node.lead
            applying += bool(output.committed)
            if applying > 1:
                # A grant of the first pass may have ended in a later one (spec 4).
                node.answers_overtaken()
            serving = lead is not None and lead.serving
            if raft.applied_index < raft.commit_index:
                # Much was committed at a stroke: its next slice is for the next turn, and that comes at once.
                self.committed_left = True
                break
            if not (
                (serving and lead is not None and lead.wants_to_propose)
                or output.barriers
                or (serving and not began)
                or self._other_applied
            ):
                break
        else:
            self.work_left = True
        if (self.work_left or self.committed_left) and lead is not None and lead.serving:
            # Nothing that was decided under this turn's gate is left for a later one.
            lead.propose(now_ns)
        if lead is not None and lead.end_turn():
            self.work_left = True

    def carry_out(self, output: Output, now_ns: int) -> None:
        """The duties of one output of Raft, in order: send, apply, answer."""
        node = self._node
        raft = node.raft
        assert raft is not None
        encoded: raft_messages.Message | None = None
        frame = b""
        for member, message in output.messages:
            if message is not encoded:
                encoded = message
                frame = encode_frame(_RAFT, node.domain_tag, raft_messages.encode(message))
            node.peers.send_frame(member.incarnation, frame)
        self._other_applied = False
        if output.committed:
            self._apply(output.committed, now_ns)
        if not node.leading.in_step(raft, role_changed=output.role_changed):
            node.leading.follow(now_ns)
        lead = node.lead
        if lead is not None:
            for barrier in output.barriers:
                lead.desk.barrier_passed(barrier, now_ns)
            for probed in lead.desk.probes:
                node.clients.probe(probed)  # type: ignore[arg-type]
            lead.desk.probes.clear()
        for member in output.snapshots_wanted:
            node.snapshots.wanted(member, now_ns)
        for member in output.given_up:
            if node.membership.governing is not None:
                node.membership.governing.given_up(member)
            node.shell.log("warning", "member given up: its snapshot took too long", member=str(member))
            node.snapshots.drop(member)
        for member in output.rolled_back:
            node.shell.log("error", "member shows a shorter log than it acknowledged", member=str(member))

    def _apply(self, entries: list[Entry], now_ns: int) -> None:
        node = self._node
        state, lead = node.state, node.lead
        assert state is not None
        for entry in entries:
            mine = entry.decoded is not None and lead is not None and entry.term == lead.term
            try:
                applied = state.apply(entry)
            except (UnknownEntry, msgspec.DecodeError) as error:
                # Skipping it would part this node from the others (spec 6).
                node.shell.stop(1, f"log entry {entry.index} cannot be applied: {error}")
                raise
            if applied is not None:
                if state.table.revocations:
                    node.operations.revoked(state.table)
                if lead is not None:
                    lead.applied(*applied, now_ns, mine=mine)
            else:
                self._other_applied = True
                if entry.kind == _CONFIGURATION:
                    node.members_changed()
                    node.membership.configuration_applied(state.take_ended(), now_ns)
                    node.traffic.set_targets()
            if entry.index >= node.checksums.next_index:
                node.checksums.applied(state)

    # --- the next one

    def next_deadline_ns(self, deadline_ns: int) -> int:
        """When `Node.tick` is due at the latest: at `deadline_ns`, or before for what Raft, the lead or a slice of
        work is waiting for.
        """
        node, seen_ns = self._node, self.seen_ns
        if self.committed_left:
            return seen_ns
        raft, lead = node.raft, node.lead
        if raft is not None:
            raft_ns = raft.next_deadline_ns
            if raft_ns < deadline_ns:
                deadline_ns = raft_ns
        if lead is not None and lead.due_ns < deadline_ns:
            # What is due and could not be done for want of room does not become possible by haste.
            deadline_ns = min(deadline_ns, max(lead.due_ns, seen_ns + MS))
        if self.work_left or node.slices_left:
            deadline_ns = min(deadline_ns, seen_ns + RETRY_NS)
        return deadline_ns
