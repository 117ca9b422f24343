"""What peers say to a node, and which of them it has to do with (spec 9, Peer link and Identity)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ticketing.locks.restore import BadSnapshot
from ticketing.node import clock_messages
from ticketing.node.clock_health import read_together
from ticketing.node.handshake import LinkFacts, LinkFailure, LinkPeer, Refusal
from ticketing.node.link import PeerKind
from ticketing.node.shell import Link
from ticketing.node.shown import Mark, Shows
from ticketing.raft import messages as raft_messages
from ticketing.raft.plausible import ImplausibleError
from ticketing.raft.replica import UnsupportedEntryError
from ticketing.raft.types import Member

if TYPE_CHECKING:
    from ticketing.node.node import Node

_RAFT = PeerKind.RAFT

DOMAIN_TAG_BYTES = 8


class PeerTraffic:
    """The node's side of its links: a `ticketing.node.peers.PeerHost`."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.foreign_messages = 0
        """Raft messages of other domains, dropped."""
        self._known_members: dict[int, Member] = {}
        """By incarnation: whose Raft messages count, as the state tells; forgotten when its members change."""

    def members_changed(self) -> None:
        """What the state says of its members is not what it said."""
        self._known_members.clear()

    # --- who may be there

    def facts(self) -> LinkFacts:
        """What this process says about itself to a peer."""
        node = self._node
        settings = node.settings
        return LinkFacts(
            settings.place,
            node.member.node_id,
            node.incarnation,
            node.state.domain.domain_id if node.state is not None else "",
            settings.cluster,
            node.membership.permit,
            settings.version,
        )

    def shows(self) -> Shows:
        """The Raft state of this process."""
        node = self._node
        return Shows(*node.raft.shows()) if node.raft is not None else Shows()

    def mark(self) -> Mark:
        """An own nonce is about to be sent."""
        return self._node.shown.mark()

    def judge(self, peer: LinkPeer, mark: Mark) -> str | None:
        """Why this proved process gets no link (spec 9, Identity)."""
        node = self._node
        state = node.state
        if state is None or not peer.domain:
            return None
        if peer.domain != state.domain.domain_id:
            return Refusal.OTHER_DOMAIN
        member = peer.member
        record = state.members.by_node_id(member.node_id)
        if record is not None and record.incarnation != member.incarnation:
            return Refusal.OTHER_INCARNATION
        if state.members.removed(member.node_id):
            return Refusal.REMOVED
        if node.shown.rolled_back(member, peer.shows, mark):
            return Refusal.ROLLED_BACK
        node.shown.seen(member, peer.shows.term, peer.shows.vote)
        return None

    def incarnation_of(self, node_id: int) -> int | None:
        """The process life behind a NodeId, as our state knows it."""
        node = self._node
        record = node.state.members.by_node_id(node_id) if node.state is not None else None
        return record.incarnation if record is not None else None

    def member_of(self, peer: LinkPeer) -> Member | None:
        """The peer as a member of our domain: as our state knows its process life, else as it names itself."""
        node = self._node
        state = node.state
        if state is None:
            return None
        record = state.members.by_incarnation(peer.facts.incarnation)
        if record is not None:
            return Member(record.node_id, record.incarnation)
        return peer.member if peer.domain == state.domain.domain_id and peer.facts.node_id else None

    # --- what happens on them

    def peer_up(self, peer: LinkPeer) -> None:
        """An own link to this process is up."""
        node = self._node
        now_ns = node.shell.elapsed_ns()
        node.clock.watch(peer.facts.incarnation, now_ns)
        self.probe_clocks(now_ns)
        member = self.member_of(peer)
        if node.raft is not None and member is not None:
            node.raft.link_up(member, now_ns)
        node.membership.peer_up(peer, now_ns)

    def peer_down(self, peer: LinkPeer) -> None:
        """The own link to this process is over."""
        node = self._node
        now_ns = node.shell.elapsed_ns()
        member = self.member_of(peer)
        if node.raft is not None and member is not None:
            node.raft.link_down(member, now_ns)
        node.membership.peer_down(peer, now_ns)

    def peer_joined(self, peer: LinkPeer) -> None:
        """Links with this process are up both ways."""
        node = self._node
        now_ns = node.shell.elapsed_ns()
        # A probe that left before had nothing to be answered on: another goes now, not a second later.
        node.clock.watch(peer.facts.incarnation, now_ns)
        self.probe_clocks(now_ns)
        node.membership.peer_joined(peer, now_ns)

    def peer_parted(self, peer: LinkPeer) -> None:
        """Links with this process are not up both ways any more."""
        node = self._node
        node.membership.peer_parted(peer, node.shell.elapsed_ns())

    def peer_gone(self, incarnation: int) -> None:
        """This process life has ended. A follower need not wait for a timeout of that leader (spec 9)."""
        node = self._node
        raft = node.raft
        now_ns = node.shell.elapsed_ns()
        node.clock.forget(incarnation)
        if raft is not None and raft.leader is not None and raft.leader.incarnation == incarnation:
            node.shell.log("info", "the leader's process is gone", member=str(raft.leader))
            raft.leader_gone(now_ns)

    def turned_away(self, place: str, failure: LinkFailure) -> None:
        """A link was refused in its handshake."""
        self._node.membership.turned_away(place, failure)

    def snapshot_link_up(self, peer: LinkPeer, link: Link) -> None:
        """A link dialled for a snapshot is up."""
        self._node.snapshots.link_up(peer, link)

    def snapshot_link_down(self, link: Link) -> None:
        """The link of a snapshot, out or in, is over."""
        self._node.snapshots.link_down(link)

    # --- what they say

    def peer_message(self, peer: LinkPeer, link: Link, kind: int, payload: bytes, now_ns: int) -> None:
        """A frame of a proved peer. `now_ns` was read after its bytes."""
        node = self._node
        if kind != _RAFT and not node.loop_turn.busy:
            node.loop_turn.begin_work(now_ns)
        try:
            if kind == _RAFT:
                self._raft_message(peer, payload, now_ns)
            elif kind == PeerKind.CLOCK:
                self._clock_message(peer, payload)
            elif kind == PeerKind.SNAPSHOT:
                node.snapshots.message(peer, link, payload)
            else:
                node.membership.receive(peer, link, kind, payload, node.shell.elapsed_ns())
        except (msgspec.DecodeError, RecursionError, BadSnapshot) as error:
            node.shell.log(
                "warning", "a peer's message cannot be read", place=peer.place, kind=kind, reason=str(error)
            )
            node.peers.close(link, node.shell.elapsed_ns())
        except ImplausibleError as error:
            node.shell.log(
                "error", "a peer says what cannot be true", place=peer.place, kind=kind, reason=str(error)
            )
            node.peers.close(link, node.shell.elapsed_ns())
        except UnsupportedEntryError as error:
            node.shell.stop(1, f"the leader writes what this program cannot read: {error}")

    def _raft_message(self, peer: LinkPeer, payload: bytes, now_ns: int) -> None:
        node = self._node
        tag = payload[:DOMAIN_TAG_BYTES]
        if node.raft is None:
            node.membership.raft_heard(peer, tag.hex(), now_ns)
            if node.raft is None:
                return
        if tag != node.domain_tag:
            self.foreign_messages += 1
            return
        member = self._known_members.get(peer.facts.incarnation)
        if member is None:
            member = self.member_of(peer)
            if member is None or (node.state is not None and node.state.members.removed(member.node_id)):
                node.membership.stranger(peer, now_ns)
                return
            self._known_members[peer.facts.incarnation] = member
        message = raft_messages.decode(memoryview(payload)[DOMAIN_TAG_BYTES:])
        try:
            # The reading made after the bytes were read is the stamp of every entry in it (spec 7).
            node.raft.step(member, message, now_ns)
            # Not before: a term that cannot be would be held against the member for ever.
            self._note_shown(member, message)
        finally:
            # Also where the message could be read in part only: it may have ended the lead before.
            node.leading.drop_ended(node.raft, now_ns)
            if not node.loop_turn.busy and node.raft.has_output:
                node.loop_turn.begin_work(now_ns)

    def _note_shown(self, member: Member, message: raft_messages.Message) -> None:
        node = self._node
        vote: Member | None = None
        kind = type(message)
        if kind is raft_messages.AppendEntries or kind is raft_messages.VoteRequest:
            vote = member
        elif type(message) is raft_messages.VoteAnswer and message.granted:
            vote = node.member
        node.shown.seen(member, message.term, vote)

    def _clock_message(self, peer: LinkPeer, payload: bytes) -> None:
        node = self._node
        now_ns, wall_ns = read_together(node.shell.elapsed_ns, node.shell.wall_ns)
        message = clock_messages.decode(payload)
        incarnation = peer.facts.incarnation
        if isinstance(message, clock_messages.ClockProbe):
            reply = node.clock.answer(incarnation, message, now_ns, wall_ns, now_ns, wall_ns)
            node.peers.send(incarnation, PeerKind.CLOCK, clock_messages.encode(reply))
        else:
            node.clock.reply(incarnation, message, now_ns, wall_ns)

    def probe_clocks(self, now_ns: int) -> None:
        """Asks for the clocks of everybody whose turn it is (spec 8)."""
        node = self._node
        for incarnation in node.clock.due(now_ns):
            if not node.peers.is_up(incarnation):
                continue
            now_ns, wall_ns = read_together(node.shell.elapsed_ns, node.shell.wall_ns)
            probe = node.clock.probe(incarnation, now_ns, wall_ns, self.inside(now_ns, wall_ns))
            node.peers.send(incarnation, PeerKind.CLOCK, clock_messages.encode(probe))

    def inside(self, now_ns: int, wall_ns: int) -> bool | None:
        """Whether this node finds its wall clock within Δ/2 of a majority; None without membership."""
        node = self._node
        raft = node.raft
        if raft is None:
            return None
        configuration = raft.configuration
        return node.clock.gate(now_ns, wall_ns, raft.me, configuration.voters, configuration.outgoing)

    # --- who is dialled

    def set_targets(self) -> None:
        """Dials every address where a peer may be: the configured ones, and those of all members."""
        node = self._node
        if node.settings.standalone:
            return
        targets = {
            place.peer: place.name for place in node.settings.places if place.name != node.settings.place
        }
        if node.state is not None:
            for record in node.state.members.records:
                if record.incarnation != node.incarnation:
                    targets[record.peer] = record.place
        targets.update(node.membership.targets())
        targets.pop(node.place.peer, None)
        node.peers.set_targets(targets.items(), node.shell.elapsed_ns())

    def addresses_of(self, place: str) -> list[str]:
        """Where a place is, as configured here, as its members' records say, and as a member told who asks."""
        node = self._node
        found = [known.peer for known in node.settings.places if known.name == place]
        if node.state is not None:
            found += [record.peer for record in node.state.members.records if record.place == place]
        found += node.membership.addresses_of(place)
        return list(dict.fromkeys(found))
