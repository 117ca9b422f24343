"""The opening of a session (spec 3): banner, response, first line. Both sides, as state machines over bytes.

The server speaks first and names itself; the client proves that it knows a token without sending it; the
server's first line says that it is in, and where the leader is. What follows the response, or the first line,
in the same segment are frames and stay in `rest`.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from enum import Enum
from hashlib import sha256
from typing import NamedTuple

from ticketing.protocol.fields import LINE_BYTES_MAX, TOKEN_MAX, address_problem, escaped
from ticketing.protocol.frames import (
    AUTH_FAILED,
    BAD_FRAME,
    ERROR_REASONS,
    KEEPALIVE,
    encode_error,
    encode_leader,
)

NONCE_BYTES = 32
NONCE_CHARS_MIN = 16
"""Clients refuse a banner with a shorter nonce: it could come round again."""

READY = "ready"
PROTOCOL = "protocol"
OK = "ok"

AUTH_FAILED_LINE = encode_error(AUTH_FAILED)


class State(Enum):
    """Where a handshake stands: each is named after the line that it waits for."""

    BANNER = "banner"
    RESPONSE = "response"
    VERDICT = "verdict"
    READY = "ready"
    CLOSING = "closing"


class Event(Enum):
    """What moves a handshake on; the same for the side that writes a line and for the one that reads it."""

    BANNER = "banner"
    RESPONSE = "response"
    ACCEPTED = "accepted"
    REFUSED = "refused"
    FAULT = "fault"
    """The other side broke the protocol."""


TRANSITIONS: dict[State, dict[Event, State]] = {
    State.BANNER: {Event.BANNER: State.RESPONSE, Event.REFUSED: State.CLOSING, Event.FAULT: State.CLOSING},
    State.RESPONSE: {Event.RESPONSE: State.VERDICT, Event.FAULT: State.CLOSING},
    State.VERDICT: {Event.ACCEPTED: State.READY, Event.REFUSED: State.CLOSING, Event.FAULT: State.CLOSING},
    State.READY: {},
    State.CLOSING: {},
}
"""Every step there is. A step that is not here is our own mistake (KeyError)."""


class BannerError(ValueError):
    """A banner that a client must refuse; the text says why."""


class Banner(NamedTuple):
    """The server's opening line, `TICKETING/1+x+d=<domain>+n=<address> <nonce>`."""

    nonce: str
    """Visible ASCII, at least 16 characters."""
    extended: bool = False
    """`+x`: the server knows `Q C X H` and answers with `G V`; it sends a first line."""
    standalone: bool = False
    """`+s`"""
    first_token: int | None = None
    """The number in front of the domain: the higher, the newer the domain."""
    domain: str | None = None
    """`<first token>.<16 lower-case hex digits>`; None without membership."""
    node_address: str | None = None
    """This node's client address as the cluster names it in `L`."""
    version: str = "1"


def format_domain(first_token: int, domain_id: int) -> str:
    """Shows a domain as it is shown everywhere; `domain_id` is 64 random bits."""
    return f"{first_token}.{domain_id:016x}"


def parse_domain(text: str) -> tuple[int, int] | None:
    """Takes a shown domain apart into first token and id; None where it is not one, byte for byte."""
    digits, _, hexadecimal = text.partition(".")
    if len(hexadecimal) != 16 or not all(char in "0123456789abcdef" for char in hexadecimal):
        return None
    if not digits.isascii() or not digits.isdigit() or len(digits) > 19 or digits[0] == "0":
        return None
    first_token = int(digits)
    return (first_token, int(hexadecimal, 16)) if first_token < TOKEN_MAX else None


def new_nonce(random_bytes: bytes) -> str:
    """Makes a nonce of 32 bytes from the system's random source, new for each connection."""
    assert len(random_bytes) == NONCE_BYTES, len(random_bytes)
    return urlsafe_b64encode(random_bytes).rstrip(b"=").decode("ascii")


def build_banner(banner: Banner) -> bytes:
    """Writes the opening line of this version, newline included."""
    parts = ["TICKETING/", banner.version]
    if banner.extended:
        parts.append("+x")
    if banner.standalone:
        parts.append("+s")
    if banner.domain is not None:
        parsed = parse_domain(banner.domain)
        assert parsed is not None, banner
        assert banner.first_token in (None, parsed[0]), banner
        parts += ("+d=", banner.domain)
    if banner.node_address is not None:
        assert address_problem(banner.node_address) is None, banner
        parts += ("+n=", banner.node_address)
    assert _nonce_problem(banner.nonce) is None, banner
    parts += (" ", banner.nonce, "\n")
    line = "".join(parts).encode("ascii")
    assert len(line) <= LINE_BYTES_MAX, line
    return line


