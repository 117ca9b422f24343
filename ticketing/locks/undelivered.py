"""Grants whose answer reached nobody (spec 4, Undeliverable grants)."""

from __future__ import annotations

from collections.abc import Sequence

from ticketing.protocol.decoder import ReplyDecoder
from ticketing.protocol.frames import GRANTED, GRANTED_WAITED


def unhanded_grants(out: Sequence[bytes]) -> list[tuple[int, int, bytes]]:
    """(token, owner, key) of each grant among frames that were not handed to the transport.

    The frames themselves are the record: what the node has written is not in `out` any more, so nothing else
    needs to be kept of an answered grant, and nothing can go stale.
    """
    if not out:
        return []
    decoder = ReplyDecoder()
    replies = decoder.feed(b"".join(out))
    assert decoder.problem is None, decoder.detail
    return [
        (token, owner, key)
        for opcode, token, owner, _waited, key in replies
        if opcode in (GRANTED, GRANTED_WAITED)
    ]
