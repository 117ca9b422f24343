"""`ticketing node stop`, `can-stop`, `transfer-leader`: nodes and the lead, moved without losing the domain."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ticketing.cli.admin_client import AdminAccess, AdminError, Answer, all_failed, ask_all, call, failed
from ticketing.cli.admin_leader import Leader, new_id
from ticketing.cli.cluster_status import cluster_status
from ticketing.cli.confirm import confirm
from ticketing.cli.errors import CommandFailed, ExitCode, say, usage_error, warn
from ticketing.cli.output import write_json, write_line, write_table
from ticketing.config.node_folder import place_name

LEAVE_S = 45.0
"""A node decides within its `stop_wait_s` (25 s by default) whether it may go."""

GONE_S = 15.0
"""Between the leave and the end of the process."""

MOVED_S = 10.0
_POLL_S = 0.2


def place_of(access: AdminAccess, text: str) -> tuple[str, str]:
    """Name and admin address of the place that `2` or `node-2` means."""
    name = place_name(text)
    for place, address in access.nodes:
        if place == name:
            return place, address
    known = ", ".join(place for place, _ in access.nodes)
    raise usage_error(f"there is no place {name}; admin.toml has {known}")


def stop(
    access: AdminAccess, node: str | None, *, everything: bool, yes: bool, reason: str, as_json: bool
) -> int:
    """The command."""
    if everything and node is not None:
        raise usage_error("--all and --node exclude each other")
    if not everything and node is None:
        raise usage_error("--node is missing: which node is to stop?", hint="--all stops the whole cluster")
    if everything:
        return _stop_all(access, yes=yes, reason=reason, as_json=as_json)
    assert node is not None, "checked"
    place, address = place_of(access, node)
    stop_node(access, place, address, reason=reason)
    if as_json:
        write_json({"stopped": [place]})
    else:
        write_line(f"{place} has stopped")
    return ExitCode.DONE


def stop_node(access: AdminAccess, place: str, address: str, *, reason: str, again: bool = False) -> None:
    """Stops one node with the leader's leave, and waits for the end of its process.

    `again`: whatever supervises it is to start it again. `CommandFailed` with the reason where there is no leave:
    then it goes on running.
    """
    body: dict[str, object] = {"place": place, "reason": reason, "id": new_id()}
    try:
        life = str(call(access, address, "GET", "/v1/status").get("incarnation"))
        try:
            _leave(access, address, body | ({"again": True} if again else {}))
        except AdminError as error:
            if not again or error.code != "bad_request":
                raise
            warn(
                f"{place} is of a former version and ends with status 0: where its supervisor leaves it alone then,"
                " start it"
            )
            _leave(access, address, body)
    except AdminError as error:
        if error.code == "no_leave":
            raise CommandFailed(
                f"{place} may not stop now: {_reason(error)}",
                hint="it goes on running; `ticketing node can-stop` tells when it may",
            ) from None
        raise failed(error) from None
    wait_until_gone(access, place, address, life)


def _leave(access: AdminAccess, address: str, body: object) -> None:
    call(access, address, "POST", "/v1/leave", body, timeout_s=LEAVE_S)


def wait_until_gone(
    access: AdminAccess,
    place: str,
    address: str,
    life: str,
    *,
    clock_s: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Until nobody answers there any more, or another process does: a supervisor may be quick.

    `life`: the incarnation of the process that is to end.
    """
    deadline_s = clock_s() + GONE_S
    while clock_s() < deadline_s:
        try:
            now = call(access, address, "GET", "/v1/status", timeout_s=1.0).get("incarnation")
        except AdminError as error:
            if error.code == "unreachable":
                return
        else:
            if str(now) != life:
                return
        sleep(_POLL_S)
    raise CommandFailed(f"{place} was given leave and still answers after {GONE_S:g} s")


