"""Knocking at a node's client port: whether it is one, which leader it names, and whether a token opens it."""

from __future__ import annotations

import socket
import ssl
import time
from typing import NamedTuple

from ticketing.config.addresses import parse_address
from ticketing.protocol.handshake import READY, ClientHandshake

KNOCK_S = 3.0
_CHUNK = 4096


class Knock(NamedTuple):
    """What came of it."""

    outcome: str
    """`in`; `auth_failed` or another reason that the node gave; `protocol`; `tls`; `unreachable`."""
    detail: str = ""
    leader: str | None = None
    """The client address of the leader that the node names."""
    domain: str | None = None
    ends_ms: int | None = None
    """When the certificate that it shows ends, where it was verified; Unix milliseconds."""


def knock(address: str, token: str, context: ssl.SSLContext | None, *, within_s: float = KNOCK_S) -> Knock:
    """Goes through one handshake and leaves again. A wrong token is answered after one second."""
    host, port = parse_address(address)
    deadline_s = time.monotonic() + within_s
    try:
        connection = socket.create_connection((host, port), timeout=within_s)
    except OSError as error:
        return Knock("unreachable", _reason(error))
    try:
        ends_ms = None
        if context is not None:
            secured = context.wrap_socket(connection, server_hostname=host)
            connection = secured
            ends = (secured.getpeercert() or {}).get("notAfter")
            ends_ms = int(ssl.cert_time_to_seconds(ends)) * 1000 if isinstance(ends, str) else None
        return _shake(connection, token, deadline_s)._replace(ends_ms=ends_ms)
    except ssl.SSLError as error:
        text = getattr(error, "verify_message", "") or (error.reason or str(error)).replace("_", " ").lower()
        return Knock("tls", text)
    except OSError as error:
        return Knock("unreachable", _reason(error))
    finally:
        connection.close()


def _shake(connection: socket.socket, token: str, deadline_s: float) -> Knock:
    handshake = ClientHandshake(token)
    while handshake.outcome is None:
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        connection.settimeout(left_s)
        data = connection.recv(_CHUNK)
        if not data:
            return Knock("protocol", "it closed the connection: is that the client port?")
        if answer := handshake.feed(data):
            connection.sendall(answer)
    banner = handshake.banner
    domain = None
    if banner is not None and banner.domain is not None:
        domain = str(banner.domain)
    if handshake.outcome != READY:
        return Knock(handshake.outcome, "", None, domain)
    return Knock("in", "", handshake.leader, domain)


def _reason(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return (error.strerror or str(error)).lower()
