"""The lowest configured place's part in forming a domain: it alone proposes (spec 9, Forming)."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from ticketing.node.first_state import (
    FIRST_TOKEN_MAX,
    QUARANTINE_S,
    FirstState,
    first_members,
    first_token,
    new_domain_id,
    permit_is_fresh,
)
from ticketing.node.forming_messages import (
    Decline,
    Formed,
    FormingMessage,
    Promise,
    Propose,
    Record,
    Recorded,
)
from ticketing.node.forming_process import RESEND_NS, FormingProcess
from ticketing.node.handshake import LinkPeer
from ticketing.node.settings import S

ASK_NS = 600 * S
"""An operator's `form` that could not be followed for this long lapses: what was confirmed may be true no
more.
"""


class Stage(IntEnum):
    """How far a place is in an attempt."""

    ASKED = 0
    PROMISED = 1
    RECORDED = 2


class Attempt:
    """The work on one proposal. `state` is fixed when all have promised; from then on it is only completed."""

    __slots__ = ("declined", "domain_id", "operator", "promises", "sent", "stages", "state", "until_ns")

    def __init__(self, domain_id: str, places: list[str], *, operator: bool) -> None:
        self.domain_id = domain_id
        self.operator = operator
        self.state: FirstState | None = None
        self.until_ns: int | None = None
        """When an operator's word is too old to complete it."""
        self.stages = dict.fromkeys(places, Stage.ASKED)
        self.promises: dict[str, Promise] = {}
        self.declined: dict[str, str] = {}
        self.sent: dict[str, int] = {}
        """When the present stage's question was last sent, elapsed ns."""

    def move(self, place: str, stage: Stage) -> None:
        """A place got to another stage: its next question goes out at once."""
        self.stages[place] = stage
        self.sent.pop(place, None)

    def all_at(self, stage: Stage) -> bool:
        """Whether every place got as far as this."""
        return all(reached >= stage for reached in self.stages.values())


class Ask(NamedTuple):
    """An operator's `form`."""

    first: bool
    first_token: int
    since_ns: int


