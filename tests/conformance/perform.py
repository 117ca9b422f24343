"""Plays scenarios with one library, side by side: most of them wait for seconds that have to pass."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.conformance.clusters import Clusters
from tests.conformance.library import Driver, Library
from tests.conformance.play import Play, Scenario

AT_ONCE = 32
"""Scenarios side by side."""
SCENARIO_S = 120.0
REAL = "clusters"
"""The subject that is played on real nodes."""
LEADS = 3
"""A scenario about one lead is played so often, where the lead changed meanwhile: machines are busy."""
Outcomes = dict[str, Exception | None]
"""By the scenario's name: how it failed, None where it did not."""


def perform(library: Library, scenarios: Sequence[Scenario], folder: Path) -> Outcomes:
    """Plays them all. Those with real nodes have a loop of their own: to start and to kill processes blocks it, and on
    a busy machine the scripted servers would miss the deadlines of their clients.
    """
    real = [scenario for scenario in scenarios if scenario.subject == REAL]
    scripted = [scenario for scenario in scenarios if scenario.subject != REAL]

    def played(group: Sequence[Scenario]) -> Outcomes:
        return asyncio.run(_perform(library, group, folder))

    with ThreadPoolExecutor(2) as threads:
        outcomes: Outcomes = {}
        for part in threads.map(played, (real, scripted)):
            outcomes |= part
    return outcomes


async def _perform(library: Library, scenarios: Sequence[Scenario], folder: Path) -> Outcomes:
    """One driver process a subject; real clusters are shared."""
    outcomes: Outcomes = {}
    clusters = Clusters(folder)
    at_once = asyncio.Semaphore(AT_ONCE)
    subjects = dict.fromkeys(scenario.subject for scenario in scenarios)

    async def subject_played(subject: str) -> None:
        driver = Driver(library, folder / f"{subject}.log")
        own = [scenario for scenario in scenarios if scenario.subject == subject]

        async def played(scenario: Scenario) -> None:
            async with at_once:
                outcomes[scenario.name] = await _outcome(scenario, driver, folder / scenario.name, clusters)

        try:
            await driver.start()
            await asyncio.gather(*map(played, own))
        finally:
            status = await driver.end()
        if status != 0:
            failure = AssertionError(f"the driver ended with status {status}:\n{driver.said()}")
            outcomes.update({scenario.name: outcomes.get(scenario.name) or failure for scenario in own})

    try:
        await asyncio.gather(*map(subject_played, subjects))
    finally:
        clusters.end()
    return outcomes


async def _outcome(scenario: Scenario, driver: Driver, folder: Path, clusters: Clusters) -> Exception | None:
    failure: Exception | None = None
    for number in range(LEADS):
        play = Play(driver, folder.with_name(f"{folder.name}-{number}"), clusters, number)
        failure = await _played(scenario, driver, play)
        if failure is None or not await play.lead_changed():
            break
    return failure


async def _played(scenario: Scenario, driver: Driver, play: Play) -> Exception | None:
    began = time.monotonic()
    failure: Exception | None = None
    try:
        async with asyncio.timeout(SCENARIO_S):
            await scenario.play(play)
    except Exception as error:  # it is told by the scenario's own test
        failure = error
    try:
        async with asyncio.timeout(SCENARIO_S):
            await play.end()
    except Exception as error:  # as above
        failure = failure or error
    if failure is None and driver.fault:
        failure = AssertionError(driver.fault)
    if failure is not None:
        failure.add_note(
            f"after {time.monotonic() - began:.1f} s; the driver said:\n{driver.said()}{play.said()}"
        )
    return failure
