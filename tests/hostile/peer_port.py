"""Hostile peers: without the secret, with what was recorded of others, and with the secret."""

from __future__ import annotations

import asyncio
import os
import random
import tomllib

from tests.e2e.cluster import told_status
from tests.hostile.cases import THREE, THREE_TLS, Case, Target
from tests.hostile.client_port import HTTP, TLS_HELLO, close
from tests.hostile.strangers import SOURCES, Stranger, TlsStranger, dial_all, dribble
from tests.hostile.tls_door import client_hello, hellos
from ticketing.node.handshake import DIALLER, NONCE_BYTES, LinkFacts, LinkFailure, LinkPeer, PeerHandshake
from ticketing.node.link import HEADER, PeerKind, encode_frame
from ticketing.node.shown import Mark, Shows
from ticketing.raft import messages

REJOINED_S = 60.0


class Impostor:
    """Says of itself whatever it is told to say (`LinkHost`)."""

    def __init__(self, facts: LinkFacts, shows: Shows) -> None:
        self._facts = facts
        self._shows = shows

    def facts(self) -> LinkFacts:
        return self._facts

    def shows(self) -> Shows:
        return self._shows

    def mark(self) -> Mark:
        return {}

    def judge(self, peer: LinkPeer, mark: Mark) -> str | None:
        return None


async def impostor(
    target: Target, *, node_id: int = 99, incarnation: int = 7, term: int = 0, domain: str = ""
) -> Impostor:
    """One that names this domain, the target's if there is none, with this member's numbers."""
    if not domain:
        domain = (await told_status(target.node))["domain"].partition(".")[2]
    facts = LinkFacts("node-3", node_id, incarnation, domain, "", "", "0")
    return Impostor(facts, Shows(term, None, 1 << 40))


def secret_of(target: Target) -> bytes:
    secret: str = tomllib.loads(target.node.config.read_text())["secrets"]["peer_secrets"][0]
    return secret.encode()


async def shake(
    stranger: Stranger | TlsStranger, host: Impostor, secret: bytes
) -> tuple[PeerHandshake, list[bytes]]:
    """A handshake up to its end, and what this side has sent."""
    handshake = PeerHandshake(DIALLER, host, [secret], os.urandom(NONCE_BYTES), purpose="peer")
    said = [handshake.start()]
    await stranger.send(said[0])
    while handshake.outcome is None:
        data = await stranger.read(5)
        if not data:
            break
        answer = handshake.feed(data)
        if answer:
            said.append(answer)
            await stranger.send(answer)
    return handshake, said


async def link_of(target: Target, host: Impostor) -> Stranger:
    """A link of somebody who knows the secret."""
    stranger = await Stranger.dial(target.node.peer, source=SOURCES[5])
    handshake, _said = await shake(stranger, host, secret_of(target))
    assert isinstance(handshake.outcome, LinkPeer), handshake.outcome
    return stranger


async def answers(target: Target) -> bool:
    """Whether the port answers the first words of a dialler."""
    if target.tls is None:
        handshake = PeerHandshake(
            DIALLER, await impostor(target), [secret_of(target)], os.urandom(NONCE_BYTES), purpose="peer"
        )
        said = handshake.start()
    else:
        said = client_hello(target)
    with await Stranger.dial(target.node.peer) as stranger:
        await stranger.send(said)
        return bool(await stranger.read())


async def silent(target: Target, _seconds: float) -> str:
    strangers = await dial_all(target.node.peer, 60, SOURCES[:3])
    await asyncio.gather(*(stranger.ended() for stranger in strangers))
    close(strangers)
    return f"{len(strangers)} connections, closed after 5 s"


async def stalled_tls(target: Target, _seconds: float) -> str:
    hello = client_hello(target)
    strangers = await dial_all(target.node.peer, 30, SOURCES[4:6])
    for number, stranger in enumerate(strangers):
        await stranger.send(hello if number % 2 else hello[:100])
    await asyncio.gather(*(stranger.ended() for stranger in strangers))
    close(strangers)
    return f"{len(strangers)} handshakes, closed after 5 s"


async def half_open(target: Target, _seconds: float) -> str:
    """A proved peer whose machine loses its power."""
    links = [await link_of(target, await impostor(target, incarnation=100 + number)) for number in range(3)]
    await asyncio.gather(*(link.ended() for link in links))
    close(links)
    return f"{len(links)} proved links that say nothing more, closed after 3 s"


async def garbage(target: Target, _seconds: float) -> str:
    rng = random.Random(3)
    noises = [
        HTTP,
        TLS_HELLO,
        b"\xff" * 500_000,
        HEADER.pack(1 << 31, 0),
        HEADER.pack(4_097, 0) + bytes(4_097),
        HEADER.pack(0, 0),
        encode_frame(PeerKind.RAFT, b"vote for me"),
        encode_frame(PeerKind.HANDSHAKE, b"TKTPEER\x01" + b"\x91" * 3_000),
        encode_frame(PeerKind.HANDSHAKE, b"TKTPEER\x01\xdd\xff\xff\xff\xff\x01"),
        *(rng.randbytes(300) for _ in range(10)),
        *(encode_frame(PeerKind.HANDSHAKE, b"TKTPEER\x01" + rng.randbytes(200)) for _ in range(10)),
    ]

    async def one(number: int, noise: bytes) -> None:
        with await Stranger.dial(target.node.peer, source=SOURCES[number % 4]) as stranger:
            await stranger.send(noise)
            await stranger.ended()

    await asyncio.gather(*(one(number, noise) for number, noise in enumerate(noises)))
    return f"{len(noises)} openings that are none"


