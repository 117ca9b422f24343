"""chrony as a further source on this machine's wall clock (spec 8), by its own tool's output.

`chronyc -c tracking` prints one line of comma-separated values. What is not synchronised, cannot be read, or may be off
by more than half of Δ counts as outside; so does chrony before its first word. chrony's own bound of the error is
|offset| + dispersion + delay / 2; it grows while the sources are lost, though chrony still calls itself synchronised.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

EVERY_S = 4.0
ANSWER_S = 2.0
OUTPUT_CHARS_MAX = 4_096
FIELDS = 14
"""Reference id, its name, stratum, reference time, system offset, last offset, RMS offset, frequency, residual
frequency, skew, root delay, root dispersion, update interval, leap status.
"""
_STRATUM, _OFFSET, _DELAY, _DISPERSION, _LEAP = 2, 4, 10, 11, 13
STRATUM_MAX = 15
_LEAPS = ("Normal", "Insert second", "Delete second")

Says = Callable[[bool, str], None]


class Verdict(NamedTuple):
    """What chrony says of this machine's clock."""

    synchronised: bool
    detail: str
    """One line for people."""


def judge(output: str, error_max_s: float) -> Verdict:
    """The verdict on one line of `chronyc -c tracking`; anything else is outside."""
    fields = output.strip().split(",")
    if len(fields) != FIELDS or "\n" in output.strip():
        return Verdict(False, "chrony: its answer cannot be read")
    try:
        stratum = int(fields[_STRATUM])
        offset_s, delay_s, dispersion_s = (float(fields[at]) for at in (_OFFSET, _DELAY, _DISPERSION))
    except ValueError:
        return Verdict(False, "chrony: its answer cannot be read")
    leap = fields[_LEAP]
    if leap not in _LEAPS or not 0 < stratum <= STRATUM_MAX:
        return Verdict(False, "chrony: not synchronised")
    error_s = abs(offset_s) + abs(dispersion_s) + abs(delay_s) / 2
    detail = f"chrony: stratum {stratum}, within {error_s * 1000:.1f} ms"
    if not error_s <= error_max_s:  # a NaN is not within anything
        return Verdict(False, f"{detail}, which is more than {error_max_s * 1000:.0f} ms")
    return Verdict(True, detail)


def ask(command: str, error_max_s: float) -> Verdict:
    """Runs the tool, which blocks for at most some two seconds."""
    try:
        done = subprocess.run(  # noqa: S603 - the operator's own configuration names it
            [command, "-c", "tracking"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=ANSWER_S,
            check=False,
            env={**os.environ, "LC_ALL": "C"},
        )
    except subprocess.TimeoutExpired:
        return Verdict(False, f"chrony: {command} did not answer within {ANSWER_S:g} s")
    except OSError as error:
        return Verdict(False, f"chrony: {command} cannot be run: {error.strerror or error}")
    if done.returncode != 0:
        return Verdict(False, f"chrony: {command} ended with status {done.returncode}")
    return judge(done.stdout[:OUTPUT_CHARS_MAX].decode("ascii", "replace"), error_max_s)


async def follow(command: str, error_max_s: float, says: Says) -> None:
    """Asks every few seconds, for ever, and says what came of it. The tool runs in a thread of its own, so that the
    loop does not wait for its start; one at a time.
    """
    loop = asyncio.get_running_loop()
    says(False, "chrony: has not answered yet")
    thread = ThreadPoolExecutor(1, "chrony")
    try:
        while True:
            verdict = await loop.run_in_executor(thread, ask, command, error_max_s)
            says(verdict.synchronised, verdict.detail)
            await asyncio.sleep(EVERY_S)
    finally:
        thread.shutdown(wait=False, cancel_futures=True)
