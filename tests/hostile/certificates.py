"""Certificates that are not what they should be: shown by whoever dials the peer port, and put under a running node.

What a node with a bad certificate of its own is told by peers, clients and operators stands in
`tests/operations/test_certificates.py`.
"""

from __future__ import annotations

import contextlib
import datetime
import signal
import ssl
import tempfile
from pathlib import Path

from tests.e2e.cluster import told_status
from tests.e2e.waiting import until
from tests.hostile.cases import STANDALONE_TLS, THREE_TLS, Case, Target
from tests.hostile.peer_port import impostor, secret_of, shake
from tests.hostile.probes import LogReader
from tests.hostile.strangers import TlsStranger
from ticketing.config.certificates import NODE_DAYS, Pem, make_authority, make_node_certificate
from ticketing.node.handshake import LinkFailure, Refusal

HOSTS = ("127.0.0.1", "localhost")


def _ago(days: float) -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=days)


def _authority(target: Target) -> Pem:
    folder = target.cluster.folder / "ca"
    return Pem((folder / "ca.pem").read_bytes(), (folder / "ca.key").read_bytes())


def _context(target: Target, pair: Pem | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=target.cluster.folder / "ca" / "ca.pem")
    if pair is not None:
        with tempfile.TemporaryDirectory() as folder:
            certificate, key = Path(folder) / "cert.pem", Path(folder) / "key.pem"
            certificate.write_bytes(pair.certificate)
            key.write_bytes(pair.key)
            context.load_cert_chain(certificate, key)
    return context


async def dialled_with_bad_ones(target: Target, _seconds: float) -> str:
    """With the right peer secret each of them."""
    authority = _authority(target)
    shown = {
        "none": None,
        "expired": make_node_certificate(authority, "x", HOSTS, _ago(NODE_DAYS + 3)),
        "not yet valid": make_node_certificate(authority, "x", HOSTS, _ago(-10)),
        "of another authority": make_node_certificate(make_authority("else", _ago(0)), "x", HOSTS, _ago(0)),
    }
    host, secret = await impostor(target), secret_of(target)
    for name, pair in shown.items():
        with contextlib.suppress(ssl.SSLError, ConnectionError):
            stranger = await TlsStranger.dial(target.node.peer, _context(target, pair))
            try:
                handshake, _said = await shake(stranger, host, secret)
                assert handshake.outcome is None, f"{name}: {handshake.outcome}"
            finally:
                stranger.close()
    elsewhere = make_node_certificate(authority, "x", ("elsewhere.example",), _ago(0))
    stranger = await TlsStranger.dial(target.node.peer, _context(target, elsewhere))
    try:
        handshake, _said = await shake(stranger, host, secret)
        assert isinstance(handshake.outcome, LinkFailure)
        assert handshake.outcome.reason == Refusal.OTHER_CERTIFICATE
    finally:
        stranger.close()
    return f"none, {', '.join(list(shown)[1:])}, and one for another host"


async def half_a_reload(target: Target, _seconds: float) -> str:
    """The certificate is new and the key is not, until it is."""
    tls = target.node.folder / "tls"
    log, pair = LogReader(target.node.log), make_node_certificate(_authority(target), "x", HOSTS, _ago(0))
    (tls / "node.pem").write_bytes(pair.certificate)
    target.node.signal(signal.SIGHUP)
    await until(lambda: log.events()["reload failed, the former settings stay"], "the reload is refused")
    (await target.session()).close()
    assert (await told_status(target.node))["process"]["reload_fault"]
    (tls / "node.key").write_bytes(pair.key)
    target.node.signal(signal.SIGHUP)
    await until(lambda: log.events()["reloaded"], "the reload is carried out")
    (await target.session()).close()
    assert (await told_status(target.node))["process"]["reload_fault"] is None
    return "a new certificate with the former key, then with its own"


CASES = (
    Case(
        "peer: certificates that do not do", dialled_with_bad_ones, (THREE_TLS,), log="TLS with a peer failed"
    ),
    Case(
        "reload: half-applied",
        half_a_reload,
        (STANDALONE_TLS,),
        log="reload failed, the former settings stay",
    ),
)
