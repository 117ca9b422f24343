"""The facade of the consensus core: messages, time and wishes in, one `Output` a turn out.

Nothing here reads a clock, draws from a global generator or does I/O. State is volatile: an entry, a vote and
a term count as kept once this process has them, and safety across restarts rests on `Member` never coming
back (spec 9).
"""

from __future__ import annotations

import random
from typing import assert_never

from ticketing.raft.election import Election, Role
from ticketing.raft.follower import Follower
from ticketing.raft.log import ENTRY_OVERHEAD
from ticketing.raft.membership import ChangeRefused
from ticketing.raft.messages import (
    AppendEntries,
    AppendRefusal,
    AppendReply,
    Message,
    PreVoteAnswer,
    PreVoteRequest,
    StaleTerm,
    TimeoutNow,
    VoteAnswer,
    VoteRequest,
)
from ticketing.raft.plausible import check_message
from ticketing.raft.progress import ProgressView
from ticketing.raft.replica import Replica
from ticketing.raft.replication import Replication
from ticketing.raft.types import (
    Base,
    Configuration,
    ConfigurationChange,
    Entry,
    EntryKind,
    Member,
    RaftSettings,
)

_COMMANDS = EntryKind.COMMANDS

COMPACTED_AT_ONCE = 10_000
"""Entries dropped in one turn: a few milliseconds."""


class Output:
    """What one turn has to do, in this order of duties: apply `committed`, answer `barriers`, send
    `messages`.

    Appending needs no disk, so messages may as well go first; but a barrier speaks of the state after
    `committed`.
    """

    __slots__ = (
        "barriers",
        "barriers_lost",
        "committed",
        "given_up",
        "messages",
        "role_changed",
        "rolled_back",
        "snapshots_wanted",
    )

    def __init__(self) -> None:
        self.messages: list[tuple[Member, Message]] = []
        """In order of sending; the same object may go to several members, so it can be encoded once."""
        self.committed: list[Entry] = []
        """Each entry once and in order. `Entry.decoded` may be cleared once it was applied. Where much was
        committed at a stroke the next outputs bring the rest: see `Raft.applied_index`.
        """
        self.barriers: list[int] = []
        self.barriers_lost: list[int] = []
        self.snapshots_wanted: list[Member] = []
        """Members that answer and need a snapshot that was not begun; said again with every heartbeat."""
        self.given_up: list[Member] = []
        """Members that would have kept the log past its bound; it is no longer kept for them."""
        self.rolled_back: list[Member] = []
        """Members that showed a shorter log than they had acknowledged: their process went back in time."""
        self.role_changed = False
        """Role, term or leader differ from those of the last output."""


