"""`ticketing locks ...`: who holds what, who waits, and ending a grant by hand."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from ticketing.cli.admin_leader import Leader, key_path
from ticketing.cli.arguments import fencing_token, key_given, wants_json, whole_number
from ticketing.cli.cells import cell, seconds, text
from ticketing.cli.confirm import confirm
from ticketing.cli.errors import CommandFailed, ExitCode, say, usage_error, warn
from ticketing.cli.options import (
    AdminConfig,
    Config,
    Interval,
    Output,
    Watch,
    Yes,
    admin_of,
    new_app,
)
from ticketing.cli.output import shown, write_json, write_line, write_table
from ticketing.cli.watching import interval, watch
from ticketing.config.client_file import Typed

ORDERS = {"key": "key", "age": "age", "lease": "lease_left", "queue": "queue"}
"""As they are named here, and by the admin plane."""
PAGE = 1000
"""As many as the admin plane gives at once."""

REASON_CHARS_MAX = 256

app = new_app(no_args_is_help=True)

Key = Annotated[str | None, typer.Argument(metavar="KEY", show_default=False)]
KeyOption = Annotated[
    str | None, typer.Option("--key", metavar="KEY", help="For a key that starts with a hyphen.")
]


@app.callback(epilog="Example: ticketing locks list stock/")
def locks() -> None:
    """Show locks with their queues, and end a grant by hand."""


@app.command("list", epilog="Example: ticketing locks list stock/ --sort queue --limit 20 --watch")
def list_locks(
    prefix: Annotated[
        str, typer.Argument(metavar="PREFIX", help="Only keys that begin with it.", show_default=False)
    ] = "",
    sort: Annotated[str, typer.Option(metavar="ORDER", help=f"One of {', '.join(ORDERS)}.")] = "key",
    limit: Annotated[
        str, typer.Option(metavar="N", help=f"At most N; 0: all (with --sort key; else at most {PAGE}).")
    ] = str(PAGE),
    watched: Watch = False,
    every: Interval = "2",
    config: Config = None,
    admin_config: AdminConfig = None,
    output: Output = "text",
) -> int:
    """Holders, tokens, what is left of leases, and queue lengths."""
    as_json = wants_json(output)
    if sort not in ORDERS:
        raise usage_error(f"--sort must be one of {', '.join(ORDERS)}, not {sort!r}")
    count = whole_number(limit, "--limit", 0, 100_000_000)
    if sort != "key" and not 0 < count <= PAGE:
        raise usage_error(f"--limit must be from 1 to {PAGE} with --sort {sort}")
    every_s = interval(every)
    leader = Leader(admin_of(Typed(config=config, admin_config=admin_config)))

    def report() -> None:
        found, more = held_locks(leader, prefix, ORDERS[sort], count)
        if as_json:
            moment = {"time_ms": time.time_ns() // 1_000_000} if watched else {}
            write_json({**moment, "locks": found, "more": more})
        else:
            show_list(found, more=more)

    if watched:
        watch(report, every_s=every_s, as_json=as_json)
    report()
    return ExitCode.DONE


@app.command(epilog="Example: ticketing locks show stock/42")
def show(
    key: Key = None,
    key_option: KeyOption = None,
    limit: Annotated[str, typer.Option(metavar="N", help="At most N waiters; 0: all.")] = str(PAGE),
    watched: Watch = False,
    every: Interval = "2",
    config: Config = None,
    admin_config: AdminConfig = None,
    output: Output = "text",
) -> int:
    """One key in full, with those who wait, in their order. Exit code 10 where nobody holds or wants it."""
    as_json = wants_json(output)
    name = key_given(key, key_option)
    count = whole_number(limit, "--limit", 0, 100_000_000)
    every_s = interval(every)
    leader = Leader(admin_of(Typed(config=config, admin_config=admin_config)))

    def report() -> bool:
        found = one_lock(leader, name, count)
        if as_json:
            moment = {"time_ms": time.time_ns() // 1_000_000} if watched else {}
            write_json({**moment, "key": name, **found})
        else:
            show_one(name, found)
        return bool(found["lock"] or found["waiting"])

    if watched:
        watch(report, every_s=every_s, as_json=as_json)
    return ExitCode.DONE if report() else ExitCode.NOTHING_HELD


@app.command(epilog="Example: ticketing locks revoke stock/42 1883295816089600 --reason 'host burnt down'")
def revoke(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY TOKEN", help="TOKEN: what `locks show` tells.", show_default=False),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option("--key", metavar="KEY", help="For a key that starts with a hyphen; then only TOKEN."),
    ] = None,
    reason: Annotated[
        str | None, typer.Option("--reason", metavar="TEXT", help="For the audit; must be given.")
    ] = None,
    yes: Yes = False,
    config: Config = None,
    admin_config: AdminConfig = None,
    output: Output = "text",
) -> int:
    """End exactly that grant. The holder is not told: only fencing at the database stops it.

    Exit code 10 where that token does not hold the key any more.
    """
    as_json = wants_json(output)
    given = list(words or ())
    if len(given) != (1 if key is not None else 2):
        raise usage_error("KEY and TOKEN are wanted", hint="ticketing locks revoke KEY TOKEN --reason TEXT")
    name = key_given(given[0] if key is None else None, key)
    token = fencing_token(given[-1])
    if not (reason or "").strip():
        raise usage_error("--reason is missing: the audit tells why a lock was taken away")
    leader = Leader(admin_of(Typed(config=config, admin_config=admin_config)))
    lock = one_lock(leader, name, 1)["lock"] or {}
    if lock.get("token") == str(token):
        say(describe(name, lock))
        confirm(
            "The holder is not told: it works on until its lease ends, and only fencing tokens keep it from"
            " writing. The key goes to the next in the queue.",
            yes=yes,
        )
        body = {"token": str(token), "reason": str(reason)[:REASON_CHARS_MAX]}
        answer = leader.post(f"{key_path(name)}/revoke", body)
        revoked = answer.get("revoked") is not False
    else:
        revoked = False
    if as_json:
        write_json({"key": name, "token": str(token), "revoked": revoked})
    elif revoked:
        write_line("revoked")
    if not revoked:
        raise CommandFailed(f"{shown(name)} is not held by {token} any more", ExitCode.NOTHING_HELD)
    warn("the holder was not told; only fencing stops it")
    return ExitCode.DONE


def held_locks(leader: Leader, prefix: str, order: str, limit: int) -> tuple[list[dict[str, Any]], bool]:
    """At most `limit` (0: all) locks, and whether there may be more. Pages, so no snapshot of one moment."""
    if order != "key":
        page = leader.get("/v1/locks", {"order": order, "prefix": prefix, "limit": limit})
        found = rows_of(page, "locks")
        return found, len(found) == limit
    found = []
    after: str | None = ""
    while after is not None and (not limit or len(found) < limit):
        size = min(PAGE, limit - len(found)) if limit else PAGE
        page = leader.get("/v1/locks", {"prefix": prefix, "after": after, "limit": size})
        found += rows_of(page, "locks")
        after = page.get("next")
    return found, after is not None


def one_lock(leader: Leader, key: str, limit: int, *, within_s: float = 10.0) -> dict[str, Any]:
    """`lock` (or None), `waiters` (at most `limit`, 0: all) and `waiting`, how many there are."""
    waiters: list[dict[str, Any]] = []
    after: str | None = ""
    page: dict[str, Any] = {}
    while after is not None and (not limit or len(waiters) < limit):
        size = min(PAGE, limit - len(waiters)) if limit else PAGE
        page = leader.get(key_path(key), {"after": after, "limit": size}, within_s=within_s)
        waiters += rows_of(page, "waiters")
        after = page.get("next")
    return {"lock": page.get("lock"), "waiters": waiters, "waiting": page.get("waiting") or 0}


def rows_of(page: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """The rows of a list; whatever else stands there is no row."""
    rows = page.get(name)
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def show_list(found: list[dict[str, Any]], *, more: bool) -> None:
    """The list for people."""
    if not found:
        say("no lock is held")
        return
    write_table(
        ("KEY", "TOKEN", "HOLDER", "LEFT", "LEASE", "WAITING"),
        [
            (
                text(lock.get("key")),
                cell(lock.get("token")),
                text(lock.get("name")),
                seconds(lock.get("lease_left_ms")),
                _lease(lock),
                cell(lock.get("waiting")),
            )
            for lock in found
        ],
    )
    if more:
        say("there are more: --limit N shows them, 0 all")


def show_one(key: str, found: dict[str, Any]) -> None:
    """One key for people."""
    lock = found["lock"]
    write_line(describe(key, lock) if lock else f"{shown(key)} is free")
    if lock:
        for name, value in (("remotes", lock.get("remotes")), ("renewal", lock.get("renewal"))):
            if value:
                write_line(f"  {name}: {', '.join(map(text, value)) if isinstance(value, list) else value}")
    waiting = found["waiting"]
    write_line(f"{waiting} wait{'s' if waiting == 1 else ''}" if waiting else "nobody waits")
    if found["waiters"]:
        write_table(
            ("", "WHO", "FROM", "WAITED", "WAITS STILL", "LEASE"),
            [
                (
                    str(number),
                    text(row.get("name")),
                    text(row.get("remote")),
                    seconds(row.get("waited_ms")),
                    seconds(row.get("wait_left_ms")),
                    _lease(row),
                )
                for number, row in enumerate(found["waiters"], start=1)
            ],
        )
    if waiting > len(found["waiters"]):
        say("there are more: --limit N shows them, 0 all")


def describe(key: str, lock: dict[str, Any]) -> str:
    """A holder in one line."""
    who = text(lock.get("name")) if lock.get("name") else "somebody without a name"
    since = ""
    granted = lock.get("granted_at_ms")
    if isinstance(granted, int):
        # The wall clock of the leader of then, and ours: for people alone.
        since = f" for {seconds(max(0, time.time_ns() // 1_000_000 - granted))}"
    return (
        f"{shown(key)} is held by {who} (token {cell(lock.get('token'))}){since},"
        f" {seconds(lock.get('lease_left_ms'))} of its lease left"
    )


def _lease(row: dict[str, Any]) -> str:
    return "-" if row.get("lease_s") is None else f"{row['lease_s']} s"
