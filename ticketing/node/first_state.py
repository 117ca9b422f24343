"""A domain's first state: who its first members are, its id and its first token (spec 2 and 9, Forming)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, NamedTuple

import msgspec

from ticketing.node.settings import NodeSettings

TOKENS_PER_S = 1 << 20
"""First tokens are Unix seconds times this."""

EARLIER_DISTANCE = 1 << 40
"""What a new domain's first token lies above every earlier one's: about 12 days of `TOKENS_PER_S`."""

FIRST_TOKEN_MAX = 1 << 61
"""Tokens end below 2^62; a first token up to here leaves room for any life of a domain."""

QUARANTINE_S = 250
"""The longest lease: a domain that may follow another one does not serve before this is over."""

PERMIT_FRESH_MS = 3_600_000
"""A permit forms a domain that serves at once only this long after it was made."""

DOMAIN_ID_BYTES = 8

U63 = Annotated[int, msgspec.Meta(ge=0)]
DomainId = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{16}\Z")]


class FirstMember(NamedTuple):
    """A first voter with the addresses (`host:port`) that clients, peers and operators dial."""

    place: str
    node_id: int
    incarnation: int
    client: str
    peer: str
    admin: str


class FirstState(msgspec.Struct, frozen=True, kw_only=True):
    """What all first members record, durably, before the domain exists. Encodes as a JSON object or a map."""

    domain_id: DomainId
    first_token: U63
    members: tuple[FirstMember, ...]
    """In configured order, NodeIds from 1; the first of them proposed it."""
    delta_ns: U63
    """Δ of the domain, from the lowest place."""
    quarantine_s: U63
    """0, or `QUARANTINE_S`: nothing is granted for so long after forming."""
    permit: str
    """The permit that this forming used up, or empty where an operator asked for it."""
    cluster: str
    """Digest of the shared configuration."""
    formed_wall_ms: U63
    """The proposer's wall clock, Unix milliseconds."""

    @property
    def domain(self) -> str:
        """The domain as it is shown everywhere: `<first token>.<id>`."""
        return f"{self.first_token}.{self.domain_id}"

    def member(self, place: str) -> FirstMember:
        """The first member of a configured place. KeyError where there is none."""
        for member in self.members:
            if member.place == place:
                return member
        raise KeyError(place)


def first_token(wall_ms: int, earlier: int, floor: int) -> int:
    """The first token of a domain of several nodes: the greatest of three (spec 2).

    `earlier`: the greatest first token recorded by any forming node, 0 for none; `floor`: the operator's
    number.
    """
    above_earlier = earlier + EARLIER_DISTANCE if earlier else 0
    return max(wall_ms // 1000 * TOKENS_PER_S, above_earlier, floor)


def permit_is_fresh(made_ms: int, wall_ms: int) -> bool:
    """Whether a permit may still form a domain that serves at once.

    One that seems to come from further ahead than an hour was made by another idea of the time: not fresh.
    """
    return made_ms > 0 and abs(wall_ms - made_ms) <= PERMIT_FRESH_MS


def first_members(settings: NodeSettings, incarnations: dict[str, int]) -> tuple[FirstMember, ...]:
    """All configured places in their order, numbered from 1."""
    return tuple(
        FirstMember(place.name, number, incarnations[place.name], place.client, place.peer, place.admin)
        for number, place in enumerate(settings.places, 1)
    )


def new_domain_id(random_bytes: Callable[[int], bytes]) -> str:
    """64 bits of the system's random source as 16 lower-case hex digits; never derived from anything."""
    drawn = random_bytes(DOMAIN_ID_BYTES)
    assert len(drawn) == DOMAIN_ID_BYTES, len(drawn)
    return drawn.hex()


def standalone_first_state(
    settings: NodeSettings, incarnation: int, random_bytes: Callable[[int], bytes], wall_ms: int
) -> FirstState:
    """The domain of a standalone node, new at each start: no permit, no wait, no look at the date (spec 9).

    Its first token lies above the time's and above the last recorded one + 2^20, so starts within one second,
    and starts after the wall clock was set back, still rise. It is to be stored before anything is served.
    """
    assert settings.standalone, settings.place
    assert len(settings.places) == 1, settings.places
    risen = max(wall_ms // 1000 * TOKENS_PER_S, settings.earlier_first_token + TOKENS_PER_S) + 1
    return FirstState(
        domain_id=new_domain_id(random_bytes),
        first_token=max(risen, settings.first_token_floor),
        members=first_members(settings, {settings.place: incarnation}),
        delta_ns=settings.delta_ns,
        quarantine_s=0,
        permit="",
        cluster=settings.cluster,
        formed_wall_ms=wall_ms,
    )
