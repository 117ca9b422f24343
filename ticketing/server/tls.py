"""TLS contexts of one node, and TLS over memory buffers (spec 3, 9).

Version 1.2 is the oldest; renegotiation and session tickets are off, so that nothing has to be read in
order to write. The certificate serves clients and admins and proves the node to its peers; peers prove
themselves both ways.
"""

from __future__ import annotations

import contextlib
import ipaddress
import ssl
from collections.abc import Sequence

from ticketing.server.settings import TlsFiles

_RECORD_BYTES_MAX = 16_384
_HANDSHAKE_RECORD = 0x16

HANDSHAKE_BYTES_MAX = 64 * 1024
"""Ciphertext taken before a handshake is done; certificates of both ends fit several times."""
PIECE = 4_096
"""Ciphertext is taken in pieces of this size, so that one read of the kernel's buffer is judged before all of it has
been paid for."""
IDLE_BYTES_MAX = 32 * 1024
"""Ciphertext in a second beyond what its plaintext accounts for: two records that are not whole yet. A key update is 27
bytes, costs as much as a kilobyte of data, and may come as often as its sender likes (RFC 8446, 4.6.3)."""
_RECORD_COST = 24
"""Ciphertext that a byte of plaintext accounts for: a record that holds a single one, with TLS 1.3."""


class TlsFilesError(Exception):
    """The TLS files cannot be used: which file, and why."""


class TlsExcessError(ssl.SSLError):
    """The other side sends more than it can have to say."""

    def __init__(self, text: str) -> None:
        super().__init__(1, text)


class TlsContexts:
    """The contexts made of one set of files. A reload makes a new object; connections keep what they began
    with.
    """

    __slots__ = ("client", "peer_inbound", "peer_outbound")

    def __init__(self, files: TlsFiles) -> None:
        self.client = _server_context(files)
        """Client connections and the admin plane: only the node shows a certificate."""
        self.peer_inbound = _server_context(files)
        _trust(self.peer_inbound, files)
        self.peer_inbound.verify_mode = ssl.CERT_REQUIRED
        self.peer_outbound = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        """Checks the certificate against the host that was dialled."""
        _harden(self.peer_outbound)
        _trust(self.peer_outbound, files)
        _identify(self.peer_outbound, files)


