"""All peer links of one node: who is dialled, who is there, and which way a message goes (spec 9, Peer link).

Every process dials every address where a peer may be; its own messages travel on the link that it dialled, those
of the other end on the one that the other end dialled. A process life is named by its incarnation: that it has
from its start, before it is given a NodeId.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from random import Random
from typing import Protocol

from ticketing.node.handshake import (
    ACCEPTOR,
    DIALLER,
    FORMAT_OLDEST,
    NONCE_BYTES,
    LinkFailure,
    LinkHost,
    LinkPeer,
    PeerHandshake,
    Refusal,
)
from ticketing.node.link import FrameDecoder, encode_frame
from ticketing.node.settings import S
from ticketing.node.shell import Link, Shell
from ticketing.raft.types import MS

HANDSHAKE_NS = 5 * S
REDIAL_MIN_NS = 100 * MS
REDIAL_MAX_NS = 1 * S
SILENT_NS = 3 * S
"""A link whose other end was not heard for this long is dialled anew: after a cut, TCP itself would wait longer."""
ONE_WAY_NS = 1 * S
"""A peer that we have reached for so long and that has no link to us may not know where we are."""
DESERTED_NS = 12 * S
"""A snapshot's link on which nothing came for this long is closed, any other accepted one after `SILENT_NS`
(every process probes clocks once a second). This end never speaks on it, so TCP would never
find out that the other end is gone, and a process that ended would count as linked for ever."""
INBOUND_MAX = 64
"""Accepted links whose diallers have proved themselves; past it a newcomer is hung up on."""
UNPROVED_MAX = 128
"""Accepted links whose diallers have not. Counted apart, and above what the shell's door lets in, so that strangers
keep no peer out."""
BUFFERED_MAX = 8 << 20
"""Bytes that may wait for one peer's kernel; past it messages are lost, as on any bad link."""

PEER = "peer"


class PeerHost(LinkHost, Protocol):
    """What the links ask of, and tell, their node."""

    def peer_up(self, peer: LinkPeer) -> None:
        """An own link to this process is up: messages can be sent to it."""
        ...

    def peer_down(self, peer: LinkPeer) -> None:
        """The own link to this process is over; it is being dialled again."""
        ...

    def peer_joined(self, peer: LinkPeer) -> None:
        """Links with this process are up both ways."""
        ...

    def peer_parted(self, peer: LinkPeer) -> None:
        """One of the links with this process is over, after both were up."""
        ...

    def peer_gone(self, incarnation: int) -> None:
        """This process life has ended: its address refuses connections, or another process answers there."""
        ...

    def peer_message(self, peer: LinkPeer, link: Link, kind: int, payload: bytes, now_ns: int) -> None:
        """A frame of a proved peer. `now_ns` was read after its bytes."""
        ...

    def turned_away(self, place: str, failure: LinkFailure) -> None:
        """A link failed in its handshake; `failure.by_peer` is the other end's own proved word."""
        ...

    def addresses_of(self, place: str) -> list[str]:
        """The peer addresses by which this process knows a place, none of them by the place's own word."""
        ...

    def snapshot_link_up(self, peer: LinkPeer, link: Link) -> None:
        """A link dialled for a snapshot is up."""
        ...

    def snapshot_link_down(self, link: Link) -> None:
        """A link that carries a snapshot, either way, is over."""
        ...


class Target:
    """An address where a peer may be, and our own link to it."""

    __slots__ = ("address", "backoff_ns", "dialled_ns", "expected", "link", "next_dial_ns", "peer", "place")

    def __init__(self, address: str, place: str, now_ns: int) -> None:
        self.address = address
        self.place = place
        self.link: Link | None = None
        self.peer: LinkPeer | None = None
        """Who is at the other end, while the link is up."""
        self.expected: int | None = None
        """The incarnation that was there when the last link ended; None once its fate is known."""
        self.dialled_ns = now_ns
        self.next_dial_ns = now_ns
        self.backoff_ns = REDIAL_MIN_NS


