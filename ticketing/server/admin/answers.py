"""Requests in and answers out: JSON bodies, query strings, errors as `docs/admin.md` has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from aiohttp import web

from ticketing.node.asked import CannotError

TOKEN_LIMIT = 1 << 62
LIMIT_MAX = 1_000
LIMIT_DEFAULT = 100
KEY_BYTES_MAX = 128
ID_CHARS_MAX = 64
REASON_CHARS_MAX = 256

_HINTS = {
    "not_leader": "ask the node that `error.leader` names",
    "other_place": "ask the node that `error.leader` names",
    "no_leader": "ask again in a moment; `/v1/status` says what is missing",
}
_STATUSES = {"not_leader": 421, "other_place": 421, "no_leader": 503, "not_found": 404}
"""Everything else that a node cannot do is 409."""


class RefusedError(Exception):
    """A request that is answered with an error: HTTP status, stable code, words for people."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        hint: str = "",
        more: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.hint = hint
        self.more = more or {}


def refused(cannot: CannotError) -> RefusedError:
    """What a node cannot do, as an error."""
    status = _STATUSES.get(cannot.code, 409)
    more = {"leader": cannot.node} if status == 421 else None
    return RefusedError(status, cannot.code, str(cannot), _HINTS.get(cannot.code, ""), more)


def bad_request(message: str) -> RefusedError:
    """A request that is wrong in itself."""
    return RefusedError(400, "bad_request", message)


def answer(value: Mapping[str, object], status: int = 200) -> web.Response:
    """JSON."""
    return web.Response(
        body=msgspec.json.encode(value),
        status=status,
        content_type="application/json",
        headers={"Cache-Control": "no-store"},
    )


def error_answer(error: RefusedError) -> web.Response:
    """An error in JSON."""
    facts = {"code": error.code, "message": str(error), "hint": error.hint, **error.more}
    return answer({"error": facts}, error.status)


async def body_of(request: web.Request, form: type[Any]) -> Any:
    """The request's body as `form`; no body is an empty one. Unknown fields are refused."""
    content = await request.read()
    try:
        return msgspec.json.decode(content or b"{}", type=form)
    except msgspec.DecodeError as error:
        raise bad_request(f"the body does not fit: {error}") from None


def query_of(request: web.Request, *names: str) -> dict[str, str]:
    """The query's parameters, each at most once and none but `names`; those left out are empty."""
    found = dict.fromkeys(names, "")
    for name, value in request.query.items():
        if name not in found:
            raise bad_request(f"there is no parameter {name!r} here; there are: {', '.join(names) or 'none'}")
        if found[name]:
            raise bad_request(f"{name} stands there twice")
        found[name] = value
    return found


def limit_of(text: str) -> int:
    """The size of a page."""
    if not text:
        return LIMIT_DEFAULT
    if not (text.isascii() and text.isdigit()) or not 1 <= int(text[:9]) <= LIMIT_MAX:
        raise bad_request(f"limit is a number from 1 to {LIMIT_MAX}")
    return int(text)


def whole_of(name: str, value: str | int, below: int) -> int:
    """A whole number, given as such or as a string."""
    text = str(value)
    if not (text.isascii() and text.isdigit()) or len(text) > 20 or int(text) >= below:
        raise bad_request(f"{name} is a decimal number below 2^{below.bit_length() - 1}")
    return int(text)


def key_of(text: str) -> bytes:
    """The key of a lock."""
    key = text_bytes("a key", text)
    if not 0 < len(key) <= KEY_BYTES_MAX or any(letter in b" \r\n" for letter in key):
        raise bad_request(f"a key has 1 to {KEY_BYTES_MAX} bytes and neither space nor line break")
    return key


def text_bytes(name: str, text: str) -> bytes:
    """Text as UTF-8."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise bad_request(f"{name} is valid UTF-8") from None


def check_text(name: str, text: str, chars_max: int) -> None:
    """Texts go into logs and into replicated state: bounded, and without anything that moves a cursor."""
    if len(text) > chars_max or not text.isprintable():
        raise bad_request(f"{name} is printable and has at most {chars_max} characters")
