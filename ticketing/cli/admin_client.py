"""Calls to the nodes' admin planes (docs/admin.md). The standard library alone: commands start fast."""

from __future__ import annotations

import getpass
import http.client
import json
import os
import socket
import ssl
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from ticketing.cli.admin_shapes import sound
from ticketing.cli.errors import CommandFailed, ExitCode
from ticketing.config.addresses import parse_address

ANSWER_BYTES_MAX = 16 << 20
"""A page of a list is far smaller; what is larger is not an admin plane."""

TIMEOUT_S = 3.0
OPERATOR_CHARS_MAX = 128


class AdminAccess(NamedTuple):
    """How to reach the admin planes of a cluster."""

    nodes: tuple[tuple[str, str], ...]
    """Place and admin address, in configured order."""
    token: str
    tls: str = "off"
    """As in `client.toml`; a CA file as an absolute path."""


class AdminError(Exception):
    """A node that did not do what it was asked: `code` is the admin plane's, or one of our own.

    Our own: `unreachable` (nobody answers), `tls` (the certificate is not trusted), `not_an_admin_plane`.
    """

    def __init__(self, code: str, message: str, hint: str = "", leader: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.hint = hint
        self.leader = leader
        """With `not_leader`: the place, client and admin address of the node to ask, where it is known."""


class Answer(NamedTuple):
    """What one node said: its facts, or why there are none."""

    place: str
    address: str
    facts: dict[str, Any] | None
    error: AdminError | None = None


def call(
    access: AdminAccess,
    address: str,
    method: str,
    path: str,
    body: object = None,
    *,
    timeout_s: float = TIMEOUT_S,
) -> dict[str, Any]:
    """One request to one node; its JSON object, or `AdminError`."""
    host, port = parse_address(address)
    if access.tls == "off":
        connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    else:
        connection = http.client.HTTPSConnection(host, port, timeout=timeout_s, context=_context(access.tls))
    headers = {"Accept": "application/json", "Connection": "close"}
    if access.token:
        headers["Authorization"] = f"Bearer {access.token}"
    if method != "GET":
        headers["Ticketing-Operator"] = operator()
    content = None
    if body is not None:
        headers["Content-Type"] = "application/json"
        content = json.dumps(body).encode()
    try:
        connection.request(method, path, content, headers)
        response = connection.getresponse()
        answer = response.read(ANSWER_BYTES_MAX + 1)
    except ssl.SSLError as error:
        text = getattr(error, "verify_message", "") or (error.reason or str(error)).replace("_", " ").lower()
        raise AdminError("tls", f"{address}: TLS failed: {text}") from None
    except TimeoutError:
        raise AdminError("unreachable", f"{address}: no answer within {timeout_s:g} s") from None
    except (OSError, http.client.HTTPException) as error:
        text = getattr(error, "strerror", None) or "is no admin plane"
        raise AdminError("unreachable", f"{address}: {text.lower()}") from None
    finally:
        connection.close()
    return _parsed(address, response.status, answer)


def ask_all(access: AdminAccess, path: str, *, timeout_s: float = TIMEOUT_S) -> list[Answer]:
    """The same question to every node at once, answers in configured order. Silence is an answer too."""

    def ask(node: tuple[str, str]) -> Answer:
        place, address = node
        try:
            return Answer(place, address, call(access, address, "GET", path, timeout_s=timeout_s))
        except AdminError as error:
            return Answer(place, address, None, error)

    with ThreadPoolExecutor(max_workers=max(1, len(access.nodes))) as pool:
        return list(pool.map(ask, access.nodes))


def failed(error: AdminError) -> CommandFailed:
    """An admin plane's refusal as the end of a command."""
    code = {
        "unauthorized": ExitCode.REFUSED,
        "tls": ExitCode.REFUSED,
        "unreachable": ExitCode.UNREACHABLE,
        "not_an_admin_plane": ExitCode.UNREACHABLE,
        "no_leader": ExitCode.UNREACHABLE,
        "not_leader": ExitCode.UNREACHABLE,
        "indeterminate": ExitCode.INDETERMINATE,
    }.get(error.code, ExitCode.FAILURE)
    return CommandFailed(str(error), code, hint=error.hint)


def all_failed(answers: Sequence[Answer]) -> CommandFailed:
    """Not one node gave its facts: each with its reason; refused rather than unreachable if one refused."""
    errors = [answer.error for answer in answers if answer.error is not None]
    refused = next((error for error in errors if error.code in ("unauthorized", "tls")), None)
    lines = "; ".join(f"{answer.place} {answer.error}" for answer in answers if answer.error is not None)
    if refused is not None:
        hint = refused.hint or "the token and the CA come from admin.toml: is it the file of this cluster?"
        return CommandFailed(f"no node let us in: {lines}", ExitCode.REFUSED, hint=hint)
    return CommandFailed(
        f"no node answers: {lines}",
        ExitCode.UNREACHABLE,
        hint="are the nodes running? `ticketing node start`",
    )


def operator() -> str:
    """Who gives a command, for the audit: user and host."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}".encode("ascii", "replace").decode()[:OPERATOR_CHARS_MAX]


def _parsed(address: str, status: int, answer: bytes) -> dict[str, Any]:
    try:
        value = json.loads(answer)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise AdminError("not_an_admin_plane", f"{address}: answers, but not as an admin plane does")
    if status < 400:
        return sound(value)
    error = value.get("error")
    if not isinstance(error, dict):
        raise AdminError("not_an_admin_plane", f"{address}: HTTP status {status}")
    code, message, hint = (str(error.get(key, "")) for key in ("code", "message", "hint"))
    if status == 401:
        code = "unauthorized"
    leader = error.get("leader")
    raise AdminError(
        code, f"{address}: {message or code}", hint, leader if isinstance(leader, dict) else None
    )


def _context(tls: str) -> ssl.SSLContext:
    if tls == "system-roots":
        return ssl.create_default_context()
    if tls == "insecure-skip-verify":
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context
    try:
        return ssl.create_default_context(cafile=tls)
    except OSError as error:
        raise AdminError(
            "tls", f"cannot use the CA file {tls}: {(error.strerror or str(error)).lower()}"
        ) from None
