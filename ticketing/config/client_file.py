"""How a command finds its cluster: flags beat the environment, and that beats `client.toml`.

`client.toml` is the one that `--config` or `TICKETING_CONFIG` names (a file, or a folder that holds it), else
the first of `./client.toml`, `./ticketing-cluster/client.toml` and the one in the user's own configuration
folder. `admin.toml` is looked for beside it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ticketing.config.addresses import CLIENT_PORT, is_wildcard, parse_address
from ticketing.config.client_models import AdminFile, ClientFile
from ticketing.config.layout import ADMIN_FILE, CLIENT_FILE, CLUSTER_FOLDER
from ticketing.config.problems import ConfigError, Problem
from ticketing.config.reader import TomlFile, read_secret_file, read_toml

TLS_WORDS = ("off", "system-roots", "insecure-skip-verify")
"""Everything else is the path of a CA file."""


class Typed(NamedTuple):
    """What a person typed to find the cluster; None: not given."""

    config: str | None = None
    admin_config: str | None = None
    addrs: Sequence[str] = ()
    token_file: str | None = None
    tls: str | None = None


class Access(NamedTuple):
    """How to reach a cluster's clients' port."""

    addrs: tuple[str, ...]
    token: str
    tls: str
    file: Path | None
    """The `client.toml` that had a part in it."""
    warnings: tuple[Problem, ...] = ()
    sources: tuple[tuple[str, str], ...] = ()
    """Where each value came from: `addrs`, `token` and `tls` with a flag, a variable, a file, or `default`."""

    @property
    def token_from(self) -> str:
        """The flag, variable or file that the token came from; empty where there is no token."""
        return dict(self.sources).get("token", str(self.file)) if self.token else ""


class AdminFacts(NamedTuple):
    """How to reach a cluster's admin planes."""

    nodes: tuple[tuple[str, str], ...]
    """Place and address, in configured order."""
    token: str
    tls: str
    file: Path
    warnings: tuple[Problem, ...] = ()


def find_access(typed: Typed, environment: Mapping[str, str], here: Path) -> Access:
    """Addresses, token and TLS of the cluster that is meant; `ConfigError` says where was looked."""
    file = _client_file(typed, environment, here)
    problems: list[Problem] = []
    addrs_from, addrs = _addresses(typed, environment, problems)
    token_from, token = _token(typed, environment, here, problems)
    tls_from, tls = _tls(typed, environment, here, problems)
    needed = not addrs or token is None or tls is None
    if file is not None and needed and not file.exists():
        problems.append(Problem(file, _named_by(typed, environment), "no such file"))
    if problems:
        raise ConfigError(problems)
    if file is None and not addrs:
        raise ConfigError([Problem(None, "", _nothing_found(environment, here))], hint=_NEXT)
    written = Access((), "", "off", None)
    rest = "default"
    if file is not None and needed:
        written = read_client_file(file)
        rest = str(file)
    sources = (
        ("addrs", addrs_from if addrs else rest),
        ("token", token_from if token is not None else rest),
        ("tls", tls_from if tls is not None else rest),
    )
    return Access(
        addrs or written.addrs,
        written.token if token is None else token,
        written.tls if tls is None else tls,
        file,
        written.warnings,
        sources,
    )


def read_client_file(path: Path) -> Access:
    """`client.toml` as it is; `ConfigError` has every fault."""
    file = read_toml(path)
    model = file.read(ClientFile)
    if model is None:
        file.refuse_if_wrong()
        raise AssertionError("a model is missing only where a problem was noted")
    if not model.addrs:
        file.problem("addrs", f'is empty; list the nodes, for example ["10.0.0.1:{CLIENT_PORT}"]')
    addrs = [_checked(file, f"addrs[{n}]", text) for n, text in enumerate(model.addrs, start=1)]
    token = _file_token(file, model.token, model.token_file)
    tls = _file_tls(file, model.tls)
    file.refuse_if_wrong()
    return Access(tuple(addrs), token, tls, path, tuple(file.warnings))


def find_admin(typed: Typed, environment: Mapping[str, str], here: Path) -> AdminFacts:
    """The admin planes of the cluster that is meant: `--admin-config`, or `admin.toml` beside `client.toml`."""
    if typed.admin_config is not None:
        return read_admin_file(_in_folder(Path(typed.admin_config), ADMIN_FILE))
    client = _client_file(typed, environment, here)
    if client is None:
        raise ConfigError([Problem(None, "", _nothing_found(environment, here))], hint=_NEXT_ADMIN)
    path = client.parent / ADMIN_FILE
    if not path.exists():
        named_by = _named_by(typed, environment)
        problem = Problem(path, named_by, "no such file: this command asks the nodes' admin planes")
        raise ConfigError([problem], hint=_NEXT_ADMIN)
    return read_admin_file(path)


