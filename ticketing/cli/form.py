"""`ticketing form`: makes a new domain at the operator's word, where no permit does it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from ticketing.cli.admin_client import AdminAccess, AdminError, Answer, all_failed, ask_all, call, failed
from ticketing.cli.admin_leader import new_id
from ticketing.cli.arguments import wants_json, whole_number
from ticketing.cli.confirm import confirm
from ticketing.cli.errors import CommandFailed, ExitCode, say
from ticketing.cli.options import AdminConfig, Config, Output, Yes, admin_of, new_app
from ticketing.cli.output import write_json, write_line
from ticketing.config.client_file import Typed
from ticketing.config.models import FIRST_TOKEN_MAX

WITHIN_S = 60.0
"""The nodes agree in a second or two; what hinders them longer needs a person."""

POLL_S = 0.5

app = new_app()


@app.command(epilog="Example: ticketing form (or, where no domain ever ran here: ticketing form --first)")
def form(
    first: Annotated[
        bool,
        typer.Option(
            "--first", help="No domain ever ran here, or its leases are over: serve at once, not after 250 s."
        ),
    ] = False,
    first_token: Annotated[
        str, typer.Option(metavar="N", help="Fencing tokens start at this or above.")
    ] = "0",  # noqa: S107 - a number
    yes: Yes = False,
    config: Config = None,
    admin_config: AdminConfig = None,
    output: Output = "text",
) -> int:
    """Form a new domain. For a cluster without a permit, and after its majority was lost.

    All nodes must run. Whatever an older domain held is gone; its tokens are below all new ones.
    """
    as_json = wants_json(output)
    number = whole_number(first_token, "--first-token", 0, FIRST_TOKEN_MAX)
    access = admin_of(Typed(config=config, admin_config=admin_config))
    answers = ask_all(access, "/v1/status")
    refuse_if_hindered(answers)
    confirm(_question(answers, first=first), yes=yes)
    place, address = access.nodes[0]
    try:
        call(
            access,
            address,
            "POST",
            "/v1/form",
            {"first": first, "first_token": str(number), "id": new_id()},
        )
    except AdminError as error:
        raise failed(error) from None
    say(f"{place} proposes a new domain; waiting for all nodes to agree")
    facts = wait_for_domain(access, _domains(answers))
    view = {
        "domain": facts["domain"],
        "first_token": str(facts["domain"]).partition(".")[0],
        "serves_in_s": facts.get("serves_in_s") or 0,
    }
    if as_json:
        write_json(view)
    else:
        when = f"serves in {view['serves_in_s']:.0f} s" if view["serves_in_s"] else "serves now"
        write_line(f"formed domain {view['domain']}; it {when}")
    return ExitCode.DONE


def refuse_if_hindered(answers: Sequence[Answer]) -> None:
    """A domain is formed by all nodes together, and never beside a living one."""
    silent = [answer for answer in answers if answer.facts is None]
    if len(silent) == len(answers):
        raise all_failed(answers)
    if silent:
        raise CommandFailed(
            "all nodes have to run, and "
            + "; ".join(f"{a.place} does not answer ({a.error})" for a in silent),
            ExitCode.UNREACHABLE,
            hint="start them first: `ticketing node start`",
        )
    for answer in answers:
        if answer.facts is not None and answer.facts.get("standalone"):
            raise CommandFailed("a standalone node forms its domain when it starts")
        if answer.facts is not None and answer.facts.get("serving"):
            raise CommandFailed(
                f"{answer.place} leads domain {answer.facts.get('domain')}, which lives: nothing is to be formed",
                hint="`ticketing status` shows it; `ticketing node stop --all` would end it",
            )


def wait_for_domain(
    access: AdminAccess,
    known: Sequence[str],
    *,
    clock_s: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, Any]:
    """The facts of a node that leads a domain that is none of `known`; what hinders is told, each thing once."""
    deadline_s = clock_s() + WITHIN_S
    told: dict[str, None] = {}
    waits: list[str] = []
    while clock_s() < deadline_s:
        heard = [answer.facts for answer in ask_all(access, "/v1/status") if answer.facts is not None]
        for facts in heard:
            if facts.get("role") == "leader" and facts.get("domain") not in (None, *known):
                return facts
        waits = sorted({f"{facts.get('place')}: {text}" for facts in heard for text in _waiting_for(facts)})
        if fresh := [wait for wait in waits if wait not in told]:
            told.update(dict.fromkeys(fresh))
            say(f"waiting for {'; '.join(fresh)}")
        sleep(POLL_S)
    raise CommandFailed(
        f"no domain was formed within {WITHIN_S:g} s"
        + (f"; waiting for {'; '.join(waits)}" if waits else ""),
        ExitCode.UNREACHABLE,
        hint="it is formed as soon as nothing hinders, for 10 minutes; `ticketing status` tells how it stands",
    )


def _waiting_for(facts: dict[str, Any]) -> list[str]:
    return [str(text) for text in (facts.get("membership") or {}).get("waiting_for") or []]


def _domains(answers: Sequence[Answer]) -> list[str]:
    return [answer.facts["domain"] for answer in answers if answer.facts and answer.facts.get("domain")]


def _question(answers: Sequence[Answer], *, first: bool) -> str:
    older = sorted(set(_domains(answers)))
    what = f"Domain {', '.join(older)} is given up for a new one. " if older else ""
    wait = (
        "With --first it serves at once: is every lease that an older domain granted over?"
        if first
        else "It serves 250 s later."
    )
    return (
        f"{what}A new domain is formed. Every process of an older one, on whatever host, must have stopped,"
        f" or two may hold one key. {wait}"
    )