async def forged(target: Target, _seconds: float) -> str:
    """Without the secret: every member's NodeId, an incarnation, this domain or another, a term far ahead."""
    before = await told_status(target.node)
    members = before["raft"]["members"]
    tried = 0
    for member in [*members, members[0]]:
        other = "f" * 32 if tried == len(members) else ""
        node_id = int(member["node_id"])
        host = await impostor(target, node_id=node_id, incarnation=tried + 3, term=1 << 40, domain=other)
        with await Stranger.dial(target.node.peer) as stranger:
            handshake, _said = await shake(stranger, host, b"guessed")
            if other:
                assert handshake.outcome is None, "nobody answers for a domain that is not its own"
            else:
                assert isinstance(handshake.outcome, LinkFailure), handshake.outcome
                assert handshake.outcome.reason == "wrong_secret"
            # The acceptor has shown itself; what it would believe is a proof, and this is none.
            await stranger.send(encode_frame(PeerKind.HANDSHAKE, b"TKTPEER\x01" + bytes(60)))
            await stranger.ended()
        tried += 1
    after = await told_status(target.node)
    assert after["raft"]["term"] == before["raft"]["term"]
    assert after["leader"] == before["leader"]
    return f"{tried} members forged, one of another domain"


async def replayed(target: Target, _seconds: float) -> str:
    """All that a real handshake consisted of, once more; and the acceptor's own words back to it."""
    host = await impostor(target)
    with await Stranger.dial(target.node.peer) as stranger:
        _handshake, said = await shake(stranger, host, secret_of(target))
    assert len(said) == 2
    with await Stranger.dial(target.node.peer) as stranger:
        await stranger.send(said[0])
        welcome = await stranger.read()
        await stranger.send(said[1])
        assert await stranger.ended() == b""
    with await Stranger.dial(target.node.peer) as stranger:
        await stranger.send(said[0])
        await stranger.read()
        await stranger.send(welcome)
        assert await stranger.ended() == b""
    return "a handshake replayed, a welcome reflected"


async def liar(target: Target, _seconds: float) -> str:
    """Whoever knows the secret is believed in what can be true; what cannot be ends its link and nothing else."""
    before = await told_status(target.node)
    tag, term = bytes.fromhex(before["domain"].partition(".")[2]), int(before["raft"]["term"])
    last = (1 << 64) - 1
    raft: list[messages.Message] = [
        messages.StaleTerm(last),
        messages.TimeoutNow(last),
        messages.VoteRequest(last, last, last, transfer=True),
        messages.AppendReply(term, 1, 1 << 50, 1 << 50),
        messages.AppendReply(term, last, 1, 1),
        messages.AppendRefusal(term, last, last, last, last, last),
        messages.AppendEntries(last, 1, 0, 0, last, []),
    ]
    frames = [
        *(encode_frame(PeerKind.RAFT, tag + messages.encode(message)) for message in raft),
        *(
            encode_frame(kind, b"\xc1" * 100)
            for kind in PeerKind
            if kind not in (PeerKind.HANDSHAKE, PeerKind.RAFT)
        ),
        encode_frame(PeerKind.RAFT, tag + b"\x99\x05\x01\x01\x00\x00\x00\x90" + b"\x91" * 3_000_000),
        encode_frame(
            PeerKind.RAFT, tag + b"\x97\x05\x01\x01\x00\x00\x00\xdd\xff\xff\xff\xff" + bytes(3_000_000)
        ),
        HEADER.pack(5 << 20, PeerKind.RAFT),
        encode_frame(PeerKind.MEMBERSHIP, b"\x99\x01\xa6node-3\x07\xa8nonsense\xa8nonsense\xa0\xa0\xa0\xa0"),
    ]
    for number, frame in enumerate(frames):
        link = await link_of(target, await impostor(target, incarnation=1_000 + number))
        await link.send(frame)
        await link.ended()
        link.close()
    after = await told_status(target.node)
    assert after["leader"] == before["leader"]
    assert after["raft"]["term"] == before["raft"]["term"]
    return f"{len(frames)} frames that cannot be true or cannot be read"


async def full_door(target: Target, _seconds: float) -> str:
    """Strangers from many sources hold the door of the peer port; a member that starts again comes in all the same."""
    strangers = await dial_all(target.node.peer, 150, SOURCES[:5])
    tasks = [asyncio.create_task(dribble(stranger, b"\x00" * 40, 0.3)) for stranger in strangers]
    leader = await target.cluster.leader()
    other = target.cluster.others(target.node, leader)[0]
    other.kill()
    other.start()
    await target.cluster.whole(REJOINED_S)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    close(strangers)
    return f"{len(strangers)} connections; a member that was killed and started again came in"


async def handshake_flood(target: Target, seconds: float) -> str:
    """TLS handshakes, each without a certificate of ours."""
    return await hellos(target, target.node.peer, 32, seconds)


CASES = (
    Case("peer: silent", silent, (THREE, THREE_TLS), log="link did not authenticate in time", waits=True),
    Case(
        "peer: TLS that stalls",
        stalled_tls,
        (THREE_TLS,),
        log="link did not authenticate in time",
        waits=True,
    ),
    Case("peer: half-open", half_open, (THREE,), waits=True),
    Case(
        "peer: garbage",
        garbage,
        (THREE, THREE_TLS),
        log="peer link refused",
        log_tls="TLS with a peer failed",
    ),
    Case("peer: forged", forged, (THREE,), log="peer link refused"),
    Case("peer: replayed and reflected", replayed, (THREE,), log="peer link refused"),
    Case("peer: a liar with the secret", liar, (THREE,), log="a peer says what cannot be true"),
    Case("peer: a full door", full_door, (THREE,), log="link turned away"),
    Case("peer: a flood of handshakes", handshake_flood, (THREE_TLS,)),
)
