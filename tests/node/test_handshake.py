"""Both ends of a peer handshake joined in memory: who gets a link, who does not, and what each end knows of
why."""

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ticketing.node.handshake import (
    ACCEPTOR,
    DIALLER,
    FORMAT,
    NONCE_BYTES,
    LinkFacts,
    LinkFailure,
    LinkPeer,
    PeerHandshake,
    Refusal,
)
from ticketing.node.link import HANDSHAKE_BYTES_MAX, HEADER, PeerKind, encode_frame
from ticketing.node.shown import Mark, ShownRecord, Shows
from ticketing.raft.types import Member

SECRET = b"peer secret of the cluster"
DOMAIN = "0123456789abcdef"
NEAR_SHOWS = Shows(3, Member(1, 101), 9)


def facts(place: str = "node-1", node_id: int = 1, incarnation: int = 101, domain: str = DOMAIN) -> LinkFacts:
    return LinkFacts(place, node_id, incarnation, domain, "digest", "permit", "1.0")


class Host:
    """A node, as far as a handshake asks."""

    def __init__(self, own: LinkFacts, shows: Shows = NEAR_SHOWS) -> None:
        self.own = own
        self.state = shows
        self.record = ShownRecord()
        self.reason: str | None = None
        self.judged: list[LinkPeer] = []

    def facts(self) -> LinkFacts:
        return self.own

    def shows(self) -> Shows:
        return self.state

    def mark(self) -> Mark:
        return self.record.mark()

    def judge(self, peer: LinkPeer, mark: Mark) -> str | None:
        self.judged.append(peer)
        if self.record.rolled_back(peer.member, peer.shows, mark):
            return Refusal.ROLLED_BACK
        return self.reason


class Pair:
    """A dialler (node-1) and an acceptor (node-2), the wire between them in the test's hand."""

    def __init__(
        self,
        *,
        dialler: Host | None = None,
        acceptor: Host | None = None,
        dialler_secrets: tuple[bytes, ...] = (SECRET,),
        acceptor_secrets: tuple[bytes, ...] = (SECRET,),
        to: str = "node-2",
        purpose: str = "peer",
    ) -> None:
        self.near = dialler or Host(facts())
        self.far = acceptor or Host(facts("node-2", 2, 202), Shows(4, Member(2, 202), 10))
        self.dialler = PeerHandshake(
            DIALLER, self.near, dialler_secrets, b"d" * NONCE_BYTES, purpose=purpose, to=to
        )
        self.acceptor = PeerHandshake(ACCEPTOR, self.far, acceptor_secrets, b"a" * NONCE_BYTES)

    def run(self, change: Callable[[int, bytes], bytes] = lambda _number, data: data) -> None:
        """Carries messages to and fro, each through `change`, until nobody has anything to say."""
        self.sent = [data := self.dialler.start()]
        ends = (self.acceptor, self.dialler)
        for number in range(6):
            end = ends[number % 2]
            data = change(number, data)
            if not data or end.outcome is not None:
                return
            data = end.feed(data)
            self.sent.append(data)


def failure(handshake: PeerHandshake) -> LinkFailure:
    assert isinstance(handshake.outcome, LinkFailure)
    return handshake.outcome


def peer(handshake: PeerHandshake) -> LinkPeer:
    assert isinstance(handshake.outcome, LinkPeer), handshake.outcome
    return handshake.outcome


@pytest.mark.parametrize("purpose", ["peer", "snapshot"])
def test_each_end_learns_the_other_as_it_is(purpose: str) -> None:
    pair = Pair(purpose=purpose)
    pair.run()
    assert peer(pair.dialler) == LinkPeer(
        facts=pair.far.own, purpose=purpose, format=FORMAT, shows=pair.far.state
    )
    assert peer(pair.acceptor) == LinkPeer(
        facts=pair.near.own, purpose=purpose, format=FORMAT, shows=pair.near.state
    )
    assert peer(pair.acceptor).member == Member(1, 101)
    assert peer(pair.acceptor).place == "node-1"
    assert peer(pair.acceptor).domain == DOMAIN


def test_without_membership_on_either_end() -> None:
    outside = Host(facts("node-1", 0, 101, ""), Shows())
    pair = Pair(dialler=outside)
    pair.run()
    assert peer(pair.acceptor).member == Member(0, 101)
    assert peer(pair.acceptor).shows == Shows(0, None, 0)
    assert peer(pair.dialler).domain == DOMAIN


def test_byte_by_byte() -> None:
    pair = Pair()
    data = pair.dialler.start()
    for end in (pair.acceptor, pair.dialler, pair.acceptor, pair.dialler):
        data = b"".join(end.feed(bytes([byte])) for byte in data)
    assert data == b""
    peer(pair.dialler)
    peer(pair.acceptor)


