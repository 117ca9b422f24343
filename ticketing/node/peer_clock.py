"""What this node knows of one peer's clocks: the newest sample of its wall clock, and the rate of its
elapsed clock.

A sample holds the peer's wall clock against our *elapsed* clock. Our own wall clock enters only when the
sample is used, so a step of it shows at the very next use (spec 8).

The arithmetic, in integer nanoseconds: we send at `sent`, the peer reads at its `received` and answers at
its `replied`, we read at `now`. On our elapsed clock the peer's answer happened not before `sent` plus the
time that the peer took, and not after `now`; the middle of the two is the estimate, half their distance the
error.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from ticketing.node.clock_messages import ClockReply
from ticketing.node.settings import S
from ticketing.raft.types import MS

PPB = 1_000_000_000
"""Rates are relative and in parts per billion."""

RHO_PPB = 1_000_000
"""rho = 0.1 %: the greatest rate error of an elapsed clock (spec, Words)."""

SAMPLE_VALID_NS = 3 * S
DRIFT_PPB = 1_000_000
"""A sample widens by 1 ms a second."""

DISAGREEMENT_MAX_NS = 1 * MS
"""A sample during which wall and elapsed clock of one side moved further apart than this is thrown away."""

READING_ERROR_NS = 100_000
"""One reading of an elapsed clock is at most this far from the truth (spec, Words), and at most so much older than the
reading of the wall clock that goes with it (`ticketing.node.clock_health.read_together`).

One such allowance covers both. An elapsed clock is only ever behind, and by less and less (time suspended is found
late, never taken back), so a difference is reckoned too great by what was found since the sample; and too small by what
the wall clock was read later. Either is less than this, and they lie on opposite sides.
"""

RATE_WINDOW_NS = 60 * S
_RATE_SAMPLES_MAX = 64
_TIME_MAX = 1 << 63


class _Beat(NamedTuple):
    """The peer's elapsed clock at a moment that lies between two readings of ours."""

    peer_ns: int
    low_ns: int
    high_ns: int


