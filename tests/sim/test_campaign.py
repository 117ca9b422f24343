"""Long runs can be interrupted, taken up again and added up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from tests.sim.campaign import Campaign
from tests.sim.record import ROOT, Entry, Record, merged, missing
from tests.sim.run import Result
from tests.sim.world import S

BEGUN_WITHIN_S = 240


def result(seed: int, failure: str = "") -> Result:
    return Result(
        seed,
        failure,
        events=100,
        virtual_ns=2 * S,
        cpu_s=0.5,
        grants=3,
        leads=1,
        conflicts=0,
        changes=2,
        snapshots=0,
    )


def test_ranges_are_merged() -> None:
    assert merged([(5, 6), (0, 1), (2, 2), (9, 9), (6, 7)]) == [(0, 2), (5, 7), (9, 9)]


@pytest.mark.parametrize(
    ("first", "last", "left"),
    [(0, 3, [0, 3]), (1, 2, []), (2, 8, [3, 4, 7, 8]), (9, 11, [9, 11])],
)
def test_seeds_that_were_run_are_left_out(first: int, last: int, left: list[int]) -> None:
    assert list(missing([(1, 2), (5, 6), (10, 10)], first, last)) == left


def test_a_record_adds_up_what_different_sources_have_seen(tmp_path: Path) -> None:
    record, path = Record(), tmp_path / "record.json"
    record.entry("one").add(result(1))
    record.entry("one").add(result(2, "Violation: one holder: both"))
    record.entry("other").add(result(2))
    record.save(path)
    total = Record.load(path).total()
    assert (total.count, total.events, total.seeds) == (3, 300, [(1, 2)])
    assert [found.seed for found in total.violated] == [2]
    assert "1 violated" in str(total)


def test_nothing_is_run_twice_with_the_same_sources(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    record = Record([Entry("these", seeds=[(0, 2), (4, 9)], count=9)])
    campaign = Campaign(record, path, sources="these")
    campaign.run(0, 9, jobs=1)
    assert campaign.own.seeds == [(3, 3)]
    assert Record.load(path).entries[0].seeds == [(0, 9)]


def run_in_a_group_of_its_own(path: Path, last: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.sim", "--seeds", f"1..{last}", "--jobs", "2"]
    return subprocess.Popen(
        [*command, "--resume", str(path)],
        cwd=ROOT,
        env={**os.environ, "TICKETING_SIM_SAVE_EVERY_S": "0"},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def wait_for(path: Path) -> None:
    until_s = time.monotonic() + BEGUN_WITHIN_S
    while not path.exists():
        assert time.monotonic() < until_s, "nothing was noted in time"
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_a_true_record_and_goes_on_from_it(tmp_path: Path, number: int) -> None:
    path = tmp_path / "record.json"

    process = run_in_a_group_of_its_own(path, 100_000)
    wait_for(path)
    os.killpg(process.pid, number)
    shown, _ = process.communicate()
    assert process.returncode == 128 + number, shown
    left = msgspec.json.decode(path.read_bytes(), type=Record).entries[0]
    assert left.count == sum(high - low + 1 for low, high in left.seeds) > 0
    assert f"{left.count} seeds, 0 violated" in shown

    last = left.seeds[-1][1] + 1
    shown, _ = run_in_a_group_of_its_own(path, last).communicate()
    whole = msgspec.json.decode(path.read_bytes(), type=Record).entries[0]
    assert whole.seeds == [(1, last)]
    assert whole.count == last
    assert f"{last - left.count} seeds, 0 violated" in shown


@pytest.mark.slow
def test_helpers_end_with_the_process_that_has_started_them(tmp_path: Path) -> None:
    process = run_in_a_group_of_its_own(tmp_path / "record.json", 100_000)
    wait_for(tmp_path / "record.json")
    process.kill()
    # Each helper holds the pipe of the output as well: it is at its end when the last of them has ended.
    process.communicate(timeout=BEGUN_WITHIN_S)
