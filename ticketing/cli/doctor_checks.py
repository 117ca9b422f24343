"""What `ticketing doctor` looks at, one check a subject: facts in, findings out, no printing."""

from __future__ import annotations

import datetime
import logging
import socket
import ssl
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ticketing.cli.admin_client import Answer
from ticketing.cli.cluster_status import cluster_status, unfit_certificate
from ticketing.cli.door import Knock, knock
from ticketing.client.errors import TicketError
from ticketing.client.tls import context
from ticketing.config.addresses import is_name, parse_address
from ticketing.config.check import check_path
from ticketing.config.client_file import Access, AdminFacts
from ticketing.config.load import LoadedNode
from ticketing.config.problems import ConfigError
from ticketing.config.secret_files import fingerprint

OK, WARN, FAIL = "ok", "warn", "fail"

SESSIONS_WANTED = 20_000
"""As many sessions a node lets in, unless its descriptors allow fewer."""

SOON_DAYS = 30
_DAY_MS = 86_400_000
_PORT_S = 2.0


class Finding(NamedTuple):
    """One thing that was looked at."""

    check: str
    """`config`, `names`, `ports`, `nodes`, `tokens`, `certificates`, `clocks`, `versions`, `limits`."""
    subject: str
    verdict: str
    detail: str
    hint: str = ""


def files(folder: Path) -> list[Finding]:
    """Every file of the cluster's folder: contents, agreement, modes."""
    try:
        checked = check_path(folder)
    except ConfigError as error:
        return [Finding("config", str(folder), FAIL, str(problem)) for problem in error.problems]
    found = []
    for one in checked:
        found += [Finding("config", str(one.file), FAIL, str(problem)) for problem in one.problems]
        found += [Finding("config", str(one.file), WARN, str(problem)) for problem in one.warnings]
        if not one.problems and not one.warnings:
            found.append(Finding("config", str(one.file), OK, "reads well, its owner's alone"))
    key = folder / "ca" / "ca.key"
    if key.is_file() and key.stat().st_mode & 0o077:
        found.append(
            Finding("config", str(key), FAIL, "others may read the authority's key", f"chmod 600 {key}")
        )
    return found


def names(addresses: Iterable[str]) -> list[Finding]:
    """Whether every host that is named, and not numbered, can be looked up here."""
    hosts = dict.fromkeys(parse_address(address).host for address in addresses)
    found = []
    for host in hosts:
        if not is_name(host):
            continue
        try:
            rows = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            found.append(
                Finding("names", host, FAIL, f"cannot be looked up: {reason}", "check DNS or /etc/hosts")
            )
        else:
            shown = ", ".join(dict.fromkeys(str(row[4][0]) for row in rows))
            found.append(Finding("names", host, OK, shown))
    return found


def peer_ports(addresses: Iterable[tuple[str, str]]) -> list[Finding]:
    """Whether somebody listens at each place's peer address. From an operator's machine a firewall may forbid it."""
    found = []
    for place, address in addresses:
        host, port = parse_address(address)
        try:
            socket.create_connection((host, port), timeout=_PORT_S).close()
        except OSError as error:
            reason = (
                "no answer" if isinstance(error, TimeoutError) else (error.strerror or str(error)).lower()
            )
            found.append(
                Finding(
                    "ports",
                    f"{place} {address}",
                    WARN,
                    f"peers' port: {reason}",
                    "the other nodes must reach it; from this machine it may be closed on purpose",
                )
            )
        else:
            found.append(Finding("ports", f"{place} {address}", OK, "peers' port is open"))
    return found


def doors(access: Access) -> list[Finding]:
    """Each client address: reachable, the right port, TLS that verifies, and the token lets in."""
    try:
        made = context(access.tls, logging.getLogger("ticketing.quiet"))
    except TicketError as error:
        return [Finding("certificates", access.tls, FAIL, str(error))]
    found = []
    for address in access.addrs:
        found += _door(address, knock(address, access.token, made), access, made)
    return found


