"""What is said about places on peer links (spec 9, Rejoin, Replacement, Stopping).

    a process without membership        a member
    JoinAsk                     ->
                                <-      JoinAnswer, or JoinTaken once its learner is committed
    (as a voter, to the leader)
    JoinApplied                 ->
                                <-      Removed, to a process that is a member no more
    (to a peer that does not dial it)
    DialMe                      ->

    a voter that stops                  the leader
    LeaveAsk                    ->
                                <-      LeaveAnswer

Each may be said again at any time. Sender and domain are established by the link. The first group travels
as frames of kind MEMBERSHIP, the second as LEAVE. What a message has more in a newer format than in an older one
stands at its end, and is left out on a link of the older one.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec

from ticketing.node.first_state import FIRST_TOKEN_MAX, DomainId
from ticketing.node.handshake import FORMAT
from ticketing.node.members import MemberRecord
from ticketing.protocol.fields import address_problem

TEXT_MAX = 256
LONG_TEXT_MAX = 512

U64 = Annotated[int, msgspec.Meta(ge=0)]
FirstToken = Annotated[int, msgspec.Meta(gt=0, le=FIRST_TOKEN_MAX)]
"""It is written into `state/` and every later one must rise above it."""
PlaceName = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
Address = Annotated[str, msgspec.Meta(max_length=128)]
CommandId = Annotated[str, msgspec.Meta(max_length=64)]
Text = Annotated[str, msgspec.Meta(max_length=TEXT_MAX)]
LongText = Annotated[str, msgspec.Meta(max_length=LONG_TEXT_MAX)]


class JoinAsk(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """A process asks to become the voter of its place. Repeated until it is taken in."""

    place: PlaceName
    incarnation: U64
    client: Address
    peer: Address
    admin: Address
    command_id: CommandId = ""
    """The operator's command that prepared this process: it may take the place of a voter that lives."""
    who: Text = ""
    why: Text = ""
    """For the audit: e.g. `restarted`, or the operator's reason."""

    def __post_init__(self) -> None:
        """What is no address is refused where it comes in: it would go into the replicated state, banners and `L`."""
        for address in (self.client, self.peer, *filter(None, (self.admin,))):
            problem = address_problem(address)
            if problem is not None:
                raise ValueError(f"asks for its place at an address that is none: {problem}")

    @property
    def operator(self) -> bool:
        """Whether it comes at an operator's word."""
        return bool(self.command_id)

    def record(self, node_id: int) -> MemberRecord:
        """The record of the member that this process becomes."""
        return MemberRecord(
            self.place, node_id, self.incarnation, self.client, self.peer, self.admin, self.command_id
        )


class Verdict(StrEnum):
    """How it stands with a process that asks for its place."""

    WAITING = "waiting"
    """The leader knows of it; the text says what it waits for."""
    NOT_LEADING = "not_leading"
    """Whoever answered does not lead; ask `leader`, where it is named."""
    DENIED = "denied"
    """Not as things are configured; the text says what is wrong."""
    UNDONE = "undone"
    """An operator took the replacement back that this process was started for: it may stop."""


class JoinAnswer(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Not taken in (yet)."""

    incarnation: U64
    """The process life that had asked."""
    verdict: Verdict
    text: LongText
    leader: str = ""
    """Place of the leader as far as known, or empty."""
    leader_peer: Address = ""
    """The leader's peer address as its member's record has it, or empty. From format 2 on: its place may have moved
    to where whoever asks does not look for it."""


class _JoinAnswer1(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """A `JoinAnswer` as format 1 has it."""

    incarnation: U64
    verdict: Verdict
    text: LongText
    leader: str


class JoinTaken(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """The process is a member from now on: a learner under this NodeId, which the leader then catches up."""

    incarnation: U64
    """The process life that had asked."""
    place: PlaceName
    node_id: U64
    domain_id: DomainId
    first_token: FirstToken
    delta_ns: U64


class JoinApplied(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """The newest voter has applied the configuration that made it one, and everything else up to an index."""

    node_id: U64
    applied_index: U64


class Removed(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """A committed configuration ended this member: its process stops for good."""

    node_id: U64
    incarnation: U64
    why: LongText


class DialMe(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """A member tells a peer that it reaches, and that has no link to it, where it is. From format 2 on.

    Its place may have moved here while the peer stood still or was cut off, and whoever could have told it may be gone:
    as long as the peer does not know, no vote of it comes here, and this may be the only possible leader (spec 9).
    """

    place: PlaceName
    incarnation: U64
    peer: Address

    def __post_init__(self) -> None:
        """As `JoinAsk`."""
        problem = address_problem(self.peer)
        if problem is not None:
            raise ValueError(f"wants to be dialled at an address that is none: {problem}")


class LeaveAsk(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """A voter wants to stop and asks whether it may."""

    node_id: U64
    incarnation: U64
    term: U64
    """The Raft term in which it follows whom it asks."""


class LeaveAnswer(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Leave, where `refusal` is empty; else why not now."""

    node_id: U64
    incarnation: U64
    term: U64
    """The term in which the leader gave it. In another one it is void: another leader has not counted it."""
    refusal: LongText = ""


MembershipMessage = JoinAsk | JoinAnswer | JoinTaken | JoinApplied | Removed | DialMe
LeaveMessage = LeaveAsk | LeaveAnswer

_encoder = msgspec.msgpack.Encoder()
_membership_decoder: msgspec.msgpack.Decoder[MembershipMessage] = msgspec.msgpack.Decoder(MembershipMessage)
_leave_decoder: msgspec.msgpack.Decoder[LeaveMessage] = msgspec.msgpack.Decoder(LeaveMessage)


def encode(message: MembershipMessage | LeaveMessage, link_format: int = FORMAT) -> bytes:
    """The payload of one frame on a link that speaks this format."""
    if link_format < 2 and isinstance(message, JoinAnswer):
        former = _JoinAnswer1(message.incarnation, message.verdict, message.text, message.leader)
        return _encoder.encode(former)
    return _encoder.encode(message)


def decode_membership(payload: bytes | memoryview) -> MembershipMessage:
    """A MEMBERSHIP frame's payload, of any format that is spoken. Raises `msgspec.DecodeError` where it is none."""
    return _membership_decoder.decode(payload)


def decode_leave(payload: bytes | memoryview) -> LeaveMessage:
    """A LEAVE frame's payload. Raises `msgspec.DecodeError` where it is none."""
    return _leave_decoder.decode(payload)
