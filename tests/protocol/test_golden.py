"""Every frame of both tables of spec 3, byte by byte, in both directions."""

from typing import Any

import pytest

from ticketing.protocol import frames
from ticketing.protocol.decoder import ReplyDecoder, RequestDecoder

from .golden import named


def encode_request(fields: dict[str, Any]) -> bytes:
    match fields:
        case {"opcode": "A", "wait": wait, "lease": lease, "owner": owner, "key": key}:
            return frames.encode_acquire(wait, lease, int(owner), key.encode())
        case {"opcode": "Q", "wait": wait, "lease": lease, "owner": owner, "key": key}:
            return frames.encode_q(wait, lease, int(owner), key.encode())
        case {"opcode": "R", "token": token, "key": key}:
            return frames.encode_release(int(token), key.encode())
        case {"opcode": "C", "owner": owner, "key": key}:
            return frames.encode_cancel(int(owner), key.encode())
        case {"opcode": "X", "token": token, "lease": lease, "key": key}:
            return frames.encode_extend(int(token), lease, key.encode())
        case {"opcode": "H", "text": text}:
            return frames.encode_hello(text.encode())
    raise AssertionError(fields)


def encode_reply(fields: dict[str, Any]) -> bytes:
    match fields:
        case {"opcode": "A", "token": token, "owner": owner, "key": key}:
            return frames.encode_granted(int(token), int(owner), key.encode())
        case {"opcode": "G", "token": token, "owner": owner, "waited_ms": waited, "key": key}:
            return frames.encode_granted_waited(int(token), int(owner), waited, key.encode())
        case {"opcode": "T" | "B" | "V" as opcode, "owner": owner, "key": key}:
            encoders = {"T": frames.encode_timeout, "B": frames.encode_busy, "V": frames.encode_not_leading}
            return encoders[opcode](int(owner), key.encode())
        case {"opcode": "R" | "N" | "X" as opcode, "token": token, "key": key}:
            echoes = {"R": frames.encode_released, "N": frames.encode_not_held, "X": frames.encode_extended}
            return echoes[opcode](int(token), key.encode())
        case {"opcode": "L" | "M" | "E" as opcode, "text": text}:
            texts = {"L": frames.encode_leader, "M": frames.encode_moved, "E": frames.encode_error}
            return texts[opcode](text)
    raise AssertionError(fields)


def text_of(fields: dict[str, Any]) -> bytes:
    text: str = fields["key"] if "key" in fields else fields["text"]
    return text.encode()


def as_request(fields: dict[str, Any]) -> tuple[int, int, int, int, bytes]:
    ident = int(fields.get("owner", fields.get("token", "0")))
    return ord(fields["opcode"]), fields.get("wait", 0), fields.get("lease", 0), ident, text_of(fields)


def as_reply(fields: dict[str, Any]) -> tuple[int, int, int, int, bytes]:
    token, owner = int(fields.get("token", "0")), int(fields.get("owner", "0"))
    return ord(fields["opcode"]), token, owner, fields.get("waited_ms", 0), text_of(fields)


REQUESTS, REQUEST_NAMES = named("requests")
REPLIES, REPLY_NAMES = named("replies")
BAD_REQUESTS, BAD_REQUEST_NAMES = named("bad_requests")
BAD_REPLIES, BAD_REPLY_NAMES = named("bad_replies")


@pytest.mark.parametrize("case", REQUESTS, ids=REQUEST_NAMES)
def test_a_request_is_these_bytes(case: dict[str, Any]) -> None:
    assert encode_request(case["fields"]).hex() == case["hex"].replace(" ", "")


@pytest.mark.parametrize("case", REPLIES, ids=REPLY_NAMES)
def test_a_reply_is_these_bytes(case: dict[str, Any]) -> None:
    assert encode_reply(case["fields"]).hex() == case["hex"].replace(" ", "")


@pytest.mark.parametrize("case", REQUESTS, ids=REQUEST_NAMES)
def test_these_bytes_are_the_request(case: dict[str, Any]) -> None:
    decoder = RequestDecoder()
    assert decoder.feed(bytes.fromhex(case["hex"])) == [as_request(case["fields"])]
    assert (decoder.problem, decoder.pending) == (None, 0)


@pytest.mark.parametrize("case", REPLIES, ids=REPLY_NAMES)
def test_these_bytes_are_the_reply(case: dict[str, Any]) -> None:
    decoder = ReplyDecoder()
    assert decoder.feed(bytes.fromhex(case["hex"])) == [as_reply(case["fields"])]
    assert (decoder.problem, decoder.pending) == (None, 0)


def test_all_requests_and_all_replies_can_be_pipelined() -> None:
    requests = b"\n".join(bytes.fromhex(case["hex"]) for case in REQUESTS)
    assert RequestDecoder().feed(requests) == [as_request(case["fields"]) for case in REQUESTS]
    replies = b"\n".join(bytes.fromhex(case["hex"]) for case in REPLIES)
    assert ReplyDecoder().feed(replies) == [as_reply(case["fields"]) for case in REPLIES]


@pytest.mark.parametrize("case", BAD_REQUESTS, ids=BAD_REQUEST_NAMES)
def test_a_bad_request_ends_the_session_with_this_reason(case: dict[str, Any]) -> None:
    decoder = RequestDecoder()
    assert decoder.feed(bytes.fromhex(case["hex"])) == []
    assert decoder.problem == case["problem"]
    assert decoder.problem in frames.ERROR_REASONS


@pytest.mark.parametrize("case", BAD_REPLIES, ids=BAD_REPLY_NAMES)
def test_a_bad_reply_is_malformed(case: dict[str, Any]) -> None:
    decoder = ReplyDecoder()
    assert decoder.feed(bytes.fromhex(case["hex"])) == []
    assert decoder.problem == case["problem"]


def test_the_golden_file_covers_every_opcode() -> None:
    assert {case["fields"]["opcode"] for case in REQUESTS} == set("ARQCXH")
    assert {case["fields"]["opcode"] for case in REPLIES} == set("AGTBVRNXLME")
