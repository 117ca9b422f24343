"""Certificates as they lie in files: what is in them, what is wrong with them, and new ones for the nodes."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import NameOID

from ticketing.config.addresses import parse_address
from ticketing.config.certificates import Pem, make_node_certificate
from ticketing.config.cluster_folder import certificate_hosts
from ticketing.config.edit import replace_file
from ticketing.config.layout import AUTHORITY_FOLDER
from ticketing.config.load import LoadedNode
from ticketing.config.problems import ConfigError, wrong
from ticketing.config.reader import reason
from ticketing.server.tls import certifies

SOON_DAYS = 30
"""Before its end a certificate is told of for so long."""


class Shown(NamedTuple):
    """One certificate of one file."""

    file: Path
    subject: str
    names: tuple[str, ...]
    """Empty for an authority."""
    begins: datetime.datetime
    ends: datetime.datetime
    faults: tuple[str, ...] = ()

    def days_left(self, now: datetime.datetime) -> int:
        """Whole days; negative where it has ended."""
        return (self.ends - now).days


def read_certificates(path: Path) -> list[Shown]:
    """Every certificate of a PEM file; `ConfigError` where there is none that can be read."""
    return [_shown(path, certificate) for certificate in load_certificates(path)]


def node_certificate(loaded: LoadedNode, now: datetime.datetime) -> Shown:
    """A node's own certificate with everything that its peers or clients would object to."""
    files = loaded.settings.tls
    assert files is not None, "only where there is TLS"
    certificate = load_certificates(files.certificate)[0]
    shown = _shown(files.certificate, certificate)
    node = loaded.settings.node
    place = next(place for place in node.places if place.name == node.place)
    faults = [*_dates(shown, now)]
    for name, address in (("clients", place.client), ("peers", place.peer), ("operators", place.admin)):
        if address and not certifies(shown.names, parse_address(address).host):
            faults.append(f"does not name {parse_address(address).host}, which {name} dial")
    if not any(signed_by(certificate, authority) for authority in load_certificates(files.ca)):
        faults.append(f"is not signed by an authority in {files.ca}")
    if not _belongs(certificate, files.key):
        faults.append(f"does not belong to the key {files.key}")
    return shown._replace(faults=tuple(faults))


def renew(loaded: LoadedNode, cluster: Path, now: datetime.datetime) -> Shown:
    """Signs a new certificate, with a new key, for a node and puts both in place; names that it had are kept."""
    return put(loaded, sign_anew(loaded, cluster, now))


def sign_anew(loaded: LoadedNode, cluster: Path, now: datetime.datetime) -> Pem:
    """The new certificate and key alone: nothing is written yet. `ConfigError` where the node would not trust it."""
    files = loaded.settings.tls
    assert files is not None, "only where there is TLS"
    authority = signing_authority(cluster)
    folder = cluster / AUTHORITY_FOLDER
    node = loaded.settings.node
    place = next(place for place in node.places if place.name == node.place)
    hosts = list(certificate_hosts(place))
    if files.certificate.is_file():
        hosts += [name for name in read_certificates(files.certificate)[0].names if name not in hosts]
    try:
        pair = make_node_certificate(authority, place.name, hosts, now)
    except (ValueError, TypeError) as error:
        raise wrong(f"cannot sign with it: {error}", file=folder / "ca.key") from None
    authorities = load_certificates(files.ca) if files.ca.is_file() else []
    made = x509.load_pem_x509_certificate(pair.certificate)
    if not any(signed_by(made, known) for known in authorities):
        raise wrong(f"does not hold the authority {folder / 'ca.pem'}: nobody would trust it", file=files.ca)
    return pair


def put(loaded: LoadedNode, pair: Pem) -> Shown:
    """Puts a certificate and its key in a node's files; where one cannot be written both are as before."""
    files = loaded.settings.tls
    assert files is not None, "only where there is TLS"
    former = files.key.read_bytes() if files.key.is_file() else b""
    # The key first: in between a running node sees a pair that does not match, and keeps the one that it has.
    replace_file(files.key, pair.key)
    try:
        replace_file(files.certificate, pair.certificate)
    except ConfigError:
        if former:
            replace_file(files.key, former)
        raise
    return read_certificates(files.certificate)[0]


def signing_authority(cluster: Path) -> Pem:
    """The authority that signs for a cluster: its key, and of the certificates beside that the one that belongs to it.

    `ConfigError` where they are not here, or none belongs to the key.
    """
    folder = cluster / AUTHORITY_FOLDER
    key, file = folder / "ca.key", folder / "ca.pem"
    try:
        found = Pem(file.read_bytes(), key.read_bytes())
    except OSError as error:
        raise wrong(
            f"cannot be read ({reason(error)})",
            file=Path(error.filename or key),
            hint="run this where the cluster's certificate authority is kept",
        ) from None
    for certificate in load_certificates(file):
        if _belongs(certificate, key):
            return found._replace(certificate=certificate.public_bytes(serialization.Encoding.PEM))
    raise wrong(f"belongs to no certificate in {file}", file=key)


def _dates(shown: Shown, now: datetime.datetime) -> list[str]:
    if shown.ends <= now:
        return [f"ended on {shown.ends:%Y-%m-%d %H:%M} UTC"]
    if shown.begins > now:
        return [f"begins only on {shown.begins:%Y-%m-%d %H:%M} UTC: is this machine's clock right?"]
    return []


def authority_faults(shown: Shown, now: datetime.datetime) -> tuple[str, ...]:
    """What is wrong with an authority's certificate."""
    return tuple(_dates(shown, now))


def load_certificates(path: Path) -> list[x509.Certificate]:
    """Every certificate of a PEM file; `ConfigError` where there is none that can be read."""
    try:
        return x509.load_pem_x509_certificates(path.read_bytes())
    except OSError as error:
        raise wrong(reason(error), file=path) from None
    except ValueError:
        raise wrong("holds no certificate that can be read", file=path) from None


def _shown(path: Path, certificate: x509.Certificate) -> Shown:
    common = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    names: list[str] = []
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        pass
    else:
        names += extension.get_values_for_type(x509.DNSName)
        names += [str(address) for address in extension.get_values_for_type(x509.IPAddress)]
    return Shown(
        path,
        str(common[0].value) if common else certificate.subject.rfc4514_string(),
        tuple(names),
        certificate.not_valid_before_utc,
        certificate.not_valid_after_utc,
    )


def signed_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    """Whether an authority has signed a certificate."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _belongs(certificate: x509.Certificate, key: Path) -> bool:
    try:
        private = serialization.load_pem_private_key(key.read_bytes(), password=None)
    except (OSError, ValueError, TypeError):
        return False
    encoding, form = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    return private.public_key().public_bytes(encoding, form) == certificate.public_key().public_bytes(
        encoding, form
    )
