"""Carries out the cases against a target and measures what they cost."""

from __future__ import annotations

import asyncio
import contextlib
import time
import traceback
from collections import Counter
from typing import Any, NamedTuple

from tests.e2e.cluster import told_status
from tests.e2e.waiting import until, until_told
from tests.hostile import admin_port, certificates, client_port, peer_port, tls_door
from tests.hostile.bounds import BACK_TO_NORMAL_S, LIVES_S, LOG_BURST, LOGGED_S, memory_of
from tests.hostile.cases import Case, Target
from tests.hostile.probes import Latencies, LogReader, Neighbour, Sampler, descriptors

ALL = (
    *client_port.CASES,
    *tls_door.CASES,
    *peer_port.CASES,
    *certificates.CASES,
    *admin_port.CASES,
)
TOGETHER = "waiting cases together"
BASELINE_S = 0.4
SHORT_S = 1.0
"""How long a flood goes on in the tests."""


class Measured(NamedTuple):
    """What one case did to one target."""

    case: str
    flavour: str
    told: str
    """What was done, in the attack's words."""
    failed: str
    """Why the attack's own claims do not hold, empty where they do."""
    memory_before_mib: float
    memory_peak_mib: float
    memory_bound_mib: int
    turn_cpu_ms: float
    """The longest turn of the node's loop, in processor time; what was up to 20 s before counts as well."""
    without: Latencies
    during: Latencies
    lasted_s: float
    descriptors_left: int
    logged: Counter[str]
    log_lines: list[dict[str, Any]]
    leads: int
    """Leads that began on any node meanwhile."""
    logged_before: Counter[str]
    """Since the first case."""
    expected: tuple[str, ...]
    """Events that the log must show, where a burst of them has not used up their rate before."""
    lives: str
    """Why the node serves no newcomer afterwards, empty where it does."""


def cases_for(flavour: str) -> list[Case]:
    return [case for case in ALL if flavour in case.flavours]


def rows_for(flavour: str) -> list[str]:
    """Names of what is measured on one target: each case alone, those that wait together."""
    cases = cases_for(flavour)
    waiting = [TOGETHER] if any(case.waits for case in cases) else []
    return [*waiting, *(case.name for case in cases if not case.waits)]


async def carry_out(target: Target, seconds: float) -> list[Measured]:
    """All cases of the target's flavour, one after the other; those that mostly wait at once."""
    neighbour, log = Neighbour(target.cluster), LogReader(target.node.log)
    found: list[Measured] = []
    try:
        await neighbour.started()
        cases = cases_for(target.flavour)
        waiting = [case for case in cases if case.waits]
        if waiting:
            found.append(await _measure(target, neighbour, log, TOGETHER, waiting, seconds))
        found += [
            await _measure(target, neighbour, log, case.name, [case], seconds)
            for case in cases
            if not case.waits
        ]
    finally:
        neighbour.end()
        await asyncio.sleep(0.1)  # asyncio closes in the background what was closed here
    return found


async def _measure(
    target: Target, neighbour: Neighbour, all_of_it: LogReader, name: str, cases: list[Case], seconds: float
) -> Measured:
    pid = target.node.pid
    await until(lambda: descriptors(pid) < 200, "what was before has gone")
    before = descriptors(pid)
    log, logged_before = LogReader(target.node.log), all_of_it.events()
    logs = [LogReader(node.log) for node in target.cluster.nodes]
    quiet = await neighbour.rest(BASELINE_S)
    async with Sampler(pid) as memory:
        start = time.monotonic()
        told = await asyncio.gather(*(_attempt(case, target, seconds) for case in cases))
        end = time.monotonic()
    process = (await told_status(target.node))["process"]
    await neighbour.caught_up(end)
    left = await _descriptors_left(pid, before)
    expected = tuple(case.told_by(target.flavour) for case in cases if case.told_by(target.flavour))
    # Before newcomers are tried out, who leave lines of their own.
    lines = await _told(log, {event for event in expected if logged_before[event] < LOG_BURST})
    lives = await _lives(target)
    return Measured(
        name,
        target.flavour,
        "; ".join(
            f"{case.name}: {text}" if len(cases) > 1 else text
            for case, (text, _) in zip(cases, told, strict=True)
        ),
        "\n".join(failed for _, failed in told if failed),
        memory.before_mib,
        memory.peak_mib,
        memory_of(name).mib,
        process["longest_turn_cpu_ms"],
        neighbour.between(*quiet),
        neighbour.between(start, end),
        end - start,
        left,
        Counter(line["event"] for line in lines),
        lines,
        sum(reader.events()["leading"] for reader in logs),
        logged_before,
        expected,
        lives,
    )


async def _attempt(case: Case, target: Target, seconds: float) -> tuple[str, str]:
    try:
        return await case.attack(target, seconds), ""
    except Exception:  # the others are still to be carried out; the test of this one fails with it
        return "", f"{case.name}:\n{traceback.format_exc()}"


async def _told(log: LogReader, awaited: set[str]) -> list[dict[str, Any]]:
    """What was logged, once all that is awaited is there: a thread of the node's writes it."""
    with contextlib.suppress(AssertionError):  # the test of the case says what is missing
        await until(lambda: awaited <= set(log.events()), "the log tells of it", LOGGED_S)
    return log.lines()


async def _descriptors_left(pid: int, before: int) -> int:
    """Above what was there before; what is being closed is waited for."""
    try:
        await until(lambda: descriptors(pid) <= before, "descriptors are closed", BACK_TO_NORMAL_S)
    except AssertionError:
        return descriptors(pid) - before
    return 0


async def _lives(target: Target) -> str:
    try:
        async with asyncio.timeout(LIVES_S):
            (await target.session()).close()
            await target.node.ask_admin("GET", "/v1/status")
            if len(target.cluster.nodes) > 1:
                await until_told(lambda: peer_port.answers(target), "the peer port answers")
    except (AssertionError, OSError) as error:
        return f"{error!r}"
    return ""
