"""Which domain the client follows (spec 9): the one with the highest first token that serves.

A domain is one formed cluster life. Tickets of a domain that is over are lost, and nothing of it can be
released. The choice is the broker's and outlives a change of its loop.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import Enum

from ticketing.protocol.handshake import Banner

AHEAD_MAX_S = 60 * 86_400
"""A first token is dated; one from further in the future than this is refused. Each forming anew adds at most
12 days."""


class Verdict(Enum):
    """What to do with a session whose node serves or names a serving leader."""

    FOLLOWED = "followed"
    """It is the domain that is followed."""
    NEWER = "newer"
    """Now it is; the one before is over."""
    OLDER = "older"
    """It is not to be used."""
    REFUSED = "refused"
    """The session has to be closed: another domain of the same first token, or a date that cannot be."""


class Domains:
    """The domain that is followed, if any yet."""

    __slots__ = ("_allow_ahead", "_first_token", "_standalone", "_wall_clock", "current", "reason")

    def __init__(self, allow_ahead: bool = False, wall_clock: Callable[[], float] = time.time) -> None:
        self.current: str | None = None
        """As shown everywhere: `<first token>.<16 hex digits>`."""
        self.reason = ""
        """Why the latest verdict was REFUSED."""
        self._first_token = 0
        self._standalone = False
        self._allow_ahead = allow_ahead
        self._wall_clock = wall_clock

    def is_over(self, domain: str | None) -> bool:
        """Whether another domain is followed in place of this one."""
        return domain != self.current and domain is not None and self.current is not None

    def judge(self, banner: Banner) -> Verdict:
        """Judges the domain of a session, and follows it where it is newer.

        A banner without a domain, as published servers have it, is followed until there is one with.
        """
        domain = banner.domain
        if domain is None:
            return Verdict.FOLLOWED if self.current is None else Verdict.OLDER
        if domain == self.current:
            return Verdict.FOLLOWED
        first_token = banner.first_token
        assert first_token is not None, banner
        # The upper bits of a first token are Unix seconds (spec 2).
        if not self._allow_ahead and (first_token >> 20) > self._wall_clock() + AHEAD_MAX_S:
            self.reason = f"the domain {domain} is dated more than 60 days ahead of this machine's clock"
            return Verdict.REFUSED
        if self.current is None:
            verdict = Verdict.FOLLOWED
        elif first_token == self._first_token:
            self.reason = f"the domain {domain} has the same first token as {self.current}"
            return Verdict.REFUSED
        elif (not banner.standalone, first_token) < (not self._standalone, self._first_token):
            return Verdict.OLDER
        else:
            verdict = Verdict.NEWER
        self.current = domain
        self._first_token = first_token
        self._standalone = banner.standalone
        return verdict
