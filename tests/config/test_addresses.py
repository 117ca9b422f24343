from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticketing.config.addresses import (
    Address,
    canonical_host,
    is_loopback,
    is_wildcard,
    parse_address,
    same_place,
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("10.0.0.1:5225", "10.0.0.1:5225"),
        ("Node-1.Example:5225", "node-1.example:5225"),
        ("[FD00:0:0::0172]:1", "[fd00::172]:1"),
        ("[0:0:0:0:0:0:0:1]:65535", "[::1]:65535"),
        ("[fe80::1%eth0]:5225", "[fe80::1%eth0]:5225"),
    ],
)
def test_an_address_has_one_form(text: str, shown: str) -> None:
    assert str(parse_address(text)) == shown


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "empty"),
        ("10.0.0.1", "no port"),
        ("10.0.0.1:", "no port"),
        ("10.0.0.1:0", "from 1 to 65535"),
        ("10.0.0.1:65536", "from 1 to 65535"),
        ("10.0.0.1:http", "from 1 to 65535"),
        ("10.0.0.1:-1", "from 1 to 65535"),
        (":5225", "host is missing"),
        ("fe80::1:7000", "brackets"),
        ("::1", "brackets"),
        ("[::1", "write [fd00::1]"),
        ("[::1]7000", "write [fd00::1]"),
        ("[zz::1]:7000", "not an IPv6"),
        ("300.0.0.1:1", "not an IPv4"),
        ("http://a:1", "brackets"),
        ("a b:1", "not a host name"),
        ("-a:1", "not a host name"),
        ("a..b:1", "not a host name"),
        ("h" * 130 + ":1", "longer than 120"),
    ],
)
def test_a_bad_address_is_refused_with_the_right_form(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        parse_address(text)


def test_an_address_without_a_port_takes_the_default_where_there_is_one() -> None:
    assert parse_address("[::1]", default_port=5225) == Address("::1", 5225)


@pytest.mark.parametrize(
    ("one", "other"),
    [("[::ffff:10.0.0.1]:1", "10.0.0.1:1"), ("a.example.:1", "A.example:1"), ("[::1]:1", "[0::1]:1")],
)
def test_spellings_of_one_address_are_the_same_place(one: str, other: str) -> None:
    assert same_place(parse_address(one)) == same_place(parse_address(other))


def test_loopback_and_wildcard_hosts_are_known_in_every_form() -> None:
    for host in ("127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "localhost", "db.localhost"):
        assert is_loopback(canonical_host(host))
    for host in ("10.0.0.1", "localhost.example", "0.0.0.0"):
        assert not is_loopback(canonical_host(host))
    for host in ("0.0.0.0", "::", "[::]"):
        assert is_wildcard(canonical_host(host))
    assert not is_wildcard("10.0.0.1")


@given(st.ip_addresses(), st.integers(1, 65_535))
def test_the_form_that_is_shown_reads_back_as_itself(ip: object, port: int) -> None:
    address = Address(canonical_host(str(ip)), port)
    assert parse_address(str(address)) == address


@given(st.text(max_size=40))
def test_any_text_is_an_address_or_a_value_error(text: str) -> None:
    try:
        address = parse_address(text)
    except ValueError:
        return
    assert parse_address(str(address)) == address
