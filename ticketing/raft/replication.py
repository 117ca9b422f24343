"""A leader's sending side: batched and pipelined appends, flow control, snapshots, and the log kept for
members.

Messages may be lost, doubled or reordered; every step is repaired by the next round's append (heartbeat),
which carries the previous entry like any other. A member without a link is sent to all the same; the node
drops it.
"""

from __future__ import annotations

from ticketing.raft.messages import AppendEntries, AppendRefusal, AppendReply, WireEntry
from ticketing.raft.progress import Flow, Progress, ProgressView
from ticketing.raft.quorum import EVERYTHING, reached_by_both
from ticketing.raft.replica import Replica
from ticketing.raft.types import Base, Member

_PROBE = Flow.PROBE
_REPLICATE = Flow.REPLICATE
_SNAPSHOT = Flow.SNAPSHOT


class Replication:
    """The progress of every member of the newest configuration, and the rounds sent to them.

    A round is begun by each heartbeat and for each barrier. Whatever is sent carries the newest round, so an
    answer to round r proves that its sender followed this leader after r began.
    """

    __slots__ = (
        "_built",
        "_built_first",
        "_built_last",
        "_outgoing",
        "_peers",
        "_replica",
        "_sent_whole_bytes",
        "_voters",
        "given_up",
        "members",
        "own",
        "rolled_back",
        "round",
        "snapshots_wanted",
    )

    def __init__(self, replica: Replica, now_ns: int) -> None:
        self._replica = replica
        settings = replica.settings
        self._sent_whole_bytes = min(settings.message_bytes_max, settings.inflight_bytes_max)
        self.round = 1
        self.members: dict[Member, Progress] = {}
        self.own = Progress(replica.me, EVERYTHING, now_ns)
        # This leader has always heard itself; its match is its last index.
        self.own.heard_ns = self.own.acked_round = EVERYTHING
        self._peers: list[Progress] = []
        self._voters: list[Progress] = []
        self._outgoing: list[Progress] = []
        self.snapshots_wanted: list[Member] = []
        self.given_up: list[Member] = []
        self.rolled_back: list[Member] = []
        self._built: AppendEntries | None = None
        self._built_first = self._built_last = 0
        self.adopt_configuration(now_ns)

    # --- members and majorities

    def adopt_configuration(self, now_ns: int) -> None:
        """Follows the newest configuration: new members are probed from the log's end, others forgotten."""
        configuration = self._replica.configurations.newest
        me = self._replica.me
        known = self.members
        self.members = {}
        for member in configuration.members():
            if member == me:
                self.members[member] = self.own
            else:
                self.members[member] = known.get(member) or Progress(
                    member, self._replica.log.last_index + 1, now_ns
                )
        self._peers = [progress for progress in self.members.values() if progress is not self.own]
        self._voters = [self.members[member] for member in configuration.voters]
        self._outgoing = [self.members[member] for member in configuration.outgoing]

    def majority_match(self) -> int:
        """The greatest index that (both) majorities have. A rolled-back member counts with nothing."""
        self.own.match = self._replica.log.last_index
        return reached_by_both([p.match for p in self._voters], [p.match for p in self._outgoing])

    def majority_round(self) -> int:
        """The newest round that (both) majorities have answered."""
        return reached_by_both([p.acked_round for p in self._voters], [p.acked_round for p in self._outgoing])

    def majority_heard_ns(self) -> int:
        """A majority (both) has been heard at this time or later."""
        return reached_by_both([p.heard_ns for p in self._voters], [p.heard_ns for p in self._outgoing])

    def view(self, member: Member) -> ProgressView | None:
        """A reading of one member's progress."""
        progress = self.members.get(member)
        if progress is None:
            return None
        log = self._replica.log
        if progress is self.own:
            last = log.last_index
            return ProgressView(last, last + 1, _REPLICATE, EVERYTHING, EVERYTHING, 0, False)
        inflight = 0
        if progress.flow is _REPLICATE:
            inflight = log.bytes_between(progress.match, progress.next - 1)
        return ProgressView(
            progress.match,
            progress.next,
            progress.flow,
            progress.heard_ns,
            progress.answered_ns,
            inflight,
            progress.rolled_back,
        )

    def report(self, wanted: list[Member], given_up: list[Member], rolled_back: list[Member]) -> None:
        """Moves what the node has to know to an output's lists."""
        if self.snapshots_wanted:
            wanted += self.snapshots_wanted
            self.snapshots_wanted.clear()
        if self.given_up:
            given_up += self.given_up
            self.given_up.clear()
        if self.rolled_back:
            rolled_back += self.rolled_back
            self.rolled_back.clear()

    # --- what members answer

    def on_reply(self, progress: Progress, message: AppendReply, now_ns: int) -> bool:
        """The member agrees up to an index; True where it agrees further than was known."""
        if not self._heard(progress, message.round, message.last_index, now_ns):
            return False
        match = message.match
        assert match <= self._replica.log.last_index, (progress.member, match, self._replica.log.last_index)
        news = progress.acknowledge(match, self.round)
        if progress.flow is _PROBE:
            # An answer to something older than the present guess says nothing about the guess.
            if match >= progress.next - 1:
                progress.flow = _REPLICATE
                progress.waiting = False
        elif progress.flow is _SNAPSHOT:
            self._leave_snapshot(progress, match)
        return news

    def on_refusal(self, progress: Progress, message: AppendRefusal, now_ns: int) -> None:
        """The member lacks the entry before what was sent."""
        if not self._heard(progress, message.round, message.last_index, now_ns):
            return
        previous = message.prev_index
        if previous <= progress.match or progress.flow is _SNAPSHOT:
            return  # overtaken by a later answer
        if progress.flow is _PROBE and previous != progress.next - 1:
            return
        agreeing = message.hint_index
        log = self._replica.log
        if agreeing > log.base_index:
            agreeing = log.last_of_term(agreeing, message.hint_term)
        progress.probe(min(previous, agreeing + 1))

    def _heard(self, progress: Progress, round_: int, last_index: int, now_ns: int) -> bool:
        """Notes a sign of life; False where the member has shown itself rolled back and counts no more (spec
        9).

        An answer to a round begun after an acknowledgement had arrived was written after that
        acknowledgement, however the network reorders. Within a term nobody but this leader shortens its log,
        and not below what was acknowledged: showing less means that the process went back in time.
        """
        if progress.rolled_back:
            return False
        if last_index < progress.match and round_ > progress.acknowledged_round:
            if last_index < progress.acknowledged:
                progress.rolled_back = True
                progress.match = progress.acked_round = progress.heard_ns = progress.answered_ns = 0
                progress.pin = -1
                self.rolled_back.append(progress.member)
                return False
            # Shown on another link: no verdict (spec 9), but what it lacks is not counted either.
            progress.match = 0
            progress.probe(min(progress.next, last_index + 1))
        progress.answered_ns = now_ns
        if now_ns > progress.heard_ns:
            progress.heard_ns = now_ns
        if round_ > progress.acked_round:
            progress.acked_round = round_
        return True

    # --- snapshots and links

    def renew_link(self, member: Member) -> None:
        """The member's link ended or is new."""
        progress = self.members.get(member)
        if progress is not None and progress is not self.own:
            progress.renew_link()

    def _leave_snapshot(self, progress: Progress, match: int) -> None:
        """A member that needed a snapshot may be far enough for the log now, by one or without."""
        if match >= self._replica.log.base_index and match >= progress.snapshot_index:
            progress.flow = _REPLICATE
            progress.next = match + 1
            progress.snapshot_index = 0

    def snapshot_begun(self, member: Member, base: Base) -> bool:
        """A snapshot is on its way: the log after it is kept. False if the log begins later."""
        progress = self.members.get(member)
        if progress is None or progress is self.own or base.index < self._replica.log.base_index:
            return False
        progress.want_snapshot()
        progress.snapshot_index = base.index
        progress.pin = base.index
        return True

    def snapshot_done(self, member: Member) -> None:
        """The member has it, as far as the stream's own end tells."""
        progress = self.members.get(member)
        if progress is not None and progress.flow is _SNAPSHOT and progress.snapshot_index:
            progress.probe(progress.snapshot_index + 1)

    def snapshot_failed(self, member: Member) -> None:
        """The stream broke. The next round asks for a snapshot again if the member still needs one."""
        progress = self.members.get(member)
        if progress is None or progress.flow is not _SNAPSHOT:
            return
        progress.pin = -1
        if progress.match >= self._replica.log.base_index:
            progress.probe(progress.match + 1)
        else:
            progress.want_snapshot()

    def keep_from(self, base: int, upto: int) -> int:
        """How far the log may be compacted, at most to `base`, for the sake of who is catching up."""
        settings = self._replica.settings
        log = self._replica.log
        for progress in self._peers:
            if progress.pin < 0:
                continue
            if progress.flow is not _SNAPSHOT and progress.match > progress.pin:
                progress.pin = progress.match
            lag = log.bytes_between(max(progress.pin, log.base_index), upto)
            if progress.flow is not _SNAPSHOT and lag <= settings.log_keep_bytes:
                progress.pin = -1
            elif lag > settings.learner_log_bytes_max:
                progress.pin = -1
                self.given_up.append(progress.member)
                if progress.flow is _SNAPSHOT:
                    self.snapshot_failed(progress.member)
            elif progress.pin < base:
                base = max(progress.pin, log.base_index)
        return base

    # --- sending

    @property
    def has_output(self) -> bool:
        """Whether `send` or `report` may have something: not where everybody follows and was sent all there is."""
        last_index, round_ = self._replica.log.last_index, self.round
        for progress in self._peers:
            if (
                progress.flow is not _REPLICATE
                or progress.next <= last_index
                or progress.sent_round < round_
                or progress.rolled_back
            ):
                return True
        return bool(self.snapshots_wanted or self.given_up or self.rolled_back)

    def send(self, now_ns: int) -> None:
        """Sends what flow control allows, and an empty append to whom this round sent nothing yet."""
        log = self._replica.log
        round_ = self.round
        self._built = None
        for progress in self._peers:
            if progress.rolled_back:
                continue
            if progress.flow is not _SNAPSHOT and progress.next <= log.base_index:
                progress.want_snapshot()
                progress.sent_round = 0
            if progress.flow is _REPLICATE:
                if progress.next <= log.last_index:
                    self._send_pipelined(progress, now_ns)
                if progress.sent_round < round_:
                    self._send_append(progress, progress.next, progress.next - 1, now_ns)
            elif progress.flow is _PROBE:
                self._send_probe(progress, now_ns)
            elif progress.sent_round < round_:
                if progress.snapshot_index == 0:
                    self._want_snapshot(progress, now_ns)
                progress.sent_round = round_
                # What it has may lie before our base: an append that fits every log.
                self._replica.send(
                    progress.member,
                    AppendEntries(self._replica.term, round_, 0, 0, self._replica.commit_index, []),
                )

    def _send_pipelined(self, progress: Progress, now_ns: int) -> None:
        settings = self._replica.settings
        log = self._replica.log
        if progress.match < log.base_index:
            return  # the log moved on past what is under way, so that is a full window
        if log.bytes_between(progress.match, log.last_index) <= self._sent_whole_bytes:
            # All that is under way and all that is to go fit the window, and so one message.
            self._send_append(progress, progress.next, log.last_index, now_ns)
            progress.next = log.last_index + 1
            return
        while progress.next <= log.last_index:
            first = progress.next
            inflight = log.bytes_between(progress.match, first - 1)
            window = settings.inflight_bytes_max - inflight
            last = log.last_fitting(first, min(settings.message_bytes_max, window))
            if last < first:
                # An entry above the size of a message goes alone, one above the window when nothing is under
                # way.
                if inflight and log.last_fitting(first, window) < first:
                    return
                last = first
            self._send_append(progress, first, last, now_ns)
            progress.next = last + 1

    def _send_probe(self, progress: Progress, now_ns: int) -> None:
        settings = self._replica.settings
        log = self._replica.log
        first = progress.next
        if not progress.waiting:
            limit = min(settings.message_bytes_max, settings.inflight_bytes_max)
            last = max(log.last_fitting(first, limit), first)
            self._send_append(progress, first, min(last, log.last_index), now_ns)
            progress.waiting = True
        elif progress.sent_round < self.round:
            # Perhaps nobody is there: the question is repeated without its load.
            self._send_append(progress, first, first - 1, now_ns)

    def _send_append(self, progress: Progress, first: int, last: int, now_ns: int) -> None:
        """Sends entries first..last; members that are equally far are sent one and the same message."""
        progress.sent_round = self.round
        message = self._built
        if message is None or first != self._built_first or last != self._built_last:
            replica = self._replica
            log = replica.log
            # A stamp may be newer than this reading of the clock: no age is always safe (spec 7).
            entries = [
                WireEntry(
                    entry.term,
                    entry.kind,
                    entry.data,
                    (now_ns - entry.stamp_ns) // 1000 if now_ns > entry.stamp_ns else 0,
                )
                for entry in log.entries(first, last)
            ]
            message = AppendEntries(
                replica.term, self.round, first - 1, log.term_at(first - 1), replica.commit_index, entries
            )
            self._built = message
            self._built_first = first
            self._built_last = last
        self._replica.send(progress.member, message)

    def _want_snapshot(self, progress: Progress, now_ns: int) -> None:
        """Only who answers can take one."""
        if progress.acked_round and now_ns - progress.heard_ns <= self._replica.settings.quorum_check_ns:
            self.snapshots_wanted.append(progress.member)
