"""How a domain comes to exist (spec 9, Forming). Sans-I/O; the node hands in links, messages, time and what
it knows.

Nothing forms from mere absence of state: a permit or an operator's `form` must ask for it. The lowest
configured place alone proposes. Two rounds: all promise, nothing written; then all record durably, the
proposer first, and answer. Whoever has every answer knows that the domain is formed; nobody campaigns before.

What keeps two domains apart: - a domain is complete only if one process life of the lowest place heard
Recorded from every place, and it works on one proposal at a time; - a record ends both the recorder's
membership in any earlier domain, before it is answered for, and its permit; - a record is only ever made
under a promise to the same life of the proposer that is still linked.

A proposal whose record stands somewhere is carried on with, whatever links break, until it is complete, or a
place that had not recorded it starts anew: then it can never be, and only an operator's `form` starts over.
"""

from __future__ import annotations

from typing import NamedTuple

from ticketing.node.first_state import (
    FIRST_TOKEN_MAX,
    QUARANTINE_S,
    FirstState,
    first_members,
    first_token,
    permit_is_fresh,
)
from ticketing.node.forming_messages import (
    REASON_MAX,
    Decline,
    Formed,
    FormingMessage,
    Promise,
    Propose,
    Record,
    Recorded,
)
from ticketing.node.forming_process import (
    LEADERLESS_NS,
    RESEND_NS,
    FormingHost,
    FormingOutput,
    FormingProcess,
)
from ticketing.node.forming_proposer import Proposer
from ticketing.node.handshake import LinkPeer
from ticketing.node.settings import NodeSettings
from ticketing.raft.types import MS


