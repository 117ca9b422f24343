"""The fields of the client protocol (spec 2): ranges, rules for keys and addresses, and how bytes are shown.

Keys are `bytes` everywhere: they are compared as bytes and never normalised. Nothing here clips a value;
whoever has one out of range refuses it.
"""

from __future__ import annotations

import unicodedata
from typing import Final

WAIT_MAX: Final = 255
"""Seconds. 0 is one immediate try that is never queued; there is no endless wait."""
LEASE_MIN: Final = 1
"""Seconds."""
LEASE_MAX: Final = 250
"""Seconds."""
KEY_BYTES_MAX: Final = 128
KEY_LINE_MAX: Final = 192
"""Up to this, a key of too many bytes is a bad key; beyond it the frame is bad."""
HELLO_BYTES_MAX: Final = 64
"""What a client may say of itself in `H`."""
ADDRESS_BYTES_MAX: Final = 120
REASON_BYTES_MAX: Final = 64
LINE_BYTES_MAX: Final = 256
"""A line of the handshake, its newline included."""
OWNER_BYTES: Final = 8
OWNER_TOP_BIT: Final = 1 << 63
"""Set in every owner that can be cancelled, which no token has. Owners of published clients may lack it."""
TOKEN_MAX: Final = 1 << 62
"""Tokens are 1 up to, and without, this number. 0 stands for no token."""
U16_MAX: Final = 0xFFFF
U64_MAX: Final = 0xFFFF_FFFF_FFFF_FFFF

# Printable by their Unicode category, and yet nothing is to be seen of them: Hangul fillers, Braille blank,
# combining grapheme joiner, Khmer inherent vowels, Mongolian and general variation selectors.
_INVISIBLE = frozenset(
    (
        *(0x115F, 0x1160, 0x3164, 0xFFA0, 0x2800, 0x034F, 0x17B4, 0x17B5),
        *(0x180B, 0x180C, 0x180D, 0x180F),
        *range(0xFE00, 0xFE10),
        *range(0xE0100, 0xE01F0),
    )
)


def is_utf8(data: bytes) -> bool:
    """Whether `data` is well-formed UTF-8 (RFC 3629: no surrogates, nothing overlong)."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def key_problem(key: bytes) -> str | None:
    """Says what makes `key` no valid key, for people, or None where it is one."""
    if not key:
        return "the key is empty"
    if len(key) > KEY_BYTES_MAX:
        return f"the key has {len(key)} bytes, more than {KEY_BYTES_MAX}"
    if b" " in key:
        return "the key contains a space"
    if b"\r" in key or b"\n" in key:
        return "the key contains a line break"
    if not is_utf8(key):
        return "the key is not valid UTF-8"
    return None


def new_owner(random_bytes: bytes) -> int:
    """Makes the owner of one request, never to be used again, of 8 bytes from the system's random source."""
    assert len(random_bytes) == OWNER_BYTES, len(random_bytes)
    return int.from_bytes(random_bytes, "big") | OWNER_TOP_BIT


def hello_text(text: str) -> bytes:
    """Makes any text fit for `H`: what cannot be printed becomes `?`, what goes beyond 64 bytes is cut
    off.
    """
    plain = "".join(char if char.isprintable() else "?" for char in text)
    # The cut may fall into a character; what is left of it is dropped.
    return plain.encode()[:HELLO_BYTES_MAX].decode("utf-8", "ignore").encode()


def escaped(data: bytes) -> str:
    r"""Shows a key or another text from outside on one line: printable and unambiguous.

    Control and format characters (those that turn the writing direction among them), blanks other than the
    space and characters that show nothing become `\x1b`, `\u202e` or `\U000e0001`; a byte that is no UTF-8
    becomes `\xff`; a backslash is doubled. Different bytes are shown differently. Brackets stay: they are
    markup for some displays, and taking care of that is up to those.
    """
    if data.isascii():
        text = data.decode("ascii")
        if text.isprintable() and "\\" not in text:
            return text
    shown = []
    for char in data.decode("utf-8", "surrogateescape"):
        code = ord(char)
        if char == "\\":
            shown.append("\\\\")
        elif char.isprintable() and code not in _INVISIBLE and (shown or not _is_mark(char)):
            shown.append(char)
        elif code < 0x80:
            shown.append(f"\\x{code:02x}")
        elif 0xDC80 <= code <= 0xDCFF:
            shown.append(f"\\x{code - 0xDC00:02x}")
        elif code <= 0xFFFF:
            shown.append(f"\\u{code:04x}")
        else:
            shown.append(f"\\U{code:08x}")
    return "".join(shown)


def _is_mark(char: str) -> bool:
    # A mark joins the character before it, which at the beginning of a text is not the text's own.
    return unicodedata.category(char)[0] == "M"


def address_problem(address: str) -> str | None:
    """Says what makes `address` no `host:port` that can travel on the wire, for people, or None where it is
    one.

    Visible ASCII of at most 120 bytes; an IPv6 address stands in brackets. `+` is kept out because it
    separates the fields of the banner. Names with other letters are written in their ASCII form (`xn--…`).
    """
    if not 0 < len(address) <= ADDRESS_BYTES_MAX:
        return f"an address has 1 to {ADDRESS_BYTES_MAX} bytes"
    if not address.isascii() or not address.isprintable() or " " in address or "+" in address:
        return "an address consists of visible ASCII characters without space and +"
    host, colon, port = address.rpartition(":")
    if not colon or not host:
        return "an address is written host:port"
    if not port.isdigit() or len(port) > 5 or not 1 <= int(port) <= 65535:
        return "the port of an address is a number from 1 to 65535"
    if host.startswith("["):
        if not host.endswith("]") or ":" not in host or "[" in host[1:] or "]" in host[:-1]:
            return "an IPv6 address is written [host]:port"
    elif ":" in host or "]" in host:
        return "an IPv6 address is written [host]:port"
    return None


def split_address(address: str) -> tuple[str, int]:
    """Takes `host:port` apart, without the brackets of an IPv6 host. ValueError says what is wrong with
    it.
    """
    problem = address_problem(address)
    if problem is not None:
        raise ValueError(problem)
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)