def test_frames_right_behind_the_handshake_are_left_whole() -> None:
    pair = Pair()
    behind = encode_frame(PeerKind.RAFT, b"r" * (2 * HANDSHAKE_BYTES_MAX))
    pair.run(lambda number, data: data + behind if number == 2 else data)
    peer(pair.acceptor)
    assert pair.acceptor.rest == behind
    assert pair.dialler.rest == b""


# --- secrets


def test_another_secret_is_seen_by_the_dialler_first_and_nobody_says_a_thing() -> None:
    pair = Pair(acceptor_secrets=(b"another",))
    pair.run()
    assert failure(pair.dialler).reason == "wrong_secret"
    assert failure(pair.dialler).peer is None
    assert pair.acceptor.outcome is None
    assert not pair.near.judged


def test_a_dialler_with_another_secret_is_closed_without_detail() -> None:
    # The dialler accepts what the acceptor proves with, and itself proves with something else.
    pair = Pair(dialler_secrets=(b"another", SECRET))
    welcome = pair.acceptor.feed(pair.dialler.start())
    assert pair.acceptor.feed(pair.dialler.feed(welcome)) == b""
    assert failure(pair.acceptor).reason == "wrong_secret"
    assert not pair.far.judged


@pytest.mark.parametrize(
    ("near", "far"),
    [
        ((b"new", b"old"), (b"old", b"new")),
        ((b"old", b"new"), (b"new", b"old")),
        ((b"old",), (b"old", b"new")),
        ((b"new",), (b"new", b"old")),
    ],
)
def test_two_secrets_are_accepted_while_one_is_rotated(
    near: tuple[bytes, ...], far: tuple[bytes, ...]
) -> None:
    pair = Pair(dialler_secrets=near, acceptor_secrets=far)
    pair.run()
    peer(pair.dialler)
    peer(pair.acceptor)


# --- attacks


def test_reflected_to_its_own_process_a_dialler_finds_itself() -> None:
    # An attacker that knows no secret hands everything to the victim's own listener.
    victim = Host(facts())
    pair = Pair(dialler=victim, acceptor=victim, to="")
    pair.run()
    assert failure(pair.dialler).reason == Refusal.OWN_PROCESS
    assert failure(pair.acceptor) == (Refusal.OWN_PROCESS, "refuses: own_process", True, None)
    assert not victim.judged


def test_a_proof_sent_back_to_its_maker_proves_nothing() -> None:
    pair = Pair()
    welcome = pair.acceptor.feed(pair.dialler.start())
    proof = pair.dialler.feed(welcome)
    assert pair.dialler.feed(proof) == b""
    assert failure(pair.dialler).reason == "wrong_secret"


def test_a_welcome_sent_back_to_its_maker_proves_nothing() -> None:
    pair = Pair()
    welcome = pair.acceptor.feed(pair.dialler.start())
    assert pair.acceptor.feed(welcome) == b""
    assert failure(pair.acceptor).reason == "wrong_secret"


def test_a_recorded_dialler_cannot_be_replayed() -> None:
    pair = Pair()
    pair.run()
    peer(pair.acceptor)
    again = PeerHandshake(ACCEPTOR, pair.far, (SECRET,), b"b" * NONCE_BYTES)
    again.feed(pair.sent[0])
    again.feed(pair.sent[2])
    assert failure(again).reason == "wrong_secret"


def test_a_recorded_acceptor_cannot_be_replayed() -> None:
    pair = Pair()
    pair.run()
    again = PeerHandshake(DIALLER, pair.near, (SECRET,), b"e" * NONCE_BYTES, purpose="peer")
    again.start()
    again.feed(pair.sent[1])
    assert failure(again).reason == "wrong_secret"


def test_a_verdict_of_another_handshake_says_nothing() -> None:
    refused = Pair()
    refused.far.reason = Refusal.REMOVED
    refused.run()
    assert failure(refused.dialler).reason == Refusal.REMOVED
    pair = Pair()
    pair.acceptor = PeerHandshake(ACCEPTOR, pair.far, (SECRET,), b"c" * NONCE_BYTES)
    pair.run(lambda number, data: refused.sent[3] if number == 3 else data)
    assert failure(pair.dialler).reason == "wrong_secret"


def _outcomes(pair: Pair) -> tuple[object, object]:
    return pair.dialler.outcome, pair.acceptor.outcome


_plain = Pair(to="")
_plain.run()


