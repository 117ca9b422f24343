"""Whether this node's clocks agree with those of a majority (spec 8): the gate of every grant.

Every node, leader or not, probes each peer about once a second. Nothing is decided when a sample arrives:
each question is answered at the moment it is asked, from samples of the last 3 s and this node's clocks
now. The caller hands in the two clocks read together (`read_together`), once per turn of its loop, after
the turn's gap check. An open gate is not reckoned anew for each pair of readings that cannot have closed it (`_Open`).

A peer is named by its incarnation: clocks belong to a process life, and it has that number before and after
it is given a NodeId, so what was measured while a domain forms or a learner catches up still counts
afterwards.

Fail-closed for the wall clock: unknown is outside. For the rate of elapsed clocks unknown is *not* outside:
the gate closes only on proof. Two rates are compared with each other, and differ too much when they differ
by more than rho.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from ticketing.node.clock_messages import ClockProbe, ClockReply
from ticketing.node.peer_clock import READING_ERROR_NS, SAMPLE_VALID_NS, PeerClock
from ticketing.node.settings import S
from ticketing.raft.types import MS, Member

PROBE_EVERY_NS = 1 * S
PROBE_AGAIN_NS = 250 * MS
"""Wait after a sample that was thrown away or did not come, while there is no valid one."""

PEERS_MAX = 32
"""Process lives remembered; past it the one sampled longest ago is dropped."""

STEP_MIN_NS = 1 * MS
"""A move of our wall clock against our elapsed clock by more than this, between two turns, is counted as a
step."""

_READ_TOGETHER_TRIES = 10_000
"""At least a second of trying, as with the elapsed clock itself: a machine that is interrupted in each of them cannot
say how late it is."""
_FAR = 1 << 62


class ClocksApartError(RuntimeError):
    """Both clocks could not be read in one moment, so nothing is known of the wall clock."""


class ClockView(msgspec.Struct, frozen=True, kw_only=True):
    """One peer's clocks for status, metrics and logs. Differences are peer less own; `None` is unknown."""

    verdict: str
    """`inside`, `outside` (wholly beyond Δ/2), `unclear` (the interval crosses Δ/2), `rate` (rates differ
    by more than rho, proved), `unknown` (no sample of the last 3 s)."""
    difference_ns: int | None = None
    error_ns: int | None = None
    age_ns: int | None = None
    round_trip_ns: int | None = None
    rate_ppb: int | None = None
    """Middle of the interval of the relative rate; positive: the peer's elapsed clock runs faster."""
    rate_error_ppb: int | None = None
    reports_inside: bool | None = None
    """What the peer said of itself within the last 3 s."""
    steps: int = 0
    """Times the peer's wall clock was seen to be set."""
    last_step_ns: int = 0
    thrown_away: int = 0
    """Samples refused: slow round trip, or a clock moved meanwhile."""


class _Open(NamedTuple):
    """An open gate, and for which readings of our clocks that is certain.

    Invariant: with the samples, the source's word and Δ as they are, the gate is open for `me` among these voters at
    every pair of readings made no later than `until_ns` between which lies (wall less elapsed clock) what is within
    `low_ns` and `high_ns`. So a step of the wall clock, and the age of a sample, show as soon as without it. Whatever
    changes one of those drops it. A closed gate is never kept.
    """

    me: Member
    voters: tuple[Member, ...]
    outgoing: tuple[Member, ...]
    delta_ns: int
    until_ns: int
    low_ns: int
    high_ns: int


