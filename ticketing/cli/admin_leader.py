"""Questions and commands for the node that leads, found and followed through elections."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote, urlencode

from ticketing.cli.admin_client import TIMEOUT_S, AdminAccess, AdminError, Answer, all_failed, call, failed
from ticketing.cli.errors import CommandFailed, ExitCode
from ticketing.config.addresses import is_loopback, parse_address

WITHIN_S = 10.0
"""A cluster that has no leader for longer is not just electing one."""

AGAIN_S = 0.2
COMMAND_S = 15.0
"""A node answers a command once it is committed, or after 10 s with the word that nobody knows."""

_ELECTING = ("not_leader", "no_leader", "indeterminate")
"""What the same node may answer differently a moment later."""

_PASSING = (*_ELECTING, "unreachable", "unauthorized", "tls")
"""What another node may answer differently."""


class Leader:
    """The admin plane of whoever leads one cluster."""

    def __init__(
        self,
        access: AdminAccess,
        *,
        clock_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._access = access
        self._clock_s = clock_s
        self._sleep = sleep
        self._known = ""
        """The address that answered last."""

    def get(
        self, path: str, query: Mapping[str, object] | None = None, *, within_s: float = WITHIN_S
    ) -> dict[str, Any]:
        """The leader's answer; `CommandFailed` where there is none or it refuses."""
        found = {name: value for name, value in (query or {}).items() if value not in (None, "")}
        target = f"{path}?{urlencode(found, quote_via=quote)}" if found else path
        return self.ask("GET", target, within_s=within_s)

    def post(self, path: str, body: Mapping[str, object], *, method: str = "POST") -> dict[str, Any]:
        """Carries out a command, once, however often it has to be said: every try has the same id."""
        return self.ask(method, path, {"id": new_id(), **body}, within_s=3 * COMMAND_S)

    def ask(
        self, method: str, path: str, body: object = None, *, within_s: float = WITHIN_S
    ) -> dict[str, Any]:
        """As `get` and `post`, with everything given."""
        try:
            return self.try_ask(method, path, body, within_s=within_s)
        except AdminError as error:
            raise failed(error) from None

    def try_ask(
        self, method: str, path: str, body: object = None, *, within_s: float = WITHIN_S
    ) -> dict[str, Any]:
        """As `ask`, with a refusal as `AdminError`; `CommandFailed` where no node leads or answers."""
        deadline_s = self._clock_s() + within_s
        patience_s = TIMEOUT_S if method == "GET" else COMMAND_S
        while True:
            errors: list[Answer] = []
            for place, address in self._order():
                left_s = deadline_s - self._clock_s()
                if errors and left_s <= 0:
                    break
                try:
                    return self._follow(address, method, path, body, max(min(left_s, patience_s), 0.05))
                except AdminError as error:
                    if error.code not in _PASSING:
                        raise
                    errors.append(Answer(place, address, None, error))
            if self._clock_s() >= deadline_s or not _may_pass(errors):
                raise _nobody(errors)
            self._sleep(AGAIN_S)

    def _order(self) -> list[tuple[str, str]]:
        nodes = list(self._access.nodes)
        return sorted(nodes, key=lambda node: node[1] != self._known)

    def _follow(self, address: str, method: str, path: str, body: object, timeout_s: float) -> dict[str, Any]:
        try:
            answer = call(self._access, address, method, path, body, timeout_s=timeout_s)
        except AdminError as error:
            named = self._trusted(error.leader) if error.code == "not_leader" else ""
            if not named or named == address:
                raise
            address = named
            try:
                answer = call(self._access, address, method, path, body, timeout_s=timeout_s)
            except AdminError as other:
                if other.code not in ("unreachable", "not_leader"):
                    raise
                raise AdminError("no_leader", f"{other} (was said to lead)") from None
        self._known = address
        return answer

    def _trusted(self, leader: dict[str, Any] | None) -> str:
        """The leader's address, if the token may go there: configured, verified by TLS, or this machine."""
        address = (leader or {}).get("admin")
        if not isinstance(address, str) or not address:
            return ""
        known = [known for _, known in self._access.nodes]
        verified = self._access.tls not in ("off", "insecure-skip-verify")
        try:
            near = is_loopback(parse_address(address).host)
        except ValueError:
            return ""
        return address if address in known or verified or near else ""


def new_id() -> str:
    """An id for one command."""
    return secrets.token_hex(12)


def key_path(key: str) -> str:
    """`/v1/locks/{key}`, whatever is in the key."""
    encoded = quote(key, safe="")
    # A segment of dots would be taken for a step up.
    return "/v1/locks/" + (encoded.replace(".", "%2E") if encoded in (".", "..") else encoded)


def _may_pass(errors: list[Answer]) -> bool:
    """Whether somebody is there who may know more in a moment. Where nobody answers, waiting helps nobody."""
    return any(answer.error is not None and answer.error.code in _ELECTING for answer in errors)


def _nobody(errors: list[Answer]) -> CommandFailed:
    unknown = next((a.error for a in errors if a.error is not None and a.error.code == "indeterminate"), None)
    if unknown is not None:
        return failed(unknown)
    codes = {answer.error.code for answer in errors if answer.error is not None}
    if codes & set(_ELECTING):
        lines = "; ".join(f"{answer.place} {answer.error}" for answer in errors)
        return CommandFailed(
            f"no leader serves: {lines}",
            ExitCode.UNREACHABLE,
            hint="`ticketing status` tells how the nodes are",
        )
    return all_failed(errors)
