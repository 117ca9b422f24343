"""The decoders: any bytes, cut anywhere, give the same frames and at most one problem, and little is kept."""

import struct
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ticketing.protocol import frames
from ticketing.protocol.decoder import ReplyDecoder, RequestDecoder
from ticketing.protocol.fields import KEY_LINE_MAX, OWNER_TOP_BIT, TOKEN_MAX, U64_MAX, key_problem

Encode = Callable[[int, int, int, bytes], bytes]

OWNER = OWNER_TOP_BIT | 0x0A0A
UNFINISHED_MAX = 21 + KEY_LINE_MAX
"""The longest header and the longest text that can still be waited for."""

keys = st.one_of(
    st.text(min_size=1, max_size=20).map(lambda text: text.encode("utf-8", "replace")),
    st.binary(min_size=1, max_size=8),
    st.integers(120, 200).map(lambda length: b"k" * length),
)
good_keys = keys.filter(lambda key: key_problem(key) is None)
owners = st.integers(0, U64_MAX) | st.just(0x0A0A0A0A0A0A0A0A)
cancellable = st.integers(OWNER_TOP_BIT, U64_MAX)
tokens = st.integers(1, TOKEN_MAX - 1) | st.just(0x0A0A0A0A0A0A0A0A)
seconds = st.integers(0, 0xFFFF)
leases = st.integers(1, 250)


