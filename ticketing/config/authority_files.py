"""Changing a cluster's certificate authority where `init` has put it: both trusted, then the new one signs, then the
old one goes.

`ca/ca.pem` is what programs and operators trust, each node's `tls/ca.pem` what that node trusts; both hold several
certificates while the authority is changed. `ca/ca.key` signs. The new one waits in `ca/next.pem` and `ca/next.key`.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from ticketing.config.certificate_files import load_certificates, signed_by, signing_authority
from ticketing.config.certificates import make_authority
from ticketing.config.edit import replace_file, replace_files
from ticketing.config.layout import AUTHORITY_FOLDER
from ticketing.config.load import LoadedNode
from ticketing.config.problems import wrong
from ticketing.server.loaded import fingerprint

NEXT_CERTIFICATE, NEXT_KEY = "next.pem", "next.key"


def name_of(certificate: x509.Certificate) -> str:
    """An authority's fingerprint."""
    return fingerprint(certificate.public_bytes(serialization.Encoding.DER))


def add_next(cluster: Path, nodes: Sequence[LoadedNode], now: datetime.datetime) -> tuple[str, list[Path]]:
    """Makes a new authority, or goes on with the one that was begun, and has it trusted beside the present one.

    Returns its fingerprint, and the files that were changed.
    """
    present = x509.load_pem_x509_certificate(signing_authority(cluster).certificate)
    folder = cluster / AUTHORITY_FOLDER
    certificate, key = folder / NEXT_CERTIFICATE, folder / NEXT_KEY
    if not (certificate.is_file() and key.is_file()) and len(load_certificates(folder / "ca.pem")) == 1:
        made = make_authority(f"ticketing cluster, from {now:%Y-%m-%d %H:%M:%S} on", now)
        # The key first: a certificate without its key would be trusted and could never sign.
        replace_file(key, made.key)
        replace_file(certificate, made.certificate)
    fresh = load_certificates(certificate)[0] if certificate.is_file() else present
    if not set(load_certificates(folder / "ca.pem")) <= {present, fresh}:
        raise wrong(
            "holds a former authority: the last change is not over",
            file=folder / "ca.pem",
            hint="end it first: `ticketing cert remove-ca`",
        )
    return name_of(fresh), _write_all(_trusting(cluster, nodes), [present, fresh])


def promote_next(cluster: Path, nodes: Sequence[LoadedNode]) -> tuple[str, list[Path]]:
    """From now on the new authority signs. The certificates that the old one signed are still trusted.

    Returns its fingerprint, and the files that were changed: none where it signs already (an interrupted call).
    `ConfigError` where one of `nodes` does not trust it: it would know none of the others any more.
    """
    folder = cluster / AUTHORITY_FOLDER
    certificate, key = folder / NEXT_CERTIFICATE, folder / NEXT_KEY
    if not key.is_file():
        known = load_certificates(folder / "ca.pem")
        if len(known) < 2:
            raise wrong(
                "there is no new authority", file=certificate, hint="begin with `ticketing cert add-ca`"
            )
        return name_of(x509.load_pem_x509_certificate(signing_authority(cluster).certificate)), []
    (fresh,) = load_certificates(certificate)
    for file in _trusting(cluster, nodes):
        if fresh not in load_certificates(file):
            raise wrong(
                "does not hold the new authority yet", file=file, hint="go on with `ticketing cert add-ca`"
            )
    replace_file(folder / "ca.key", key.read_bytes())
    key.unlink()
    certificate.unlink(missing_ok=True)
    return name_of(fresh), [folder / "ca.key"]


def remove_former(
    cluster: Path, nodes: Sequence[LoadedNode], everybody: Sequence[LoadedNode]
) -> tuple[list[str], list[Path]]:
    """Only the authority that signs is trusted any more by `nodes`; the fingerprints of the others, and the changed
    files.

    `ConfigError` where the certificate here of one of `everybody` is not signed by it: nobody would trust that node.
    """
    present = x509.load_pem_x509_certificate(signing_authority(cluster).certificate)
    for loaded in everybody:
        assert loaded.settings.tls is not None, "only with TLS"
        own = load_certificates(loaded.settings.tls.certificate)[0]
        if not signed_by(own, present):
            raise wrong(
                "is still signed by the former authority",
                file=loaded.settings.tls.certificate,
                hint="`ticketing cert renew` signs it anew",
            )
    files = _trusting(cluster, nodes)
    gone = {name_of(other): None for file in files for other in load_certificates(file) if other != present}
    return list(gone), _write_all(files, [present])


def _trusting(cluster: Path, nodes: Sequence[LoadedNode]) -> list[Path]:
    own = [loaded.settings.tls.ca for loaded in nodes if loaded.settings.tls is not None]
    return list(dict.fromkeys((*own, cluster / AUTHORITY_FOLDER / "ca.pem")))


def _write_all(files: Iterable[Path], wanted: Sequence[x509.Certificate]) -> list[Path]:
    """Those that held others than these, in whatever order."""
    different = [file for file in files if set(load_certificates(file)) != set(wanted)]
    content = b"".join(one.public_bytes(serialization.Encoding.PEM) for one in wanted)
    return replace_files(dict.fromkeys(different, content))
