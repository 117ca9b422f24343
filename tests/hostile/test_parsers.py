"""No bytes from outside get through a parser as anything but a value or its one named error."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.hostile.mutation import spoilt
from tests.hostile.parsers import EXAMPLES, PARSERS
from ticketing.node.link import FrameDecoder, PeerKind, encode_frame

SPOILT = 60
DEEP = (b"\x91" * 5_000, b"[" * 5_000, b'{"x":' * 3_000, b"\x81\xa1x" * 3_000, b"\x97\x05" + b"\x91" * 5_000)


@pytest.mark.parametrize("name", PARSERS)
def test_examples_whole_spoilt_and_deep_are_borne(name: str) -> None:
    rng, parse = Random(name), PARSERS[name]
    for example in (b"", *EXAMPLES[name], *DEEP):
        parse(example)
    for _ in range(SPOILT):
        parse(spoilt(rng, EXAMPLES[name]))


@pytest.mark.parametrize("name", PARSERS)
@given(data=st.data())
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_bytes_are_borne(name: str, data: st.DataObject) -> None:
    example = st.sampled_from(EXAMPLES[name])
    noise = st.binary(max_size=300)
    PARSERS[name](
        data.draw(
            st.one_of(
                noise,
                st.tuples(example, noise, noise).map(b"".join),
                example.flatmap(lambda whole: st.integers(0, len(whole)).map(lambda end: whole[:end])),
            )
        )
    )


def test_a_frame_in_single_bytes_takes_no_more_than_a_few_times_its_size() -> None:
    import tracemalloc

    frame = encode_frame(PeerKind.RAFT, bytes(200_000))
    decoder = FrameDecoder()
    tracemalloc.start()
    try:
        for at in range(len(frame) - 1):
            decoder.feed(frame[at : at + 1])
        held, _peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 4 * len(frame), held
    assert decoder.feed(frame[-1:]) == [(PeerKind.RAFT, bytes(200_000))]