def read_admin_file(path: Path) -> AdminFacts:
    """`admin.toml` as it is; `ConfigError` has every fault."""
    file = read_toml(path)
    model = file.read(AdminFile)
    if model is None:
        file.refuse_if_wrong()
        raise AssertionError("a model is missing only where a problem was noted")
    if not model.nodes:
        file.problem("nodes", "is empty; list each node's name and admin address")
    nodes = [
        (table.name, _checked(file, f"nodes[{n}].admin", table.admin))
        for n, table in enumerate(model.nodes, start=1)
    ]
    token = _file_token(file, model.token, model.token_file)
    tls = _file_tls(file, model.tls)
    file.refuse_if_wrong()
    return AdminFacts(tuple(nodes), token, tls, path, tuple(file.warnings))


def user_folder(environment: Mapping[str, str]) -> Path | None:
    """The user's own configuration folder, where it can be told."""
    if base := environment.get("XDG_CONFIG_HOME"):
        return Path(base) / "ticketing"
    home = environment.get("HOME")
    return Path(home) / ".config" / "ticketing" if home else None


def _client_file(typed: Typed, environment: Mapping[str, str], here: Path) -> Path | None:
    named = typed.config if typed.config is not None else environment.get("TICKETING_CONFIG") or None
    if named is not None:
        return _in_folder(here / named, CLIENT_FILE)
    return next((path for path in _searched(environment, here) if path.is_file()), None)


def _named_by(typed: Typed, environment: Mapping[str, str]) -> str:
    """What names the file; empty: it was looked for."""
    if typed.config is not None:
        return "--config"
    return "TICKETING_CONFIG" if environment.get("TICKETING_CONFIG") else ""


def _searched(environment: Mapping[str, str], here: Path) -> list[Path]:
    own = user_folder(environment)
    found = [here / CLIENT_FILE, here / CLUSTER_FOLDER / CLIENT_FILE]
    return [*found, own / CLIENT_FILE] if own is not None else found


def _in_folder(path: Path, name: str) -> Path:
    return path / name if path.is_dir() else path


def _nothing_found(environment: Mapping[str, str], here: Path) -> str:
    looked = ", ".join(str(path) for path in _searched(environment, here))
    return f"no cluster is configured here (looked for {looked})"


_NEXT = (
    "name its file with --config or TICKETING_CONFIG, or its nodes with --addr or TICKETING_ADDRS;"
    " `ticketing init` or `ticketing dev` makes one"
)
_NEXT_ADMIN = "name the cluster's admin.toml with --admin-config"


def _addresses(
    typed: Typed, environment: Mapping[str, str], problems: list[Problem]
) -> tuple[str, tuple[str, ...]]:
    key, given = "--addr", list(typed.addrs)
    if not given and (listed := environment.get("TICKETING_ADDRS", "").strip()):
        key, given = "TICKETING_ADDRS", [listed]
    found = []
    for text in (part for words in given for part in re.split(r"[,\s]+", words.strip())):
        try:
            address = parse_address(text, default_port=CLIENT_PORT)
        except ValueError as error:
            problems.append(Problem(None, key, str(error)))
            continue
        if is_wildcard(address.host):
            problems.append(Problem(None, key, f"{text!r} is no address that can be dialled"))
        found.append(str(address))
    return key, tuple(dict.fromkeys(found))


def _token(
    typed: Typed, environment: Mapping[str, str], here: Path, problems: list[Problem]
) -> tuple[str, str | None]:
    if typed.token_file is not None:
        path = here / typed.token_file
        token, fault = read_secret_file(path)
        if fault:
            problems.append(Problem(path, "--token-file", fault))
        elif not token:
            problems.append(Problem(path, "--token-file", "is empty"))
        return "--token-file", token
    return "TICKETING_TOKEN", environment.get("TICKETING_TOKEN") or None


def _tls(
    typed: Typed, environment: Mapping[str, str], here: Path, problems: list[Problem]
) -> tuple[str, str | None]:
    key, text = "--tls", typed.tls
    if text is None:
        key, text = "TICKETING_TLS", environment.get("TICKETING_TLS") or None
    if text is None or text in TLS_WORDS:
        return key, text
    path = here / text
    if not path.is_file():
        problems.append(Problem(None, key, _no_tls(text, path)))
    return key, str(path.absolute())


def _checked(file: TomlFile, key: str, text: str) -> str:
    try:
        address = parse_address(text)
    except ValueError as error:
        file.problem(key, str(error))
        return text
    if is_wildcard(address.host):
        file.problem(key, f"{text!r} is no address that can be dialled")
    return str(address)


def _file_token(file: TomlFile, token: str, token_file: str) -> str:
    if token and token_file:
        file.problem("token_file", "stands beside token; keep one of them")
    if token:
        file.check_mode(file.path)
    return (file.secret("token_file", token_file) or "") if token_file else token


def _file_tls(file: TomlFile, tls: str) -> str:
    if tls in TLS_WORDS:
        return tls
    path = file.beside(tls)
    if not path.is_file():
        file.problem("tls", _no_tls(tls, path))
    return str(path.absolute())


def _no_tls(text: str, path: Path) -> str:
    return f"{text!r} is none of {', '.join(TLS_WORDS)}, and there is no CA file {path}"