def parse_banner(line: bytes) -> Banner:
    """Reads a server's opening line, given without its newline. Raises BannerError where a client must refuse
    it.

    Everything after the first space is the nonce. Published servers send no fields; fields of later servers
    that are not known here are passed over. A field that is known and wrong is refused, since domain and
    address decide whom a client follows.
    """
    head, _, nonce_bytes = line.partition(b" ")
    if not head.startswith(b"TICKETING/"):
        raise BannerError(f"not a Ticketing server: it opened with '{escaped(line[:40])}'{_hint(line)}")
    try:
        text, nonce = head.decode("ascii"), nonce_bytes.decode("ascii")
    except UnicodeDecodeError:
        raise BannerError("the server's banner is not ASCII") from None
    if not text.isprintable():
        raise BannerError(f"the server's banner contains control characters: '{escaped(head)}'")
    problem = _nonce_problem(nonce)
    if problem is not None:
        raise BannerError(problem)
    version, *fields = text[len("TICKETING/") :].split("+")
    known: dict[str, str] = {}
    for field in fields:
        name, _, content = field.partition("=")
        if name in known:
            raise BannerError(f"the server's banner states '{name}' twice")
        if name in ("x", "s", "d", "n"):
            known[name] = content
    domain = known.get("d")
    first_token = None
    if domain is not None:
        parsed = parse_domain(domain)
        if parsed is None:
            raise BannerError(f"the server's banner names '{escaped(domain.encode())}' as its domain")
        first_token = parsed[0]
    address = known.get("n")
    if address is not None and address_problem(address) is not None:
        raise BannerError(f"the server's banner names '{escaped(address.encode())}' as its address")
    return Banner(nonce, "x" in known, "s" in known, first_token, domain, address, version)


def _nonce_problem(nonce: str) -> str | None:
    if len(nonce) < NONCE_CHARS_MIN:
        return f"the nonce of the server's banner has {len(nonce)} characters, fewer than {NONCE_CHARS_MIN}"
    if not nonce.isascii() or not nonce.isprintable():
        return "the nonce of the server's banner contains other than visible ASCII"
    return None


def digest(token: str, nonce: str) -> bytes:
    """The client's response to a nonce, newline included: unpadded base64url of SHA-256(token || nonce)."""
    hashed = sha256(token.encode() + nonce.encode("ascii")).digest()
    return urlsafe_b64encode(hashed).rstrip(b"=") + b"\n"


def matching_token(response: bytes, nonce: str, tokens: Sequence[str]) -> int:
    """The number of the token that `response` (without newline) was made from, or -1.

    All tokens are compared, each in constant time, whichever fits. No tokens at all mean the empty token.
    """
    found = -1
    for number, token in enumerate(tokens or ("",)):
        if hmac.compare_digest(response, digest(token, nonce)[:-1]):
            found = number
    return found


def first_line(leader: str | None) -> bytes:
    """What a server says to a right response: the leader's client address, or nothing where none is known."""
    return KEEPALIVE if leader is None else encode_leader(leader)


def foreign_protocol(data: bytes) -> str:
    """Names what was spoken to us in place of our protocol, as far as it is easily told; for the log."""
    if data[:1] == b"\x16" and data[1:2] in (b"", b"\x03"):
        return "TLS"
    if data.startswith(b"SSH-"):
        return "SSH"
    if data.startswith(
        (b"HTTP/", b"GET ", b"HEAD ", b"POST ", b"PUT ", b"DELETE ", b"OPTIONS ", b"CONNECT ", b"PRI ")
    ):
        return "HTTP"
    if data.startswith(b"TICKETING/"):
        return "the server's side of Ticketing"
    return ""


def _hint(data: bytes) -> str:
    foreign = foreign_protocol(data)
    return f" (looks like {foreign})" if foreign else ""


class _Handshake:
    """What both sides have in common: a state that follows the table, and lines of bounded length."""

    __slots__ = ("_buffer", "detail", "rest", "state")

    def __init__(self) -> None:
        self._buffer = b""
        self.state = State.BANNER
        self.rest = b""
        """The bytes after the handshake: frames that came in the same segment."""
        self.detail = ""
        """What was wrong, for the log: one line, escaped."""

    @property
    def ended(self) -> bool:
        """Whether nothing more is expected: ready or closing."""
        return not TRANSITIONS[self.state]

    def _step(self, event: Event) -> None:
        self.state = TRANSITIONS[self.state][event]

    def _line(self) -> bytes | None:
        """Takes the next line, without newline, out of the buffer; None until it is whole.

        A line beyond the bound ends the handshake (FAULT), wherever its bytes were cut.
        """
        end = self._buffer.find(b"\n", 0, LINE_BYTES_MAX)
        if end >= 0:
            line = self._buffer[:end]
            self._buffer = self._buffer[end + 1 :]
            return line
        if len(self._buffer) >= LINE_BYTES_MAX:
            self._fault(f"a line of the handshake runs beyond {LINE_BYTES_MAX} bytes{_hint(self._buffer)}")
        return None

    def _fault(self, detail: str) -> None:
        self._step(Event.FAULT)
        self.detail = detail
        self._buffer = b""