class Proposer:
    """Works on one proposal at a time, so one life of this process completes its domains one after another."""

    def __init__(self, process: FormingProcess) -> None:
        self._process = process
        self.attempt: Attempt | None = None
        self.ask: Ask | None = None

    def link_down(self, place: str) -> None:
        """A promise lapses with its link; a record stands."""
        attempt = self.attempt
        if attempt is not None and attempt.stages[place] != Stage.RECORDED:
            attempt.move(place, Stage.ASKED)
            attempt.declined.pop(place, None)

    def form(self, *, first: bool, first_token: int, now_ns: int) -> str | None:
        """An operator's `form`: why not, or None where it is under way."""
        if not 0 <= first_token <= FIRST_TOKEN_MAX:
            return f"a first token lies between 0 and {FIRST_TOKEN_MAX}"
        if self._process.host.leader_alive():
            return "the domain of this node has a living leader"
        self.ask = Ask(first, first_token, now_ns)
        return None

    def give_up(self) -> None:
        """This process belongs to another domain now."""
        self.attempt = None
        self.ask = None

    def waiting_for(self) -> list[str]:
        """What is missing, each as `place: what`."""
        process, attempt = self._process, self.attempt
        if attempt is not None and attempt.state is not None:
            return [
                f"{place}: {attempt.declined.get(place, 'has not recorded the first state yet')}"
                for place, stage in attempt.stages.items()
                if stage != Stage.RECORDED
            ]
        operator = self.ask is not None
        if process.member and not operator:
            return []
        missing = [f"{process.settings.place}: {what}" for what in process.own_obstacles(operator=operator)]
        missing += process.seen_obstacles()
        if not operator:
            missing += process.permit_obstacles()
        if attempt is not None:
            missing += [f"{place}: {reason}" for place, reason in attempt.declined.items()]
        return missing

    def receive(self, peer: LinkPeer, message: FormingMessage, now_ns: int) -> None:
        """An answer of another place."""
        process, attempt = self._process, self.attempt
        place = peer.place
        if isinstance(message, Propose | Record | Formed):
            return  # only this place says such things
        if attempt is None or message.domain_id != attempt.domain_id:
            recorded = process.recorded
            if (
                isinstance(message, Recorded)
                and process.formed
                and recorded is not None
                and message.domain_id == recorded.domain_id
            ):
                process.send(peer, Formed(recorded.domain_id))
        elif isinstance(message, Promise):
            if message.proposer == process.incarnation and attempt.stages[place] == Stage.ASKED:
                attempt.promises[place] = message
                attempt.declined.pop(place, None)
                attempt.move(place, Stage.PROMISED)
        elif isinstance(message, Decline):
            if attempt.stages[place] != Stage.RECORDED:
                attempt.move(place, Stage.ASKED)
                attempt.declined[place] = message.reason
                attempt.sent[place] = now_ns
        elif attempt.state is not None and attempt.state.member(place).incarnation == peer.facts.incarnation:
            attempt.declined.pop(place, None)
            attempt.move(place, Stage.RECORDED)

    def turn(self, now_ns: int) -> None:
        """Begins, carries on or gives up an attempt, by what is the case now."""
        self._look_at_ask(now_ns)
        operator = self.ask is not None
        attempt = self.attempt
        if attempt is not None and attempt.until_ns is not None and now_ns > attempt.until_ns:
            attempt = None
            self._process.note(
                f"half formed for {ASK_NS // S} s, given up: what the operator confirmed may be true no more"
            )
        if (
            attempt is not None
            and attempt.state is None
            and (attempt.operator != operator or not self._may_propose(operator=operator))
        ):
            attempt = None
        # An operator's new domain takes the place of a half-formed one only once it can begin.
        replaceable = attempt is None or (attempt.state is not None and operator)
        if replaceable and self._may_propose(operator=operator):
            domain_id = new_domain_id(self._process.host.random_bytes)
            attempt = Attempt(domain_id, self._process.others, operator=operator)
        self.attempt = attempt
        if attempt is not None:
            self._drive(attempt, now_ns)

    def _may_propose(self, *, operator: bool) -> bool:
        process = self._process
        if process.own_obstacles(operator=operator) or process.seen_obstacles():
            return False
        return operator or not process.permit_obstacles()

    def _look_at_ask(self, now_ns: int) -> None:
        if self.ask is None:
            return
        if self._process.host.leader_alive():
            self.ask = None
            self._process.note("the operator's `form` is void: the domain of this node has a living leader")
        elif now_ns - self.ask.since_ns > ASK_NS:
            missing = "; ".join(self.waiting_for())
            self.ask = None
            self._process.note(
                f"the operator's `form` has lapsed after {ASK_NS // S} s; missing was: {missing}"
            )

    def _drive(self, attempt: Attempt, now_ns: int) -> None:
        process, state = self._process, attempt.state
        for place, stage in list(attempt.stages.items()):
            peer = process.peer(place)
            if peer is None or stage == Stage.RECORDED:
                continue
            if state is not None and peer.facts.incarnation != state.member(place).incarnation:
                self.attempt = None
                process.note(
                    f"domain {state.domain} cannot be completed: {place} started anew before it had recorded it; "
                    "`ticketing form` starts over"
                )
                return
            self._ask_place(attempt, peer, stage, now_ns)
        if state is None:
            if attempt.all_at(Stage.PROMISED):
                self._fix(attempt)
        elif not process.storing and attempt.all_at(Stage.RECORDED):
            self.attempt = None
            self.ask = None
            process.become_formed()
            for peer in process.peers():
                process.send(peer, Formed(state.domain_id))

    def _ask_place(self, attempt: Attempt, peer: LinkPeer, stage: Stage, now_ns: int) -> None:
        """Sends the question of the place's stage, unless it is under way."""
        sent_ns = attempt.sent.get(peer.place)
        if sent_ns is not None and now_ns - sent_ns < RESEND_NS:
            return
        if stage == Stage.ASKED:
            settings = self._process.settings
            permit = "" if attempt.operator else settings.permit
            message: FormingMessage = Propose(
                attempt.domain_id, attempt.operator, permit, settings.cluster, settings.delta_ns
            )
        elif attempt.state is not None and not self._process.storing:
            message = Record(attempt.state)
        else:
            return
        attempt.sent[peer.place] = now_ns
        self._process.send(peer, message)

    def _fix(self, attempt: Attempt) -> None:
        """All have promised: the first state is made, and recorded here before anybody else is asked to."""
        process, settings, ask = self._process, self._process.settings, self.ask
        assert (ask is not None) == attempt.operator
        promises = attempt.promises.values()
        earlier = max(process.earlier, *(promise.earlier_first_token for promise in promises))
        floor = max(settings.first_token_floor, ask.first_token if ask is not None else 0)
        token = first_token(process.wall_ms, earlier, floor)
        if token > FIRST_TOKEN_MAX:
            self.attempt = None
            self.ask = None
            process.note(f"no domain can be formed: its first token {token} would be above {FIRST_TOKEN_MAX}")
            return
        if ask is not None:
            serves_at_once = ask.first
        else:
            fresh = permit_is_fresh(settings.permit_made_ms, process.wall_ms)
            serves_at_once = fresh and all(promise.permit_fresh for promise in promises)
        incarnations = {peer.place: peer.facts.incarnation for peer in process.peers()}
        incarnations[settings.place] = process.incarnation
        attempt.state = FirstState(
            domain_id=attempt.domain_id,
            first_token=token,
            members=first_members(settings, incarnations),
            delta_ns=settings.delta_ns,
            quarantine_s=0 if serves_at_once else QUARANTINE_S,
            permit="" if attempt.operator else settings.permit,
            cluster=settings.cluster,
            formed_wall_ms=process.wall_ms,
        )
        attempt.until_ns = ask.since_ns + ASK_NS if ask is not None else None
        self.ask = None
        process.record(attempt.state)
