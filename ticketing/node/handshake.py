"""The handshake of a peer link: who is there, proved with the peer secret (spec 9, Peer link and Identity).

    dialler                          acceptor
    Hello    facts, nonce       ->
                                <-   Welcome  facts, nonce, shows, mac
    Proof    shows, mac         ->
                                <-   Verdict  accepted or a reason, mac

Each `mac` is an HMAC-SHA-256 (RFC 2104) over its sender's role and everything said so far, both ways, as the
bytes that travelled: both nonces, members, domains, the purpose. A message can therefore be neither reflected
(the role differs), replayed (the nonce differs) nor changed. A dialler that refuses sends its Verdict where
its Proof would stand. `shows` covers the other end's nonce: it states what its sender was after that nonce
was sent.

What the handshake protects is the opening of a link. Beyond loopback the link itself is protected by mutual
TLS.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Annotated, NamedTuple, Protocol

import msgspec

from ticketing.node.link import (
    HANDSHAKE_BYTES_MAX,
    HEADER,
    PeerKind,
    describe_foreign,
    encode_frame,
    oversize,
)
from ticketing.node.shown import Mark, Shows
from ticketing.raft.types import Member

FORMAT = 2
"""Version of what travels on a link. Fields are only ever added at the end of a message.

1: the first. 2: `JoinAnswer` names the leader's peer address; `DialMe`.
"""

FORMAT_OLDEST = 1
"""The oldest version that this program still speaks: the previous one, where there is one."""

NONCE_BYTES = 32

DIALLER = "dialler"
ACCEPTOR = "acceptor"

PURPOSES = ("peer", "snapshot")

_MAGIC = b"TKTPEER\x01"
"""Opens every handshake payload; its last byte is the layout of the handshake itself."""
_MAC_BYTES = 32

U64 = Annotated[int, msgspec.Meta(ge=0)]
"""MessagePack itself ends at 64 bits."""

Text = Annotated[str, msgspec.Meta(max_length=64)]
DomainId = Annotated[str, msgspec.Meta(pattern=r"^(?:[0-9a-f]{16})?\Z")]
Nonce = Annotated[bytes, msgspec.Meta(min_length=NONCE_BYTES, max_length=NONCE_BYTES)]


class Refusal(StrEnum):
    """Why one end turns the other away; travels authenticated. A newer program may know more of them."""

    OTHER_DOMAIN = "other_domain"
    OTHER_INCARNATION = "other_incarnation"
    REMOVED = "removed"
    ROLLED_BACK = "rolled_back"
    OWN_PROCESS = "own_process"
    """The address leads back to the process that dialled it."""
    OTHER_PLACE = "other_place"
    """The address leads to another place than the one it is configured for."""
    OTHER_CERTIFICATE = "other_certificate"
    """The dialler's certificate is for no host of the place that it says it is."""
    CHANGED = "changed"
    """The refusing end's own membership changed during the handshake; dialling again will do."""


class LinkFacts(msgspec.Struct, frozen=True, array_like=True):
    """What a process says about itself. Without membership `node_id` is 0 and `domain` empty."""

    place: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
    node_id: U64
    incarnation: U64
    domain: DomainId
    cluster: Annotated[str, msgspec.Meta(max_length=128)]
    """Digest of the configuration that all places share."""
    permit: Text
    version: Text


class LinkPeer(msgspec.Struct, frozen=True, kw_only=True):
    """The other end of a link, proved."""

    facts: LinkFacts
    purpose: str
    """`peer` or `snapshot`, chosen by the dialler."""
    format: int
    """The newest version that both ends speak: what may travel on this link."""
    shows: Shows

    @property
    def place(self) -> str:
        """The configured name."""
        return self.facts.place

    @property
    def domain(self) -> str:
        """Id of the domain it is a member of, or empty."""
        return self.facts.domain

    @property
    def member(self) -> Member:
        """Its process life; NodeId 0 without membership."""
        return Member(self.facts.node_id, self.facts.incarnation)


class LinkFailure(NamedTuple):
    """Why there is no link. `by_peer` with a `reason` is the other end's own, proved, word."""

    reason: str
    """A `Refusal`, or `foreign`, `malformed`, `format`, `wrong_secret`."""
    text: str
    """For the log."""
    by_peer: bool = False
    peer: LinkPeer | None = None
    """Who it is, where it had proved itself before the link failed."""


class LinkHost(Protocol):
    """What the handshake asks of its node. Answers are taken when the message that carries them is made."""

    def facts(self) -> LinkFacts:
        """What this process is now."""
        ...

    def shows(self) -> Shows:
        """The Raft state of this process now."""
        ...

    def mark(self) -> Mark:
        """An own nonce is about to be sent; see `ShownRecord.mark`."""
        ...

    def judge(self, peer: LinkPeer, mark: Mark) -> str | None:
        """Why this proved peer gets no link (a `Refusal`), or None. `mark` was taken for this handshake's
        nonce.
        """
        ...


