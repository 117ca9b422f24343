"""Many seeds, on several processes, added to a record that outlives an interruption."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import islice
from multiprocessing import parent_process
from pathlib import Path
from threading import Thread
from types import FrameType

from tests.sim.record import Entry, Record, missing, present_commit, present_sources
from tests.sim.run import Result, run_seed

CHUNK = 4
"""Seeds that a process takes at a time."""
SAVE_EVERY_S = float(os.environ.get("TICKETING_SIM_SAVE_EVERY_S", "10"))
SHOWN = 600
"""Characters of a violation that are printed."""


class Campaign:
    """Runs seeds that `record` lacks for these sources; `stop` ends it once the runs under way are over."""

    def __init__(
        self,
        record: Record,
        path: Path | None,
        *,
        sources: str = "",
        say: Callable[[str], None] = print,
        only_first: bool = False,
    ) -> None:
        self.record = record
        self.stopped = False
        self.own = Entry("this run")
        """What was done here, without what the record had before."""
        self._path = path
        self._entry = record.entry(sources or present_sources(), present_commit())
        self._say = say
        self._only_first = only_first
        self._began_s = self._saved_s = time.monotonic()

    @property
    def violated(self) -> bool:
        """Whether any seed is, of these sources: what was found before stands until they change."""
        return bool(self._entry.violated)

    def stop(self, *_signal: int | FrameType | None) -> None:
        """No further seed is begun."""
        self.stopped = True

    def run(self, first: int, last: int, *, jobs: int, minutes: float = 0.0) -> None:
        """As far as the time allows; 0 minutes are no limit."""
        until_s = self._began_s + minutes * 60 if minutes else float("inf")
        seeds = missing(list(self._entry.seeds), first, last)
        try:
            if jobs <= 1:
                for seed in seeds:
                    if self.stopped or time.monotonic() > until_s:
                        break
                    self._note(run_seed(seed))
            else:
                self._run_on_several(seeds, jobs, until_s)
        finally:
            self._save()

    def _run_on_several(self, seeds: Iterator[int], jobs: int, until_s: float) -> None:
        with ProcessPoolExecutor(jobs, initializer=_serve_the_first) as pool:
            waiting: set[Future[list[Result]]] = set()
            while True:
                # One chunk more than processes, so that none of them waits for this one.
                while len(waiting) <= jobs and not self.stopped and time.monotonic() < until_s:
                    chunk = list(islice(seeds, CHUNK))
                    if not chunk:
                        break
                    waiting.add(pool.submit(_run_chunk, chunk))
                if not waiting:
                    return
                done, waiting = wait(waiting, timeout=1.0, return_when=FIRST_COMPLETED)
                for future in done:
                    for result in future.result():
                        self._note(result)
                if self.stopped:
                    waiting = {future for future in waiting if not future.cancel()}

    def _note(self, result: Result) -> None:
        self._entry.add(result)
        self.own.add(result)
        if result.failure:
            self._say(f"seed {result.seed}: {result.failure[:SHOWN]}")
            self.stopped |= self._only_first
        if time.monotonic() > self._saved_s + SAVE_EVERY_S:
            self._save()

    def _save(self) -> None:
        now_s = time.monotonic()
        self._entry.real_s += now_s - self._saved_s
        self.own.real_s += now_s - self._saved_s
        self._saved_s = now_s
        if self._path is not None:
            self.record.save(self._path)


def _serve_the_first() -> None:
    """A Ctrl-C reaches every process of the group; the seeds under way are run to their end. Who is killed takes its
    helpers along.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Thread(target=_end_with_the_first, daemon=True).start()


def _end_with_the_first() -> None:
    first = parent_process()
    assert first is not None
    first.join()
    os._exit(1)


def _run_chunk(seeds: list[int]) -> list[Result]:
    return [run_seed(seed) for seed in seeds]
