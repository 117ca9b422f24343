"""The short profile, as anybody can run it: a real cluster of three, a minute of faults, every judge (issue 8)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.chaos.needs import need_chaos
from tests.chaos.plan import SHORT
from tests.e2e.cluster import PROJECT, environment

pytestmark = [pytest.mark.process, pytest.mark.slow]

MINUTES = 0.65
SEED = 5
LIMIT_S = 240.0
"""It takes about a minute; more on a machine that is busy with other things."""


@pytest.fixture(autouse=True)
def _needs() -> None:
    need_chaos()


def command(folder: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "tests.chaos", "--nodes", "3", "--short", "--folder", str(folder), *words]


def left_of(pid: int) -> list[str]:
    """What a run has not taken away: namespaces, and processes that it started."""
    namespaces = [path.name for path in Path("/run/netns").glob(f"ticketing-chaos-{pid}.*")]
    processes = [
        path.parent.name
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if f"ticketing-chaos-{pid}." in _read(path)
    ]
    return namespaces + processes


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def test_no_promise_is_broken_by_a_minute_of_faults(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    words = command(folder, "--seed", str(SEED), "--minutes", str(MINUTES))
    ended = subprocess.run(
        words,
        cwd=PROJECT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-5000:] + ended.stderr[-5000:]
    report = json.loads((folder / "report.json").read_text())
    print(ended.stdout)
    assert report["violations"] == []
    assert report["faults"].keys() & set(SHORT), "the nemesis struck"
    assert report["operations"]["acquire: granted"] > 100
    assert report["fenced_writes"] > 20
    assert report["majority_could_serve_s"] > 5


def test_a_run_that_is_interrupted_leaves_nothing_behind(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run = subprocess.Popen(
        command(folder, "--minutes", "5"),
        cwd=PROJECT,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + LIMIT_S
        while not list(folder.glob("programs/*.jsonl")):
            assert run.poll() is None, run.communicate()[0].decode()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert len(left_of(run.pid)) > 5
        run.send_signal(signal.SIGINT)
        said = run.communicate(timeout=60)[0].decode()
    finally:
        if run.poll() is None:
            os.kill(run.pid, signal.SIGKILL)
            run.communicate()
    assert left_of(run.pid) == []
    assert run.returncode == 130, said
    assert "Traceback" not in said
