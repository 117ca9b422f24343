"""When a command under a lock is extended, asked to end, and ended: decisions alone, no clock and no process.

The signals are placed from the back: SIGKILL has to land before the conservative end, since from then on the key
may be another's. SIGTERM comes one grace before it.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

MARGIN_S = 0.2
"""SIGKILL is sent this long before the conservative end: for a busy machine to get round to it."""

MARGIN_SHARE = 0.05
"""On short leases the margin is this share of them at most."""

LOOK_S = 0.25
"""The lease is looked at this often: a suspend or a step of the loop's own clock must not delay the signals."""

EXTEND_AGAIN_S = 1.0
"""After an extension that failed; on short leases a tenth of them."""


KILL_AGAIN_S = 0.02
"""As long as anything is left."""


class Act(Enum):
    """What is due now."""

    NOTHING = 0
    EXTEND = 1
    TERM = 2
    KILL = 3
    WARN = 4
    """The lease is over and the command is left alone, as asked."""


class Step(NamedTuple):
    """What is due now, and how long nothing else will be, unless the lock is lost."""

    act: Act
    wait_s: float


class LeaseWatch:
    """One command's time under its lock. `ran_out` says that it did not end before the lease was taken back."""

    def __init__(self, *, lease_s: float, grace_s: float, extend: bool, leave_alone: bool) -> None:
        self._lease_s = lease_s
        self._grace_s = grace_s
        self._extend = extend
        self._leave_alone = leave_alone
        self._margin_s = min(MARGIN_S, lease_s * MARGIN_SHARE)
        self._extend_from_s = 0.0
        self._kill_s: float | None = None
        self.ran_out = False

    @property
    def ending(self) -> bool:
        """Whether SIGTERM is out."""
        return self._kill_s is not None

    def step(self, now_s: float, remaining_s: float, *, lost: bool) -> Step:
        """What is due at `now_s` (any steady clock) with `remaining_s` left to the conservative end.

        `lost`: the lock is known to be gone before its time; then the key may be another's already.
        """
        if self._kill_s is not None:
            return self._until_kill(now_s, remaining_s)
        if self._leave_alone:
            if (lost or remaining_s <= 0) and not self.ran_out:
                self.ran_out = True
                return Step(Act.WARN, LOOK_S)
        elif lost or remaining_s <= self._grace_s + self._margin_s:
            return self._terminate(now_s, remaining_s)
        if (
            self._extend
            and not lost
            and now_s >= self._extend_from_s
            and remaining_s <= self._lease_s * 2 / 3
        ):
            self._extend_from_s = now_s + min(EXTEND_AGAIN_S, self._lease_s / 10)
            return Step(Act.EXTEND, LOOK_S)
        to_term_s = remaining_s - self._grace_s - self._margin_s
        return Step(Act.NOTHING, min(LOOK_S, max(to_term_s, 0.001)))

    def end_now(self, now_s: float) -> None:
        """What is left of the command after a stop signal gets the same grace."""
        if self._kill_s is None:
            self._kill_s = now_s + self._grace_s

    def _terminate(self, now_s: float, remaining_s: float) -> Step:
        self.ran_out = True
        self._kill_s = now_s + min(self._grace_s, max(remaining_s - self._margin_s, 0.0))
        return Step(Act.TERM, max(self._kill_s - now_s, 0.0))

    def _until_kill(self, now_s: float, remaining_s: float) -> Step:
        assert self._kill_s is not None, "only after SIGTERM"
        if now_s >= self._kill_s or (self.ran_out and remaining_s <= self._margin_s):
            return Step(Act.KILL, KILL_AGAIN_S)
        return Step(Act.NOTHING, min(LOOK_S, self._kill_s - now_s))
