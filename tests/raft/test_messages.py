"""Messages through bytes."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticketing.raft.messages import (
    AppendEntries,
    AppendRefusal,
    AppendReply,
    Message,
    PreVoteAnswer,
    PreVoteRequest,
    StaleTerm,
    TimeoutNow,
    VoteAnswer,
    VoteRequest,
    WireEntry,
    decode,
    decode_change,
    encode,
    encode_change,
)
from ticketing.raft.types import Configuration, ConfigurationChange, Member

naturals = st.integers(0, 2**63 - 1)
entries = st.builds(WireEntry, naturals, st.integers(0, 2), st.binary(max_size=40), naturals)
messages = st.one_of(
    st.builds(PreVoteRequest, naturals, naturals, naturals),
    st.builds(PreVoteAnswer, naturals, naturals, st.booleans()),
    st.builds(VoteRequest, naturals, naturals, naturals, st.booleans()),
    st.builds(VoteAnswer, naturals, st.booleans()),
    st.builds(AppendEntries, *[naturals] * 5, st.lists(entries, max_size=4)),
    st.builds(AppendReply, *[naturals] * 4),
    st.builds(AppendRefusal, *[naturals] * 6),
    st.builds(TimeoutNow, naturals),
    st.builds(StaleTerm, naturals),
)


@given(messages)
def test_a_message_survives_its_bytes(message: Message) -> None:
    assert decode(encode(message)) == message


@given(st.binary(max_size=60))
def test_any_bytes_are_a_message_or_a_decoding_error(data: bytes) -> None:
    try:
        message = decode(data)
    except msgspec.DecodeError:
        return
    assert decode(encode(message)) == message


@pytest.mark.parametrize(
    "message",
    [StaleTerm(-1), AppendReply(1, -2, 0, 0), AppendEntries(1, 1, 1, 1, 1, [WireEntry(1, 1, b"", -5)])],
)
def test_negative_numbers_are_refused(message: Message) -> None:
    with pytest.raises(msgspec.ValidationError):
        decode(encode(message))


def test_a_configuration_change_survives_its_bytes() -> None:
    one, other = Member(1, 2**63 + 5), Member(2, 9)
    change = ConfigurationChange(Configuration((one,), (other,), (Member(3, 3),)), b"places")
    again = decode_change(encode_change(change))
    assert again == change
    assert again.configuration.is_voter(other)
    assert isinstance(again.configuration.voters[0], Member)