class PeerClock:
    """One peer's clocks as seen from here. Differences are peer less own: positive is ahead of us."""

    __slots__ = (
        "_beats",
        "_error_ns",
        "_offset_ns",
        "probe_due_ns",
        "probe_sent_ns",
        "probe_wall_ns",
        "rate_high_ppb",
        "rate_low_ppb",
        "reported_inside",
        "reported_ns",
        "round_trip_ns",
        "sampled_ns",
        "step_ns",
        "steps",
        "thrown_away",
    )

    def __init__(self, now_ns: int) -> None:
        self.probe_due_ns = now_ns
        self.probe_sent_ns: int | None = None
        """The probe whose reply is awaited; a reply to any other is not taken."""
        self.probe_wall_ns = 0
        self.sampled_ns: int | None = None
        """Our elapsed clock when the newest sample's probe left; its age counts from here."""
        self._offset_ns = 0
        """Peer's wall clock less our elapsed clock."""
        self._error_ns = 0
        self.round_trip_ns = 0
        self._beats: deque[_Beat] = deque(maxlen=_RATE_SAMPLES_MAX)
        self.rate_low_ppb: int | None = None
        """The peer's rate relative to ours lies between these two; `None` until two samples are far enough
        apart."""
        self.rate_high_ppb: int | None = None
        self.reported_inside: bool | None = None
        """What the peer last said of itself, at `reported_ns`."""
        self.reported_ns = 0
        self.steps = 0
        """How often a sample could not be brought together with the one before: the peer's wall clock was
        set."""
        self.step_ns = 0
        """The size of the newest step, positive forwards."""
        self.thrown_away = 0

    # --- measuring

    def take(self, reply: ClockReply, now_ns: int, wall_ns: int, round_trip_max_ns: int) -> str | None:
        """Makes a sample of the reply to the awaited probe, read at `now_ns`; returns why not, or `None`."""
        sent_ns = self.probe_sent_ns
        if sent_ns is None or reply.sent_ns != sent_ns:
            return "not_awaited"
        self.probe_sent_ns = None
        refusal = self._refusal(reply, sent_ns, now_ns, wall_ns, round_trip_max_ns)
        if refusal is not None:
            self.thrown_away += 1
            return refusal
        took_ns = reply.replied_ns - reply.received_ns
        # The peer's clock may run faster than ours by twice rho; its own span counts for no more than is
        # certain.
        took_ns -= took_ns // 500
        low_ns = min(sent_ns + took_ns, now_ns)
        wall_moved_ns = reply.replied_wall_ns - reply.received_wall_ns
        error_ns = (now_ns - low_ns + 1) // 2 + READING_ERROR_NS
        error_ns += abs(wall_moved_ns - (reply.replied_ns - reply.received_ns))
        offset_ns = reply.replied_wall_ns - (low_ns + now_ns) // 2
        self._note_step(offset_ns, error_ns, sent_ns)
        self._offset_ns = offset_ns
        self._error_ns = error_ns
        self.sampled_ns = sent_ns
        self.round_trip_ns = now_ns - low_ns
        self._judge_rate(
            _Beat(reply.replied_ns, low_ns - 2 * READING_ERROR_NS, now_ns + 2 * READING_ERROR_NS), now_ns
        )
        return None

    def _refusal(
        self, reply: ClockReply, sent_ns: int, now_ns: int, wall_ns: int, round_trip_max_ns: int
    ) -> str | None:
        took_ns = reply.replied_ns - reply.received_ns
        total_ns = now_ns - sent_ns
        # Times beyond 63 bits, or more time spent by the peer than passed here: no honest clock.
        if not (0 <= reply.replied_wall_ns < _TIME_MAX and -_TIME_MAX < reply.replied_ns < _TIME_MAX):
            return "malformed"
        if took_ns < 0 or took_ns - took_ns // 500 > total_ns + 2 * READING_ERROR_NS:
            return "malformed"
        if total_ns - (took_ns - took_ns // 500) > round_trip_max_ns:
            return "round_trip"
        if abs(reply.replied_wall_ns - reply.received_wall_ns - took_ns) > DISAGREEMENT_MAX_NS:
            return "peer_wall_moved"
        if abs(wall_ns - self.probe_wall_ns - total_ns) > DISAGREEMENT_MAX_NS:
            return "own_wall_moved"
        return None

    def _note_step(self, offset_ns: int, error_ns: int, sent_ns: int) -> None:
        if self.sampled_ns is None:
            return
        moved_ns = offset_ns - self._offset_ns
        room_ns = error_ns + self._error_ns + _drift(sent_ns - self.sampled_ns)
        if abs(moved_ns) > room_ns:
            self.steps += 1
            self.step_ns = moved_ns
            # What it said of itself was about the clock that it had: two clocks that are set in the same second must
            # not have the leader between them give its lead to one of them.
            self.reported_inside = None

    # --- the wall clock

    def difference(self, now_ns: int, wall_ns: int) -> tuple[int, int] | None:
        """(peer's wall clock less ours now, ± error), both ns; `None` without a sample of the last 3 s."""
        sampled_ns = self.sampled_ns
        if sampled_ns is None or now_ns - sampled_ns > SAMPLE_VALID_NS:
            return None
        return self._offset_ns + now_ns - wall_ns, self._error_ns + _drift(now_ns - sampled_ns)

    @property
    def counts_until_ns(self) -> int:
        """Until when the newest sample counts."""
        assert self.sampled_ns is not None
        return self.sampled_ns + SAMPLE_VALID_NS

    def slack_ns(self, now_ns: int, wall_ns: int, limit_ns: int) -> int:
        """By how much our wall clock may yet move against our elapsed clock, either way, before difference and error
        together could pass `limit_ns`, as long as this sample counts; below zero: they may pass it by themselves.
        """
        assert self.sampled_ns is not None
        difference_ns = abs(self._offset_ns + now_ns - wall_ns)
        return limit_ns - difference_ns - self._error_ns - _drift(SAMPLE_VALID_NS)

    # --- the elapsed clock's rate

    def _judge_rate(self, beat: _Beat, now_ns: int) -> None:
        beats = self._beats
        beats.append(beat)
        while len(beats) > 1 and beats[0].low_ns < now_ns - RATE_WINDOW_NS:
            beats.popleft()
        third_ns = (beats[-1].low_ns - beats[0].low_ns) // 3
        early_until_ns, late_from_ns = beats[0].low_ns + third_ns, beats[-1].low_ns - third_ns
        early = min((b for b in beats if b.low_ns <= early_until_ns), key=_width)
        late = min((b for b in beats if b.low_ns >= late_from_ns), key=_width)
        least_ns, most_ns = late.low_ns - early.high_ns, late.high_ns - early.low_ns
        if least_ns <= 0:
            self.rate_low_ppb = self.rate_high_ppb = None
            return
        passed_ns = late.peer_ns - early.peer_ns
        self.rate_low_ppb = passed_ns * PPB // most_ns - PPB
        self.rate_high_ppb = -(-passed_ns * PPB // least_ns) - PPB

    def rate(self, now_ns: int) -> tuple[int, int] | None:
        """The peer's rate less ours lies in (low, high), ppb; `None` where nothing was measured in the last
        60 s.
        """
        if self.rate_low_ppb is None or self.rate_high_ppb is None or self.sampled_ns is None:
            return None
        if now_ns - self.sampled_ns > RATE_WINDOW_NS:
            return None
        return self.rate_low_ppb, self.rate_high_ppb

    def rate_outside(self, now_ns: int) -> bool | None:
        """Whether the two rates differ by more than rho: proved (`True`), disproved (`False`), unknown
        (`None`).
        """
        rate = self.rate(now_ns)
        if rate is None:
            return None
        low_ppb, high_ppb = rate
        if low_ppb > RHO_PPB or high_ppb < -RHO_PPB:
            return True
        if low_ppb >= -RHO_PPB and high_ppb <= RHO_PPB:
            return False
        return None


def _drift(age_ns: int) -> int:
    return age_ns // (PPB // DRIFT_PPB) + 1


def _width(beat: _Beat) -> int:
    return beat.high_ns - beat.low_ns
