"""Framing: any cut of the stream gives the same frames, and nothing above the limit is kept."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ticketing.node.link import HEADER, FrameDecoder, PeerKind, describe_foreign, encode_frame

frames_in = st.lists(st.tuples(st.integers(0, 255), st.binary(max_size=40)), max_size=8)


@given(frames_in, st.data())
@settings(max_examples=150, deadline=None)
def test_any_cut_gives_the_same_frames(frames: list[tuple[int, bytes]], data: st.DataObject) -> None:
    stream = b"".join(encode_frame(kind, payload) for kind, payload in frames)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    decoder = FrameDecoder()
    got: list[tuple[int, bytes]] = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        got += decoder.feed(stream[start:end])
    assert got == frames
    assert not decoder.failure
    assert not decoder.partial


def test_byte_by_byte() -> None:
    decoder = FrameDecoder()
    got = []
    for byte in encode_frame(PeerKind.RAFT, b"abc") + encode_frame(PeerKind.CLOCK, b""):
        got += decoder.feed(bytes([byte]))
    assert got == [(PeerKind.RAFT, b"abc"), (PeerKind.CLOCK, b"")]


def test_a_half_frame_shows() -> None:
    decoder = FrameDecoder()
    frame = encode_frame(PeerKind.RAFT, b"abc")
    decoder.feed(frame[:2])
    assert decoder.partial
    decoder.feed(frame[2:6])
    assert decoder.partial
    assert decoder.feed(frame[6:]) == [(PeerKind.RAFT, b"abc")]
    assert not decoder.partial


@pytest.mark.parametrize("length", [0, 101, 2**31 - 1, 2**31, 2**32 - 1])
def test_a_length_outside_the_limit_ends_the_stream_and_names_both(length: int) -> None:
    decoder = FrameDecoder(limit=100)
    good = encode_frame(PeerKind.RAFT, b"before")
    assert decoder.feed(good + HEADER.pack(length, 1) + b"x" * 200) == [(PeerKind.RAFT, b"before")]
    assert decoder.failure
    if length:
        assert str(length) in decoder.failure
        assert "100" in decoder.failure
    assert decoder.feed(good) == []
    assert not decoder.partial


@pytest.mark.parametrize("length", [1, 99, 100])
def test_a_length_within_the_limit_is_taken(length: int) -> None:
    decoder = FrameDecoder(limit=100)
    payload = b"y" * (length - 1)
    assert decoder.feed(encode_frame(PeerKind.LEAVE, payload)) == [(PeerKind.LEAVE, payload)]


@pytest.mark.parametrize(
    ("head", "word"),
    [
        (b"GET / HTTP/1.1\r\n", "HTTP"),
        (b"HTTP/1.1 400 Bad", "HTTP"),
        (b"TICKETING/1+x+d=", "client port"),
        (b"\x16\x03\x01\x02\x00\x01", "TLS"),
        (b"\x15\x03\x03\x00\x02\x02", "TLS"),
        (b"SSH-2.0-OpenSSH_9", "SSH"),
        (b"hello, is anyone", "text"),
    ],
)
def test_what_speaks_here_is_named(head: bytes, word: str) -> None:
    assert word in describe_foreign(head)


def test_nothing_is_said_about_bytes_that_tell_nothing() -> None:
    assert describe_foreign(b"\xff\x00\x12\x99\x80") == ""
