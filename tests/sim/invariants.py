"""What must hold in every node, and between all of them, after every turn: facts, and differences to the turn before.

Within a member `ticketing.raft.invariants` knows what must hold. Here is what only somebody can know who sees all
processes, all machines' clocks and true time.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.sim.answers import Answers
from tests.sim.history import Request
from tests.sim.invariants_applied import STAMP_SLACK_NS, Applied, check_configuration
from tests.sim.invariants_clocks import Clocks
from tests.sim.invariants_log import check_compacted, check_kept, check_uncommitted
from tests.sim.majorities import Majorities, check_pre_vote
from tests.sim.process import Process
from tests.sim.seen import Domain, Watched
from tests.sim.world import Violation, World
from ticketing.locks.codec import decode_commands
from ticketing.locks.commands import ANY_RENEWAL, LockCommand, Revoke, Turn
from ticketing.node.lead import Lead
from ticketing.node.state import ReplicatedState
from ticketing.raft.core import Output, Raft
from ticketing.raft.election import Role
from ticketing.raft.invariants import Witness
from ticketing.raft.messages import PreVoteAnswer, decode_change
from ticketing.raft.types import Configuration, Entry, EntryKind, Member

MEMBER_EVERY = 32
"""A log that has only grown is walked from end to end after so many turns; its new entries are looked at at once."""


class Invariants:
    """The watch over one run. `rates_hold` is false beyond the promised rates. `every_index`: tables are compared at
    every index.
    """

    def __init__(self, world: World, *, rates_hold: bool, delta_ns: int, every_index: bool = False) -> None:
        self.world = world
        self.domains: dict[str, Domain] = {}
        self.grants = 0
        self.snapshots = 0
        self.leads = 0
        self.conflicts = 0
        """How often a log gave way to a leader's."""
        self.changes = 0
        """Configurations proposed."""
        self._rates_hold = rates_hold
        self._watched: dict[Process, Watched] = {}
        self._processes: dict[Member, Process] = {}
        self._answers = Answers()
        self._majorities = Majorities(self._processes, self._answers)
        self._clocks = Clocks(delta_ns)
        self._applied = Applied(world, rates_hold=rates_hold, every_index=every_index)
        self.on_change_proposed: Callable[[Process], None] = lambda _leader: None
        """Called when a leader has appended a change of members."""
        self._proposed: dict[int, None] = {}
        """Owners of all grants that were ever appended."""

    def carrying_out(self, process: Process, output: Output) -> None:
        """What Raft has a process do, before it is done."""
        raft = process.node.raft
        assert raft is not None
        self._answers.carrying_out(process.name, raft, output)
        for _member, message in output.messages:
            if isinstance(message, PreVoteAnswer) and message.granted:
                check_pre_vote(process, raft)
        if output.committed:
            self._handed_out(process, raft, output.committed)

    def _handed_out(self, process: Process, raft: Raft, entries: list[Entry]) -> None:
        state = process.node.state
        assert state is not None
        if process.node.lead is not None:
            watched = self._watched.get(process)
            if watched is not None:
                watched.owed.before_applying(process.node.lead)
        domain = self._domain_of(process, state)
        self._applied.handed_out(process, domain, entries)
        check_kept(process.name, raft)
        base = raft.log_base_index
        former: Entry | None = None
        for entry in entries:
            if entry.index > base:
                break
            # When the turn ends it is in the log no more.
            self._check_entry(process, raft, domain, entry)
            if former is not None:
                self._check_behind(process, domain, entry, former.term)
            former = entry

    def applied(self, process: Process, entry: Entry) -> None:
        """One of the entries that were handed out has been applied."""
        state = process.node.state
        assert state is not None
        self._applied.applied(process, self._domain_of(process, state), state, entry)

    def carried_out(self, process: Process) -> None:
        """A snapshot that has just begun is summed up as it is meant to be."""
        node = process.node
        sender, watched = node.snapshots.sender, self._watched.get(process)
        if watched is None or sender is watched.sender:
            return
        watched.sender = sender
        state = node.state
        if sender is not None and state is not None and state.applied_index == sender.base.index:
            self._applied.check_sum(process, self._domain_of(process, state), state)

    def after_turn(self, process: Process) -> None:
        """To be called after every turn of a process."""
        node = process.node
        raft, state = node.raft, node.state
        watched = self._watched.get(process)
        if watched is None:
            watched = self._watched[process] = Watched()
            self._clocks.started(process)
        if node.woken_by_time:
            node.woken_by_time = False
            watched.idle.after_turn(process)
        if raft is None or state is None:
            return
        replica, election = raft._replica, raft._election
        log, role = replica.log, election.role
        if watched.raft is not raft:
            self._new_raft(process, raft, watched)
        facts = (
            replica.term,
            role,
            election.leader,
            replica.vote,
            replica.commit_index,
            replica.applied_index,
            log.base_index,
            log.last_index,
            log.last_stamp_ns,
            state,
            node.lead,
        )
        if facts != watched.facts:
            self._changed(process, raft, state, watched)
            watched.facts = facts
        lead = election.lead
        if lead is not None:
            self._majorities.check_answers(process, raft)
            self._answers.after_leaders_turn(raft, lead)
            if process.doubtful_term == replica.term and lead.confirmed and not node.settings.standalone:
                raise Violation(
                    "no answer after a gap without a majority", f"{process.name} takes itself for confirmed"
                )
        if node.worked:
            node.worked = False
            if node.lead is not None:
                watched.owed.after_turn(process, raft, node.lead)

    def _new_raft(self, process: Process, raft: Raft, watched: Watched) -> None:
        watched.raft = raft
        watched.witness = Witness(raft)
        watched.facts = ()
        watched.last = None
        watched.last_index = watched.base = raft.log_base_index
        watched.applied = raft.applied_index
        watched.token = 0
        watched.term = 0
        watched.commit = raft.commit_index
        self._processes[raft.me] = process

    def _changed(self, process: Process, raft: Raft, state: ReplicatedState, watched: Watched) -> None:
        """Term, vote, role, leader, log, commit index or state differ from those of the turn before."""
        domain = self._domain_of(process, state)
        log = raft._replica.log
        self._look_within(process, raft, watched)
        self._check_log(process, raft, domain, watched)
        if log.base_index != watched.base:
            watched.base = log.base_index
            if state is watched.state:
                check_compacted(process.name, raft, domain)
            self._check_base(process, raft, domain)
            if log.last_index > log.base_index:
                self._check_behind(process, domain, log.entry_at(log.base_index + 1), log.base_term)
        self._check_role(process, raft, domain, watched)
        if raft.commit_index > watched.commit and raft.term == watched.term and not self._led(raft, watched):
            self._answers.check_commit(process.name, raft)
        self._check_applied(process, raft, state, domain, watched)
        if raft.role is Role.LEADER:
            self._majorities.leading(process, raft)
        else:
            self._majorities.not_leading(raft)
        watched.role = raft.role
        watched.term = raft.term
        watched.commit = raft.commit_index

    def _led(self, raft: Raft, watched: Watched) -> bool:
        """In this turn, or in a part of it."""
        return raft.role is Role.LEADER or watched.role is Role.LEADER

    def _look_within(self, process: Process, raft: Raft, watched: Watched) -> None:
        """What must hold inside a member. What has only been appended to its log is looked at in `_check_log`."""
        log = raft._replica.log
        standing = (raft.term, raft.role, log.base_index)
        watched.skipped += 1
        last = watched.last
        only_grown = last is None or (
            log.base_index < last.index <= log.last_index and log.entry_at(last.index) is last
        )
        self.conflicts += not only_grown
        whole = standing != watched.standing or not only_grown or watched.skipped > MEMBER_EVERY
        if whole:
            watched.standing = standing
            watched.skipped = 0
        assert watched.witness is not None
        try:
            watched.witness.observe(whole=whole)
        except AssertionError as error:
            raise Violation("member", f"{process.name}: {error}") from error

    def _domain_of(self, process: Process, state: ReplicatedState) -> Domain:
        """The state's domain. Where it has just formed all its tokens are above every earlier one's."""
        known = self.domains.get(state.domain.domain_id)
        if known is not None:
            return known
        first_token = state.domain.first_token
        domain = self.domains[state.domain.domain_id] = Domain(first_token, self.world.now)
        for earlier in self.domains.values():
            if earlier is not domain and earlier.highest_token >= first_token:
                raise Violation(
                    "tokens rise", f"{process.name} forms {state.domain.shown}: {earlier.highest_token}"
                )
        return domain

    # --- the log

    def _check_log(self, process: Process, raft: Raft, domain: Domain, watched: Watched) -> None:
        """Log matching, and who may append."""
        log = raft._replica.log
        last = log.entry_at(log.last_index) if log.last_index > log.base_index else None
        if last is watched.last:
            return
        index = log.last_index
        fresh: list[Entry] = []
        while index > log.base_index:
            entry = log.entry_at(index)
            if entry is watched.last:
                break
            fresh.append(entry)
            index -= 1
        watched.last = last
        former = log.entry_at(index) if fresh and index > log.base_index else None
        for entry in reversed(fresh):
            if former is not None and not (
                entry.index == former.index + 1
                and entry.term >= former.term
                and entry.stamp_ns >= former.stamp_ns
            ):
                raise Violation("member", f"{process.name}: {entry} behind {former}")
            former = entry
            self._check_entry(process, raft, domain, entry)
            self._check_behind(process, domain, entry, log.term_at(entry.index - 1))
        check_uncommitted(process.name, raft)

    def _check_entry(self, process: Process, raft: Raft, domain: Domain, entry: Entry) -> None:
        place = (entry.index, entry.term)
        fact = (entry.kind, entry.data)
        known = domain.known.get(place)
        if known is None:
            domain.known[place] = fact
            # The leader's own reading: it may have ended its turn a little later.
            domain.appended_ns[place] = min(self.world.now, process.clock.true_ns(entry.stamp_ns))
            if domain.leaders.get(entry.term, raft.me) != raft.me:
                raise Violation("log matching", f"{process.name} has {entry} that its leader never had")
            if entry.kind == EntryKind.COMMANDS:
                self._check_proposed(process, raft, domain, entry)
            elif entry.kind == EntryKind.CONFIGURATION:
                self.changes += 1
                self.on_change_proposed(process)
        elif known != fact:
            raise Violation("log matching", f"{process.name} has another {entry}")
        if entry.kind == EntryKind.CONFIGURATION:
            check_configuration(process, decode_change(entry.data).configuration)
        if self._rates_hold:
            stamped = process.clock.true_ns(entry.stamp_ns)
            if stamped < domain.appended_ns[place] - STAMP_SLACK_NS:
                raise Violation(
                    "no stamp before its proposal",
                    f"{process.name}: {entry} stamped {stamped}, appended {domain.appended_ns[place]}",
                )

    def _check_behind(self, process: Process, domain: Domain, entry: Entry, former_term: int) -> None:
        """An entry of an index and term stands behind the same one everywhere."""
        known = domain.behind.setdefault((entry.index, entry.term), former_term)
        if known != former_term:
            raise Violation(
                "log matching", f"{process.name} has {entry} behind term {former_term}, others behind {known}"
            )

    def _check_base(self, process: Process, raft: Raft, domain: Domain) -> None:
        """What a log begins behind was decided, in that term, and the same configuration is in force there."""
        replica = raft._replica
        index, term = replica.log.base_index, replica.log.base_term
        if not index:
            return  # it waits to be taken in
        decided = domain.decided.get(index)
        if decided is not None and decided[0] != term:
            raise Violation(
                "log matching",
                f"{process.name} begins behind {index} of term {term}, decided in {decided[0]}",
            )
        configuration = replica.configurations.at(index)
        known = domain.bases.get(index)
        if known is None:
            domain.bases[index] = configuration
            if not process.node.settings.standalone:
                check_configuration(process, configuration)
        elif known != configuration:
            raise Violation(
                "log matching", f"{process.name} begins behind {index} with {configuration}, not {known}"
            )

    def _configurations_of_gate(self, process: Process, raft: Raft, domain: Domain) -> list[Configuration]:
        """Those by which the gate may have been judged: once a turn, before or after a change is appended in it."""
        replica, index = raft._replica, raft.configuration_index
        if index <= replica.log.base_index:
            return [raft.configuration]
        appended_ns = domain.appended_ns.get((index, replica.log.term_at(index)))
        fresh = appended_ns is None or appended_ns >= process.clock.true_ns(process.decided_from_ns)
        return [raft.configuration, *([replica.configurations.at(index - 1)] if fresh else [])]

    def _check_proposed(self, process: Process, raft: Raft, domain: Domain, entry: Entry) -> None:
        """A leader has just appended these commands."""
        commands: list[LockCommand] = [
            command.turn if isinstance(command, Revoke) else command
            for command in decode_commands(entry.data)
        ]
        grants = [command for command in commands if isinstance(command, Turn) and command.owner]
        if grants:
            self.grants += len(grants)
            self._proposed.update((command.owner, None) for command in grants)
            self._clocks.check_grant(process, self._configurations_of_gate(process, raft, domain))
            if domain is not next(reversed(self.domains.values())):
                raise Violation("one domain", f"{process.name} grants although a newer domain has formed")
        if any(isinstance(command, Turn) and command.renewal != ANY_RENEWAL for command in commands):
            self._clocks.check_expiry(process, raft)
        lead, state = process.node.lead, process.node.state
        if lead is None or state is None or lead.term != entry.term or process.gate_closed_since_decided:
            return
        for command in commands:
            if isinstance(command, Turn) and not command.owner and lead.desk.gate_open:
                held = state.table.held.get(command.key)
                if held is not None and held.token == command.expect:  # else it frees nothing
                    self._check_hand_over(process, lead, command, held.owner)

    def _check_hand_over(self, process: Process, lead: Lead, turn: Turn, owner: int) -> None:
        """No key becomes free while somebody waits who could have had it. `owner`: whose it was until then.

        Where resending is allowed the owner itself may have asked again: that waits for its barrier, not in the queue,
        when the end is decided, and can be back in the queue by the end of the same turn.
        """
        asked_again = owner if process.node.settings.legacy_resend else 0
        state = lead.desk._states.get(turn.key)
        if state is None:
            return
        waiter = state.first
        while waiter is not None:
            if (
                waiter.read_ns < process.decided_from_ns
                and waiter.due_ns > process.clock.elapsed_ns()
                and not waiter.session.ended
                and waiter.owner != asked_again
                and waiter.owner not in lead.desk.cancelling
                and not lead.desk._table.ring.contains(waiter.owner)
            ):
                raise Violation(
                    "no key free in a hand-over",
                    f"{process.name}: {turn.key!r} freed, {waiter.owner:x} waits",
                )
            waiter = waiter.behind

    # --- roles and the state machine

    def _check_role(self, process: Process, raft: Raft, domain: Domain, watched: Watched) -> None:
        if raft.role is not Role.LEADER:
            return
        known = domain.leaders.setdefault(raft.term, raft.me)
        if known != raft.me:
            raise Violation("election safety", f"{known} and {raft.me} lead term {raft.term}")
        if raft.commit_index != watched.commit_led and watched.serving is process.node.lead:
            watched.commit_led = raft.commit_index
            if raft._replica.log.term_at(raft.commit_index) != raft.term:
                raise Violation(
                    "commit of the own term", f"{process.name} commits {raft.commit_index} in {raft.term}"
                )
        if watched.role is Role.LEADER and watched.serving is process.node.lead:
            return
        watched.commit_led = raft.commit_index
        watched.serving = process.node.lead
        self.leads += 1
        self.world.say(process.name, "leads", f"term {raft.term}")
        term, fact = domain.decided.get(domain.highest, (1, (0, b"")))
        if raft.term < term:
            return
        log = raft._replica.log
        if domain.highest > log.last_index:
            raise Violation("leader completeness", f"{process.name} leads without index {domain.highest}")
        if domain.highest > log.base_index and domain.highest in domain.decided:
            entry = log.entry_at(domain.highest)
            if (entry.term, (entry.kind, entry.data)) != (term, fact):
                raise Violation("leader completeness", f"{process.name} leads with another {entry}")

    def _check_applied(
        self, process: Process, raft: Raft, state: ReplicatedState, domain: Domain, watched: Watched
    ) -> None:
        upto = raft.applied_index
        if upto == watched.applied and state is watched.state:
            return
        if state is not watched.state:
            if watched.state is not None or raft.log_base_index > 1:
                self.snapshots += 1
            watched.state = state
            watched.token = 0
            self._applied.check_stamps(process, state, domain)
            if state.applied_index in domain.sums:
                self._applied.check_sum(process, domain, state)
        watched.applied = upto
        token = state.table.next_token
        if token < watched.token:
            raise Violation("tokens rise", f"{process.name}: {watched.token}, then {token}")
        watched.token = token

    # --- what clients are told

    def cancel_answered(self, owner: int, key: bytes) -> None:
        """A client reads the answer to `C`: the owner holds nothing then, and never will again."""
        states = [process.node.state for process in self._watched if process.node.state is not None]
        newest = max(states, key=lambda state: (state.domain.first_token, state.applied_index))
        held = newest.table.held.get(key)
        if held is not None and held.owner == owner:
            raise Violation("whose cancel is answered holds nothing", f"{owner:x}: {held}")

    def never_proposed(self, requests: list[Request]) -> None:
        """`V` says that nothing was proposed for the request."""
        times: dict[int, int] = {}
        for request in requests:
            if request.op in "AQ":
                times[request.ident] = times.get(request.ident, 0) + 1
        for request in requests:
            if request.answer == "V" and times[request.ident] == 1 and request.ident in self._proposed:
                raise Violation("V although proposed", f"{request!r}")

    def final(self) -> None:
        """Once more at the end of a run: equal indexes, equal tables."""
        for process, watched in self._watched.items():
            raft, state = watched.raft, process.node.state
            if not process.alive or raft is None or state is None or raft is not process.node.raft:
                continue
            self._applied.check_sum(process, self._domain_of(process, state), state)