class Forming:
    """One process's part in forming a domain, as proposer (the lowest configured place) or not.

    Every input may produce output; `take_output` after each. A peer is *up* from when messages can be sent to
    that process until a link with it, either way, ends. `tick` is due at `next_deadline_ns`, and also helps
    when a clock was compared or the leader changed.
    """

    def __init__(self, settings: NodeSettings, incarnation: int, host: FormingHost, now_ns: int) -> None:
        self._process = FormingProcess(settings, incarnation, host, now_ns)
        leads = settings.place == settings.places[0].name
        self._proposer = Proposer(self._process) if leads else None
        self._founder = None if leads else _Founder(self._process, now_ns)

    # --- facts

    @property
    def permit(self) -> str:
        """The permit as others are to see it (`LinkFacts.permit`): empty once this folder holds any record.

        A record voids every permit beside it, also one that no forming has used: or processes that all
        restart within an hour of `init`, after a `form`, would form a domain without waiting for the leases
        of theirs.
        """
        return self._process.permit

    @property
    def recorded(self) -> FirstState | None:
        """The first state that this process life has recorded last, formed or not. Being stored counts."""
        return self._process.recorded

    @property
    def storing(self) -> bool:
        """Whether `recorded` is not on disk yet."""
        return self._process.storing

    @property
    def formed(self) -> bool:
        """Whether the recorded first state is known to be recorded by all."""
        return self._process.formed

    @property
    def asks_for_place(self) -> bool:
        """Whether this process should ask a domain for its place (spec 9, Rejoin).

        Without membership and without valid permit. A permit is not valid either where a peer is a member
        already: that peer's domain has used it, and this folder lost its record. A half-formed process
        without leader asks as well once it sees a member of another domain: what was begun in its stead did
        not come about.
        """
        process = self._process
        domains = [peer.domain for peer in process.peers() if peer.domain]
        recorded = process.recorded
        if recorded is not None and not process.formed and not process.storing:
            seen = any(domain != recorded.domain_id for domain in domains)
            return seen and process.leaderless_ns >= LEADERLESS_NS
        if process.member:
            return False
        return not process.permit or bool(domains)

    @property
    def next_deadline_ns(self) -> int:
        """When `tick` is due, on the elapsed clock."""
        return self._process.observed_ns + RESEND_NS

    @property
    def waiting_for(self) -> list[str]:
        """What is missing before a domain can form, each as `place: what`, as far as this process can see."""
        if self._proposer is not None:
            return self._proposer.waiting_for()
        assert self._founder is not None
        return self._founder.waiting_for()

    @property
    def state_text(self) -> str:
        """One line for status."""
        process = self._process
        if process.member:
            if process.leaderless_ns >= LEADERLESS_NS:
                return process.leaderless_text()
            if process.recorded is None or process.formed:
                return "formed"
            return f"recorded the first state of {process.recorded.domain}, waits until all have"
        if self._proposer is not None and self._proposer.ask is not None:
            return "forms a domain because an operator asked for it"
        if not process.permit:
            return "without permit: waits to be taken in, or for the operator's `ticketing form`"
        return "has a permit, waits to form a domain together with the others"

    # --- inputs

    def peer_up(self, peer: LinkPeer, now_ns: int) -> None:
        """A process of another place is up."""
        self._lapse(peer.place)
        self._process.link_up(peer)
        self._turn(now_ns)

    def peer_down(self, peer: LinkPeer, now_ns: int) -> None:
        """It is not any more. Promises between it and this process, either way, are void."""
        self._lapse(peer.place)
        self._process.link_down(peer)
        self._turn(now_ns)

    def receive(self, peer: LinkPeer, message: FormingMessage, now_ns: int, wall_ms: int) -> None:
        """A message of a proved peer. What comes from a process that is not up is dropped: it is said again."""
        self._process.wall_ms = wall_ms
        self._process.observe(now_ns)
        if peer.place in self._process.others:
            up = self._process.peer(peer.place)
            if up is not None and up.facts.incarnation == peer.facts.incarnation:
                if self._proposer is not None:
                    self._proposer.receive(up, message, now_ns)
                elif self._founder is not None:
                    self._founder.receive(up, message)
        self._turn(now_ns)

    def operator_form(self, *, first: bool, first_token: int, now_ns: int) -> str | None:
        """The operator confirmed that every old process has stopped. Why not, or None: then it is under way.

        `first`: no locks were held before, so the domain serves at once. `first_token`: the operator's own
        number, 0 for none. What hinders shows in `waiting_for`; after 10 minutes an ask that could not be
        followed lapses.
        """
        if self._proposer is None:
            return f"only {self._process.settings.places[0].name} proposes a domain: ask there"
        self._process.observe(now_ns)
        reason = self._proposer.form(first=first, first_token=first_token, now_ns=now_ns)
        self._turn(now_ns)
        return reason

    def stored(self, now_ns: int) -> None:
        """The first state that was to be stored is on disk."""
        process = self._process
        assert process.storing
        process.storing = False
        if self._founder is not None:
            self._founder.answer_recorded()
        self._turn(now_ns)

    def domain_heard(self, domain_id: str, now_ns: int) -> None:
        """A member of that domain has sent a Raft message: so it exists, all have recorded it."""
        process = self._process
        recorded = process.recorded
        # The proposer itself is formed before anybody can campaign.
        if self._founder is not None and recorded is not None and recorded.domain_id == domain_id:
            self._founder.domain_exists()
        self._turn(now_ns)

    def rejoined(self, now_ns: int) -> None:
        """A domain has taken this process in; what it had half formed goes on without it, if at all."""
        self._process.forget()
        if self._proposer is not None:
            self._proposer.give_up()
        self._turn(now_ns)

    def tick(self, now_ns: int, wall_ms: int) -> None:
        """Time has passed, or something that this process is asked through `FormingHost` has changed."""
        self._process.wall_ms = wall_ms
        self._turn(now_ns)

    def take_output(self) -> FormingOutput:
        """Everything since the last call."""
        return self._process.take_output()

    def _lapse(self, place: str) -> None:
        if place not in self._process.others:
            return
        if self._proposer is not None:
            self._proposer.link_down(place)
        elif self._founder is not None:
            self._founder.link_down(place)

    def _turn(self, now_ns: int) -> None:
        self._process.observe(now_ns)
        if self._proposer is not None:
            self._proposer.turn(now_ns)
        elif self._founder is not None:
            self._founder.turn(now_ns)


class _Promised(NamedTuple):
    """What this process has promised, and to which life of the proposer."""

    proposer: int
    domain_id: str
    operator: bool


