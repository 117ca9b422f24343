"""The four TLS modes. A connection never falls back from the one it was given."""

from __future__ import annotations

import ssl
from logging import Logger
from pathlib import Path

from ticketing.client.arguments import invalid
from ticketing.client.errors import TicketError, TicketErrorKind

OFF = "off"
SYSTEM_ROOTS = "system-roots"
INSECURE = "insecure-skip-verify"

TlsMode = str | Path | None
"""`off` (also None), `system-roots`, `insecure-skip-verify`, or the path of a CA file."""


def context(mode: TlsMode, logger: Logger) -> ssl.SSLContext | None:
    """What connections are made with; None without TLS. `io` where the CA file cannot be used."""
    if mode is None or mode == OFF:
        return None
    if mode == SYSTEM_ROOTS:
        made = ssl.create_default_context()
    elif mode == INSECURE:
        logger.warning("TLS without verification: whoever is in between can read and take every lock")
        made = ssl.create_default_context()
        made.check_hostname = False
        made.verify_mode = ssl.CERT_NONE
    elif not str(mode):
        raise invalid(
            "tls", mode, "a mode or the path of a CA file", f"{mode!r} is neither a mode nor a path"
        )
    else:
        try:
            made = ssl.create_default_context(cafile=str(mode))
        except OSError as error:
            hint = f"tls: no CA file {str(mode)!r}"
            if Path(mode).exists():
                hint = f"tls: {str(mode)!r} is no usable CA file"
            modes = f"the modes are {OFF}, {SYSTEM_ROOTS}, {INSECURE} and the path of a CA file"
            raise TicketError(TicketErrorKind.IO, f"{hint} ({error}); {modes}") from error
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    return made


def verified(made: ssl.SSLContext | None) -> bool:
    """Whether the other side has to prove its name."""
    return made is not None and made.verify_mode == ssl.CERT_REQUIRED and made.check_hostname
