"""The errands that one session has sent and that are without an answer, and what it has given up.

Answers are matched by the number and the key that they echo. Owners have their top bit set and tokens have not, so
one table holds releases and cancels. Extensions of one token are not told apart by their answers.
"""

from __future__ import annotations

from typing import Protocol

from ticketing.client.alarm import NEVER
from ticketing.client.requests import Errand, Extension
from ticketing.protocol.frames import EXTENDED, RELEASED

GAVE_UP_MAX = 65_536
"""Requests that were given up and are not answered yet. The oldest beyond that are past any answer."""
EXTENSIONS_MAX = 64
"""Tries of one token without an answer; more are not sent on this session."""

Ident = tuple[int, bytes]
"""Owner or token, and key."""


class ErrandKeeper(Protocol):
    """Whom errands come back to."""

    def answered(self, errand: Errand, outcome: int) -> None:
        """The opcode of the answer."""

    def back(self, errand: Errand) -> None:
        """Not answered in time, or the session ended: to be tried again."""


class Pending:
    """See the module."""

    __slots__ = ("_extensions", "_gave_up", "_joined", "_keeper", "_open")

    def __init__(self, keeper: ErrandKeeper) -> None:
        self._keeper = keeper
        self._open: dict[Ident, Errand] = {}
        self._joined: dict[Ident, list[Errand]] = {}
        """Errands whose very frame is under way already for another: one answer is for all."""
        self._extensions: dict[int, list[tuple[Extension, int, int]]] = {}
        """By token, in the order in which they were sent: with the moment before that, and the lease."""
        self._gave_up: dict[Ident, None] = {}

    @property
    def awaits(self) -> bool:
        """Whether anything may still be answered, given up or not."""
        return bool(self._open or self._extensions or self._gave_up)

    def sending(self, errand: Errand, now: int) -> bool:
        """Takes an errand that is about to be sent; False where it is not to be, as the same is under way."""
        if isinstance(errand, Extension):
            tries = self._extensions.setdefault(errand.ident, [])
            if len(tries) >= EXTENSIONS_MAX:
                return False
            errand.sent_ns = now
            tries.append((errand, now, errand.lease))
            return True
        ident = (errand.ident, errand.key)
        if ident in self._open:
            self._joined.setdefault(ident, []).append(errand)
            return False
        self._open[ident] = errand
        return True

    def answer(self, opcode: int, number: int, key: bytes) -> bool:
        """Takes an `R`, `N` or `X`; False where it answers nothing that was sent here.

        Where an extension and a release of one token are under way, an `N` is the extension's, which was sent first:
        once a ticket is being released it is not extended any more.
        """
        if opcode != RELEASED and number in self._extensions and self._extended(opcode, number, key):
            return True
        ident = (number, key)
        errand = self._open.pop(ident, None) if opcode != EXTENDED else None
        if errand is None:
            return self.was_given_up(ident)
        self._keeper.answered(errand, opcode)
        if self._joined:
            for other in self._joined.pop(ident, ()):
                self._keeper.answered(other, opcode)
        return True

    def _extended(self, opcode: int, token: int, key: bytes) -> bool:
        """Whichever of them it answers, it is counted from the first byte of the earliest that is unanswered, and
        with the least lease among them.
        """
        tries = self._extensions[token]
        if not tries or tries[0][0].key != key:
            return False
        moment = tries[0][1]
        lease = min(lease for _, _, lease in tries)
        extension = next((extension for extension, _, _ in tries if not extension.over), None)
        del tries[0]
        if not tries:
            del self._extensions[token]
        if extension is not None:
            extension.moment_ns = moment
            extension.lease = lease
            self._keeper.answered(extension, opcode)
        return True

    # --- giving up

    def give_up(self, ident: Ident) -> None:
        """An answer to this is no fault from now on, and drops."""
        self._gave_up[ident] = None
        if len(self._gave_up) > GAVE_UP_MAX:
            del self._gave_up[next(iter(self._gave_up))]

    def was_given_up(self, ident: Ident) -> bool:
        """Whether this is the answer to something given up. There is one answer at most."""
        if ident not in self._gave_up:
            return False
        del self._gave_up[ident]
        return True

    def forget(self, errand: Errand) -> None:
        """Its own time is over; others that joined it still want the answer."""
        errand.session = None
        if isinstance(errand, Extension):
            return
        ident = (errand.ident, errand.key)
        joined = self._joined.get(ident, [])
        if errand in joined:
            joined.remove(errand)
        elif self._open.get(ident) is errand:
            if joined:
                heir = joined.pop(0)
                heir.answer_by_ns = errand.answer_by_ns
                heir.fatal = errand.fatal
                self._open[ident] = heir
            else:
                del self._open[ident]
                self.give_up(ident)
        if not joined:
            self._joined.pop(ident, None)

    def due(self, now: int) -> tuple[int, list[Errand]]:
        """When to look again, and what is unanswered after its time."""
        earliest = NEVER
        late: list[Errand] = []
        for errand in self._open.values():
            if now >= errand.answer_by_ns:
                late.append(errand)
            elif errand.answer_by_ns < earliest:
                earliest = errand.answer_by_ns
        for tries in self._extensions.values():
            for extension, sent_ns, _ in tries:
                # Only its latest try can be due; earlier ones were given up.
                if extension.over or extension.session is None or extension.sent_ns != sent_ns:
                    continue
                if now >= extension.answer_by_ns:
                    late.append(extension)
                elif extension.answer_by_ns < earliest:
                    earliest = extension.answer_by_ns
        return earliest, late

    def send_back(self, late: list[Errand]) -> None:
        """Gives up these tries; the errands go on, on whatever session."""
        for errand in late:
            joined = self._joined.pop((errand.ident, errand.key), [])
            self.forget(errand)
            self._keeper.back(errand)
            for other in joined:
                other.session = None
                self._keeper.back(other)

    def drain(self) -> list[Errand]:
        """The session is over: all that is without an answer, each once."""
        errands = dict.fromkeys(self._open.values())
        for joined in self._joined.values():
            errands.update(dict.fromkeys(joined))
        for tries in self._extensions.values():
            errands.update((extension, None) for extension, _, _ in tries if extension.session is not None)
        for table in (self._open, self._joined, self._extensions, self._gave_up):
            table.clear()
        return list(errands)