class Raft:
    """One member. Calls with `now_ns` take one elapsed clock that never goes back; after calls comes
    `take_output`.

    `base` is `BLANK` for a process that waits to be taken in, `first_base` in a domain that was just formed,
    a snapshot's base otherwise. `term` and `vote` are for a process that has already spoken.
    """

    __slots__ = (
        "_barriers_begun",
        "_compacting",
        "_election",
        "_follower",
        "_replica",
        "_reported",
        "refused_incarnations",
    )

    def __init__(
        self,
        me: Member,
        base: Base,
        settings: RaftSettings,
        rng: random.Random,
        now_ns: int,
        *,
        term: int | None = None,
        vote: Member | None = None,
    ) -> None:
        assert settings.election_timeout_min_ns >= settings.leader_lease_ns, settings
        assert settings.election_timeout_max_ns > settings.election_timeout_min_ns, settings
        # Behind a formed domain lies state that is in no entry: a blank process needs a snapshot of it.
        assert bool(base.configuration.voters) == (base.index > 0), base
        self._replica = Replica(me, base, settings, rng, base.term if term is None else term, vote)
        self._election = Election(self._replica, now_ns)
        self._follower = Follower(self._replica)
        self._barriers_begun = 0
        self._compacting = False
        self._reported: tuple[Role, int, Member | None] = (Role.FOLLOWER, self._replica.term, None)
        self.refused_incarnations = 0
        """Messages refused because their NodeId is known by another incarnation."""

    # --- facts

    @property
    def me(self) -> Member:
        """The process itself."""
        return self._replica.me

    @property
    def role(self) -> Role:
        """What this member does in its term."""
        return self._election.role

    @property
    def term(self) -> int:
        """The latest term seen."""
        return self._replica.term

    @property
    def vote(self) -> Member | None:
        """Whom this member voted for in its term."""
        return self._replica.vote

    @property
    def leader(self) -> Member | None:
        """Who leads the term, as far as known and not given up."""
        return self._election.leader

    @property
    def commit_index(self) -> int:
        """Everything up to here is decided."""
        return self._replica.commit_index

    @property
    def applied_index(self) -> int:
        """Everything up to here was handed out in `Output.committed` or came by a snapshot."""
        return self._replica.applied_index

    @property
    def last_index(self) -> int:
        """End of the log."""
        return self._replica.log.last_index

    @property
    def last_term(self) -> int:
        """Term of the last entry."""
        return self._replica.log.last_term

    @property
    def configuration(self) -> Configuration:
        """The newest one in the log: the one in force."""
        return self._replica.configurations.newest

    @property
    def configuration_index(self) -> int:
        """Index of the entry that brought `configuration`."""
        return self._replica.configurations.newest_index

    @property
    def committed_configuration(self) -> Configuration:
        """The newest one at or before the commit index."""
        return self._replica.configurations.at(self._replica.commit_index)

    @property
    def own_term_committed(self) -> bool:
        """Leading with an entry of this term committed: nothing ever committed is missing here."""
        lead = self._election.lead
        return lead is not None and lead.own_term_committed

    @property
    def confirmed(self) -> bool:
        """Leading, and no gap of the own loop (`after_gap`) waits for a majority's answer."""
        lead = self._election.lead
        return lead is not None and lead.confirmed

    @property
    def transferring(self) -> Member | None:
        """To whom the lead is being given."""
        lead = self._election.lead
        return lead.transfer.target if lead is not None and lead.transfer is not None else None

    @property
    def next_deadline_ns(self) -> int:
        """When `tick` is due."""
        lead = self._election.lead
        return self._election.deadline_ns if lead is None else lead.next_deadline_ns

    @property
    def log_base_index(self) -> int:
        """The log begins after this index; what lies before it is in snapshots only."""
        return self._replica.log.base_index

    def progress(self, member: Member) -> ProgressView | None:
        """How far a member of the newest configuration is; None for others, and unless leading."""
        lead = self._election.lead
        return None if lead is None else lead.replication.view(member)

    def shows(self) -> tuple[int, Member | None, int]:
        """Term, vote and last index: what a new link's hello states and is judged by (spec 9, Identity)."""
        return self._replica.term, self._replica.vote, self._replica.log.last_index

    # --- messages and time

    def step(self, sender: Member, message: Message, now_ns: int) -> None:
        """A message of an authenticated process of this domain, whether or not it is in any configuration.

        Raises `ImplausibleError` for what none of them can truthfully say.
        """
        replica = self._replica
        if replica.configurations.knows_otherwise(sender) or sender[0] == replica.me[0]:
            self.refused_incarnations += 1
            return
        election = self._election
        lead = election.lead
        check_message(replica, None if lead is None else lead.replication, message)
        match message:
            case AppendReply() | AppendRefusal():
                self._on_answer(sender, message, now_ns)
            case AppendEntries():
                if message.term < replica.term:
                    replica.send(sender, StaleTerm(replica.term))
                    return
                election.follow(message.term, sender, now_ns)
                self._follower.on_append(sender, message, now_ns)
            case PreVoteRequest():
                election.on_pre_vote_request(sender, message, now_ns)
            case PreVoteAnswer():
                election.on_pre_vote_answer(sender, message, now_ns)
            case VoteRequest():
                election.on_vote_request(sender, message, now_ns)
            case VoteAnswer():
                election.on_vote_answer(sender, message, now_ns)
            case TimeoutNow():
                if message.term < replica.term:
                    replica.send(sender, StaleTerm(replica.term))
                    return
                election.on_timeout_now(message.term, now_ns)
            case StaleTerm():
                if message.term > replica.term:
                    election.enter_term(message.term, now_ns)
            case _:
                assert_never(message)

    def _on_answer(self, sender: Member, message: AppendReply | AppendRefusal, now_ns: int) -> None:
        term = self._replica.term
        lead = self._election.lead
        if message.term > term:
            self._election.enter_term(message.term, now_ns)
        elif lead is None or message.term < term:
            return
        elif type(message) is AppendReply:
            lead.on_reply(sender, message, now_ns)
        elif type(message) is AppendRefusal:
            lead.on_refusal(sender, message, now_ns)

    def tick(self, now_ns: int) -> None:
        """Time has passed; cheap to call early."""
        self._election.tick(now_ns)

    def after_gap(self, gap_ns: int, now_ns: int) -> None:
        """The own loop stood still for `gap_ns`. Call it before `tick`, before or after what lay in the
        sockets.

        Timers count one tick (a heartbeat) of it at most. After more than the shortest election timeout
        another leader is possible: a leader is not `confirmed` until a majority answered a round begun now.
        """
        settings = self._replica.settings
        shift = gap_ns - settings.heartbeat_ns
        if shift > 0:
            self._election.shift(shift, now_ns)
        lead = self._election.lead
        if lead is not None and gap_ns > settings.election_timeout_min_ns:
            lead.doubt()

    def campaign(self, now_ns: int) -> None:
        """Campaigns at once, as at a leader's word: for a voter that knows that nobody can lead yet."""
        self._election.on_timeout_now(self._replica.term, now_ns)

    def leader_gone(self, now_ns: int) -> None:
        """Redialling the leader was refused, or another incarnation answered: campaign after a fresh wait."""
        self._election.forget_leader(now_ns)

    # --- proposals

    def refusal(self, size: int, *, reserved: bool = False) -> str | None:
        """Why `propose` would not take `size` bytes now: not_leader, transferring, full; None if it would."""
        lead = self._election.lead
        if lead is None:
            return "not_leader"
        if lead.transfer is not None:
            return "transferring"
        return "full" if size + ENTRY_OVERHEAD > lead.room(reserved) else None

    def room(self, *, reserved: bool = False) -> int:
        """The largest data that `propose` would take now, bytes; 0 where it takes nothing."""
        lead = self._election.lead
        if lead is None or lead.transfer is not None:
            return 0
        return max(0, lead.room(reserved) - ENTRY_OVERHEAD)

    def rooms(self) -> tuple[int, int]:
        """`room()`, and by how much more it is with `reserved`."""
        lead = self._election.lead
        if lead is None or lead.transfer is not None:
            return 0, 0
        all_room = lead.room(reserved=True) - ENTRY_OVERHEAD
        if all_room <= 0:
            return 0, 0
        reserved = self._replica.settings.uncommitted_bytes_reserved
        return (all_room - reserved, reserved) if all_room > reserved else (0, all_room)

    def propose(self, data: bytes, now_ns: int, *, decoded: object = None, reserved: bool = False) -> int:
        """Appends one entry; its index, or 0 where it is not taken (`refusal` says why) and nothing has
        changed.

        `now_ns` becomes the entry's stamp here: read the clock after everything that `data` answers was read.
        `reserved` opens the part of the byte bound that is kept for what frees keys. An index is no promise:
        the entry counts once it comes out in `Output.committed` with this index and this term.
        """
        lead = self._election.lead
        if lead is None or lead.transfer is not None or len(data) + ENTRY_OVERHEAD > lead.room(reserved):
            return 0
        return lead.append(_COMMANDS, data, now_ns, decoded)

    def propose_configuration(self, change: ConfigurationChange, now_ns: int) -> int:
        """Appends a configuration change; its index. Raises `ChangeRefused`, nothing having changed.

        Learners change in one step. Voters change by a joint configuration (`membership.swapping`); whoever
        leads when that is committed appends the final one, whose `context` is empty.
        """
        lead = self._election.lead
        if lead is None:
            raise ChangeRefused("not_leader")
        return lead.change(change, now_ns)

    def begin_barrier(self) -> int:
        """Asks for a read barrier; its id, shared by all who ask in one turn, or 0 where this member does not
        lead.

        The id comes back in `Output.barriers` once a majority has answered a round begun after this call, an
        entry of this term is committed and everything that was committed by now was handed out; in
        `Output.barriers_lost` if the lead ends before.
        """
        lead = self._election.lead
        if lead is None:
            return 0
        self._barriers_begun += 1
        return lead.begin_barrier(self._barriers_begun)

    def transfer(self, target: Member, now_ns: int) -> str | None:
        """Gives the lead to a voter; None if that was begun (see `transferring`), else the reason.

        Reasons: not_leader, already_leader, transferring (to another), not_voter, rolled_back. Proposals are
        refused until the lead is over or `transfer_timeout_ns` has passed.
        """
        lead = self._election.lead
        return "not_leader" if lead is None else lead.begin_transfer(target, now_ns)

    # --- links and snapshots
    # Times are taken although some of these need none: a caller need not know which.

    def link_up(self, member: Member, now_ns: int) -> None:  # noqa: ARG002
        """A new link to the member: what was under way on the old one is lost."""
        self._renew_link(member)

    def link_down(self, member: Member, now_ns: int) -> None:  # noqa: ARG002
        """The link to the member ended."""
        self._renew_link(member)

    def _renew_link(self, member: Member) -> None:
        lead = self._election.lead
        if lead is not None:
            lead.replication.renew_link(member)

    def snapshot_begun(self, member: Member, base: Base, now_ns: int) -> bool:  # noqa: ARG002
        """A snapshot at `base` is on its way to the member: the log after it is kept, up to a bound
        (`given_up`).

        False, and nothing is kept, where this member does not lead it or its log begins after `base` already.
        """
        lead = self._election.lead
        return lead is not None and lead.replication.snapshot_begun(member, base)

    def snapshot_done(self, member: Member, now_ns: int) -> None:  # noqa: ARG002
        """The member said that it has the snapshot."""
        lead = self._election.lead
        if lead is not None:
            lead.replication.snapshot_done(member)

    def snapshot_failed(self, member: Member, now_ns: int) -> None:  # noqa: ARG002
        """The stream broke; `Output.snapshots_wanted` names the member again if it still needs one."""
        lead = self._election.lead
        if lead is not None:
            lead.replication.snapshot_failed(member)

    def restore(self, base: Base, now_ns: int) -> bool:
        """The state machine was replaced by a snapshot at `base`.

        False where `base` is not past the commit index: call it before replacing anything. The log after
        `base` is kept where it contains `base`, else dropped.
        """
        replica = self._replica
        if not replica.restore(base):
            return False
        self._election.on_restored(base.term, now_ns)
        leader = self._election.leader
        if leader is not None and leader != replica.me:
            self._follower.on_restored(leader, base)
        return True

    def snapshot_base(self) -> Base:
        """What a snapshot of the state machine covers that has applied everything handed out so far."""
        return self._replica.base_at_applied()

    # --- output

    @property
    def has_output(self) -> bool:
        """Whether `take_output` has anything to tell, or to send, or may have: False is certain.

        The second follower's acknowledgement of what the first one's has committed already changes nothing, for one.
        """
        replica, election = self._replica, self._election
        if (
            replica.outbox
            or replica.applied_index < replica.commit_index
            or election.barriers_lost
            or self._compacting
            or self._reported != (election.role, replica.term, election.leader)
        ):
            return True
        lead = election.lead
        return self._follower.owes_answer if lead is None else lead.has_output

    def take_output(self, now_ns: int) -> Output:
        """Everything since the last call; at most one append a member unless its size splits it."""
        replica = self._replica
        election = self._election
        output = Output()
        if election.lead is None:
            self._follower.flush()
        elif not election.lead.flush(now_ns):
            election.stand_down(now_ns)
        if replica.applied_index < replica.commit_index:
            output.committed = replica.hand_out()
        lead = election.lead
        if lead is not None:
            output.barriers = lead.completed_barriers()
        replication = None if lead is None else lead.replication
        if output.committed or self._compacting:
            self._compact(replication)
        if replication is not None:
            replication.report(output.snapshots_wanted, output.given_up, output.rolled_back)
        if election.barriers_lost:
            output.barriers_lost, election.barriers_lost = election.barriers_lost, []
        if replica.outbox:
            output.messages, replica.outbox = replica.outbox, []
        standing = (election.role, replica.term, election.leader)
        if standing != self._reported:
            self._reported = standing
            output.role_changed = True
        return output

    def _compact(self, replication: Replication | None) -> None:
        """Drops applied entries past `log_keep_bytes`, an eighth of it at a time: dropping costs. What was kept for a
        member's snapshot can be fifty times that, so it goes in slices.
        """
        replica = self._replica
        log = replica.log
        keep = replica.settings.log_keep_bytes
        upto = replica.applied_index
        if log.bytes_between(log.base_index, upto) <= keep + (keep >> 3):
            return
        base = log.base_keeping(upto, keep)
        if replication is not None:
            base = replication.keep_from(base, upto)
        self._compacting = base > log.base_index + COMPACTED_AT_ONCE
        base = min(base, log.base_index + COMPACTED_AT_ONCE)
        if base > log.base_index:
            log.compact(base)
            replica.configurations.compact(base)