@given(number=st.integers(0, 3), where=st.floats(0, 1, exclude_max=True), flip=st.integers(1, 255))
@settings(max_examples=400, deadline=None)
def test_no_byte_can_be_changed(number: int, where: float, flip: int) -> None:
    """Whatever byte of whichever message is changed, the end that is told wrongly takes no link."""
    position = int(where * len(_plain.sent[number]))

    def change(at: int, data: bytes) -> bytes:
        if at != number:
            return data
        return data[:position] + bytes([data[position] ^ flip]) + data[position + 1 :]

    pair = Pair(to="")
    pair.run(change)
    dialler, acceptor = _outcomes(pair)
    assert not isinstance(dialler, LinkPeer)
    if number < 3:
        assert not isinstance(acceptor, LinkPeer)


@pytest.mark.parametrize("end", ["dialler", "acceptor"])
@pytest.mark.parametrize(
    "changed",
    [
        {"place": "node-3"},
        {"node_id": 7},
        {"incarnation": 999},
        {"domain": "fedcba9876543210"},
        {"domain": ""},
        {"cluster": "other"},
        {"permit": "other"},
        {"version": "2"},
    ],
)
def test_no_fact_can_be_changed(end: str, changed: dict[str, object]) -> None:
    """The attacker re-encodes a message properly: one fact differs, all else stands."""
    number = 0 if end == "dialler" else 1

    def change(at: int, data: bytes) -> bytes:
        if at != number:
            return data
        body, mac = data[HEADER.size + 8 :], b""
        if number == 1:
            body, mac = body[:-32], body[-32:]
        message = msgspec.msgpack.decode(body)
        position = 5 if number == 0 else 2
        message[position] = msgspec.structs.replace(msgspec.convert(message[position], LinkFacts), **changed)
        return encode_frame(
            PeerKind.HANDSHAKE,
            data[HEADER.size : HEADER.size + 8] + msgspec.msgpack.encode(message) + mac,
        )

    pair = Pair(to="")
    pair.run(change)
    assert failure(pair.dialler).reason == "wrong_secret"
    assert pair.acceptor.outcome is None


# --- refusals


@pytest.mark.parametrize("reason", list(Refusal))
def test_a_refusing_acceptor_says_why_and_is_believed(reason: Refusal) -> None:
    pair = Pair()
    pair.far.reason = reason
    pair.run()
    assert failure(pair.acceptor).reason == reason
    assert not failure(pair.acceptor).by_peer
    told = failure(pair.dialler)
    assert (told.reason, told.by_peer) == (reason, True)
    assert told.peer is not None
    assert told.peer.place == "node-2"


def test_a_refusing_dialler_says_why_and_is_believed() -> None:
    pair = Pair()
    pair.near.reason = Refusal.REMOVED
    pair.run()
    assert failure(pair.dialler).reason == Refusal.REMOVED
    assert not failure(pair.dialler).by_peer
    assert failure(pair.acceptor)[:3] == (Refusal.REMOVED, "refuses: removed", True)


def test_a_reason_of_a_newer_program_is_handed_on() -> None:
    pair = Pair()
    pair.far.reason = "sent_by_a_newer_one"
    pair.run()
    assert failure(pair.dialler).reason == "sent_by_a_newer_one"


def test_an_address_that_leads_to_another_place_is_refused_by_the_dialler() -> None:
    pair = Pair(to="node-3")
    pair.run()
    assert failure(pair.dialler).reason == Refusal.OTHER_PLACE
    assert failure(pair.acceptor).by_peer


def test_membership_that_changed_during_the_handshake_asks_for_a_new_one() -> None:
    def join(host: Host, at: int) -> Callable[[int, bytes], bytes]:
        def change(number: int, data: bytes) -> bytes:
            if number == at:
                host.own = facts(host.own.place, 9, host.own.incarnation)
            return data

        return change

    pair = Pair()
    pair.run(join(pair.near, 1))
    assert failure(pair.dialler).reason == Refusal.CHANGED
    assert failure(pair.acceptor).by_peer
    pair = Pair()
    pair.run(join(pair.far, 2))
    assert failure(pair.acceptor).reason == Refusal.CHANGED
    assert failure(pair.dialler).by_peer
    pair = Pair()
    pair.run(join(pair.near, 3))
    assert failure(pair.dialler).reason == Refusal.CHANGED
    assert not failure(pair.dialler).by_peer


# --- rolled back


@pytest.mark.parametrize("end", ["dialler", "acceptor"])
def test_a_peer_that_shows_less_than_before_is_refused(end: str) -> None:
    pair = Pair()
    if end == "dialler":
        pair.far.record.seen(Member(1, 101), 4)
    else:
        pair.near.record.seen(Member(2, 202), 4, Member(3, 303))
    pair.run()
    assert failure(pair.dialler).reason == Refusal.ROLLED_BACK
    assert failure(pair.acceptor).reason == Refusal.ROLLED_BACK


