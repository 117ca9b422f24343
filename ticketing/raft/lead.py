"""What exists only while this member leads; dropped as a whole when the lead ends."""

from __future__ import annotations

from typing import Any

from ticketing.raft.barriers import Barriers
from ticketing.raft.membership import ChangeRefused, leaving_joint, problem
from ticketing.raft.messages import AppendRefusal, AppendReply, TimeoutNow, encode_change
from ticketing.raft.progress import Progress
from ticketing.raft.replica import Replica
from ticketing.raft.replication import Replication
from ticketing.raft.transfer import Transfer
from ticketing.raft.types import ConfigurationChange, EntryKind, Member

_CONFIGURATION = EntryKind.CONFIGURATION


class Lead:
    """Leading one term: proposals, the commit rule, rounds and barriers, configuration changes, handing over.

    Invariants: every entry from `term_start_index` on is of this term; nothing is committed by counting
    before that entry is (thesis 3.6.2); at most one configuration after the commit index.
    """

    __slots__ = (
        "_heartbeat_ns",
        "_quorum_check_ns",
        "_replica",
        "_retiring",
        "_round_wanted",
        "barriers",
        "confirm_round",
        "replication",
        "term_start_index",
        "transfer",
    )

    def __init__(self, replica: Replica, now_ns: int) -> None:
        self._replica = replica
        self.barriers = Barriers()
        self.transfer: Transfer | None = None
        self.confirm_round = 0
        """Above the round that a majority has answered: this lead has to be confirmed first (spec 9, gaps).
        """
        self._round_wanted = False
        self._retiring = False
        self._heartbeat_ns = now_ns + replica.settings.heartbeat_ns
        self._quorum_check_ns = now_ns + replica.settings.quorum_check_every_ns
        self.replication = Replication(replica, now_ns)
        self.term_start_index = replica.log.last_index + 1
        self.append(EntryKind.EMPTY, b"", now_ns, None)

    # --- facts

    @property
    def own_term_committed(self) -> bool:
        """Whether everything that earlier leaders committed is known to be committed here (F074)."""
        return self._replica.commit_index >= self.term_start_index

    @property
    def confirmed(self) -> bool:
        """False from a long gap in the own loop until a majority answered a round begun after it."""
        return self.confirm_round == 0

    @property
    def next_deadline_ns(self) -> int:
        """When `tick` has something to do."""
        deadline = self._heartbeat_ns
        if self._quorum_check_ns < deadline:
            deadline = self._quorum_check_ns
        if self.transfer is not None and self.transfer.deadline_ns < deadline:
            return self.transfer.deadline_ns
        return deadline

    def room(self, reserved: bool) -> int:
        """Bytes for uncommitted entries that are left, entry overhead not yet taken off."""
        settings = self._replica.settings
        limit = settings.uncommitted_bytes_max
        if not reserved:
            limit -= settings.uncommitted_bytes_reserved
        return limit - self._replica.uncommitted_bytes()

    # --- entries

    def append(self, kind: EntryKind, data: bytes, now_ns: int, decoded: Any) -> int:
        """Appends an entry of this term, bounds having been looked at; its index."""
        index = self._replica.append_own(kind, data, now_ns, decoded).index
        if kind is _CONFIGURATION:
            self.replication.adopt_configuration(now_ns)
        return index

    def change(self, change: ConfigurationChange, now_ns: int) -> int:
        """Appends a configuration change; its index. Raises `ChangeRefused`."""
        if self.transfer is not None:
            raise ChangeRefused("transferring")
        if not self.own_term_committed:
            # Without this rule two leaders' single changes can be decided by majorities that do not meet.
            raise ChangeRefused("own_term_uncommitted")
        configurations = self._replica.configurations
        if configurations.newest.joint or configurations.newest_index > self._replica.commit_index:
            raise ChangeRefused("change_open", f"the configuration of entry {configurations.newest_index}")
        wrong = problem(configurations.newest, change.configuration)
        if wrong is not None:
            raise ChangeRefused("invalid", wrong)
        return self.append(EntryKind.CONFIGURATION, encode_change(change), now_ns, change)

    def advance_commit(self, now_ns: int) -> None:
        """Commits what (both) majorities have, if the last of it is of this term (thesis 3.6.2)."""
        replica = self._replica
        while replica.commit_index < replica.log.last_index:
            index = self.replication.majority_match()
            if index <= replica.commit_index or index < self.term_start_index:
                return
            assert index <= replica.log.last_index, (index, replica.log.last_index)
            replica.commit_index = index
            self._continue_change(now_ns)

    def _continue_change(self, now_ns: int) -> None:
        """Finishes a joint change, whoever began it; a leader that is left out goes (thesis 4.2.2)."""
        replica = self._replica
        configurations = replica.configurations
        if configurations.newest_index > replica.commit_index:
            return
        newest = configurations.newest
        if newest.joint:
            final = ConfigurationChange(leaving_joint(newest))
            self.append(EntryKind.CONFIGURATION, encode_change(final), now_ns, final)
        elif replica.me not in newest.voters and not self._retiring:
            self._retiring = True
            if self.transfer is None:
                self._transfer_to(self._furthest_voter(), now_ns)

    # --- answers

    def on_reply(self, member: Member, message: AppendReply, now_ns: int) -> None:
        """A member agrees up to an index."""
        progress = self.replication.members.get(member)
        if progress is not None and self.replication.on_reply(progress, message, now_ns):
            self.advance_commit(now_ns)

    def on_refusal(self, member: Member, message: AppendRefusal, now_ns: int) -> None:
        """A member lacks what precedes an append."""
        progress = self.replication.members.get(member)
        if progress is not None:
            self.replication.on_refusal(progress, message, now_ns)

    # --- rounds, barriers, confirmation

    def begin_barrier(self, identity: int) -> int:
        """A barrier for what is committed now; its id (a shared one perhaps)."""
        # What earlier leaders committed is known only once the own-term entry, which follows it, is committed.
        index = max(self._replica.commit_index, self.term_start_index)
        self._round_wanted = True
        return self.barriers.begin(identity, self.replication.round + 1, index)

    def doubt(self) -> None:
        """The own loop stood still for so long that another leader is possible: a majority has to confirm."""
        self.confirm_round = self.replication.round + 1
        self._round_wanted = True

    def completed_barriers(self) -> list[int]:
        """Takes out the barriers that are through; also takes note of a confirmation."""
        if not self.confirm_round and not len(self.barriers):
            return []
        round_ = self.replication.majority_round()
        if round_ >= self.confirm_round:
            self.confirm_round = 0
        return self.barriers.complete(round_, self._replica.applied_index)

    # --- time

    def tick(self, now_ns: int) -> bool:
        """Heartbeat, CheckQuorum (thesis 6.2), end of a transfer. False: step down."""
        settings = self._replica.settings
        if now_ns >= self._heartbeat_ns:
            self._heartbeat_ns = now_ns + settings.heartbeat_ns
            self._round_wanted = True
        if now_ns >= self._quorum_check_ns:
            self._quorum_check_ns = now_ns + settings.quorum_check_every_ns
            if self.replication.majority_heard_ns() < now_ns - settings.quorum_check_ns:
                return False
        if self.transfer is not None and now_ns >= self.transfer.deadline_ns:
            self.transfer = None
            return not self._retiring
        return True

    def shift(self, shift_ns: int, now_ns: int) -> None:
        """The own loop stood still: deadlines move on, and the members' silence was not theirs."""
        if self.transfer is not None:
            self.transfer.deadline_ns += shift_ns
        for progress in self.replication.members.values():
            if not progress.rolled_back:
                progress.heard_ns = max(progress.heard_ns, min(progress.heard_ns + shift_ns, now_ns))

    # --- handing over

    def begin_transfer(self, target: Member, now_ns: int) -> str | None:
        """Starts giving the lead to `target`; the reason where that is refused."""
        if self.transfer is not None:
            return None if self.transfer.target == target else "transferring"
        progress = self.replication.members.get(target)
        if progress is self.replication.own:
            return "already_leader"
        if progress is None or target not in self._replica.configurations.newest.voters:
            return "not_voter"
        if progress.rolled_back:
            return "rolled_back"
        self._transfer_to(target, now_ns)
        return None

    def _transfer_to(self, target: Member, now_ns: int) -> None:
        self.transfer = Transfer(target, now_ns + self._replica.settings.transfer_timeout_ns)

    def _furthest_voter(self) -> Member:
        def standing(progress: Progress) -> tuple[int, int]:
            return progress.match, progress.heard_ns

        voters = self._replica.configurations.newest.voters
        return max((self.replication.members[voter] for voter in voters), key=standing).member

    @property
    def has_output(self) -> bool:
        """Whether `flush` may queue anything, or a barrier, a confirmation or a report waits: False is certain."""
        if self._round_wanted or self.confirm_round or len(self.barriers) or self.transfer is not None:
            return True
        commit_index, replication = self._replica.commit_index, self.replication
        if commit_index < self._replica.log.last_index and replication.majority_match() > commit_index:
            return True  # nobody has to agree but this leader
        return replication.has_output

    def flush(self, now_ns: int) -> bool:
        """Queues everything that is to be sent now. False: the lead was given away and is over here."""
        replication = self.replication
        if self._replica.commit_index < self._replica.log.last_index:
            self.advance_commit(now_ns)
        if self._round_wanted:
            self._round_wanted = False
            replication.round += 1
        replication.send(now_ns)
        if self.transfer is None:
            return True
        progress = replication.members.get(self.transfer.target)
        if progress is None:
            self.transfer = None
            return not self._retiring
        if self.transfer.may_tell(progress.match, self._replica.log.last_index, replication.round):
            self._replica.send(progress.member, TimeoutNow(self._replica.term))
            # A leader that is no voter has nothing to stay for: it is not in the majority that it counts.
            return not self._retiring
        return True