class _Founder:
    """The part of every other place: answers the lowest one."""

    def __init__(self, process: FormingProcess, now_ns: int) -> None:
        self._process = process
        self._lowest = process.settings.places[0].name
        self._promised: _Promised | None = None
        self._reminded_ns = now_ns

    def link_down(self, place: str) -> None:
        """A promise lapses with the link to the proposer."""
        if place == self._lowest:
            self._promised = None

    def waiting_for(self) -> list[str]:
        """What is missing, each as `place: what`, as far as this process can see."""
        process = self._process
        if process.member:
            half = process.recorded is not None and not process.formed
            return [f"{self._lowest}: to say that all have recorded the first state"] if half else []
        operator = self._promised is not None and self._promised.operator
        missing = [f"{process.settings.place}: {what}" for what in process.own_obstacles(operator=operator)]
        missing += process.seen_obstacles()
        if not operator:
            missing += process.permit_obstacles()
        return missing or [f"{self._lowest}: proposes the first state"]

    def receive(self, peer: LinkPeer, message: FormingMessage) -> None:
        """A message of another place; only the lowest has anything to say."""
        if peer.place != self._lowest:
            return
        recorded = self._process.recorded
        known = recorded.domain_id if recorded is not None else ""
        if isinstance(message, Propose):
            if message.domain_id == known:
                self.answer_recorded()
            else:
                self._answer_proposal(peer, message)
        elif isinstance(message, Record):
            if message.state.domain_id == known:
                self.answer_recorded()
            else:
                self._answer_record(peer, message.state)
        elif isinstance(message, Formed) and message.domain_id == known:
            self.domain_exists()

    def turn(self, now_ns: int) -> None:
        """Repeats that the record stands until it is known to be complete: a link may have swallowed either."""
        if now_ns - self._reminded_ns >= RESEND_NS:
            self._reminded_ns = now_ns
            if not self._process.formed:
                self.answer_recorded()

    def domain_exists(self) -> None:
        """Somebody knows that all have recorded what is recorded here."""
        if not self._process.storing and not self._process.formed:
            self._process.become_formed()

    def answer_recorded(self) -> None:
        """Says that the record stands, to the life of the proposer whose proposal it was."""
        recorded = self._process.recorded
        peer = self._process.peer(self._lowest)
        if recorded is None or self._process.storing or peer is None:
            return
        if peer.facts.incarnation == recorded.members[0].incarnation:
            self._process.send(peer, Recorded(recorded.domain_id))

    def _answer_proposal(self, peer: LinkPeer, proposal: Propose) -> None:
        process, settings = self._process, self._process.settings
        self._promised = None
        reasons = process.own_obstacles(operator=proposal.operator) + process.seen_obstacles()
        if not proposal.operator and process.permit and proposal.permit != process.permit:
            reasons.append(f"has another permit than {self._lowest}")
        if proposal.cluster != settings.cluster:
            reasons.append(f"has another configuration than {self._lowest}")
        if proposal.delta_ns != settings.delta_ns:
            reasons.append(
                f"has a Δ of {settings.delta_ns // MS} ms, {self._lowest} one of {proposal.delta_ns // MS} ms"
            )
        if reasons:
            self._decline(peer, proposal.domain_id, reasons)
            return
        incarnation = peer.facts.incarnation
        self._promised = _Promised(incarnation, proposal.domain_id, proposal.operator)
        fresh = permit_is_fresh(settings.permit_made_ms, process.wall_ms)
        process.send(peer, Promise(proposal.domain_id, incarnation, process.earlier, fresh))

    def _answer_record(self, peer: LinkPeer, state: FirstState) -> None:
        promised, self._promised = self._promised, None
        incarnation = peer.facts.incarnation
        if promised is None or (promised.proposer, promised.domain_id) != (incarnation, state.domain_id):
            self._decline(peer, state.domain_id, ["its promise has lapsed"])
            return
        reasons = self._process.own_obstacles(operator=promised.operator)
        fault = self._fault(state, incarnation)
        if fault:
            reasons.append(fault)
        if reasons:
            self._decline(peer, state.domain_id, reasons)
            return
        self._process.record(state)

    def _fault(self, state: FirstState, proposer: int) -> str:
        """What makes a first state unfit to be recorded here, or empty: mistakes of its proposer."""
        process, settings = self._process, self._process.settings
        incarnations = {member.place: member.incarnation for member in state.members}
        if list(incarnations) != [place.name for place in settings.places]:
            return "the first state has other places"
        if state.members != first_members(settings, incarnations):
            return "the first state has other addresses or numbers"
        if incarnations[settings.place] != process.incarnation or incarnations[self._lowest] != proposer:
            return "the first state names an earlier life of a process"
        if state.cluster != settings.cluster or state.delta_ns != settings.delta_ns:
            return "the first state has another configuration"
        if state.quarantine_s not in (0, QUARANTINE_S):
            return f"the first state has a quarantine of {state.quarantine_s} s"
        lowest = max(first_token(0, process.earlier, 0), 1)
        if not lowest <= state.first_token <= FIRST_TOKEN_MAX:
            return "the first token does not rise above an earlier one, or is out of range"
        return ""

    def _decline(self, peer: LinkPeer, domain_id: str, reasons: list[str]) -> None:
        self._process.send(peer, Decline(domain_id, "; ".join(reasons)[:REASON_MAX]))