@pytest.mark.parametrize("end", ["dialler", "acceptor"])
def test_what_was_shown_while_the_handshake_ran_is_not_held_against_it(end: str) -> None:
    # The hello was made before the peer's later message on another link, and arrives after it.
    pair = Pair()

    def show(number: int, data: bytes) -> bytes:
        if end == "dialler" and number == 2:
            pair.far.record.seen(Member(1, 101), 8)
        if end == "acceptor" and number == 1:
            pair.near.record.seen(Member(2, 202), 8)
        return data

    pair.run(show)
    peer(pair.dialler)
    peer(pair.acceptor)


def test_state_is_stated_after_the_others_nonce_came() -> None:
    pair = Pair()

    def grow(number: int, data: bytes) -> bytes:
        if number == 0:
            pair.far.state = Shows(20, None, 1)
        if number == 1:
            pair.near.state = Shows(30, Member(2, 202), 2)
        return data

    pair.run(grow)
    assert peer(pair.dialler).shows == Shows(20, None, 1)
    assert peer(pair.acceptor).shows == Shows(30, Member(2, 202), 2)


# --- what is no peer


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP"),
        (b"TICKETING/1+x+d=1.0123456789abcdef+n=h:5225 abc\n", "client port"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "TLS"),
    ],
)
@pytest.mark.parametrize("role", [DIALLER, ACCEPTOR])
def test_another_protocol_is_named(role: str, data: bytes, word: str) -> None:
    pair = Pair()
    pair.dialler.start()
    end = pair.dialler if role == DIALLER else pair.acceptor
    assert end.feed(data) == b""
    assert failure(end).reason == "foreign"
    assert word in failure(end).text


@pytest.mark.parametrize("length", [0, HANDSHAKE_BYTES_MAX + 1, 2**31, 2**32 - 1])
def test_a_length_outside_the_limit_is_refused_by_its_header(length: int) -> None:
    pair = Pair()
    pair.acceptor.feed(HEADER.pack(length, 0))
    assert failure(pair.acceptor).reason == "malformed"
    if length:
        assert str(length) in failure(pair.acceptor).text
        assert str(HANDSHAKE_BYTES_MAX) in failure(pair.acceptor).text


def test_a_frame_for_members_before_the_proof_is_refused() -> None:
    pair = Pair()
    pair.acceptor.feed(pair.dialler.start())
    pair.acceptor.feed(encode_frame(PeerKind.RAFT, b"vote for me"))
    assert failure(pair.acceptor).reason == "malformed"
    assert "kind 1" in failure(pair.acceptor).text


@given(st.binary(max_size=200), st.booleans(), st.sampled_from([DIALLER, ACCEPTOR]))
@example(b"\x9f" * 4000, True, ACCEPTOR)
@example(b"\x98\x01\x01\x01\xa4peer\xa0\x97\xa1x\x00\x00\xa0\xa0\xa0\xa0" + b"\x91" * 3500, True, ACCEPTOR)
@example(b"\xdc\xff\xff\x01", True, ACCEPTOR)
@example(b"\x92\x01\xa1\xff", True, ACCEPTOR)
@settings(max_examples=200, deadline=None)
def test_garbage_gives_a_failure_or_a_wait_never_a_link(garbage: bytes, framed: bool, role: str) -> None:
    pair = Pair()
    pair.dialler.start()
    end = pair.dialler if role == DIALLER else pair.acceptor
    data = encode_frame(PeerKind.HANDSHAKE, b"TKTPEER\x01" + garbage) if framed else garbage
    assert end.feed(data) == b""
    assert not isinstance(end.outcome, LinkPeer)
    if framed:
        failure(end)


@pytest.mark.parametrize("number", [0, 1, 2, 3])
def test_a_message_cut_short_is_waited_for(number: int) -> None:
    pair = Pair()
    pair.run(lambda at, data: data[:-1] if at == number else data)
    assert (pair.dialler if number % 2 else pair.acceptor).outcome is None


def _hello(oldest: int, newest: int) -> bytes:
    hello = [1, newest, oldest, "peer", "", facts(), b"n" * NONCE_BYTES, "a field of the future"]
    return encode_frame(PeerKind.HANDSHAKE, b"TKTPEER\x01" + msgspec.msgpack.encode(hello))


def test_a_newer_program_that_still_speaks_our_format_is_welcome() -> None:
    pair = Pair()
    assert pair.acceptor.feed(_hello(FORMAT, FORMAT + 1))
    assert pair.acceptor.outcome is None


def test_a_program_without_a_common_format_is_told_apart() -> None:
    pair = Pair()
    assert pair.acceptor.feed(_hello(FORMAT + 1, FORMAT + 2)) == b""
    assert failure(pair.acceptor).reason == "format"
    assert f"{FORMAT + 1} to {FORMAT + 2}" in failure(pair.acceptor).text
