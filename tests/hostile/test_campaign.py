"""Each hostile case against running nodes of four kinds: bounded, told, over when it is over, and felt by nobody else.

The cases are carried out once, the four clusters at the same time; each test looks at what was measured.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.hostile.bounds import (
    LEADS_MOVED_MAX,
    LOG_BURST,
    SLOWEST_MS,
    TURN_CPU_MS,
    latency_bound_ms,
    log_lines_max,
)
from tests.hostile.campaign import SHORT_S, Measured, carry_out, rows_for
from tests.hostile.cases import EVERYWHERE
from tests.hostile.targets import started

pytestmark = [pytest.mark.process, pytest.mark.slow]

ROWS = [(flavour, name) for flavour in EVERYWHERE for name in rows_for(flavour)]


class Campaign:
    """What was measured, and what the nodes are like afterwards."""

    def __init__(self, measured: dict[tuple[str, str], Measured], logs: dict[str, str]) -> None:
        self.measured = measured
        self.logs = logs


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    async def one(flavour: str, folder: Path) -> tuple[list[Measured], str]:
        async with started(flavour, folder) as target:
            pids = [node.pid for node in target.cluster.nodes]
            found = await carry_out(target, SHORT_S)
            assert target.node.pid in pids, "the target was started anew"
            assert target.node.running, target.node.log_end()
            return found, "\n".join(node.log.read_text() for node in target.cluster.nodes)

    async def all_of_them() -> list[tuple[list[Measured], str]]:
        folders = [tmp_path_factory.mktemp("hostile") for _ in EVERYWHERE]
        return await asyncio.gather(*map(one, EVERYWHERE, folders))

    done = asyncio.run(all_of_them())
    return Campaign(
        {(found.flavour, found.case): found for many, _log in done for found in many},
        {flavour: log for flavour, (_many, log) in zip(EVERYWHERE, done, strict=True)},
    )


@pytest.fixture
def found(campaign: Campaign, row: tuple[str, str]) -> Measured:
    return campaign.measured[row]


@pytest.mark.parametrize("row", ROWS, ids=": ".join)
def test_a_hostile_case_is_borne(found: Measured) -> None:
    assert not found.failed, found.failed
    grown = found.memory_peak_mib - found.memory_before_mib
    assert grown <= found.memory_bound_mib, f"{grown:.1f} MiB more, the bound is {found.memory_bound_mib}"
    assert found.descriptors_left == 0
    assert not found.lives, found.lives


@pytest.mark.parametrize("row", ROWS, ids=": ".join)
def test_the_neighbours_of_a_hostile_case_are_served(found: Measured) -> None:
    assert found.during.acquires > 0
    assert found.turn_cpu_ms <= TURN_CPU_MS
    assert not found.during.errors or 0 < found.leads <= LEADS_MOVED_MAX, (found.leads, found.during.errors)
    assert found.during.p95_ms <= latency_bound_ms(found.case, found.without.p95_ms), (
        found.without,
        found.during,
    )
    assert found.during.slowest_ms <= SLOWEST_MS


@pytest.mark.parametrize("row", ROWS, ids=": ".join)
def test_the_log_tells_of_a_hostile_case_and_is_not_flooded(found: Measured) -> None:
    for event in found.expected:
        held_back = found.logged_before[event] >= LOG_BURST
        assert found.logged[event] or held_back, (event, found.logged, found.logged_before)
    assert len(found.log_lines) <= log_lines_max(found.lasted_s), found.logged
    assert not found.logged["no JSON"], [line for line in found.log_lines if line["event"] == "no JSON"][:3]
    assert not found.logged["internal fault"], found.log_lines


@pytest.mark.parametrize("flavour", EVERYWHERE)
def test_no_log_holds_a_secret_a_traceback_or_what_moves_a_cursor(campaign: Campaign, flavour: str) -> None:
    log = campaign.logs[flavour]
    assert "Traceback" not in log
    assert all(char.isprintable() or char == "\n" for char in log)