class ClockHealth:
    """Samples of all peers, and the questions asked of them. Times are nanoseconds; `wall_ns` is Unix
    time.
    """

    __slots__ = (
        "_last_now_ns",
        "_last_wall_ns",
        "_open",
        "_peers",
        "delta_ns",
        "last_step_ns",
        "source_detail",
        "source_synchronised",
        "steps",
    )

    def __init__(self, delta_ns: int) -> None:
        self.delta_ns = delta_ns
        """Δ, a setting of the whole domain: may be set anew when this process is told the domain's."""
        self._peers: dict[int, PeerClock] = {}
        self._open: _Open | None = None
        self.source_synchronised: bool | None = None
        """A further source's word (chrony); `None` where none is named or it has not answered."""
        self.source_detail = ""
        self.steps = 0
        """Times our own wall clock was seen to be set."""
        self.last_step_ns = 0
        self._last_now_ns: int | None = None
        self._last_wall_ns = 0

    # --- peers and probes

    def watch(self, peer: int, now_ns: int) -> None:
        """A link with `peer` has come up: it is probed at once unless a valid sample of it is at hand."""
        clock = self._peers.get(peer)
        if clock is None:
            self._open = None
            if len(self._peers) >= PEERS_MAX:
                del self._peers[min(self._peers, key=self._sampled_ns)]
            self._peers[peer] = PeerClock(now_ns)
        elif clock.sampled_ns is None or now_ns - clock.sampled_ns > SAMPLE_VALID_NS:
            clock.probe_due_ns = now_ns

    def forget(self, peer: int) -> None:
        """The process life is over, or no concern of ours any more."""
        self._open = None
        self._peers.pop(peer, None)

    def due(self, now_ns: int) -> list[int]:
        """Peers to be probed now."""
        return [peer for peer, clock in self._peers.items() if clock.probe_due_ns <= now_ns]

    def next_due_ns(self) -> int | None:
        """When the next probe is due, `None` without peers."""
        return min((clock.probe_due_ns for clock in self._peers.values()), default=None)

    def probe(self, peer: int, now_ns: int, wall_ns: int, inside: bool | None) -> ClockProbe:
        """The probe to be sent to a watched peer, with our clocks read now; `inside` is our own verdict on
        ourselves.
        """
        clock = self._peers[peer]
        clock.probe_sent_ns = now_ns
        clock.probe_wall_ns = wall_ns
        # No sooner than the slowest reply that would be taken: a probe must not overtake the answer to the
        # one before. The first one often comes before the peer has a link to answer on: it is soon repeated.
        every_ns = PROBE_AGAIN_NS if clock.sampled_ns is None else PROBE_EVERY_NS
        clock.probe_due_ns = now_ns + max(every_ns, self.delta_ns // 2)
        return ClockProbe(now_ns, inside)

    def answer(
        self, peer: int, probe: ClockProbe, received_ns: int, received_wall_ns: int, now_ns: int, wall_ns: int
    ) -> ClockReply:
        """The reply to a peer's probe, from our clocks after it was read and our clocks now.

        One pair of readings may be given twice: what passes between reading and sending then counts as
        travel.
        """
        self.peer_reported(peer, probe.inside, received_ns)
        return ClockReply(probe.sent_ns, received_ns, received_wall_ns, now_ns, wall_ns)

    def reply(self, peer: int, reply: ClockReply, now_ns: int, wall_ns: int) -> str | None:
        """Takes the reply read at these clocks; returns why it is no sample (for counting), or `None`."""
        clock = self._peers.get(peer)
        if clock is None:
            return "not_awaited"
        self._open = None
        refusal = clock.take(reply, now_ns, wall_ns, self.delta_ns // 2)
        if refusal is None:
            clock.probe_due_ns = max(clock.probe_due_ns, reply.sent_ns + PROBE_EVERY_NS)
        elif refusal != "not_awaited" and clock.difference(now_ns, wall_ns) is None:
            clock.probe_due_ns = min(clock.probe_due_ns, now_ns + PROBE_AGAIN_NS)
        return refusal

    def peer_reported(self, peer: int, inside: bool | None, now_ns: int) -> None:
        """A peer said whether it finds itself inside; counts for 3 s."""
        clock = self._peers.get(peer)
        if clock is not None:
            clock.reported_inside = inside
            clock.reported_ns = now_ns

    # --- our own clocks

    def source_says(self, synchronised: bool | None, detail: str = "") -> None:
        """What a further source (chrony) says of our wall clock; not synchronised means outside."""
        self._open = None
        self.source_synchronised = synchronised
        self.source_detail = detail

    def observe(self, now_ns: int, wall_ns: int) -> int:
        """Notes our clocks once a turn; returns the size of a step of our wall clock since the last call, 0
        for none.

        Only for reports: the gate sees a step by itself. A slew of less than 1 ms a second is none.
        """
        last_ns = self._last_now_ns
        self._last_now_ns = now_ns
        moved_ns = wall_ns - self._last_wall_ns
        self._last_wall_ns = wall_ns
        if last_ns is None:
            return 0
        passed_ns = now_ns - last_ns
        step_ns = moved_ns - passed_ns
        if abs(step_ns) <= STEP_MIN_NS + passed_ns // 1000:
            return 0
        self.steps += 1
        self.last_step_ns = step_ns
        return step_ns

    # --- questions

    def gate(
        self, now_ns: int, wall_ns: int, me: Member, voters: Sequence[Member], outgoing: Sequence[Member] = ()
    ) -> bool:
        """Whether grants may be proposed: a majority of the voters, `me` among them where it votes, is
        inside.

        In a joint configuration a majority of `voters` and one of `outgoing`. On a node that does not lead
        the same answer is what it reports of itself.
        """
        known = self._open
        if (
            known is not None
            and now_ns <= known.until_ns
            and known.low_ns <= wall_ns - now_ns <= known.high_ns
            and known.voters == voters
            and known.outgoing == outgoing
            and known.me == me
            and known.delta_ns == self.delta_ns
        ):
            return True
        if self.source_synchronised is False:
            return False
        counted: list[PeerClock] = []
        if not self._majority_inside(now_ns, wall_ns, me, voters, counted):
            return False
        if outgoing and not self._majority_inside(now_ns, wall_ns, me, outgoing, counted):
            return False
        slack_ns = min((clock.slack_ns(now_ns, wall_ns, self.delta_ns // 2) for clock in counted), default=0)
        if counted and slack_ns > 0:
            self._open = _Open(
                me,
                tuple(voters),
                tuple(outgoing),
                self.delta_ns,
                min(clock.counts_until_ns for clock in counted),
                wall_ns - now_ns - slack_ns,
                wall_ns - now_ns + slack_ns,
            )
        return True

    def _majority_inside(
        self, now_ns: int, wall_ns: int, me: Member, voters: Sequence[Member], counted: list[PeerClock]
    ) -> bool:
        """`counted` gets the clocks that made it so."""
        missing = len(voters) // 2 + 1
        for voter in voters:
            if voter != me:
                clock = self._peers.get(voter.incarnation)
                if clock is None or not self._inside(clock, now_ns, wall_ns):
                    continue
                counted.append(clock)
            missing -= 1
            if missing == 0:
                return True
        return False

    def _inside(self, clock: PeerClock, now_ns: int, wall_ns: int) -> bool:
        measured = clock.difference(now_ns, wall_ns)
        if measured is None:
            return False
        difference_ns, error_ns = measured
        return abs(difference_ns) + error_ns <= self.delta_ns // 2 and clock.rate_outside(now_ns) is not True

    def within_delta(self, peer: int, now_ns: int, wall_ns: int) -> bool | None:
        """Whether a peer's wall clock is within Δ (not Δ/2) of ours, its whole interval; for forming.

        `None` where it cannot be told: no valid sample, or the interval crosses Δ.
        """
        clock = self._peers.get(peer)
        measured = None if clock is None else clock.difference(now_ns, wall_ns)
        if measured is None:
            return None
        difference_ns, error_ns = measured
        if abs(difference_ns) + error_ns <= self.delta_ns:
            return True
        return False if abs(difference_ns) - error_ns > self.delta_ns else None

    def rate_proved_wrong(
        self, now_ns: int, me: Member, voters: Sequence[Member], outgoing: Sequence[Member] = ()
    ) -> bool:
        """Whether our own elapsed clock is the wrong one: proved to differ by more than rho from a majority
        of voters.

        In a joint configuration a majority of either half is proof. While it holds a leader proposes no
        expiry.
        """
        return self._rate_against(now_ns, me, voters) or self._rate_against(now_ns, me, outgoing)

    def _rate_against(self, now_ns: int, me: Member, voters: Sequence[Member]) -> bool:
        if not voters:
            return False
        against = 0
        for voter in voters:
            clock = self._peers.get(voter.incarnation)
            if clock is not None and voter != me and clock.rate_outside(now_ns) is True:
                against += 1
        return against > len(voters) // 2

    def odd_one_out(
        self, now_ns: int, wall_ns: int, me: Member, voters: Sequence[Member], outgoing: Sequence[Member] = ()
    ) -> tuple[Member, ...]:
        """Voters that the lead should go to because it is we who are outside; empty where that is not shown.

        Shown means: our gate is closed, and a majority of the voters without us (of both halves, where
        joint) report themselves inside although each of them is freshly measured and not inside as seen
        from here (or our own source says that we are not synchronised). Without a fresh sample we do not
        know, and unknown moves no lead.
        """
        if self.gate(now_ns, wall_ns, me, voters, outgoing):
            return ()
        agreeing = [voter for voter in voters if self._agrees_without_us(voter, now_ns, wall_ns, me)]
        if len(agreeing) <= len(voters) // 2:
            return ()
        if outgoing:
            others = sum(self._agrees_without_us(voter, now_ns, wall_ns, me) for voter in outgoing)
            if others <= len(outgoing) // 2:
                return ()
        return tuple(agreeing)

    def _agrees_without_us(self, voter: Member, now_ns: int, wall_ns: int, me: Member) -> bool:
        clock = self._peers.get(voter.incarnation)
        if voter == me or clock is None or self._reported(clock, now_ns) is not True:
            return False
        if self.source_synchronised is False:
            return True
        return clock.difference(now_ns, wall_ns) is not None and not self._inside(clock, now_ns, wall_ns)

    # --- reports

    def verdicts(self, now_ns: int, wall_ns: int) -> dict[int, ClockView]:
        """Every watched peer's clocks as they are to be shown, by incarnation."""
        return {peer: self._view(clock, now_ns, wall_ns) for peer, clock in self._peers.items()}

    def _view(self, clock: PeerClock, now_ns: int, wall_ns: int) -> ClockView:
        measured = clock.difference(now_ns, wall_ns)
        rate = clock.rate(now_ns)
        return ClockView(
            verdict=self._verdict(clock, now_ns, measured),
            difference_ns=None if measured is None else measured[0],
            error_ns=None if measured is None else measured[1],
            age_ns=None if clock.sampled_ns is None else now_ns - clock.sampled_ns,
            round_trip_ns=None if clock.sampled_ns is None else clock.round_trip_ns,
            rate_ppb=None if rate is None else (rate[0] + rate[1]) // 2,
            rate_error_ppb=None if rate is None else (rate[1] - rate[0] + 1) // 2,
            reports_inside=self._reported(clock, now_ns),
            steps=clock.steps,
            last_step_ns=clock.step_ns,
            thrown_away=clock.thrown_away,
        )

    def _verdict(self, clock: PeerClock, now_ns: int, measured: tuple[int, int] | None) -> str:
        if measured is None:
            return "unknown"
        difference_ns, error_ns = measured
        if abs(difference_ns) - error_ns > self.delta_ns // 2:
            return "outside"
        if abs(difference_ns) + error_ns > self.delta_ns // 2:
            return "unclear"
        return "rate" if clock.rate_outside(now_ns) is True else "inside"

    @staticmethod
    def _reported(clock: PeerClock, now_ns: int) -> bool | None:
        return clock.reported_inside if now_ns - clock.reported_ns <= SAMPLE_VALID_NS else None

    def _sampled_ns(self, peer: int) -> int:
        sampled_ns = self._peers[peer].sampled_ns
        return -_FAR if sampled_ns is None else sampled_ns


def read_together(
    elapsed_ns: Callable[[], int], wall_ns: Callable[[], int], before_ns: int | None = None
) -> tuple[int, int]:
    """Both clocks of one moment: the wall clock read between two readings of the elapsed clock that lie less than
    `READING_ERROR_NS` apart.

    `before_ns` is such a reading that is at hand already: it serves as the first one unless it was made too long ago.
    Every difference rests on that bound, so a pair beyond it is never returned: raises `ClocksApartError` where none
    came about.
    """
    for _ in range(_READ_TOGETHER_TRIES):
        if before_ns is None:
            before_ns = elapsed_ns()
        wall = wall_ns()
        if elapsed_ns() - before_ns < READING_ERROR_NS:
            return before_ns, wall
        before_ns = None
    raise ClocksApartError(
        f"{_READ_TOGETHER_TRIES} readings of both clocks each took longer than {READING_ERROR_NS} ns"
    )
