"""`host:port` as people write it, in the one form in which it is compared, announced and shown."""

from __future__ import annotations

import ipaddress
import re
from typing import NamedTuple

ADDRESS_BYTES_MAX = 120
"""Longest address on the client wire (spec 3)."""

PORT_MAX = 65_535
CLIENT_PORT = 5225
PEER_OFFSET = 1000
"""A peer port that is not given is the client port plus this (spec 9)."""
ADMIN_OFFSET = 2000

_NAME = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)(?:\.(?!-)[a-z0-9_-]{1,63}(?<!-))*\.?")


class Address(NamedTuple):
    """A host in canonical form (lower case; IPv6 compressed, without brackets) and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str, *, default_port: int = 0) -> Address:
    """Reads `host:port`; `ValueError` says what is wrong and shows the right form.

    Without `default_port` the port has to stand there. Ports are 1..65535: 0 would be
    another one each time.
    """
    if not text:
        raise ValueError("is empty; write host:port, for example 10.0.0.1:5225")
    if len(text.encode()) > ADDRESS_BYTES_MAX:
        raise ValueError(f"is longer than {ADDRESS_BYTES_MAX} bytes")
    host, port = _split(text)
    if not port and default_port:
        return Address(canonical_host(host), default_port)
    if not port:
        raise ValueError(f"{text!r} has no port; write {text}:{CLIENT_PORT}")
    if not (port.isascii() and port.isdigit()) or not 1 <= int(port[:6]) <= PORT_MAX:
        raise ValueError(f"{text!r}: the port must be from 1 to {PORT_MAX}, not {port!r}")
    return Address(canonical_host(host), int(port))


def canonical_host(host: str) -> str:
    """A host name or IP address (IPv6 with or without brackets) in its one form, else `ValueError`."""
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not bare:
        raise ValueError("the host is missing; write host:port, for example 10.0.0.1:5225")
    if "://" in bare:
        raise ValueError(f"{host!r} is a URL; write host:port without a scheme")
    try:
        return str(ipaddress.ip_address(bare))
    except ValueError:
        pass
    name = bare.lower()
    if re.fullmatch(r"[0-9.]+", name):
        raise ValueError(f"{host!r} is not an IPv4 address")
    if name.count(":") == 1:
        raise ValueError(f"{host!r}: a port does not belong here")
    if ":" in name:
        raise ValueError(f"{host!r} is not an IPv6 address; write [fd00::1]:{CLIENT_PORT}")
    if not _NAME.fullmatch(name):
        raise ValueError(f"{host!r} is not a host name")
    return name


def is_loopback(host: str) -> bool:
    """Whether a canonical host can only mean this machine."""
    ip = _ip(host)
    if ip is None:
        return host.rstrip(".") == "localhost" or host.rstrip(".").endswith(".localhost")
    return ip.is_loopback


def is_name(host: str) -> bool:
    """Whether a canonical host is a name and no IP address."""
    return _ip(host) is None


def is_wildcard(host: str) -> bool:
    """Whether a canonical host means "every address of this machine": to listen on, never to be announced."""
    ip = _ip(host)
    return ip is not None and ip.is_unspecified


def same_place(address: Address) -> tuple[str, int]:
    """A key that is equal for addresses that are spelt differently and mean the same (`::ffff:10.0.0.1`)."""
    ip = _ip(address.host)
    return (address.host.rstrip(".") if ip is None else str(ip), address.port)


def _ip(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        return None
    mapped = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
    return ip if mapped is None else mapped


def _split(text: str) -> tuple[str, str]:
    if text.startswith("["):
        host, bracket, rest = text.partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise ValueError(f"{text!r}: write [fd00::1]:{CLIENT_PORT}")
        return host + bracket, rest[1:]
    if text.count(":") > 1:
        raise ValueError(f"{text!r}: an IPv6 address needs brackets, for example [fd00::1]:{CLIENT_PORT}")
    host, _, port = text.partition(":")
    return host, port