def requests(key: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    key = key.filter(lambda candidate: b"\n" not in candidate)
    return st.one_of(
        st.builds(frames.encode_acquire, seconds, seconds, owners, key),
        st.builds(frames.encode_q, seconds, seconds, owners, key),
        st.builds(frames.encode_release, owners, key),
        st.builds(frames.encode_cancel, cancellable, key),
        st.builds(frames.encode_extend, owners, leases, key),
        st.builds(frames.encode_hello, st.binary(max_size=70).map(lambda text: text.replace(b"\n", b""))),
        st.just(frames.KEEPALIVE),
    )


def replies(key: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    address = st.integers(1, 65535).map(lambda port: f"node-1.example.org:{port}")
    return st.one_of(
        st.builds(frames.encode_granted, tokens, owners, key),
        st.builds(frames.encode_granted_waited, tokens, owners, st.integers(0, 2**32 - 1), key),
        st.builds(frames.encode_timeout, owners, key),
        st.builds(frames.encode_busy, owners, key),
        st.builds(frames.encode_not_leading, owners, key),
        st.builds(frames.encode_released, owners, key),
        st.builds(frames.encode_not_held, owners, key),
        st.builds(frames.encode_extended, tokens, key),
        st.builds(frames.encode_leader, address),
        st.builds(frames.encode_moved, address),
        st.builds(frames.encode_error, st.sampled_from(frames.ERROR_REASONS)),
        st.just(frames.KEEPALIVE),
    )


noise = st.binary(max_size=30)
client_bytes = st.lists(st.one_of(requests(good_keys), requests(keys), noise), max_size=6).map(b"".join)
server_bytes = st.lists(st.one_of(replies(good_keys), replies(keys), noise), max_size=6).map(b"".join)
cuts = st.lists(st.integers(1, 40), max_size=30)

Decoder = type[RequestDecoder] | type[ReplyDecoder]


def decode(
    decoder_type: Decoder, pieces: list[bytes]
) -> tuple[list[tuple[int, int, int, int, bytes]], str | None, str]:
    """Feeds the pieces; checks on the way that the decoder keeps little and stays silent after a problem."""
    decoder = decoder_type()
    decoded = []
    for piece in pieces:
        was = decoder.problem
        got = decoder.feed(piece)
        assert decoder.pending <= UNFINISHED_MAX
        if was is not None:
            assert (got, decoder.problem) == ([], was)
        if decoder.problem is not None:
            assert decoder.pending == 0
            assert decoder.detail.isprintable()
            assert 0 < len(decoder.detail) < 400
        decoded += got
    return decoded, decoder.problem, decoder.detail


def cut(data: bytes, lengths: list[int]) -> list[bytes]:
    pieces = []
    for length in lengths:
        pieces.append(data[:length])
        data = data[length:]
    return [*pieces, data]


@given(client_bytes, cuts)
@settings(max_examples=400, deadline=None)
def test_requests_do_not_depend_on_how_the_bytes_were_cut(data: bytes, lengths: list[int]) -> None:
    whole = decode(RequestDecoder, [data])
    assert decode(RequestDecoder, cut(data, lengths)) == whole
    assert decode(RequestDecoder, [data[i : i + 1] for i in range(len(data))]) == whole
    assert whole[1] in (None, "bad_frame", "bad_key")


@given(server_bytes, cuts)
@settings(max_examples=400, deadline=None)
def test_replies_do_not_depend_on_how_the_bytes_were_cut(data: bytes, lengths: list[int]) -> None:
    whole = decode(ReplyDecoder, [data])
    assert decode(ReplyDecoder, cut(data, lengths)) == whole
    assert decode(ReplyDecoder, [data[i : i + 1] for i in range(len(data))]) == whole
    assert whole[1] in (None, "malformed")


@given(st.binary(max_size=300), st.sampled_from([RequestDecoder, ReplyDecoder]))
@settings(max_examples=200, deadline=None)
def test_any_bytes_behind_any_opcode_are_decoded_or_refused(data: bytes, decoder_type: Decoder) -> None:
    for opcode in b"AQRCXHGTBVNLME\n\x00":
        decode(decoder_type, [bytes([opcode]) + data])


@given(st.lists(requests(good_keys), max_size=8))
@settings(max_examples=100, deadline=None)
def test_what_was_decoded_encodes_to_the_same_bytes(sent: list[bytes]) -> None:
    again = []
    decoded, problem, _ = decode(RequestDecoder, [b"".join(sent)])
    for opcode, wait, lease, ident, key in decoded:
        if opcode in (frames.ACQUIRE, frames.Q):
            again.append(struct.pack(">BHHQ", opcode, wait, lease, ident) + key + b"\n")
        elif opcode == frames.EXTEND:
            again.append(frames.encode_extend(ident, lease, key))
        elif opcode == frames.HELLO:
            again.append(frames.encode_hello(key))
        else:
            again.append(struct.pack(">BQ", opcode, ident) + key + b"\n")
    expected = [frame for frame in sent if frame != b"\n"]
    too_long = [frame for frame in expected if frame[0] == frames.HELLO and len(frame) > 66]
    if not too_long:
        assert (again, problem) == (expected, None)
    else:
        assert (again, problem) == (expected[: expected.index(too_long[0])], "bad_frame")


@given(keys)
@settings(max_examples=300, deadline=None)
def test_the_decoders_take_exactly_the_valid_keys(key: bytes) -> None:
    key = key.replace(b"\n", b"x")
    decoded, problem, detail = decode(RequestDecoder, [struct.pack(">BQ", frames.RELEASE, 5) + key + b"\n"])
    _, reply_problem, _ = decode(ReplyDecoder, [frames.encode_timeout(OWNER, key)])
    if key_problem(key) is None:
        assert decoded == [(frames.RELEASE, 0, 0, 5, key)]
        assert (problem, reply_problem) == (None, None)
    else:
        assert decoded == []
        assert reply_problem == "malformed"
        assert problem == ("bad_key" if len(key) <= KEY_LINE_MAX else "bad_frame")
        assert problem == "bad_frame" or detail == key_problem(key)


REQUEST_HEADERS = [
    frames.encode_acquire(1, 1, OWNER, b"")[:-1],
    frames.encode_q(1, 1, OWNER, b"")[:-1],
    frames.encode_release(5, b"")[:-1],
    frames.encode_cancel(OWNER, b"")[:-1],
    frames.encode_extend(5, 1, b"")[:-1],
]
REPLY_HEADERS = [
    frames.encode_granted(5, OWNER, b"")[:-1],
    frames.encode_granted_waited(5, OWNER, 10, b"")[:-1],
    *(
        encode(OWNER, b"")[:-1]
        for encode in (frames.encode_timeout, frames.encode_busy, frames.encode_not_leading)
    ),
    *(
        encode(5, b"")[:-1]
        for encode in (frames.encode_released, frames.encode_not_held, frames.encode_extended)
    ),
]


@pytest.mark.parametrize("header", REQUEST_HEADERS, ids=lambda header: chr(header[0]))
@pytest.mark.parametrize(
    ("length", "problem"),
    [(1, None), (128, None), (129, "bad_key"), (192, "bad_key"), (193, "bad_frame"), (999, "bad_frame")],
)
def test_a_long_key_is_bad_and_a_longer_one_ends_the_frame(
    header: bytes, length: int, problem: str | None
) -> None:
    decoder = RequestDecoder()
    decoder.feed(header + b"k" * length + b"\n")
    assert decoder.problem == problem


@pytest.mark.parametrize("header", REQUEST_HEADERS, ids=lambda header: chr(header[0]))
def test_an_unfinished_key_is_waited_for_up_to_192_bytes(header: bytes) -> None:
    decoder = RequestDecoder()
    assert decoder.feed(header + b"k" * 192) == []
    assert (decoder.problem, decoder.pending) == (None, len(header) + 192)
    assert decoder.feed(b"k") == []
    assert (decoder.problem, decoder.pending) == ("bad_frame", 0)


@pytest.mark.parametrize("header", REPLY_HEADERS, ids=lambda header: chr(header[0]))
def test_an_unfinished_reply_is_waited_for_and_a_long_key_is_malformed(header: bytes) -> None:
    decoder = ReplyDecoder()
    assert decoder.feed(header) == []
    assert decoder.feed(b"k" * 128) == []
    assert decoder.problem is None
    [reply] = decoder.feed(b"\n" + header + b"k" * 129 + b"\n")
    assert reply[4] == b"k" * 128
    assert decoder.problem == "malformed"


def test_a_header_of_newlines_alone_is_not_taken_for_keep_alives() -> None:
    decoder = RequestDecoder()
    for byte in b"R" + b"\n" * 8:
        assert decoder.feed(bytes([byte])) == []
    assert decoder.feed(b"k\n") == [(frames.RELEASE, 0, 0, 0x0A0A0A0A0A0A0A0A, b"k")]


def test_keep_alives_are_swallowed_anywhere_between_frames() -> None:
    frame = frames.encode_release(5, b"k")
    decoder = RequestDecoder()
    assert len(decoder.feed(b"\n\n" + frame + b"\n\n\n" + frame + b"\n")) == 2
    assert decoder.pending == 0


@pytest.mark.parametrize(
    "wrong", [b"Z", frames.encode_release(5, b"a b"), frames.encode_extend(5, 251, b"k")]
)
def test_requests_before_a_fault_are_returned_and_none_after_it(wrong: bytes) -> None:
    good = frames.encode_release(5, b"k")
    decoder = RequestDecoder()
    assert decoder.feed(good + good + wrong + good) == [(frames.RELEASE, 0, 0, 5, b"k")] * 2
    problem = decoder.problem
    assert problem is not None
    assert decoder.feed(good) == []
    assert (decoder.problem, decoder.pending) == (problem, 0)


def test_a_header_at_fault_outweighs_its_key() -> None:
    decoder = RequestDecoder()
    decoder.feed(struct.pack(">BQ", frames.CANCEL, OWNER_TOP_BIT - 1) + b"a b\n")
    assert decoder.problem == "bad_frame"


@pytest.mark.parametrize("lease", [0, 251, 0xFFFF])
def test_an_extension_out_of_range_is_a_bad_frame(lease: int) -> None:
    decoder = RequestDecoder()
    assert decoder.feed(frames.encode_extend(5, lease, b"k")) == []
    assert decoder.problem == "bad_frame"
    assert f"{lease} s" in decoder.detail


@pytest.mark.parametrize(("wait", "lease"), [(0, 0), (256, 30), (5, 251), (0xFFFF, 0xFFFF)])
@pytest.mark.parametrize("encode", [frames.encode_acquire, frames.encode_q])
def test_an_acquire_out_of_range_is_no_matter_of_the_decoder(encode: Encode, wait: int, lease: int) -> None:
    decoder = RequestDecoder()
    [request] = decoder.feed(encode(wait, lease, OWNER, b"k"))
    assert request[1:4] == (wait, lease, OWNER)
    assert decoder.problem is None


def test_a_hello_has_at_most_64_bytes_of_anything() -> None:
    decoder = RequestDecoder()
    assert decoder.feed(b"H" + b"\xff " * 32 + b"\n") == [(frames.HELLO, 0, 0, 0, b"\xff " * 32)]
    assert decoder.feed(b"H" + b"x" * 64) == []
    assert decoder.problem is None
    assert decoder.feed(b"x") == []
    assert decoder.problem == "bad_frame"


@pytest.mark.parametrize(
    ("text", "good"),
    [
        (b"L" + b"h" * 115 + b":5225", True),
        (b"L" + b"h" * 116 + b":5225", False),
        (b"Mhost:5225", True),
        (b"Mho\x80st:5225", False),
        (b"Ebad_frame", True),
        (b"Esomething_new_9", True),
        (b"Etwo words", False),
        (b"E" + b"r" * 64, True),
        (b"E" + b"r" * 65, False),
    ],
)
def test_texts_of_replies(text: bytes, good: bool) -> None:
    decoder = ReplyDecoder()
    assert decoder.feed(text + b"\n") == ([(text[0], 0, 0, 0, text[1:])] if good else [])
    assert decoder.problem == (None if good else "malformed")


def test_a_fault_tells_what_was_seen() -> None:
    decoder = RequestDecoder()
    decoder.feed(b"\x16\x03\x01")
    assert r"'\x16'" in decoder.detail
    reply = ReplyDecoder()
    reply.feed(frames.encode_granted(TOKEN_MAX, OWNER, b"k"))
    assert "token" in reply.detail


def test_a_large_unfinished_chunk_costs_one_frame_of_memory() -> None:
    decoder = RequestDecoder()
    frame = frames.encode_q(5, 30, OWNER, b"event:7:seat:12")
    assert len(decoder.feed(frame * 5000 + frame[:-1])) == 5000
    assert decoder.pending == len(frame) - 1
    assert len(decoder.feed(b"\n" + frame * 5000)) == 5001
    assert decoder.pending == 0


@pytest.mark.parametrize("encode", [frames.encode_acquire, frames.encode_q])
def test_a_key_cannot_smuggle_in_a_second_acquire(encode: Encode) -> None:
    with pytest.raises(AssertionError):
        encode(5, 30, OWNER, b"k\nR")


def test_a_key_cannot_smuggle_in_a_second_frame() -> None:
    with pytest.raises(AssertionError):
        frames.encode_release(5, b"k\nR")
    with pytest.raises(AssertionError):
        frames.encode_cancel(OWNER, b"k\nR")
    with pytest.raises(AssertionError):
        frames.encode_extend(5, 30, b"k\nR")
    with pytest.raises(AssertionError):
        frames.encode_hello(b"me\nR")


def test_numbers_that_do_not_fit_are_not_clipped() -> None:
    with pytest.raises(struct.error):
        frames.encode_q(0x10000, 30, OWNER, b"k")
    with pytest.raises(struct.error):
        frames.encode_release(U64_MAX + 1, b"k")
    with pytest.raises(struct.error):
        frames.encode_granted_waited(5, OWNER, -1, b"k")


def test_a_server_gives_no_reason_of_its_own_making() -> None:
    with pytest.raises(AssertionError):
        frames.encode_error("ready")