class ServerHandshake(_Handshake):
    """The server's side. Write `banner`, feed what arrives, act on `outcome`.

    `ok`: write `first_line(...)`, hand `rest` to a `RequestDecoder`. `auth_failed`: write AUTH_FAILED_LINE
    after one second. `bad_frame`: write that `E`, close. Bytes after a refusal are ignored; the deadline is
    the owner's.
    """

    __slots__ = ("_nonce", "_tokens", "banner", "outcome", "token_number")

    def __init__(self, banner: bytes, nonce: str, tokens: Sequence[str]) -> None:
        """`banner` as `build_banner` made it with `nonce`; `tokens` as configured, none for the empty
        token.
        """
        super().__init__()
        assert all(tokens), "an empty token in a list of tokens is a configuration error"
        self.banner = banner
        self._nonce = nonce
        self._tokens = tokens
        self.outcome: str | None = None
        self.token_number = -1
        """Which of the tokens opened the session: while one is rotated, who still uses the old one."""
        self._step(Event.BANNER)

    def feed(self, data: bytes) -> None:
        """Takes the next bytes of the client."""
        assert self.outcome != OK, "the bytes of an open session belong to its decoder"
        if self.outcome is not None:
            return
        self._buffer += data
        response = self._line()
        if response is None:
            if self.ended:
                self.outcome = BAD_FRAME
            return
        self._step(Event.RESPONSE)
        self.token_number = matching_token(response, self._nonce, self._tokens)
        if self.token_number >= 0:
            self._step(Event.ACCEPTED)
            self.rest = self._buffer
            self.outcome = OK
        else:
            self._step(Event.REFUSED)
            self.detail = f"wrong token{_hint(response)}"
            self.outcome = AUTH_FAILED
        self._buffer = b""


class ClientHandshake(_Handshake):
    """The client's side. Feed what arrives, send what `feed` returns, act on `outcome`.

    `ready`: `banner` and `leader` are known, `rest` belongs to a `ReplyDecoder`. Otherwise the session is
    over: `protocol`, or one of ERROR_REASONS where the server gave it. Published servers (no `+x`) send no
    first line: the session is ready as soon as the response is made, and a refusal comes as an `E` later on.
    """

    __slots__ = ("_token", "banner", "leader", "outcome")

    def __init__(self, token: str) -> None:
        super().__init__()
        self._token = token
        self.banner: Banner | None = None
        self.leader: str | None = None
        self.outcome: str | None = None

    def feed(self, data: bytes) -> bytes:
        """Takes the next bytes of the server; returns what is to be sent, mostly nothing."""
        assert self.outcome != READY, "the bytes of an open session belong to its decoder"
        send = b""
        self._buffer += data
        while self.outcome is None and (line := self._line()) is not None:
            if self.state is State.BANNER:
                send = self._read_banner(line)
            else:
                self._read_verdict(line)
        if self.outcome is None and self.ended:
            self.outcome = PROTOCOL
        if self.outcome == READY:
            self.rest = self._buffer
        if self.outcome is not None:
            self._buffer = b""
        return send

    def _read_banner(self, line: bytes) -> bytes:
        if line[:1] == b"E" and self._read_refusal(line):
            return b""
        try:
            self.banner = parse_banner(line)
        except BannerError as error:
            self._fault(str(error))
            self.outcome = PROTOCOL
            return b""
        self._step(Event.BANNER)
        self._step(Event.RESPONSE)
        if not self.banner.extended:
            self._accept(None)
        return digest(self._token, self.banner.nonce)

    def _read_verdict(self, line: bytes) -> None:
        if not line:
            self._accept(None)
        elif line[:1] == b"L" and address_problem(line[1:].decode("latin-1")) is None:
            self._accept(line[1:].decode("ascii"))
        elif not self._read_refusal(line):
            self._fault(f"the server's first line is '{escaped(line[:80])}'")
            self.outcome = PROTOCOL

    def _accept(self, leader: str | None) -> None:
        self._step(Event.ACCEPTED)
        self.leader = leader
        self.outcome = READY

    def _read_refusal(self, line: bytes) -> bool:
        """Takes an `E` with a reason that is known; another line is left to be judged."""
        reason = line[1:].decode("latin-1")
        if line[:1] != b"E" or reason not in ERROR_REASONS:
            return False
        self._step(Event.REFUSED)
        self.outcome = reason
        return True
