"""Stalls are seen by whoever wakes late."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tests.chaos.stalls import STALL_S, Stalls
from tests.e2e.cluster import PROJECT

PROGRAM = """
import sys
from tests.chaos.stalls import Stalls
with Stalls() as stalls:
    print("there", flush=True)
    sys.stdin.readline()
print(stalls.longest_s)
"""


def test_a_process_that_stood_still_sees_it() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        cwd=PROJECT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "there\n"
        os.kill(process.pid, signal.SIGSTOP)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(3 * STALL_S)
        os.kill(process.pid, signal.SIGCONT)
        said, _ = process.communicate("\n")
    assert float(said) > STALL_S


def test_only_what_lies_within_a_time_counts() -> None:
    stalls = Stalls()
    stalls.seen = [(10.0, 2.0), (20.0, 1.0)]
    assert stalls.within(11.0, 30.0) == 2.0
    assert stalls.within(13.0, 19.0) == 0.0
    assert stalls.longest_s == 2.0