class Hello(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """The dialler's opening; proves nothing yet."""

    format: U64
    format_oldest: U64
    purpose: Text
    to: Text
    """The place it means to reach, empty for whoever is there."""
    facts: LinkFacts
    nonce: Nonce


class Welcome(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """The acceptor, and its proof."""

    format: U64
    facts: LinkFacts
    nonce: Nonce
    shows: Shows


class Proof(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """The dialler's proof."""

    shows: Shows


class Verdict(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """Whether the sender takes the link: an empty reason does."""

    reason: Text = ""


_encode = msgspec.msgpack.Encoder().encode
_Message = Hello | Welcome | Proof | Verdict
_decode = msgspec.msgpack.Decoder(_Message).decode


class PeerHandshake:
    """One end of one handshake. The deadline (5 s) and the connection are the caller's.

    The dialler begins with `start`. Each chunk goes into `feed`, whose result is to be sent; then `outcome`
    says whether there is a link (`LinkPeer`, with what arrived behind the handshake in `rest`), none
    (`LinkFailure`: send what `feed` returned, close), or nothing yet (None). `secrets`: the first proves,
    each is accepted.
    """

    def __init__(
        self,
        role: str,
        host: LinkHost,
        secrets: Sequence[bytes],
        nonce: bytes,
        *,
        purpose: str = "",
        to: str = "",
        uncertified: Callable[[str], str | None] | None = None,
    ) -> None:
        """`uncertified`: why the connection's certificate is not one for a place, or None where it is. An acceptor
        asks it; a dialler has had the certificate compared with the host that it dialled.
        """
        assert role in (DIALLER, ACCEPTOR), role
        assert (purpose in PURPOSES) == (role == DIALLER), (role, purpose)
        assert secrets, "a peer link needs a peer secret"
        assert all(secrets), "an empty peer secret"
        assert len(nonce) == NONCE_BYTES, len(nonce)
        self.outcome: LinkPeer | LinkFailure | None = None
        self.rest = b""
        self._role = role
        self._host = host
        self._secrets = tuple(secrets)
        self._nonce = nonce
        self._purpose = purpose
        self._to = to
        self._uncertified = uncertified
        self._format = FORMAT
        self._facts: LinkFacts | None = None
        self._mark: Mark = {}
        self._peer: LinkPeer | None = None
        self._hello: Hello | None = None
        self._transcript = hashlib.sha256()
        self._buffer = b""

    def start(self) -> bytes:
        """The dialler's first frame."""
        assert self._role == DIALLER
        assert self._facts is None, "started twice"
        self._facts = self._host.facts()
        self._mark = self._host.mark()
        hello = Hello(FORMAT, FORMAT_OLDEST, self._purpose, self._to, self._facts, self._nonce)
        return self._say(_MAGIC + _encode(hello))

    def feed(self, data: bytes) -> bytes:
        """Takes a chunk; returns what is to be sent, maybe nothing. Not to be called once there is an
        outcome.
        """
        assert self.outcome is None, "the handshake is over"
        assert self._role == ACCEPTOR or self._facts is not None, "the dialler starts"
        self._buffer += data
        answer = b""
        while (payload := self._payload()) is not None:
            answer += self._take(payload)
        return answer

    def _payload(self) -> bytes | None:
        """Cuts the next frame off the buffer. None: not all there, none of ours, or there is an outcome."""
        if self.outcome is not None or len(self._buffer) < HEADER.size:
            return None
        length, kind = HEADER.unpack_from(self._buffer)
        if not 0 < length <= HANDSHAKE_BYTES_MAX or kind != PeerKind.HANDSHAKE:
            foreign = describe_foreign(self._buffer[:16])
            if foreign:
                self._fail("foreign", f"not a peer: {foreign}")
            elif kind != PeerKind.HANDSHAKE and 0 < length <= HANDSHAKE_BYTES_MAX:
                self._fail("malformed", f"a frame of kind {kind} before the handshake was over")
            else:
                self._fail("malformed", oversize(length, HANDSHAKE_BYTES_MAX))
            return None
        end = HEADER.size + length - 1
        if len(self._buffer) < end:
            return None
        payload = self._buffer[HEADER.size : end]
        self._buffer = self._buffer[end:]
        return payload

    def _take(self, payload: bytes) -> bytes:
        """One message of the other end."""
        if not payload.startswith(_MAGIC):
            return self._fail("foreign", "not a peer, or one whose handshake has another layout")
        signed = self._role == DIALLER or self._hello is not None
        end = len(payload) - _MAC_BYTES if signed else len(payload)
        try:
            message = _decode(memoryview(payload)[len(_MAGIC) : max(end, len(_MAGIC))])
        except (msgspec.DecodeError, RecursionError) as error:
            return self._fail("malformed", f"a handshake message that cannot be read: {error}")
        if not signed:
            return self._take_hello(message, payload)
        if not self._proved(payload[:end], payload[end:]):
            return self._fail("wrong_secret", "the other end does not know the peer secret")
        self._note(payload)
        if self._role == ACCEPTOR:
            return self._take_proof(message)
        if self._peer is None:
            return self._take_welcome(message)
        return self._take_verdict(message)

    def _take_hello(self, message: _Message, payload: bytes) -> bytes:
        if not isinstance(message, Hello) or message.purpose not in PURPOSES:
            return self._fail("malformed", "an opening that is none")
        if message.format < FORMAT_OLDEST or message.format_oldest > FORMAT:
            return self._fail(
                "format",
                f"speaks formats {message.format_oldest} to {message.format}, "
                f"this node {FORMAT_OLDEST} to {FORMAT}",
            )
        self._note(payload)
        self._hello = message
        self._format = min(FORMAT, message.format)
        self._facts = self._host.facts()
        self._mark = self._host.mark()
        return self._sign(Welcome(self._format, self._facts, self._nonce, self._host.shows()))

    def _take_welcome(self, message: _Message) -> bytes:
        if not isinstance(message, Welcome):
            return self._fail("malformed", "an answer that is no welcome")
        if not FORMAT_OLDEST <= message.format <= FORMAT:
            return self._fail("format", f"answers in format {message.format}, this node has {FORMAT}")
        self._format = message.format
        self._peer = LinkPeer(
            facts=message.facts, purpose=self._purpose, format=self._format, shows=message.shows
        )
        reason = self._judged(self._peer, self._to, message.facts.place)
        if reason:
            return self._sign(Verdict(reason)) + self._refuse(reason)
        return self._sign(Proof(self._host.shows()))

    def _take_proof(self, message: _Message) -> bytes:
        hello = self._hello
        assert hello is not None
        if isinstance(message, Verdict) and message.reason:
            return self._refused(message.reason)
        if not isinstance(message, Proof):
            return self._fail("malformed", "an answer that is no proof")
        self._peer = LinkPeer(
            facts=hello.facts, purpose=hello.purpose, format=self._format, shows=message.shows
        )
        foreign = self._uncertified(hello.facts.place) if self._uncertified is not None else None
        if foreign is not None:
            answer = self._sign(Verdict(Refusal.OTHER_CERTIFICATE))
            return answer + self._fail(Refusal.OTHER_CERTIFICATE, foreign)
        reason = self._judged(self._peer, hello.to, self._own().place)
        answer = self._sign(Verdict(reason or ""))
        if reason:
            return answer + self._refuse(reason)
        self._accept(self._peer)
        return answer

    def _take_verdict(self, message: _Message) -> bytes:
        assert self._peer is not None
        if not isinstance(message, Verdict):
            return self._fail("malformed", "an answer that is no verdict")
        if message.reason:
            return self._refused(message.reason)
        if self._host.facts() != self._own():
            return self._fail(Refusal.CHANGED, "this process's membership changed meanwhile")
        self._accept(self._peer)
        return b""

    def _judged(self, peer: LinkPeer, wanted: str, found: str) -> str | None:
        """Why this end refuses, or None. Whoever was dialled for `wanted` is at `found`."""
        own = self._own()
        if peer.facts.incarnation == own.incarnation:
            return Refusal.OWN_PROCESS
        if wanted and wanted != found:
            return Refusal.OTHER_PLACE
        if self._host.facts() != own:
            # The other end holds facts that are out of date; a link must begin with true ones.
            return Refusal.CHANGED
        return self._host.judge(peer, self._mark)

    def _own(self) -> LinkFacts:
        assert self._facts is not None
        return self._facts

    def _accept(self, peer: LinkPeer) -> None:
        self.outcome = peer
        self.rest = self._buffer
        self._buffer = b""

    def _fail(self, reason: str, text: str, *, by_peer: bool = False) -> bytes:
        self.outcome = LinkFailure(reason, text, by_peer, self._peer)
        self._buffer = b""
        return b""

    def _refuse(self, reason: str) -> bytes:
        return self._fail(reason, f"refused: {reason}")

    def _refused(self, reason: str) -> bytes:
        return self._fail(reason, f"refuses: {reason}", by_peer=True)

    # --- proof

    def _note(self, payload: bytes) -> None:
        """Adds a message to the transcript. Its length comes first, so that no two transcripts read alike."""
        self._transcript.update(len(payload).to_bytes(4, "big"))
        self._transcript.update(payload)

    def _say(self, payload: bytes) -> bytes:
        self._note(payload)
        return encode_frame(PeerKind.HANDSHAKE, payload)

    def _sign(self, message: _Message) -> bytes:
        body = _MAGIC + _encode(message)
        return self._say(body + self._mac(self._secrets[0], self._role, body))

    def _mac(self, secret: bytes, role: str, body: bytes) -> bytes:
        covered = b"ticketing peer link\0" + role.encode() + b"\0" + self._transcript.digest() + body
        return hmac.digest(secret, covered, "sha256")

    def _proved(self, body: bytes, mac: bytes) -> bool:
        role = ACCEPTOR if self._role == DIALLER else DIALLER
        found = False
        for secret in self._secrets:
            # Each is compared, found or not: the time tells nothing about which one it was.
            found |= hmac.compare_digest(self._mac(secret, role, body), mac)
        return found