def _server_context(files: TlsFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _harden(context)
    context.num_tickets = 0
    context.options |= ssl.OP_NO_TICKET
    _identify(context, files)
    return context


def _harden(context: ssl.SSLContext) -> None:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION


def _identify(context: ssl.SSLContext, files: TlsFiles) -> None:
    for path in (files.certificate, files.key):
        if not path.is_file():
            raise TlsFilesError(f"{path}: no such file")
    try:
        context.load_cert_chain(files.certificate, files.key, password=_no_password)
    except (OSError, ValueError) as error:  # an SSLError is an OSError
        raise TlsFilesError(f"{files.certificate} with {files.key}: {reason_of(error)}") from error


def _trust(context: ssl.SSLContext, files: TlsFiles) -> None:
    try:
        context.load_verify_locations(cafile=files.ca)
    except (OSError, ValueError) as error:
        raise TlsFilesError(f"{files.ca}: {reason_of(error)}") from error


def _no_password() -> str:
    # Without this OpenSSL would ask on the terminal and the node would hang at its start.
    raise ValueError("the key is encrypted; a node needs one without a passphrase")


def reason_of(error: BaseException) -> str:
    """What a TLS or system error is about, in a few words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message or str(error)
    if isinstance(error, ssl.SSLError):
        return (getattr(error, "reason", None) or str(error)).replace("_", " ").lower()
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return str(error)


class TlsStream:
    """One end of TLS without a socket: ciphertext in and out, plaintext out and in. Errors are
    `ssl.SSLError`.

    What is costly and says nothing is bounded: the ciphertext of a handshake, and after it the ciphertext in a second
    that plaintext does not account for.
    """

    __slots__ = (
        "_idle_bytes",
        "_idle_since_s",
        "_incoming",
        "_object",
        "_outgoing",
        "_shaken_bytes",
        "idle_max",
    )

    def __init__(self, context: ssl.SSLContext, *, dialled_host: str | None = None) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._object = context.wrap_bio(
            self._incoming,
            self._outgoing,
            server_side=dialled_host is None,
            server_hostname=dialled_host,
        )
        self.idle_max = IDLE_BYTES_MAX
        """The owner's to lower for a peer of whom nothing is known yet."""
        self._shaken_bytes = 0
        self._idle_bytes = 0
        self._idle_since_s = 0.0

    def advance(self, data: bytes | memoryview) -> bool:
        """Feeds the handshake; whether it is done. `outgoing` holds what is to be sent, after an error as
        well.
        """
        self._shaken_bytes += len(data)
        if self._shaken_bytes > HANDSHAKE_BYTES_MAX:
            raise TlsExcessError(f"handshake of more than {HANDSHAKE_BYTES_MAX} bytes")
        self._incoming.write(data)
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def outgoing(self) -> bytes:
        """Takes the ciphertext that waits to be sent."""
        return self._outgoing.read() if self._outgoing.pending else b""

    def encrypt(self, data: bytes) -> bytes:
        """The ciphertext of `data`."""
        if data:
            self._object.write(data)
        return self._outgoing.read()

    def decrypt(self, data: bytes | memoryview, now_s: float) -> tuple[list[bytes], bool]:
        """The plaintext that `data`, at most `PIECE` long, completes, and whether the other side has closed."""
        chunks, ended = self._decrypt(data)
        if now_s - self._idle_since_s >= 1:
            self._idle_since_s, self._idle_bytes = now_s, 0
        accounted = _RECORD_COST * sum(map(len, chunks))
        self._idle_bytes = max(0, self._idle_bytes + len(data) - accounted)
        if self._idle_bytes > self.idle_max:
            raise TlsExcessError(f"more than {self.idle_max} bytes in a second that say nothing")
        return chunks, ended

    def _decrypt(self, data: bytes | memoryview) -> tuple[list[bytes], bool]:
        incoming, tls = self._incoming, self._object
        incoming.write(data)
        chunks: list[bytes] = []
        try:
            while True:
                chunk = tls.read(_RECORD_BYTES_MAX)
                if not chunk:
                    return chunks, True
                chunks.append(chunk)
                if not incoming.pending and not tls.pending():
                    return chunks, False
        except ssl.SSLWantReadError:
            return chunks, False
        except ssl.SSLZeroReturnError:
            return chunks, True

    def close_notify(self) -> bytes:
        """The ciphertext of the closing alert."""
        with contextlib.suppress(ssl.SSLError):  # it waits for the other side's alert; we do not
            self._object.unwrap()
        return self._outgoing.read()

    def certificate_ends_ms(self) -> int:
        """When the other side's certificate ends, Unix milliseconds; after the handshake."""
        certificate = self._object.getpeercert() or {}
        return int(ssl.cert_time_to_seconds(str(certificate["notAfter"]))) * 1000

    def certified_hosts(self) -> tuple[str, ...]:
        """The names and addresses in the other side's certificate, where it showed one; after the
        handshake.
        """
        certificate = self._object.getpeercert() or {}
        names: Sequence[tuple[str, str]] = certificate.get("subjectAltName", ())  # type: ignore[assignment]
        return tuple(value for kind, value in names if kind in ("DNS", "IP Address"))


def certifies(hosts: Sequence[str], host: str) -> bool:
    """Whether a certificate with these names is one for `host` (RFC 9525, without wildcards)."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        wanted = host.rstrip(".").lower()
        return any(name.rstrip(".").lower() == wanted for name in hosts)
    for name in hosts:
        try:
            if ipaddress.ip_address(name) == address:
                return True
        except ValueError:
            continue
    return False


def check_own_certificate(contexts: TlsContexts, host: str) -> int:
    """Whether this node's certificate would pass at its peers: both ends of a link to itself, in memory.

    Returns when the certificate ends, Unix milliseconds. `TlsFilesError` tells what its peers would say:
    ended, signed by another CA, not for `host`, not for both ends.
    """
    dialler = TlsStream(contexts.peer_outbound, dialled_host=host)
    acceptor = TlsStream(contexts.peer_inbound)
    try:
        done = dialler.advance(b"")
        while not (acceptor.advance(dialler.outgoing()) and done):
            done = dialler.advance(acceptor.outgoing())
    except ssl.SSLError as error:
        reason = reason_of(error)
        raise TlsFilesError(f"the certificate does not pass at the other nodes: {reason}") from error
    return dialler.certificate_ends_ms()


def first_record_complete(data: bytes | bytearray) -> bool:
    """Whether a TLS handshake can begin: its first record is there, or what came is no TLS at all."""
    if not data or data[0] != _HANDSHAKE_RECORD:
        return bool(data)
    return len(data) >= 5 and len(data) >= 5 + int.from_bytes(data[3:5])


def describe_not_tls(data: bytes | bytearray) -> str | None:
    """What spoke to a TLS port without TLS, for the log; None for TLS."""
    if not data or data[0] == _HANDSHAKE_RECORD:
        return None
    start = bytes(data[:8])
    if start.startswith(
        (b"GET ", b"POST ", b"PUT ", b"HEAD ", b"OPTIONS ", b"DELETE ", b"CONNECT ", b"PRI ")
    ):
        return "looks like HTTP without TLS"
    if start.startswith(b"SSH-"):
        return "looks like SSH"
    if b"TKTPEER" in bytes(data[:32]):
        return "looks like a peer without TLS"
    return "does not look like TLS"
