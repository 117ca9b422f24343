"""How this process comes to be a member: forming, rejoining and replacement, joined to the node.

The decisions are in `forming`, `rejoin` and `replacement`; this module hands them what they need to know and carries
out what they decide. How it leaves is in `departure`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from ticketing.locks.table import LockTable
from ticketing.node.clock_health import read_together
from ticketing.node.departure import Departure
from ticketing.node.first_state import FirstState, standalone_first_state
from ticketing.node.forming import Forming
from ticketing.node.forming_messages import decode_forming, encode_forming
from ticketing.node.governing import Governing
from ticketing.node.handshake import LinkFailure, LinkPeer, Refusal
from ticketing.node.link import PeerKind
from ticketing.node.members import MemberRecord, Members
from ticketing.node.membership_messages import (
    DialMe,
    JoinAnswer,
    JoinApplied,
    JoinAsk,
    JoinTaken,
    MembershipMessage,
    Removed,
    decode_leave,
    decode_membership,
    encode,
)
from ticketing.node.rejoin import (
    AppliedReport,
    LeaderAt,
    Rejoin,
    Stop,
    Taken,
    refusal,
    removed,
)
from ticketing.node.replacement import not_leading
from ticketing.node.settings import OperatorCommand, S
from ticketing.node.shell import Link
from ticketing.node.state import DomainFacts, ReplicatedState
from ticketing.node.state_files import FLOOR, RECORD, REPLACE
from ticketing.raft.election import Role
from ticketing.raft.types import BLANK, MS, Member

if TYPE_CHECKING:
    from ticketing.node.node import Node

ASKERS_MAX = 8
ASKER_NS = 10 * S
"""How long the address of a process that asked for a place, or to be dialled, is dialled after its last ask."""
DIAL_ME_NS = 1 * S
TOLD_MAX = 64


class Membership:
    """Everything of one node that has to do with belonging to a domain."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.departure = Departure(node)
        self.forming: Forming | None = None
        """None only where standalone."""
        self.governing: Governing | None = None
        """While this process leads."""
        self._rejoin: Rejoin | None = None
        self._leader_at: LeaderAt | None = None
        """Where a member said that the leader is, which no configured address of its place leads to."""
        self._report = AppliedReport()
        self._joining = ""
        """The id of the domain that has taken this process in, while its record is being written."""
        self._ended: dict[int, MemberRecord] = {}
        """By incarnation: the members that were removed last."""
        self._greatest = node.settings.earlier_first_token
        """The greatest first token of any domain that this folder has seen."""
        self._voted = False
        self._askers: dict[str, tuple[str, int]] = {}
        """Peer addresses of processes that asked for a place, or to be dialled: the place, and until when they are."""
        self._dial_me_ns = 0
        """When peers that have no link to us are asked for one again."""
        self._told_ns: dict[int, int] = {}
        """By incarnation of a removed member: when it was told so last."""

    # --- the beginning

    def start(self, now_ns: int) -> None:
        """A standalone node forms its own domain; others look for theirs."""
        node = self._node
        if node.settings.standalone:
            first = standalone_first_state(
                node.settings, node.incarnation, node.shell.random_bytes, node.shell.wall_ns() // MS
            )
            self._store(first, lambda: node.become_founder(first, node.turn()))
            return
        refused = refusal(node.settings)
        if refused is not None:
            node.shell.stop(2, refused)
            return
        self.forming = Forming(node.settings, node.incarnation, self, now_ns)

    def _store(self, first: FirstState, done: Callable[[], None]) -> None:
        own = first.member(self._node.settings.place)
        self._record(
            first.domain_id, first.first_token, own.node_id, first.formed_wall_ms, first.permit, done
        )

    def _record(
        self,
        domain_id: str,
        first_token: int,
        node_id: int,
        formed_ms: int,
        permit: str,
        done: Callable[[], None],
    ) -> None:
        """Records durably that this folder takes part in a domain (spec 9, Forming and Rejoin)."""
        node = self._node
        record = {
            "domain": domain_id,
            "first_token": str(first_token),
            "place": node.settings.place,
            "node_id": str(node_id),
            "incarnation": str(node.incarnation),
            "formed_ms": formed_ms,
            "permit": permit,
        }
        self._greatest = max(self._greatest, first_token)
        floor = {"first_token": str(self._greatest)}
        # The floor first: a record without its floor would be believed, a floor without its record does no harm.
        node.shell.store(
            FLOOR,
            msgspec.json.encode(floor),
            lambda: node.shell.store(RECORD, msgspec.json.encode(record), done),
        )

    # --- forming (FormingHost)

    @property
    def permit(self) -> str:
        """The permit as peers are to see it."""
        return self.forming.permit if self.forming is not None else ""

    def random_bytes(self, count: int) -> bytes:
        """From the system's random source."""
        return self._node.shell.random_bytes(count)

    def clock_within(self, place: str) -> bool | None:
        """Whether that place's wall clock is within Δ of ours; None: not known."""
        node = self._node
        for peer in node.peers.reachable():
            if peer.place == place:
                now_ns, wall_ns = read_together(node.shell.elapsed_ns, node.shell.wall_ns)
                return node.clock.within_delta(peer.facts.incarnation, now_ns, wall_ns)
        return None

    def leader_alive(self) -> bool:
        """Whether this process leads its domain or knows a living leader of it."""
        return self._node.raft is not None and self._node.raft.leader is not None

    def domain(self) -> str:
        """Id of the domain that this process is a member of, or empty."""
        state = self._node.state
        return state.domain.domain_id if state is not None else self._joining

    def _carry_out_forming(self) -> None:
        forming, node = self.forming, self._node
        if forming is None:
            return
        output = forming.take_output()
        if output.drop:
            node.leave_domain()
            self._rejoin = None
            self._leader_at = None
            self._report = AppliedReport()
            self._voted = False
            self._told_ns.clear()
            self._ended.clear()
        if output.store is not None:
            self._store(output.store, self._stored)
        for incarnation, message in output.messages:
            node.peers.send(incarnation, PeerKind.FORMING, encode_forming(message))
        if output.formed is not None:
            node.become_founder(output.formed, node.shell.elapsed_ns())
        for note in output.notes:
            node.shell.log("info", "forming", note=note)

    def _stored(self) -> None:
        assert self.forming is not None
        self.forming.stored(self._node.turn())
        self._carry_out_forming()

    def tick(self, now_ns: int) -> None:
        """Called every 50 ms."""
        node = self._node
        forming = self.forming
        if forming is not None and (node.raft is None or now_ns >= forming.next_deadline_ns):
            # Whoever waits for a domain looks often: clocks that were compared meanwhile announce themselves to nobody.
            forming.tick(now_ns, node.shell.wall_ns() // MS)
            self._carry_out_forming()
        if forming is not None and node.raft is None and not self._joining:
            self._ask_for_place(forming, now_ns)
        if self.governing is not None:
            self.governing.step(now_ns)
        if self._askers and any(until_ns < now_ns for _, until_ns in self._askers.values()):
            self._askers = {address: asker for address, asker in self._askers.items() if asker[1] >= now_ns}
            node.traffic.set_targets()
        raft, state = node.raft, node.state
        if raft is not None and state is not None and forming is not None:
            if raft.configuration.is_voter(raft.me) and not self._voted:
                self._voted = True
                if node.settings.operator_command is not None:
                    node.shell.remove(REPLACE)  # it has been carried out
            if raft.leader is not None and raft.configuration_index <= state.applied_index:
                report = self._report.due(
                    now_ns,
                    raft.me,
                    raft.leader,
                    state.members,
                    raft.configuration_index,
                    state.applied_index,
                )
                if report is not None:
                    node.peers.send(raft.leader.incarnation, PeerKind.MEMBERSHIP, encode(report))
        self._ask_to_be_dialled(now_ns)
        self.departure.tick(now_ns)

    # --- rejoining

    def _ask_for_place(self, forming: Forming, now_ns: int) -> None:
        node = self._node
        if not node.settings.rejoin or not forming.asks_for_place or self.departure.stopping:
            return
        rejoin = self._rejoin
        if rejoin is None:
            command = node.settings.operator_command or OperatorCommand(command_id="")
            rejoin = self._rejoin = Rejoin(
                node.settings,
                node.incarnation,
                now_ns,
                command_id=command.command_id,
                who=command.who,
                why=command.why,
            )
            for peer in node.peers.reachable():
                rejoin.linked(peer.place, peer.facts.incarnation, now_ns)
            node.shell.log("info", "asking for the place", place=node.settings.place)
        ask = rejoin.step(now_ns)
        if ask is None:
            return
        for peer in node.peers.reachable():
            if peer.place == ask.place:
                node.peers.send(peer.facts.incarnation, PeerKind.MEMBERSHIP, encode(ask.message))

    def _answered(self, peer: LinkPeer, message: JoinAnswer | JoinTaken, now_ns: int) -> None:
        node, rejoin, forming = self._node, self._rejoin, self.forming
        if rejoin is None or forming is None or node.raft is not None or self._joining or forming.storing:
            return
        match rejoin.receive(peer.place, message, now_ns):
            case Taken(taken):
                # From here on this process acts in no other domain, whatever was begun: one record at a time.
                self._joining = taken.domain_id
                forming.rejoined(now_ns)
                self._carry_out_forming()
                self._record(
                    taken.domain_id, taken.first_token, taken.node_id, 0, "", lambda: self._joined(taken)
                )
            case Stop(status, reason):
                self.departure.end(status, reason)
            case LeaderAt() as told:
                self._leader_at = told
                node.traffic.set_targets()
                node.shell.log(
                    "info",
                    "dialling the leader where it is said to be",
                    place=told.place,
                    address=told.address,
                )

    def _joined(self, taken: JoinTaken) -> None:
        """The record stands: this process is a learner from now on."""
        node = self._node
        now_ns = node.turn()
        assert node.raft is None, "member of two domains"
        self._joining = ""
        self._rejoin = None
        self._voted = False
        domain = DomainFacts(taken.domain_id, taken.first_token, taken.delta_ns, 0, 0)
        state = ReplicatedState(domain, LockTable(taken.first_token), Members(), BLANK, now_ns)
        node.become_learner(taken.node_id, state, now_ns)
        node.shell.log("audit", "taken in as a learner", node_id=taken.node_id, domain=domain.shown)

    # --- what the node tells

    def configuration_applied(self, ended: list[MemberRecord], now_ns: int) -> None:
        """A configuration entry was applied; `ended` are the members that it ended."""
        node = self._node
        for record in ended:
            node.shell.log("audit", "member removed", of=record.place, node_id=record.node_id)
            node.shown.forget(record.member)
            self._ended[record.incarnation] = record
            while len(self._ended) > TOLD_MAX:
                del self._ended[next(iter(self._ended))]
            if record.incarnation == node.incarnation:
                self.told_removed(f"{record.place} has another voter")
            else:
                self._tell_removed(record.member, record.place, now_ns)

    def _tell_removed(self, member: Member, place: str, now_ns: int) -> None:
        last_ns = self._told_ns.get(member.incarnation)
        if last_ns is not None and now_ns - last_ns < S:
            return
        self._told_ns[member.incarnation] = now_ns
        while len(self._told_ns) > TOLD_MAX:
            del self._told_ns[next(iter(self._told_ns))]
        why = f"{place} has another voter: this process was replaced"
        self._node.peers.send(
            member.incarnation, PeerKind.MEMBERSHIP, encode(Removed(member.node_id, member.incarnation, why))
        )

    def told_removed(self, why: str) -> None:
        """This process is no member any more and stops for good."""
        stop = removed(why, voted=self._voted)
        self.departure.end(stop.status, stop.reason)

    def lead_began(self, now_ns: int) -> None:
        """This process leads."""
        node = self._node
        if not node.settings.standalone:
            assert node.raft is not None
            self.governing = Governing(node, node.raft, now_ns)

    def lead_ended(self) -> None:
        """This process does not lead any more."""
        self.governing = None

    def peer_up(self, peer: LinkPeer, now_ns: int) -> None:
        """An own link to this process is up."""
        if self._rejoin is not None:
            self._rejoin.linked(peer.place, peer.facts.incarnation, now_ns)

    def peer_down(self, peer: LinkPeer, now_ns: int) -> None:
        """The own link to this process is over."""
        if self._rejoin is not None:
            self._rejoin.parted(peer.place, peer.facts.incarnation, now_ns)

    def peer_joined(self, peer: LinkPeer, now_ns: int) -> None:
        """Links with this process are up both ways."""
        if self.forming is not None:
            self.forming.peer_up(peer, now_ns)
            self._carry_out_forming()

    def peer_parted(self, peer: LinkPeer, now_ns: int) -> None:
        """Links with this process are not up both ways any more."""
        if self.forming is not None:
            self.forming.peer_down(peer, now_ns)
            self._carry_out_forming()

    def turned_away(self, place: str, failure: LinkFailure) -> None:
        """A link was refused in its handshake."""
        node = self._node
        if self._rejoin is not None and place:
            self._rejoin.turned_away(place, failure.text, node.shell.elapsed_ns())
        if failure.by_peer and node.state is not None and failure.reason == Refusal.REMOVED:
            self.told_removed(f"{place or 'a member'} refuses the link of a removed member")

    def raft_heard(self, peer: LinkPeer, domain_id: str, now_ns: int) -> None:
        """A Raft message of that domain came although this process is no member (yet): its sender knows that the
        domain exists.
        """
        forming = self.forming
        if forming is None or forming.recorded is None:
            return
        recorded = forming.recorded
        founders = {member.incarnation for member in recorded.members}
        if peer.facts.incarnation in founders and domain_id == recorded.domain_id:
            forming.domain_heard(recorded.domain_id, now_ns)
            self._carry_out_forming()

    def stranger(self, peer: LinkPeer, now_ns: int) -> None:
        """A Raft message of this domain came from a process that is no member (any more)."""
        state = self._node.state
        ended = self._ended.get(peer.facts.incarnation)
        if ended is not None:
            # A founder's links say nothing of its membership: they are older than the domain.
            self._tell_removed(ended.member, ended.place, now_ns)
        elif (
            state is not None
            and peer.domain == state.domain.domain_id
            and state.members.removed(peer.facts.node_id)
        ):
            self._tell_removed(peer.member, peer.place, now_ns)

    def receive(self, peer: LinkPeer, link: Link, kind: int, payload: bytes, now_ns: int) -> None:
        """A message about forming, membership or leave."""
        if kind == PeerKind.FORMING:
            if self.forming is not None:
                wall_ms = self._node.shell.wall_ns() // MS
                self.forming.receive(peer, decode_forming(payload), now_ns, wall_ms)
                self._carry_out_forming()
        elif kind == PeerKind.MEMBERSHIP:
            self._membership_message(peer, link, decode_membership(payload), now_ns)
        elif kind == PeerKind.LEAVE:
            self.departure.receive(peer, decode_leave(payload), now_ns)

    def _membership_message(
        self, peer: LinkPeer, link: Link, message: MembershipMessage, now_ns: int
    ) -> None:
        node = self._node
        if isinstance(message, JoinAnswer | JoinTaken):
            self._answered(peer, message, now_ns)
        elif isinstance(message, Removed):
            # A process life has the same number in each domain that it helps to form.
            own = peer.domain in ("", self.domain())
            if own and (message.node_id, message.incarnation) == node.member:
                self.told_removed(message.why)
        elif isinstance(message, JoinApplied):
            speaks = node.traffic.incarnation_of(message.node_id)
            if self.governing is not None and peer.facts.incarnation == speaks:
                self.governing.replacement.applied(message.node_id, message.applied_index)
        elif message.incarnation == peer.facts.incarnation and message.place == peer.place:
            if not link.certifies(message.peer):
                # It has the certificate of its place, which does not name where it says it is: to dial it would fail.
                asks = "for its place" if isinstance(message, JoinAsk) else "to be dialled"
                self._node.shell.log(
                    "warning",
                    f"asks {asks} at an address that it has no certificate for",
                    place=message.place,
                    address=message.peer,
                )
            elif isinstance(message, JoinAsk):
                self._asked(peer, message, now_ns)
            else:
                self._dial_asker(message, now_ns)
        elif isinstance(message, DialMe):
            return  # not about who says it
        elif self.governing is not None and message.place == node.settings.place:
            # Passed on by a voter: an operator's process for our own place, which has no link to us.
            sender = node.traffic.member_of(peer)
            if sender is not None and self.governing.facts().configuration.is_voter(sender):
                self.governing.asked_to_join(message, now_ns)

    def _asked(self, peer: LinkPeer, ask: JoinAsk, now_ns: int) -> None:
        """A process asks for its place."""
        node = self._node
        self._dial_asker(ask, now_ns)
        answer: JoinAnswer | JoinTaken
        if node.state is None:
            answer = not_leading(ask, None)
        elif self.governing is not None:
            answer = self.governing.asked_to_join(ask, now_ns)
        else:
            leader = node.raft.leader if node.raft is not None else None
            record = node.state.members.find(leader) if leader is not None else None
            if leader is not None and record is not None and record.place == ask.place and ask.operator:
                # It cannot ask the process at its own place, which has to give the lead away first.
                node.peers.send(leader.incarnation, PeerKind.MEMBERSHIP, encode(ask))
            answer = not_leading(ask, record)
        incarnation = peer.facts.incarnation
        payload = encode(answer, node.peers.format_to(incarnation))
        node.peers.send(incarnation, PeerKind.MEMBERSHIP, payload)

    def _dial_asker(self, asker: JoinAsk | DialMe, now_ns: int) -> None:
        """Dials whoever is at an address that nothing here tells of: only so does what we say reach it."""
        known = asker.peer in self._askers
        if known or len(self._askers) < ASKERS_MAX:
            self._askers[asker.peer] = (asker.place, now_ns + ASKER_NS)
            if not known:
                self._node.traffic.set_targets()

    def _ask_to_be_dialled(self, now_ns: int) -> None:
        node = self._node
        if node.settings.standalone or node.raft is None or now_ns < self._dial_me_ns:
            return
        self._dial_me_ns = now_ns + DIAL_ME_NS
        ask = DialMe(node.settings.place, node.incarnation, node.place.peer)
        for peer in node.peers.one_way(now_ns):
            if peer.format >= 2:
                node.peers.send(peer.facts.incarnation, PeerKind.MEMBERSHIP, encode(ask))

    def targets(self) -> dict[str, str]:
        """Further peer addresses to be dialled: address to place."""
        found = {address: place for address, (place, _until_ns) in self._askers.items()}
        at = self._told_leader()
        if at is not None:
            found[at.address] = at.place
        return found

    def addresses_of(self, place: str) -> list[str]:
        """Where a place is by the word of a member."""
        at = self._told_leader()
        return [at.address] if at is not None and at.place == place else []

    def _told_leader(self) -> LeaderAt | None:
        """Where a member said that the leader is: also for a learner, until a snapshot says where the members are."""
        state = self._node.state
        return self._leader_at if state is None or not state.members.records else None

    # --- the lead

    def transfer(self, place: str | None, now_ns: int) -> str | None:
        """Gives the lead to a place, or to the voter that is furthest; otherwise why not."""
        node = self._node
        raft, state, lead = node.raft, node.state, node.lead
        if raft is None or state is None or raft.role is not Role.LEADER or lead is None:
            return "not_leader"
        target: Member | None = None
        leaving = self.governing.facts().leaving if self.governing is not None else ()
        for member in raft.configuration.voters:
            record = state.members.find(member)
            if member == raft.me or (place is not None and (record is None or record.place != place)):
                continue
            progress = raft.progress(member)
            if not node.peers.is_up(member.incarnation) or progress is None or progress.rolled_back:
                continue
            if now_ns - progress.heard_ns > S or member in leaving or self.departure.leaves(member, now_ns):
                continue
            best = raft.progress(target) if target is not None else None
            if best is None or progress.match > best.match:
                target = member
        if target is None:
            return "no_such_voter" if place is not None else "no_other_voter"
        return node.leading.transfer_to(target, now_ns)

    def status(self) -> dict[str, Any]:
        """How it stands with this process's membership, for people: a line, and what is missing."""
        forming, node = self.forming, self._node
        if forming is None:
            return {"state": "standalone", "waiting_for": [], "asked": [], "replacements": []}
        now_ns = node.shell.elapsed_ns()
        asked = [] if self._rejoin is None else self._rejoin.views(now_ns)
        replacements = [] if self.governing is None else self.governing.views(now_ns)
        return {
            "state": self.departure.waiting_for or forming.state_text,
            "waiting_for": forming.waiting_for,
            "asked": [
                {"place": view.place, "address": view.address, "linked": view.linked, "said": view.said}
                for view in asked
            ],
            "replacements": [
                {
                    "place": view.place,
                    "node_id": str(view.node_id) if view.node_id else None,
                    "stage": view.stage,
                    "text": view.text,
                    "operator": view.operator,
                }
                for view in replacements
            ],
        }

    # --- an operator

    def operator_form(self, now_ns: int, *, first: bool, first_token: int) -> str | None:
        """Forms a domain at the operator's word; otherwise why not."""
        if self.forming is None:
            return "a standalone node forms its domain when it starts"
        refusal = self.forming.operator_form(first=first, first_token=first_token, now_ns=now_ns)
        self._carry_out_forming()
        return refusal
