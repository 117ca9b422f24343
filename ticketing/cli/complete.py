"""What could stand where the cursor is: the work behind the completion scripts.

Says nothing rather than something wrong, never raises, and never makes a person wait: a cluster that does not answer
within a moment is not asked any further.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ticketing.cli.admin_client import AdminAccess, AdminError, call
from ticketing.cli.admin_leader import key_path
from ticketing.config.client_file import TLS_WORDS, Typed, find_admin
from ticketing.config.problems import ConfigError

WITHIN_S = 0.6
KEYS_MAX = 100

_SAFE = re.compile(r"[A-Za-z0-9_./:@%+=,][A-Za-z0-9_./:@%+=,-]*")
"""What a shell takes as it stands: keys are other people's, and some shells insert what they are given unquoted."""

_WORDS: dict[str, tuple[str, ...]] = {
    "--output": ("text", "json"),
    "-o": ("text", "json"),
    "--on-lease-end": ("kill", "warn"),
    "--kind": ("client", "peer", "admin"),
    "--tls": TLS_WORDS,
    "--nodes": ("3", "5", "1"),
}
_PLACES = ("--node", "--to")
_KEYS = {("acquire",), ("release",), ("locks", "list"), ("locks", "show"), ("locks", "revoke")}
_TOKENS = {("release",), ("locks", "revoke")}


class Cluster:
    """Places and keys of the cluster that the typed words mean."""

    def __init__(self, typed: Typed) -> None:
        try:
            facts = find_admin(typed, os.environ, Path.cwd())
        except ConfigError:
            self._access = None
        else:
            self._access = AdminAccess(facts.nodes, facts.token, facts.tls)

    def places(self) -> list[str]:
        """As `admin.toml` has them."""
        return [place for place, _ in self._access.nodes] if self._access is not None else []

    def keys(self, prefix: str) -> list[str]:
        """Held keys that begin so."""
        page = self._ask(f"/v1/locks?prefix={quote(prefix, safe='')}&limit={KEYS_MAX}")
        return [str(lock.get("key")) for lock in page.get("locks") or [] if isinstance(lock, dict)]

    def token(self, key: str) -> list[str]:
        """The token that holds a key."""
        lock = self._ask(key_path(key)).get("lock")
        return [str(lock.get("token"))] if isinstance(lock, dict) else []

    def _ask(self, path: str) -> dict[str, Any]:
        deadline_s = time.monotonic() + WITHIN_S
        for _, address in self._access.nodes if self._access is not None else ():
            left_s = deadline_s - time.monotonic()
            if left_s <= 0.01 or self._access is None:
                break
            try:
                return call(self._access, address, "GET", path, timeout_s=left_s / 2)
            except AdminError:
                continue
        return {}


def complete(words: Sequence[str], root: Any, cluster: Callable[[Typed], Cluster] = Cluster) -> list[str]:
    """Candidates for the last of `words`, which is what stands before the cursor, maybe empty."""
    *before, current = words or [""]
    found = _walk(before, root)
    if found is None:
        return []
    path, command, arguments, waiting, given = found
    typed = Typed(config=given.get("--config"), admin_config=given.get("--admin-config"))
    if waiting:
        return _fitting(_values(waiting, current, path, typed, cluster), current)
    if current.startswith("-"):
        return _fitting(_options(command), current)
    if hasattr(command, "list_commands"):
        return _fitting(command.list_commands(None), current)
    if path == ("completion",):
        return _fitting(("bash", "zsh", "fish"), current) if not arguments else []
    if path in _KEYS and not arguments and "--key" not in given:
        return _fitting(cluster(typed).keys(current), current)
    if path in _TOKENS and len(arguments) == 1:
        return _fitting(cluster(typed).token(arguments[0]), current)
    return []


def _walk(
    before: Iterable[str], root: Any
) -> tuple[tuple[str, ...], Any, list[str], str, dict[str, str]] | None:
    """Sub-command path and object, arguments so far, the option that waits for its value, options given."""
    path: tuple[str, ...] = ()
    command = root
    arguments: list[str] = []
    given: dict[str, str] = {}
    waiting = ""
    for word in before:
        if waiting:
            given[waiting] = word
            waiting = ""
        elif word == "--":
            return None
        elif word.startswith("-"):
            name, equals, value = word.partition("=")
            if equals:
                given[name] = value
            elif _takes_value(command, name):
                waiting = name
        elif hasattr(command, "list_commands"):
            command = command.get_command(None, word)
            if command is None:
                return None
            path = (*path, word)
        else:
            arguments.append(word)
    return path, command, arguments, waiting, given


def _values(
    option: str, current: str, path: tuple[str, ...], typed: Typed, cluster: Callable[[Typed], Cluster]
) -> Iterable[str]:
    if option in _PLACES and path[:1] != ("init",):
        return cluster(typed).places()
    if option == "--key":
        return cluster(typed).keys(current)
    if option == "--sort":
        return ("key", "age", "lease", "queue")
    return _WORDS.get(option, ())


def _options(command: Any) -> list[str]:
    return [
        name
        for parameter in command.params
        if getattr(parameter, "param_type_name", "") == "option" and not getattr(parameter, "hidden", False)
        for name in (*parameter.opts, *parameter.secondary_opts)
        if name.startswith("--")
    ] + ["--help"]


def _takes_value(command: Any, name: str) -> bool:
    return any(
        name in parameter.opts and not getattr(parameter, "is_flag", False) for parameter in command.params
    )


def _fitting(candidates: Iterable[str], current: str) -> list[str]:
    return [
        word
        for word in candidates
        if word.startswith(current) and (_SAFE.fullmatch(word) or word.startswith("--"))
    ]
