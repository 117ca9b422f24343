"""Asking again for what one holds already: only where `legacy_resend` is set (spec 5, owner = holder or
waiter).

Published 0.3.0 programs repeat a request, owner and all, when its answer was lost. Where their operator has
declared that they never fork after import, such a repetition is answered with the token that is there. This
needs the session of every grant, some 100 bytes for each key held: without the setting nothing of it is kept.
"""

from __future__ import annotations

from ticketing.locks.held import Held
from ticketing.locks.keystate import RESEND, Ask
from ticketing.locks.session import DeskSession
from ticketing.locks.waiting import Waiter


class Resends:
    """Who was told of each grant of this term."""

    def __init__(self) -> None:
        self._sessions: dict[int, DeskSession] = {}
        self._handed: dict[int, None] = {}
        self.asked: dict[bytes, dict[Ask, None]] = {}
        """By key: what `ask` made and no barrier has brought back yet."""
        self.unhanded: dict[int, bytes] = {}
        """Token → key: grants whose session ended before a byte of its answer left. Whoever asks again for
        one keeps it from being released, for as long as that request lasts.
        """

    def granted(self, token: int, session: DeskSession) -> None:
        """A grant of this term was applied for `session`."""
        self._sessions[token] = session

    def ended(self, token: int) -> None:
        """`token` holds no more."""
        self._sessions.pop(token, None)
        self._handed.pop(token, None)
        self.unhanded.pop(token, None)

    def session_of(self, token: int) -> DeskSession | None:
        """The session that was told of the grant last; None for a grant of an earlier term."""
        return self._sessions.get(token)

    def is_lost(self, token: int) -> bool:
        """Whether the grant's session has ended here or the grant is from an earlier term."""
        session = self._sessions.get(token)
        return session is None or session.ended

    def ask(self, waiter: Waiter, held: Held) -> Ask:
        """`waiter` as a request that waits for a barrier and then gets the holder's token."""
        assert waiter.owner == held.owner
        ask = Ask(RESEND, waiter.session, held.token, held.key)
        ask.waiter = waiter
        self.asked.setdefault(held.key, {})[ask] = None
        return ask

    def brought_back(self, ask: Ask) -> None:
        """The barrier of `ask` has passed."""
        asked = self.asked[ask.key]
        del asked[ask]
        if not asked:
            del self.asked[ask.key]

    def answered(self, token: int, session: DeskSession) -> None:
        """`session` was told of `token`, which had been granted to another one."""
        if token in self.unhanded:
            del self.unhanded[token]
        else:
            self._handed[token] = None
        self._sessions[token] = session

    def may_have_been_read(self, token: int) -> bool:
        """Whether an answer with this token was handed to some transport before the present one."""
        return token in self._handed
