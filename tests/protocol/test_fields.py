"""Ranges and rules of spec 2, and how bytes from outside are shown."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ticketing.protocol.fields import (
    ADDRESS_BYTES_MAX,
    HELLO_BYTES_MAX,
    KEY_BYTES_MAX,
    OWNER_TOP_BIT,
    U64_MAX,
    address_problem,
    escaped,
    hello_text,
    key_problem,
    new_owner,
    split_address,
)


@pytest.mark.parametrize(
    "key",
    [b"k", b"x" * 128, "좌석:A-12".encode(), b"[a]=\x00\x1b\x7f\t", b"\xf4\x8f\xbf\xbf", "é".encode() * 64],
)
def test_a_key_is_1_to_128_bytes_of_utf8(key: bytes) -> None:
    assert key_problem(key) is None


@pytest.mark.parametrize(
    ("key", "words"),
    [
        (b"", "empty"),
        (b"x" * 129, "129 bytes"),
        ("é".encode() * 65, "130 bytes"),
        (b"a b", "space"),
        (b"a\r", "line break"),
        (b"a\nb", "line break"),
        (b"\xff", "UTF-8"),
        (b"\xf4\x90\x80\x80", "UTF-8"),
        (b"\xed\xa0\x80", "UTF-8"),
    ],
)
def test_what_is_wrong_with_a_key_is_said(key: bytes, words: str) -> None:
    problem = key_problem(key)
    assert problem is not None
    assert words in problem


@given(st.binary(min_size=8, max_size=8))
@settings(max_examples=50)
def test_an_owner_has_its_top_bit_set_and_63_bits_of_chance(random_bytes: bytes) -> None:
    owner = new_owner(random_bytes)
    assert OWNER_TOP_BIT <= owner <= U64_MAX
    assert owner % OWNER_TOP_BIT == int.from_bytes(random_bytes, "big") % OWNER_TOP_BIT


def test_an_owner_takes_neither_more_nor_less_chance() -> None:
    with pytest.raises(AssertionError):
        new_owner(b"short")


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"event:7:seat:12", "event:7:seat:12"),
        (b"[bold]k[/bold]", "[bold]k[/bold]"),
        ("좌석:é😀".encode(), "좌석:é😀"),
        (b"a b", "a b"),
        (b"\x1b[31mred\x07\x00\x7f", r"\x1b[31mred\x07\x00\x7f"),
        (b"a\r\nb\tc", r"a\x0d\x0ab\x09c"),
        (b"back\\slash", r"back\\slash"),
        ("\u202eevil\u2066\u200b\ufeff".encode(), r"\u202eevil\u2066\u200b\ufeff"),
        ("a\u00a0b\u3000c\u2028".encode(), r"a\u00a0b\u3000c\u2028"),
        ("\u0085\U000e0041\ue000".encode(), r"\u0085\U000e0041\ue000"),
        ("x\u3164\u2800\ufe0f".encode(), r"x\u3164\u2800\ufe0f"),
        ("\u0301e\u0301".encode(), "\\u0301e\u0301"),
        (b"\xff\xc0\xaf", r"\xff\xc0\xaf"),
        (b"\xed\xa0\x80", r"\xed\xa0\x80"),
    ],
)
def test_bytes_are_shown_as(data: bytes, shown: str) -> None:
    assert escaped(data) == shown


@given(st.binary(max_size=40) | st.text(max_size=20).map(lambda text: text.encode("utf-8", "replace")))
@settings(max_examples=200)
def test_whatever_is_shown_is_printable_and_tells_the_bytes(data: bytes) -> None:
    shown = escaped(data)
    assert shown.isprintable()
    assert read_back(shown) == data


def read_back(shown: str) -> bytes:
    """Undoes `escaped`, written another way round: if this works, no two keys are shown alike."""
    data = b""
    while shown:
        if shown[0] != "\\":
            data += shown[0].encode()
            shown = shown[1:]
            continue
        digits = {"\\": 0, "x": 2, "u": 4, "U": 8}[shown[1]]
        number = shown[2 : 2 + digits]
        if shown[1] == "\\":
            data += b"\\"
        elif shown[1] == "x":
            data += bytes.fromhex(number)
        else:
            data += chr(int(number, 16)).encode()
        shown = shown[2 + digits :]
    return data


@given(st.text(max_size=100))
@settings(max_examples=200)
def test_any_text_makes_a_hello_that_fits(text: str) -> None:
    said = hello_text(text)
    assert len(said) <= HELLO_BYTES_MAX
    assert b"\n" not in said
    said.decode()


def test_a_hello_keeps_what_fits_and_cuts_no_character() -> None:
    assert hello_text("web-3 4711") == b"web-3 4711"
    assert hello_text("a\nb\udc80\u202e") == b"a?b??"
    assert hello_text("x" * 63 + "é") == b"x" * 63
    assert hello_text("x" * 62 + "éé") == b"x" * 62 + "é".encode()


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        ("10.0.0.2:5225", ("10.0.0.2", 5225)),
        ("node-2.example.org:1", ("node-2.example.org", 1)),
        ("[fd00::2]:65535", ("fd00::2", 65535)),
        ("[fe80::1%eth0]:5225", ("fe80::1%eth0", 5225)),
        ("h" * 115 + ":5225", ("h" * 115, 5225)),
    ],
)
def test_an_address_is_a_host_and_a_port(address: str, parts: tuple[str, int]) -> None:
    assert address_problem(address) is None
    assert split_address(address) == parts


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("", "120"),
        ("h" * 116 + ":5225", str(ADDRESS_BYTES_MAX)),
        ("a b:5225", "space"),
        ("a\n:5225", "visible"),
        ("a+x:5225", "+"),
        ("bücher.example:5225", "ASCII"),
        ("host", "host:port"),
        (":5225", "host:port"),
        ("host:", "port"),
        ("host:0", "1 to 65535"),
        ("host:65536", "1 to 65535"),
        ("host:000001", "1 to 65535"),
        ("host:-1", "1 to 65535"),
        ("fd00::2:5225", "[host]:port"),
        ("[fd00::2:5225", "[host]:port"),
        ("[fd00::2]]:5225", "[host]:port"),
        ("[host]:5225", "[host]:port"),
        ("fd00]:5225", "[host]:port"),
    ],
)
def test_what_is_wrong_with_an_address_is_said(address: str, words: str) -> None:
    problem = address_problem(address)
    assert problem is not None
    assert words in problem
    with pytest.raises(ValueError, match=r"address|port"):
        split_address(address)


def test_the_longest_key_fits_the_limit_exactly() -> None:
    assert key_problem(b"x" * KEY_BYTES_MAX) is None
    assert key_problem(b"x" * (KEY_BYTES_MAX + 1)) is not None