def _stop_all(access: AdminAccess, *, yes: bool, reason: str, as_json: bool) -> int:
    answers = ask_all(access, "/v1/status")
    running = [answer for answer in answers if answer.facts is not None]
    refused = [a for a in answers if a.error is not None and a.error.code != "unreachable"]
    if refused:
        raise all_failed(refused)
    failures: list[CommandFailed | None] = []
    if not running:
        say("no node runs")
    else:
        held = max(((a.facts or {}).get("locks") or {}).get("held") or 0 for a in running)
        confirm(
            f"All nodes are stopped and the domain ends: {held} lock{'s' if held != 1 else ''} held now"
            f" {'are' if held != 1 else 'is'} gone, and a new domain has to be formed afterwards.",
            yes=yes,
        )
        with ThreadPoolExecutor(max_workers=len(running)) as pool:
            failures = list(pool.map(lambda answer: _stop_at_once(access, answer, reason), running))
    stopped = [answer.place for answer, failure in zip(running, failures, strict=True) if failure is None]
    if as_json:
        write_json({"stopped": stopped})
    else:
        for place in stopped:
            write_line(f"{place} has stopped")
    for answer in answers:
        if answer.error is not None:
            warn(f"{answer.place} does not answer ({answer.error}): if its process runs, it was not stopped")
    if left := [failure for failure in failures if failure is not None]:
        raise CommandFailed("; ".join(str(failure) for failure in left), left[0].code, hint=left[0].hint)
    return ExitCode.DONE


def _stop_at_once(access: AdminAccess, answer: Answer, reason: str) -> CommandFailed | None:
    """What hindered it; the others are stopped all the same."""
    body = {"place": answer.place, "force": True, "reason": reason, "id": new_id()}
    try:
        call(access, answer.address, "POST", "/v1/leave", body)
    except AdminError as error:
        if error.code != "unreachable":  # it may have ended before its answer was out
            return failed(error)
    try:
        wait_until_gone(access, answer.place, answer.address, str((answer.facts or {}).get("incarnation")))
    except CommandFailed as lingers:
        return lingers
    return None


def can_stop(access: AdminAccess, node: str | None, *, as_json: bool) -> int:
    """The command. Nothing is changed. Exit code 9 where one of those that were asked about may not."""
    places = [place_of(access, node)[0]] if node is not None else [place for place, _ in access.nodes]
    leader = Leader(access)
    rows: list[dict[str, Any]] = [
        {"place": place, **leader.get("/v1/can-stop", {"place": place})} for place in places
    ]
    if as_json:
        write_json({"nodes": rows})
    else:
        write_table(
            ("PLACE", "MAY STOP", "FAILURES LEFT THEN", "WHY NOT"),
            [
                (
                    row["place"],
                    "yes" if row.get("can_stop") else "no",
                    "-" if row.get("redundancy_after") is None else str(row["redundancy_after"]),
                    str(row.get("reason") or ""),
                )
                for row in rows
            ],
        )
    return ExitCode.DONE if all(row.get("can_stop") for row in rows) else ExitCode.UNHEALTHY


def transfer_leader(access: AdminAccess, to: str | None, *, reason: str, as_json: bool) -> int:
    """The command: gives the lead to a place, or to whoever is fit, and waits until it serves there."""
    target = place_of(access, to)[0] if to is not None else None
    answers = ask_all(access, "/v1/status")
    before = serving(answers)
    if before is None:
        raise _nobody_serves(answers)
    if target != before:
        Leader(access).post("/v1/transfer", {"to": target, "reason": reason})
        after = wait_for_leader(access, lambda place: place == target if target else place != before)
    else:
        after = before
    if as_json:
        write_json({"leader": after, "before": before})
    else:
        write_line(f"{after} leads" + (" already" if after == before else ""))
    return ExitCode.DONE


def wait_for_leader(
    access: AdminAccess,
    fits: Callable[[str], bool],
    *,
    within_s: float = MOVED_S,
    clock_s: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> str:
    """The place that serves, once it fits; `CommandFailed` where that takes too long."""
    deadline_s = clock_s() + within_s
    while True:
        place = serving(ask_all(access, "/v1/status", timeout_s=1.0))
        if place is not None and fits(place):
            return place
        if clock_s() > deadline_s:
            now = f"{place} leads" if place else "nobody leads"
            raise CommandFailed(f"the lead did not move within {within_s:g} s: {now}")
        sleep(_POLL_S)


def serving(answers: Sequence[Answer]) -> str | None:
    """The place of the leader that serves."""
    place = cluster_status(answers)["leader"]
    return None if place is None else str(place)


def _nobody_serves(answers: Sequence[Answer]) -> CommandFailed:
    if all(answer.facts is None for answer in answers):
        return all_failed(answers)
    return CommandFailed(
        "no leader serves", ExitCode.UNREACHABLE, hint="`ticketing status` tells how the nodes are"
    )


def _reason(error: AdminError) -> str:
    """Without the address that stands before it: the place is named."""
    return str(error).partition(": ")[2] or str(error)
