"""Banner, response and first line (spec 3), each side alone and both sides joined."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ticketing.protocol import frames
from ticketing.protocol.decoder import RequestDecoder
from ticketing.protocol.fields import LINE_BYTES_MAX
from ticketing.protocol.handshake import (
    AUTH_FAILED_LINE,
    TRANSITIONS,
    Banner,
    BannerError,
    ClientHandshake,
    Event,
    ServerHandshake,
    State,
    build_banner,
    digest,
    first_line,
    foreign_protocol,
    format_domain,
    matching_token,
    new_nonce,
    parse_banner,
    parse_domain,
)

from .golden import GOLDEN, named

NONCE = new_nonce(bytes(range(32)))
BANNER = build_banner(Banner(NONCE, extended=True, node_address="10.0.0.2:5225"))
BANNERS, BANNER_NAMES = named("banners")
BAD_BANNERS, BAD_BANNER_NAMES = named("bad_banners")
HANDSHAKES, HANDSHAKE_NAMES = named("handshakes")


def banner_of(fields: dict[str, Any]) -> Banner:
    first_token = fields["first_token"]
    return Banner(**{**fields, "first_token": None if first_token is None else int(first_token)})


@pytest.mark.parametrize("case", BANNERS, ids=BANNER_NAMES)
def test_a_banner_is_this_line(case: dict[str, Any]) -> None:
    assert build_banner(banner_of(case["fields"])) == case["line"].encode()
    assert parse_banner(case["line"].rstrip("\n").encode()) == banner_of(case["fields"])


@pytest.mark.parametrize("case", BAD_BANNERS, ids=BAD_BANNER_NAMES)
def test_a_client_refuses_this_banner(case: dict[str, Any]) -> None:
    client = ClientHandshake("s3cret")
    assert client.feed(case["line"].encode()) == b""
    assert client.outcome == "protocol"
    assert client.detail


@pytest.mark.parametrize("case", GOLDEN["responses"])
def test_a_response_is_this_line(case: dict[str, Any]) -> None:
    assert digest(case["token"], case["nonce"]) == case["response"].encode() + b"\n"


@pytest.mark.parametrize("case", HANDSHAKES, ids=HANDSHAKE_NAMES)
def test_both_sides_speak_these_lines(case: dict[str, Any]) -> None:
    server = ServerHandshake(case["banner"].encode(), case["nonce"], case["server_tokens"])
    client = ClientHandshake(case["client_token"])
    response = client.feed(server.banner)
    assert response == case["response"].encode()
    server.feed(response + bytes.fromhex(case["after_response"]))
    assert server.outcome == case["server_outcome"]
    assert server.rest == bytes.fromhex(case["after_response"])
    answer = first_line(case["leader"]) if server.outcome == "ok" else AUTH_FAILED_LINE
    assert answer == case["first_line"].encode()
    assert client.feed(answer) == b""
    assert (client.outcome, client.leader) == (case["client_outcome"], case["leader"])


@pytest.mark.parametrize("case", HANDSHAKES, ids=HANDSHAKE_NAMES)
def test_neither_side_depends_on_how_the_bytes_were_cut(case: dict[str, Any]) -> None:
    server = ServerHandshake(case["banner"].encode(), case["nonce"], case["server_tokens"])
    client = ClientHandshake(case["client_token"])
    response = b"".join(client.feed(bytes([byte])) for byte in server.banner)
    assert response == case["response"].encode()
    for byte in response:
        assert server.outcome is None
        server.feed(bytes([byte]))
    assert server.outcome == case["server_outcome"]
    for byte in case["first_line"].encode():
        assert client.outcome is None
        client.feed(bytes([byte]))
    assert (client.outcome, client.leader) == (case["client_outcome"], case["leader"])


# --- the table


def test_the_table_leads_every_handshake_to_an_end() -> None:
    reached = {State.BANNER}
    for _ in State:
        reached |= {after for state in reached for after in TRANSITIONS[state].values()}
    assert reached == set(State)
    assert set(TRANSITIONS) == set(State)
    assert TRANSITIONS[State.READY] == TRANSITIONS[State.CLOSING] == {}


def test_nobody_is_ready_without_a_verdict_and_everybody_can_fail() -> None:
    ways_in = [
        (state, event)
        for state, row in TRANSITIONS.items()
        for event, after in row.items()
        if after is State.READY
    ]
    assert ways_in == [(State.VERDICT, Event.ACCEPTED)]
    for state in (State.BANNER, State.RESPONSE, State.VERDICT):
        assert TRANSITIONS[state][Event.FAULT] is State.CLOSING


# --- banner


def test_the_longest_banner_fits() -> None:
    domain = format_domain(2**62 - 1, 2**64 - 1)
    address = "h" * 114 + ":65535"
    banner = Banner(NONCE, True, True, 2**62 - 1, domain, address)
    line = build_banner(banner)
    assert len(line) <= LINE_BYTES_MAX
    assert parse_banner(line[:-1]) == banner


def test_a_published_client_finds_the_nonce_behind_the_first_space() -> None:
    domain = format_domain(1796601999785984, 5)
    line = build_banner(Banner(NONCE, True, False, None, domain, "10.0.0.2:5225"))
    assert line.index(b" ") > 0
    assert line[line.index(b" ") + 1 : -1] == NONCE.encode()


def test_fields_of_later_servers_are_passed_over() -> None:
    banner = parse_banner(b"TICKETING/2+x+zone=eu=1+q+n=a:1 " + NONCE.encode())
    assert banner == Banner(NONCE, extended=True, node_address="a:1", version="2")


def test_a_nonce_may_contain_anything_visible() -> None:
    assert parse_banner(b"TICKETING/1 0123456789 abcdef+x").nonce == "0123456789 abcdef+x"


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"TICKETING",
        b"TICKETING/1",
        b"TICKETING/1\x1b 0123456789abcdef",
        b"TICKETING/1 0123456789abcdef\r",
        b"TICKETING/1 0123456789abcde\xc3\xa9",
        b"TICKETING/\xff 0123456789abcdef",
        b"TICKETING/1+d=1.0000000000000005+d=2.0000000000000005 0123456789abcdef",
        b"TICKETING/1+d=4611686018427387904.0000000000000005 0123456789abcdef",
        b"TICKETING/1+d=01.0000000000000005 0123456789abcdef",
        b"TICKETING/1+d= 0123456789abcdef",
        b"TICKETING/1+n= 0123456789abcdef",
    ],
)
def test_a_banner_at_fault_is_refused_with_a_reason_fit_for_a_log(line: bytes) -> None:
    with pytest.raises(BannerError) as caught:
        parse_banner(line)
    assert str(caught.value).isprintable()


@given(st.binary(max_size=60) | st.binary(max_size=40).map(lambda rest: b"TICKETING/1+x+d=1" + rest))
@settings(max_examples=200)
def test_any_line_is_a_banner_or_refused(line: bytes) -> None:
    try:
        banner = parse_banner(line)
    except BannerError:
        return
    assert line.startswith(b"TICKETING/")
    assert len(banner.nonce) >= 16


@given(st.integers(1, 2**62 - 1), st.integers(0, 2**64 - 1))
@settings(max_examples=50)
def test_a_domain_is_shown_and_read_back(first_token: int, domain_id: int) -> None:
    assert parse_domain(format_domain(first_token, domain_id)) == (first_token, domain_id)


@pytest.mark.parametrize(
    "wrong", ["", ".", "1", "1.5", "0.0000000000000005", "1.000000000000000G", "-1.0000000000000005"]
)
def test_what_is_no_domain(wrong: str) -> None:
    assert parse_domain(wrong) is None


def test_a_nonce_is_all_of_its_bytes() -> None:
    assert new_nonce(bytes(32)) != new_nonce(bytes(31) + b"\x01")
    with pytest.raises(AssertionError):
        new_nonce(b"short")


# --- server


def test_each_of_several_tokens_opens_a_session_and_it_is_known_which() -> None:
    for number, token in enumerate(["new", "old"]):
        server = ServerHandshake(BANNER, NONCE, ["new", "old"])
        server.feed(digest(token, NONCE))
        assert (server.outcome, server.token_number, server.state) == ("ok", number, State.READY)


def test_all_tokens_are_compared_whichever_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[bytes] = []

    def compare(left: bytes, right: bytes) -> bool:
        compared.append(right)
        return left == right

    monkeypatch.setattr("hmac.compare_digest", compare)
    assert matching_token(digest("a", NONCE)[:-1], NONCE, ["a", "b", "c"]) == 0
    assert len(compared) == 3


@pytest.mark.parametrize(
    "line",
    [
        b"\n",
        b"x\n",
        digest("other", NONCE),
        digest("s3cret", NONCE)[:-1] + b"=\n",
        digest("s3cret", "0" * 43),
        b"\xff" * 43 + b"\n",
    ],
)
def test_a_wrong_response_is_refused(line: bytes) -> None:
    server = ServerHandshake(BANNER, NONCE, ["s3cret"])
    server.feed(line)
    assert (server.outcome, server.rest, server.token_number) == ("auth_failed", b"", -1)


def test_the_empty_token_opens_nothing_where_tokens_are_configured() -> None:
    server = ServerHandshake(BANNER, NONCE, ["s3cret"])
    server.feed(digest("", NONCE))
    assert server.outcome == "auth_failed"
    with pytest.raises(AssertionError):
        ServerHandshake(BANNER, NONCE, ["s3cret", ""])


def test_a_response_is_bounded() -> None:
    server = ServerHandshake(BANNER, NONCE, ["s3cret"])
    server.feed(b"x" * (LINE_BYTES_MAX - 1))
    assert server.outcome is None
    server.feed(b"x")
    assert server.ended
    whole = ServerHandshake(BANNER, NONCE, ["s3cret"])
    whole.feed(b"x" * LINE_BYTES_MAX + b"\n")
    assert whole.outcome == "bad_frame"
    last = ServerHandshake(BANNER, NONCE, ["s3cret"])
    last.feed(b"x" * (LINE_BYTES_MAX - 1) + b"\n")
    assert last.outcome == "auth_failed"


def test_bytes_after_a_refusal_change_nothing() -> None:
    server = ServerHandshake(BANNER, NONCE, ["s3cret"])
    server.feed(b"wrong\n" + digest("s3cret", NONCE))
    server.feed(digest("s3cret", NONCE))
    assert (server.outcome, server.rest) == ("auth_failed", b"")


def test_bytes_after_the_response_are_frames() -> None:
    server = ServerHandshake(BANNER, NONCE, ["s3cret"])
    server.feed(digest("s3cret", NONCE) + frames.encode_release(5, b"k") + b"R")
    decoder = RequestDecoder()
    assert decoder.feed(server.rest) == [(frames.RELEASE, 0, 0, 5, b"k")]
    assert decoder.pending == 1


def test_feeding_an_open_session_to_its_handshake_is_our_mistake() -> None:
    server = ServerHandshake(BANNER, NONCE, [])
    server.feed(digest("", NONCE))
    with pytest.raises(AssertionError):
        server.feed(b"\n")


@pytest.mark.parametrize(
    ("seen", "name"),
    [
        (b"GET / HTTP/1.1\r\n", "HTTP"),
        (b"PRI * HTTP/2.0\r\n", "HTTP"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "SSH"),
        (b"\x16\x03\x01\x02\x00\x01\n", "TLS"),
        (BANNER, "Ticketing"),
    ],
)
def test_the_log_says_what_else_was_spoken(seen: bytes, name: str) -> None:
    server = ServerHandshake(BANNER, NONCE, ["s3cret"])
    server.feed(seen)
    assert server.outcome == "auth_failed"
    assert name in server.detail
    assert server.detail.isprintable()


def test_a_response_is_taken_for_nothing_else() -> None:
    assert foreign_protocol(digest("s3cret", NONCE)) == ""
    assert foreign_protocol(b"") == ""


# --- client


def verdict(line: bytes) -> ClientHandshake:
    client = ClientHandshake("s3cret")
    assert client.feed(BANNER) == digest("s3cret", NONCE)
    assert client.feed(line) == b""
    return client


def test_a_client_answers_once_and_knows_whom_it_speaks_to() -> None:
    client = ClientHandshake("s3cret")
    assert client.feed(BANNER + b"L[::1]:5225\nT") == digest("s3cret", NONCE)
    assert (client.outcome, client.leader, client.rest) == ("ready", "[::1]:5225", b"T")
    assert client.banner == Banner(NONCE, extended=True, node_address="10.0.0.2:5225")
    with pytest.raises(AssertionError):
        client.feed(b"\n")


@pytest.mark.parametrize("reason", frames.ERROR_REASONS)
def test_a_refusal_is_the_outcome(reason: str) -> None:
    client = verdict(frames.encode_error(reason))
    assert (client.outcome, client.state) == (reason, State.CLOSING)


def test_a_server_that_is_full_may_refuse_in_place_of_its_banner() -> None:
    client = ClientHandshake("s3cret")
    assert client.feed(b"Etoo_many_sessions\n") == b""
    assert client.outcome == "too_many_sessions"


@pytest.mark.parametrize(
    "line",
    [
        b"Eready\n",
        b"E\n",
        b"Eno such\n",
        b"L\n",
        b"L10.0.0.2\n",
        b"Mhost:5225\n",
        b"hello\n",
        b"\xff\n",
        b"x" * 256,
        b"\r\n",
    ],
)
def test_another_first_line_breaks_the_protocol(line: bytes) -> None:
    client = verdict(line)
    assert (client.outcome, client.leader, client.state) == ("protocol", None, State.CLOSING)
    assert client.detail
    assert client.detail.isprintable()
    assert client.feed(b"L10.0.0.2:5225\n") == b""
    assert (client.outcome, client.rest) == ("protocol", b"")


def test_a_banner_is_bounded() -> None:
    client = ClientHandshake("s3cret")
    assert client.feed(b"TICKETING/1 " + b"n" * (LINE_BYTES_MAX - 12)) == b""
    assert client.outcome == "protocol"


def test_a_published_server_is_taken_at_its_banner() -> None:
    client = ClientHandshake("s3cret")
    assert client.feed(b"TICKETING/1 " + NONCE.encode() + b"\nL10.0.0.2:5225\n") == digest("s3cret", NONCE)
    assert (client.outcome, client.leader, client.rest) == ("ready", None, b"L10.0.0.2:5225\n")


first_bytes = st.lists(
    st.sampled_from(
        [
            BANNER,
            b"TICKETING/1 0123456789abcdef\n",
            b"Lhost:5225\n",
            b"\n",
            AUTH_FAILED_LINE,
            digest("s3cret", NONCE),
        ]
    )
    | st.binary(max_size=20)
    | st.integers(200, 300).map(lambda length: b"x" * length),
    max_size=4,
).map(b"".join)


@given(first_bytes, st.lists(st.integers(1, 50), max_size=20), st.booleans())
@settings(max_examples=200, deadline=None)
def test_any_bytes_end_a_handshake_or_are_waited_for(
    data: bytes, lengths: list[int], after_banner: bool
) -> None:
    def run(pieces: list[bytes]) -> tuple[object, ...]:
        client = ClientHandshake("s3cret")
        server = ServerHandshake(BANNER, NONCE, ["s3cret"])
        sent = client.feed(BANNER) if after_banner else b""
        client_rest = server_rest = b""
        for piece in pieces:
            if server.outcome == "ok":
                server_rest += piece
            else:
                server.feed(piece)
            if client.outcome == "ready":
                client_rest += piece
            else:
                sent += client.feed(piece)
        client_end = client.outcome, client.leader, client.detail, client.rest + client_rest
        return sent, *client_end, server.outcome, server.detail, server.rest + server_rest

    pieces = []
    rest = data
    for length in lengths:
        pieces.append(rest[:length])
        rest = rest[length:]
    assert run([*pieces, rest]) == run([data])
