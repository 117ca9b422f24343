"""What a node has loaded of its secrets and certificates, told without telling any of them.

A node and whoever holds the files reckon this alike, so that an operator's command can compare: that a node has read
its files anew says nothing about which files they are.
"""

from __future__ import annotations

import hashlib
import ssl
from pathlib import Path

from ticketing.server.settings import ServerSettings, TlsFiles

FINGERPRINT = 12

Loaded = dict[str, list[str]]
"""By kind (`client_tokens`, `peer_secrets`, `admin_tokens`, `certificate`, `authorities`): fingerprints, in order."""


def fingerprint(secret: str | bytes) -> str:
    """A name that gives nothing away: the beginning of the SHA-256, in hex. Of a certificate: of its DER form."""
    content = secret.encode() if isinstance(secret, str) else secret
    return hashlib.sha256(content).hexdigest()[:FINGERPRINT]


def loaded_secrets(settings: ServerSettings) -> Loaded:
    """Tokens and secrets."""
    node = settings.node
    return {
        "client_tokens": [fingerprint(token) for token in node.client_tokens],
        "peer_secrets": [fingerprint(secret) for secret in node.peer_secrets],
        "admin_tokens": [fingerprint(token) for token in settings.admin_tokens],
    }


def loaded_certificates(files: TlsFiles | None) -> Loaded:
    """The node's own certificate, and the authorities that it trusts. OSError, ValueError where there are none."""
    if files is None:
        return {"certificate": [], "authorities": []}
    own = _certificates(files.certificate)
    if not own:
        raise ValueError(f"{files.certificate}: holds no certificate")
    return {"certificate": own[:1], "authorities": sorted(_certificates(files.ca))}


_END = "-----END CERTIFICATE-----"


def _certificates(path: Path) -> list[str]:
    text = path.read_text(encoding="ascii", errors="replace")
    found = []
    for part in text.split(_END)[:-1]:
        _, begin, body = part.rpartition("-----BEGIN CERTIFICATE-----")
        if begin:
            found.append(fingerprint(ssl.PEM_cert_to_DER_cert(f"{begin}{body}{_END}")))
    return found
