"""A process without membership asks for its place (spec 9, Rejoin): the asking side.

It asks the configured places in turn until one that leads answers, then that one every second, until it is
taken in; what each has said is kept for whoever looks at it. A leader whose place has moved since this process
was configured is dialled where a member says that it is. Nothing is given up: a process that waits costs nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from ticketing.node.members import Members
from ticketing.node.membership_messages import (
    TEXT_MAX,
    JoinAnswer,
    JoinApplied,
    JoinAsk,
    JoinTaken,
    Verdict,
)
from ticketing.node.settings import NodeSettings, Place, S
from ticketing.raft.types import MS, Member

ASK_EVERY_NS = 1 * S
NEXT_PLACE_NS = 200 * MS
"""How soon the next place is asked after one has answered that it does not lead."""
DENIED_AGAIN_NS = 5 * S
REPORT_EVERY_NS = 1 * S

REMOVED = 12
"""Exit status of a process that is not to be started again (command line: exit codes)."""
START_AGAIN = 13
"""Exit status of a process that an operator told to stop for a new one to take its place: what supervises it starts
that, though it stopped in good order.
"""
FAILED = 1


class Ask(NamedTuple):
    """Send this to the process at that place."""

    place: str
    message: JoinAsk


class Taken(NamedTuple):
    """This process is a learner from now on."""

    message: JoinTaken


class LeaderAt(NamedTuple):
    """Dial the leader of that place there, too. It has to prove itself as any peer does: with the peer secret, and
    with TLS by a certificate for the host that is dialled.
    """

    place: str
    address: str


class Stop(NamedTuple):
    """End the process."""

    status: int
    reason: str


class AskedView(msgspec.Struct, frozen=True, kw_only=True):
    """One place as the asking process sees it, for status and log."""

    place: str
    address: str
    linked: bool
    said: str
    """What it said last, or why it could not be asked; empty before the first time."""
    said_ago_ns: int | None = None


class _Asked:
    """One place that is asked."""

    __slots__ = ("address", "links", "place", "said", "said_ns")

    def __init__(self, place: Place) -> None:
        self.place = place
        self.address = place.peer
        """Where it is to be reached, as far as is known."""
        self.links: set[int] = set()
        """Incarnations of its processes to which a link is up: a former one may still live at another address."""
        self.said = ""
        self.said_ns: int | None = None

    def note(self, text: str, now_ns: int) -> None:
        self.said = text
        self.said_ns = now_ns


def refusal(settings: NodeSettings) -> str | None:
    """Why a process that may not rejoin (`--no-rejoin`) does not start, None where it may start."""
    if settings.rejoin or settings.standalone or not settings.earlier_domain:
        return None
    return (
        f"{settings.place} has been part of domain {settings.earlier_domain} and is told not to rejoin: start it "
        f"with `ticketing node start` without --no-rejoin to take its place again under a new NodeId, or fill the "
        f"place from elsewhere with `ticketing node replace --node {settings.place}`"
    )


def asks(settings: NodeSettings, *, domain_lives: bool) -> bool:
    """Whether this process asks for its place, as it stands without membership.

    It does where an earlier one ended (a record), or without a valid permit. A permit is for one forming:
    where another place is a member of a domain already (`domain_lives`), it has been used without this
    process.
    """
    if not settings.rejoin or settings.standalone:
        return False
    return bool(settings.earlier_domain) or not settings.permit or domain_lives


class Rejoin:
    """Made by a process without membership that `asks`; dropped when it is a member."""

    def __init__(
        self,
        settings: NodeSettings,
        incarnation: int,
        now_ns: int,
        *,
        command_id: str = "",
        who: str = "",
        why: str = "",
    ) -> None:
        """`command_id`, `who`, `why`: of the operator's command that this process was prepared by, if any."""
        own = next(place for place in settings.places if place.name == settings.place)
        self._message = JoinAsk(
            own.name,
            incarnation,
            own.client,
            own.peer,
            own.admin,
            command_id[:64],
            who[:TEXT_MAX],
            (why or ("started again" if settings.earlier_domain else "started without record"))[:TEXT_MAX],
        )
        self._earlier_first_token = settings.earlier_first_token
        self._asked = {place.name: _Asked(place) for place in settings.places if place.name != own.name}
        self._order = list(self._asked)
        self._turn = 0
        self._leader = ""
        """The place that is asked while it answers: it leads, or is said to."""
        self._named = ""
        """The place that was named as the leader's and to which no link was up then."""
        self._unanswered = ""
        """The place asked last, until it answers."""
        self._next_ns = now_ns

    def linked(self, place: str, incarnation: int, now_ns: int) -> None:
        """A link to a process of a place came up."""
        asked = self._asked.get(place)
        if asked is None:
            return
        asked.links.add(incarnation)
        if place == self._named:
            self._named = ""
            self._leader = place
            self._next_ns = now_ns

    def parted(self, place: str, incarnation: int, now_ns: int) -> None:
        """The link to a process of a place is over."""
        asked = self._asked.get(place)
        if asked is None:
            return
        asked.links.discard(incarnation)
        if not asked.links:
            self._down(asked, "no link", now_ns)

    def turned_away(self, place: str, text: str, now_ns: int) -> None:
        """A link to a place was refused in its handshake."""
        asked = self._asked.get(place)
        if asked is not None and not asked.links:
            self._down(asked, text, now_ns)

    def _down(self, asked: _Asked, text: str, now_ns: int) -> None:
        asked.note(text, now_ns)
        if asked.place.name == self._leader:
            self._leader = ""
            self._next_ns = min(self._next_ns, now_ns + NEXT_PLACE_NS)

    def step(self, now_ns: int) -> Ask | None:
        """Whom to ask now, if anybody; to be called at every tick."""
        if now_ns < self._next_ns:
            return None
        if self._unanswered == self._leader:
            self._leader = ""  # a leader that says nothing leads no more
        place = self._leader or self._next_linked()
        if not place:
            return None
        self._unanswered = place
        self._next_ns = now_ns + ASK_EVERY_NS
        return Ask(place, self._message)

    def _next_linked(self) -> str:
        for _ in self._order:
            place = self._order[self._turn % len(self._order)]
            self._turn += 1
            if self._asked[place].links:
                return place
        return ""

    def receive(
        self, place: str, message: JoinAnswer | JoinTaken, now_ns: int
    ) -> Taken | Stop | LeaderAt | None:
        """A place answers."""
        asked = self._asked.get(place)
        if asked is None or message.incarnation != self._message.incarnation:
            return None
        if place == self._unanswered:
            self._unanswered = ""
        if isinstance(message, JoinTaken):
            return self._taken(asked, message, now_ns)
        asked.note(f"{message.verdict}: {message.text}", now_ns)
        match message.verdict:
            case Verdict.UNDONE:
                return Stop(REMOVED, message.text)
            case Verdict.WAITING:
                self._leader = place
            case Verdict.DENIED:
                self._leader = place
                self._next_ns = now_ns + DENIED_AGAIN_NS
            case Verdict.NOT_LEADING:
                return self._named_by(message, now_ns)
        return None

    def _named_by(self, message: JoinAnswer, now_ns: int) -> LeaderAt | None:
        """Somebody who does not lead answers; it may know who does, and where."""
        self._leader = self._named = ""
        self._next_ns = min(self._next_ns, now_ns + NEXT_PLACE_NS)
        named = self._asked.get(message.leader)
        if named is None:
            return None
        if message.leader_peer not in ("", named.address):
            # Whoever is at the former address, if anybody, is not the leader.
            named.address = message.leader_peer
            self._named = message.leader
            return LeaderAt(message.leader, message.leader_peer)
        if named.links:
            self._leader = message.leader
        else:
            self._named = message.leader
        return None

    def _taken(self, asked: _Asked, message: JoinTaken, now_ns: int) -> Taken | None:
        if message.place != self._message.place:
            return None
        if message.first_token < self._earlier_first_token:
            # Tokens must only rise: whoever leads an older domain has been overtaken and does not know it.
            asked.note(
                f"its domain {message.first_token}.{message.domain_id} is older than the one recorded here",
                now_ns,
            )
            self._leader = ""
            return None
        asked.note(f"taken in as {message.node_id}", now_ns)
        return Taken(message)

    def views(self, now_ns: int) -> list[AskedView]:
        """What was asked and what was said, in configured order."""
        return [
            AskedView(
                place=place,
                address=asked.address,
                linked=bool(asked.links),
                said=asked.said,
                said_ago_ns=None if asked.said_ns is None else now_ns - asked.said_ns,
            )
            for place, asked in self._asked.items()
        ]