class LinkState:
    """The node's side of one link, kept in `Link.logic`."""

    __slots__ = ("decoder", "handshake", "heard_ns", "peer", "since_ns", "target")

    def __init__(self, target: Target | None, since_ns: int) -> None:
        self.target = target
        self.handshake: PeerHandshake | None = None
        self.decoder: FrameDecoder | None = None
        self.peer: LinkPeer | None = None
        self.since_ns = since_ns
        self.heard_ns = since_ns


class Peers:
    """Dialled and accepted links. Bounded: one link a target address and purpose, `INBOUND_MAX` and `UNPROVED_MAX`
    accepted.
    """

    def __init__(self, host: PeerHost, shell: Shell, secrets: Sequence[bytes], rng: Random) -> None:
        self._host = host
        self._shell = shell
        self._rng = rng
        self.secrets = tuple(secrets)
        self._targets: dict[str, Target] = {}
        self._own: dict[int, Target] = {}
        """By incarnation: the target whose link is up and leads there."""
        self._inbound: dict[Link, None] = {}
        self._speaking: dict[int, int] = {}
        """By incarnation: how many proved links it has dialled to us."""
        self._snapshots: dict[Link, None] = {}
        """Links dialled for a snapshot."""
        self.heard_ns: dict[int, int] = {}
        """By incarnation, for those with a link either way: when something came from it last."""
        self.counters: dict[str, int] = {"links_refused": 0, "frames_lost": 0, "handshakes_failed": 0}

    # --- who is dialled

    def set_targets(self, targets: Iterable[tuple[str, str]], now_ns: int) -> None:
        """(address, place) of everybody who is to be dialled; links to others are hung up.

        A host that one place has left may come to have another: an address whose place has changed is dialled anew,
        as that of the place that is there now.
        """
        wanted = dict(targets)
        expected: dict[str, int | None] = {}
        for target in list(self._targets.values()):
            address = target.address
            if wanted.get(address) == target.place:
                continue
            del self._targets[address]
            if target.link is not None:
                self._shell.hang_up(target.link)
                self._lost(target, now_ns)
            expected[address] = target.expected
        for address, place in wanted.items():
            if address not in self._targets:
                target = Target(address, place, now_ns)
                target.expected = expected.get(address)
                self._targets[address] = target
                self._dial(target, now_ns)

    def _dial(self, target: Target, now_ns: int) -> None:
        target.dialled_ns = now_ns
        target.link = link = self._shell.dial(target.address, PEER)
        link.logic = LinkState(target, now_ns)

    def redial(self, now_ns: int) -> None:
        """Hangs up all own links and dials anew, so that what their hellos say is true again."""
        for target in list(self._targets.values()):
            if target.peer is not None and target.link is not None:
                self._close(target.link, now_ns)

    def close(self, link: Link, now_ns: int) -> None:
        """Hangs up; whoever is concerned is told as if the other end had."""
        self._close(link, now_ns)

    def dial_snapshot(self, address: str) -> Link:
        """A link of its own for a snapshot; `PeerHost.snapshot_link_up` or `snapshot_link_down` follows."""
        link = self._shell.dial(address, "snapshot")
        link.logic = LinkState(None, self._shell.elapsed_ns())
        self._snapshots[link] = None
        return link

    # --- a link's life

    def link_up(self, link: Link, now_ns: int) -> None:
        """Connected, or accepted."""
        if link.inbound:
            if len(self._inbound) - self._proved_count() >= UNPROVED_MAX:
                self._refuse_link(link)
                return
            self._inbound[link] = None
            link.logic = LinkState(None, now_ns)
        state: LinkState = link.logic
        state.handshake = PeerHandshake(
            ACCEPTOR if link.inbound else DIALLER,
            self._host,
            self.secrets,
            self._shell.random_bytes(NONCE_BYTES),
            purpose="" if link.inbound else link.purpose,
            to=state.target.place if state.target is not None else "",
            uncertified=partial(self._uncertified, link) if link.inbound else None,
        )
        if not link.inbound:
            self._shell.send(link, state.handshake.start())

    def _proved_count(self) -> int:
        return sum(link.logic.peer is not None for link in self._inbound)

    def _refuse_link(self, link: Link) -> None:
        self.counters["links_refused"] += 1
        self._shell.log("warning", "too many peer links", remote=link.address)
        self._shell.hang_up(link)

    def _uncertified(self, link: Link, place: str) -> str | None:
        """Why the dialler of a link cannot be this place, None where it may be.

        Only what this process knows without the dialler counts (a place's configured host, those of its members, the
        one that another member named), never an address that the dialler itself brings, or each host's certificate
        would be one for every place.
        """
        known = self._host.addresses_of(place)
        if any(link.certifies(address) for address in known):
            return None
        return f"its certificate is not for {place}, which is at {', '.join(known) or 'no known address'}"

    def link_data(self, link: Link, data: bytes, now_ns: int) -> None:
        """Bytes from the other end."""
        state: LinkState | None = link.logic
        if state is None:
            return  # refused when it came
        if state.handshake is not None:
            data = self._handshake(link, state, state.handshake, data, now_ns)
            if not data:
                return
        peer, decoder = state.peer, state.decoder
        if peer is None or decoder is None:
            return
        if not link.inbound:
            self._fail(link, state, "the acceptor of a link spoke on it", now_ns)
            return
        self.heard_ns[peer.facts.incarnation] = state.heard_ns = now_ns
        for kind, payload in decoder.feed(data):
            self._host.peer_message(peer, link, kind, payload, now_ns)
            if link not in self._inbound:
                return  # closed because of what it said: nothing more of it counts
        if decoder.failure:
            self._fail(link, state, decoder.failure, now_ns)

    def _handshake(
        self, link: Link, state: LinkState, handshake: PeerHandshake, data: bytes, now_ns: int
    ) -> bytes:
        answer = handshake.feed(data)
        if answer:
            self._shell.send(link, answer)
        outcome = handshake.outcome
        if outcome is None:
            return b""
        state.handshake = None
        if isinstance(outcome, LinkFailure):
            self._turned_away(link, state, outcome, now_ns)
            return b""
        state.peer = outcome
        state.decoder = FrameDecoder()
        self.heard_ns[outcome.facts.incarnation] = now_ns
        link.purpose = outcome.purpose
        if link.inbound:
            if self._proved_count() > INBOUND_MAX:
                self._inbound.pop(link)
                self._refuse_link(link)
                return b""
            if outcome.purpose == PEER:
                self._supersede(link, outcome)
                self._spoken(outcome, +1)
                self._dial_back(outcome.place, now_ns)
        elif state.target is None:
            self._host.snapshot_link_up(outcome, link)
        else:
            self._up(state.target, outcome)
        return handshake.rest

    def _dial_back(self, place: str, now_ns: int) -> None:
        """Somebody is at a place again: no need to sit a back-off out. No more often than the shortest one, since
        two that refuse each other would otherwise dial without a pause.
        """
        for target in list(self._targets.values()):
            if target.place != place or target.link is not None:
                continue
            target.next_dial_ns = min(target.next_dial_ns, target.dialled_ns + REDIAL_MIN_NS)
            if now_ns >= target.next_dial_ns:
                self._dial(target, now_ns)

    def _supersede(self, link: Link, peer: LinkPeer) -> None:
        """A process that dials anew has left its former link: what still lies in it must not come after what it
        says on the new one.
        """
        for other in list(self._inbound):
            known: LinkPeer | None = other.logic.peer
            if other is link or known is None or known.purpose != PEER:
                continue
            if known.facts.incarnation == peer.facts.incarnation:
                self._shell.hang_up(other)
                del self._inbound[other]
                self._spoken(known, -1)

    def _up(self, target: Target, peer: LinkPeer) -> None:
        target.peer = peer
        target.backoff_ns = REDIAL_MIN_NS
        incarnation = peer.facts.incarnation
        former, target.expected = target.expected, None
        if former is not None and former != incarnation:
            self._host.peer_gone(former)
        self._own[incarnation] = target
        self._host.peer_up(peer)
        if incarnation in self._speaking:
            self._host.peer_joined(peer)

    def _spoken(self, peer: LinkPeer, change: int) -> None:
        """One more, or one less, accepted link of this process."""
        incarnation = peer.facts.incarnation
        count = self._speaking.get(incarnation, 0) + change
        if count > 0:
            self._speaking[incarnation] = count
        else:
            del self._speaking[incarnation]
        if incarnation in self._own and (count == 0 or (count == 1 and change > 0)):
            if count:
                self._host.peer_joined(peer)
            else:
                self._host.peer_parted(peer)

    def _turned_away(self, link: Link, state: LinkState, failure: LinkFailure, now_ns: int) -> None:
        self.counters["handshakes_failed"] += 1
        target = state.target
        place = target.place if target is not None else ""
        if failure.reason != Refusal.CHANGED:
            self._shell.log(
                "info" if failure.by_peer else "warning",
                "peer link refused",
                remote=link.address,
                place=place,
                reason=failure.reason,
                detail=failure.text,
            )
        if target is not None and target.expected is not None and failure.peer is not None:
            found = failure.peer.facts.incarnation
            if found != target.expected:
                former, target.expected = target.expected, None
                self._host.peer_gone(former)
        self._host.turned_away(place, failure)
        self._close(link, now_ns)
        if (
            target is not None
            and failure.reason == Refusal.CHANGED
            and self._targets.get(target.address) is target
            and target.link is None
        ):
            target.next_dial_ns = now_ns
            self._dial(target, now_ns)

    def _fail(self, link: Link, state: LinkState, text: str, now_ns: int) -> None:
        name = state.peer.place if state.peer is not None else ""
        self._shell.log("warning", "peer link closed", remote=link.address, place=name, reason=text)
        self._close(link, now_ns)

    def _close(self, link: Link, now_ns: int) -> None:
        self._shell.hang_up(link)
        self.link_down(link, refused=False, now_ns=now_ns)

    def link_down(self, link: Link, *, refused: bool, now_ns: int) -> None:
        """A link is over, or never came to be. `refused`: nobody listens at its address."""
        state: LinkState | None = link.logic
        if link.inbound:
            if self._inbound.pop(link, False) is False:
                return
            if state is not None and state.peer is not None:
                if state.peer.purpose == PEER:
                    self._spoken(state.peer, -1)
                    self._suspect(state.peer.facts.incarnation, now_ns)
                else:
                    self._host.snapshot_link_down(link)
            return
        if self._snapshots.pop(link, False) is None:
            self._host.snapshot_link_down(link)
            return
        target = state.target if state is not None else None
        if target is None or target.link is not link:
            return
        if refused and target.expected is not None:
            former, target.expected = target.expected, None
            self._host.peer_gone(former)
        self._lost(target, now_ns)

    def _lost(self, target: Target, now_ns: int) -> None:
        """Our link to a target is over: dialled again at once if it had been up, else after the back-off."""
        target.link = None
        peer, target.peer = target.peer, None
        if peer is None:
            wait_ns = target.backoff_ns
            target.backoff_ns = min(2 * wait_ns, REDIAL_MAX_NS)
            target.next_dial_ns = now_ns + self._rng.randrange(wait_ns // 2, wait_ns + 1)
            return
        incarnation = peer.facts.incarnation
        if self._own.get(incarnation) is target:
            del self._own[incarnation]
        target.expected = incarnation
        target.next_dial_ns = now_ns
        self._host.peer_down(peer)
        if incarnation in self._speaking:
            self._host.peer_parted(peer)
        if target.address in self._targets:
            self._dial(target, now_ns)

    def _suspect(self, incarnation: int, now_ns: int) -> None:
        """A peer's own link to us ended: whether its process lives shows a link of ours, dialled at once."""
        target = self._own.get(incarnation)
        if target is not None and target.link is not None:
            self._shell.hang_up(target.link)
            self._lost(target, now_ns)

    # --- sending

    def send(self, incarnation: int, kind: int, payload: bytes) -> bool:
        """Sends one message to a process; False where no own link to it is up or its buffer is full: lost."""
        return self.send_frame(incarnation, encode_frame(kind, payload))

    def send_frame(self, incarnation: int, frame: bytes) -> bool:
        """As `send`, for a frame that goes to several."""
        target = self._own.get(incarnation)
        if target is None or target.link is None:
            return False
        if self._shell.buffered(target.link) > BUFFERED_MAX:
            self.counters["frames_lost"] += 1
            return False
        self._shell.send(target.link, frame)
        return True

    # --- facts

    def is_up(self, incarnation: int) -> bool:
        """Whether an own link to this process is up."""
        return incarnation in self._own

    def linked(self, incarnation: int) -> bool:
        """Whether any link with this process is up, dialled or accepted."""
        return incarnation in self._own or incarnation in self._speaking

    def reachable(self) -> list[LinkPeer]:
        """Everybody to whom an own link is up, in the order of their coming."""
        return [target.peer for target in self._own.values() if target.peer is not None]

    def one_way(self, now_ns: int) -> list[LinkPeer]:
        """Whom we have reached for a while, and who has not reached us."""
        return [
            target.peer
            for incarnation, target in self._own.items()
            if incarnation not in self._speaking
            and target.peer is not None
            and now_ns - target.dialled_ns >= ONE_WAY_NS
        ]

    def format_to(self, incarnation: int) -> int:
        """The format of our own link to this process; the oldest that is spoken where none is up."""
        target = self._own.get(incarnation)
        return target.peer.format if target is not None and target.peer is not None else FORMAT_OLDEST

    def formats(self) -> dict[str, int]:
        """By place: the format that our own link there speaks, for each that is up."""
        return {peer.place: peer.format for peer in self.reachable()}

    def missing(self) -> list[str]:
        """Places that are dialled and reached at none of their addresses."""
        reached = {target.place for target in self._targets.values() if target.peer is not None}
        dialled = dict.fromkeys(target.place for target in self._targets.values())
        return [place for place in dialled if place not in reached]

    # --- time

    def tick(self, now_ns: int) -> None:
        """Dials what is due, ends handshakes that take too long and links whose other end is silent."""
        for target in list(self._targets.values()):
            link = target.link
            if link is None:
                if now_ns >= target.next_dial_ns:
                    self._dial(target, now_ns)
            elif target.peer is None:
                if now_ns - target.dialled_ns > HANDSHAKE_NS:
                    self._close(link, now_ns)
            elif now_ns - self.heard_ns.get(target.peer.facts.incarnation, target.dialled_ns) > SILENT_NS:
                self._shell.log("info", "peer is silent: dialling again", place=target.place)
                self._close(link, now_ns)
        for link in list(self._inbound):
            state: LinkState = link.logic
            if state.peer is None:
                if now_ns - state.since_ns > HANDSHAKE_NS:
                    self._close(link, now_ns)
            elif now_ns - state.heard_ns > (SILENT_NS if state.peer.purpose == PEER else DESERTED_NS):
                self._close(link, now_ns)
        for incarnation in [known for known in self.heard_ns if not self.linked(known)]:
            if now_ns - self.heard_ns[incarnation] > 10 * S:
                del self.heard_ns[incarnation]