def _door(address: str, done: Knock, access: Access, made: ssl.SSLContext | None) -> list[Finding]:
    match done.outcome:
        case "in":
            found = [Finding("ports", address, OK, "clients' port is open, and the token lets in")]
        case "auth_failed":
            where = f"it comes from {access.token_from}" if access.token else "none is given"
            return [
                Finding(
                    "tokens", address, FAIL, "the client token is refused", f"{where}; `ticketing token list`"
                )
            ]
        case "tls":
            return [
                Finding(
                    "certificates",
                    address,
                    FAIL,
                    f"TLS failed: {done.detail}",
                    "`ticketing cert show` tells names and dates; is the CA file this cluster's?",
                )
            ]
        case "unreachable":
            return [
                Finding("ports", address, FAIL, f"clients' port: {done.detail}", "does the node run there?")
            ]
        case _:
            hint = "does the node have TLS, and `tls` says off?" if made is None else ""
            return [Finding("ports", address, FAIL, done.detail or f"answers with {done.outcome}", hint)]
    if done.ends_ms is not None:
        found.append(_ends(address, done.ends_ms))
    return found


def _ends(subject: str, ends_ms: int) -> Finding:
    days = (ends_ms - time.time_ns() // 1_000_000) // _DAY_MS
    day = f"{datetime.datetime.fromtimestamp(ends_ms / 1000, datetime.UTC):%Y-%m-%d}"
    if days < SOON_DAYS:
        hint = "`ticketing cert renew`"
        return Finding(
            "certificates", subject, WARN if days >= 0 else FAIL, f"ends in {days} days, {day}", hint
        )
    return Finding("certificates", subject, OK, f"verified, ends in {days} days, {day}")


def certificates(nodes: Sequence[LoadedNode]) -> list[Finding]:
    """The certificates that lie here."""
    from ticketing.config.certificate_files import node_certificate

    now = datetime.datetime.now(datetime.UTC)
    found = []
    for loaded in nodes:
        if loaded.settings.tls is None:
            continue
        try:
            shown = node_certificate(loaded, now)
        except ConfigError as error:
            found += [
                Finding("certificates", loaded.settings.node.place, FAIL, str(p)) for p in error.problems
            ]
            continue
        subject = str(shown.file)
        found += [
            Finding("certificates", subject, FAIL, fault, "`ticketing cert renew`") for fault in shown.faults
        ]
        if not shown.faults:
            found.append(_ends(subject, int(shown.ends.timestamp() * 1000)))
    return found


def secrets(nodes: Sequence[LoadedNode], access: Access, admin: AdminFacts | None) -> list[Finding]:
    """Whether the files that lie here agree about tokens and secrets."""
    if not nodes:
        return []
    found = []
    for name, values in (
        ("client tokens", {n.settings.node.place: frozenset(n.settings.node.client_tokens) for n in nodes}),
        (
            "peer secrets",
            {
                n.settings.node.place: frozenset(s.decode() for s in n.settings.node.peer_secrets)
                for n in nodes
            },
        ),
        ("admin tokens", {n.settings.node.place: frozenset(n.settings.admin_tokens) for n in nodes}),
    ):
        if len(set(values.values())) == 1:
            found.append(Finding("tokens", name, OK, f"equal in the files of {', '.join(values)}"))
            continue
        shown = "; ".join(
            f"{place}: {', '.join(sorted(map(fingerprint, own))) or 'none'}" for place, own in values.items()
        )
        apart = frozenset.intersection(*values.values())
        found.append(
            Finding(
                "tokens",
                name,
                WARN if apart else FAIL,
                f"differ between the nodes' files ({shown})",
                "a rotation that is under way is finished by `ticketing token add`, then `token remove --old`",
            )
        )
    if access.token:
        without = [n.settings.node.place for n in nodes if access.token not in n.settings.node.client_tokens]
        if without:
            source = Path(access.token_from).name
            detail = f"{source}'s token is not in the files of {', '.join(without)}"
            found.append(Finding("tokens", source, FAIL, detail, "`ticketing token list`"))
    if admin is not None:
        without = [n.settings.node.place for n in nodes if admin.token not in n.settings.admin_tokens]
        if without:
            detail = f"admin.toml's token is not that of {', '.join(without)}"
            found.append(
                Finding("tokens", "admin.toml", FAIL, detail, "it is secrets.admin_token in node.toml")
            )
    return found


def statuses(answers: Sequence[Answer]) -> list[Finding]:
    """What the nodes say of themselves and of the cluster."""
    view = cluster_status(answers)
    found = []
    for answer in answers:
        if answer.facts is None:
            hint = answer.error.hint if answer.error is not None else ""
            found.append(Finding("nodes", answer.place, FAIL, f"does not answer ({answer.error})", hint))
        else:
            found += _node(answer.place, answer.facts)
    answered = [answer for answer in answers if answer.facts is not None]
    if not answered:
        return found
    if view["served"]:
        detail = f"{view['leader']} leads domain {view['domain']}"
        found.append(Finding("nodes", "cluster", OK, detail))
    silent = {f"{a.place} does not answer ({a.error})" for a in answers if a.facts is None}
    told = silent.union(fault for answer in answered for fault in unfit_certificate(answer.facts or {}))
    for fault in view["faults"]:
        if fault not in told:
            found.append(Finding("nodes", "cluster", FAIL, fault, "`ticketing status`"))
    versions = {str(answer.facts.get("version")) for answer in answered if answer.facts is not None}
    found.append(
        Finding("versions", "nodes", OK, f"all run {versions.pop()}")
        if len(versions) == 1
        else Finding(
            "versions", "nodes", WARN, f"differ: {', '.join(sorted(versions))}", "finish the upgrade"
        )
    )
    return found


def _node(place: str, facts: dict[str, Any]) -> list[Finding]:
    process = facts.get("process") or {}
    found = []
    for key, what in (("certificate_fault", "certificates"), ("reload_fault", "config")):
        if process.get(key):
            found.append(Finding(what, place, FAIL, str(process[key]), "the node's log tells more"))
    ends_ms = process.get("certificate_ends_ms")
    if isinstance(ends_ms, int) and not process.get("certificate_fault"):
        found.append(_ends(place, ends_ms))
    bound = process.get("client_connections_max")
    if isinstance(bound, int):
        few = bound < SESSIONS_WANTED
        found.append(
            Finding(
                "limits",
                place,
                WARN if few else OK,
                f"descriptors for {bound} client connections",
                "raise the limit of open files (LimitNOFILE, ulimit -n) to 65536" if few else "",
            )
        )
    # A place that has moved is missing at its former address and linked at its present one.
    linked = [m.get("place") for m in (facts.get("raft") or {}).get("members") or [] if m.get("linked")]
    missing = [place for place in (facts.get("links") or {}).get("missing") or [] if place not in linked]
    if missing:
        found.append(
            Finding(
                "ports",
                place,
                FAIL,
                f"has no link to {', '.join(map(str, missing))}",
                "can it reach their peer ports? its log says why a link was refused",
            )
        )
    return found or [Finding("nodes", place, OK, str(facts.get("role")))]


def clocks(answers: Sequence[Answer], now_ms: int) -> list[Finding]:
    """The leader's gate, each node's verdict on the others, and this machine's own clock."""
    from ticketing.cli.clock import clock_view

    view = clock_view([answer for answer in answers if answer.facts is not None])
    found = [
        Finding("clocks", "leader", FAIL, fault, "`ticketing clock`; is NTP running there?")
        for fault in view["faults"]
    ]
    if view["gate"] == "open":
        found.append(Finding("clocks", "leader", OK, f"the gate is open, Δ {view['delta_ms']} ms"))
    walls = [node["wall_ms"] for node in view["nodes"] if isinstance(node.get("wall_ms"), int)]
    if walls:
        middle = sorted(walls)[len(walls) // 2]
        off_s = (now_ms - middle) / 1000
        if abs(off_s) > 5:
            detail = f"is {off_s:+.1f} s off the nodes' (certificates and permits are judged by it)"
            found.append(Finding("clocks", "this machine", WARN, detail, "run an NTP client here too"))
        else:
            found.append(Finding("clocks", "this machine", OK, "agrees with the nodes' to within 5 s"))
    return found
