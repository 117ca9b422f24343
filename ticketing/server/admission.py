"""Who may stand at the door: the pool of connections that have not authenticated yet (spec 3, Handshake).

Bookkeeping alone: it says what is to be closed and which TLS handshake may begin, and closes and begins
nothing itself. Times are seconds of any clock that does not go back.

A TLS handshake counts as running from when its first record is complete until it is done: what costs the
loop's time is counted, and a peer that only connected, or sends half a record, holds up nobody.
"""

from __future__ import annotations

from typing import Any

from ticketing.server.settings import ShellLimits


class Applicant:
    """One connection at the door."""

    __slots__ = ("heard", "inside", "owner", "source")

    def __init__(self, source: str, owner: Any = None) -> None:
        self.source = source
        """Address without port."""
        self.owner = owner
        """The connection itself, for whoever has to close it."""
        self.heard = 0.0
        """When it arrived, or last came a step further: bytes that complete nothing are silence."""
        self.inside = False
        """Stands in the pool."""


class Admission:
    """The pool. Invariants: at most `unauthenticated` inside, at most `unauthenticated_per_source` of one
    source, at most `tls_handshakes` running; whoever runs or waits is inside.
    """

    def __init__(self, limits: ShellLimits) -> None:
        self._limits = limits
        self._by_source: dict[str, dict[Applicant, None]] = {}
        self._inside: dict[Applicant, None] = {}
        """In order of arrival."""
        self._running: dict[Applicant, None] = {}
        """In order of beginning."""
        self._waiting: dict[Applicant, None] = {}
        """In order of becoming ready."""

    def __len__(self) -> int:
        return len(self._inside)

    @property
    def running_count(self) -> int:
        """TLS handshakes under way."""
        return len(self._running)

    @property
    def congested(self) -> bool:
        """So many handshakes wait already that newcomers had better wait in the kernel's backlog."""
        return len(self._waiting) >= self._limits.tls_handshakes

    @property
    def waiting_count(self) -> int:
        """TLS handshakes that could begin."""
        return len(self._waiting)

    def arrive(self, applicant: Applicant, now: float) -> tuple[bool, Applicant | None]:
        """Whether the newcomer is let in, and who is to be closed to make room (already taken out of the
        pool).
        """
        limits = self._limits
        of_source = self._by_source.get(applicant.source)
        victim: Applicant | None = None
        if of_source is not None and len(of_source) >= limits.unauthenticated_per_source:
            victim = self._oldest_silent(of_source, now)
        elif len(self._inside) >= limits.unauthenticated:
            victim = self._oldest_silent(self._inside, now)
        else:
            self._enter(applicant, now)
            return True, None
        if victim is None:
            return False, None
        self.leave(victim)
        self._enter(applicant, now)
        return True, victim

    def heard(self, applicant: Applicant, now: float) -> None:
        """It has come a step further: its first record is whole, its TLS handshake begins or is done."""
        applicant.heard = now

    def leave(self, applicant: Applicant) -> None:
        """It has authenticated, was refused, or is gone; harmless when it left before."""
        if not applicant.inside:
            return
        applicant.inside = False
        del self._inside[applicant]
        of_source = self._by_source[applicant.source]
        del of_source[applicant]
        if not of_source:
            del self._by_source[applicant.source]
        self._waiting.pop(applicant, None)
        self._running.pop(applicant, None)

    def handshake_ready(self, applicant: Applicant) -> None:
        """Its TLS handshake can begin."""
        assert applicant.inside
        assert applicant not in self._running
        self._waiting[applicant] = None

    def next_handshake(self, now: float) -> tuple[Applicant | None, Applicant | None]:
        """Whose handshake may begin now, and who is to be closed for it: silent for too long in a handshake
        of its own while others wait (already taken out of the pool).
        """
        if not self._waiting:
            return None, None
        victim: Applicant | None = None
        if len(self._running) >= self._limits.tls_handshakes:
            victim = self._oldest_silent(self._running, now)
            if victim is None:
                return None, None
            self.leave(victim)
        applicant = next(iter(self._waiting))
        del self._waiting[applicant]
        self._running[applicant] = None
        return applicant, victim

    def handshake_done(self, applicant: Applicant) -> None:
        """Its TLS handshake is over, whatever came of it."""
        self._running.pop(applicant, None)

    def _enter(self, applicant: Applicant, now: float) -> None:
        applicant.heard = now
        applicant.inside = True
        self._inside[applicant] = None
        self._by_source.setdefault(applicant.source, {})[applicant] = None

    def _oldest_silent(self, among: dict[Applicant, None], now: float) -> Applicant | None:
        latest = now - self._limits.silent_s
        for applicant in among:
            if applicant.heard < latest:
                return applicant
        return None