def removed(why: str, *, voted: bool) -> Stop:
    """What a member does that is told of its removal. `voted`: it was a voter in some configuration of its
    own log.

    One that never was (a learner given up) has lost nothing but its number: it ends as failed, so that
    whatever supervises it starts it anew, and the new process asks again.
    """
    if voted:
        return Stop(REMOVED, f"removed from the cluster: {why}")
    return Stop(FAILED, f"given up before it became a voter: {why}; a new start asks again")


class AppliedReport:
    """The newest voter tells whoever leads that it has applied its configuration: only then is its
    replacement over.

    It is said again every second, for as long as it is the newest: a later leader may not know of it.
    """

    def __init__(self) -> None:
        self._said: tuple[Member, int] | None = None
        self._again_ns = 0

    def due(
        self,
        now_ns: int,
        me: Member,
        leader: Member | None,
        members: Members,
        configuration_index: int,
        applied_index: int,
    ) -> JoinApplied | None:
        """The report to be sent to `leader` now. `configuration_index`: of the newest configuration applied
        here.

        What is said is how far this process has applied: whoever has the configuration from a snapshot knows
        it by that snapshot's index, which is above that of the entry.
        """
        if leader is None or leader == me or members.newest_swap != me.node_id:
            return None
        said = (leader, configuration_index)
        if said == self._said and now_ns < self._again_ns:
            return None
        self._said = said
        self._again_ns = now_ns + REPORT_EVERY_NS
        return JoinApplied(me.node_id, applied_index)
