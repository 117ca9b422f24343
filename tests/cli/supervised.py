"""A process that runs a command under a lock that needs no cluster: `supervised.py OPTIONS-AS-JSON CMD...`.

What happens to the lock goes to the file named by `log`, one word a line.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path

from ticketing.cli.errors import tell
from ticketing.cli.run_under_lock import Run, Supervisor
from ticketing.cli.signal_relay import SignalRelay


class CountedLock:
    """Held for `lease_s` from now on, by this process's own clock."""

    token = 1_850_000_000_000_000
    domain = "1850000000000000.00112233445566ff"

    def __init__(self, log: Path, lease_s: float, *, lost_after_s: float, extends: bool) -> None:
        self._log = log
        self._lease_s = lease_s
        self._end_s = time.monotonic() + lease_s
        self._lost_s = time.monotonic() + lost_after_s
        self._extends = extends

    def note(self, word: str) -> None:
        with self._log.open("a") as log:
            log.write(f"{word}\n")

    @property
    def lost(self) -> bool:
        return time.monotonic() >= self._lost_s

    def conservative_remaining(self) -> float:
        return self._end_s - time.monotonic()

    async def extend(self) -> bool:
        if not self._extends:
            self.note("not-extended")
            raise OSError("no answer")
        self._end_s = time.monotonic() + self._lease_s
        self.note("extended")
        return True

    async def release(self) -> bool:
        self.note("released" if self.conservative_remaining() > 0 else "late")
        return not self.lost


async def main(options: dict[str, float | bool | str], command: list[str]) -> int:
    run = Run(
        key="a/key",
        command=tuple(command),
        lease_s=float(options["lease"]),
        budget_s=float(options.get("budget", 0)),
        grace_s=float(options["grace"]),
        extend=bool(options.get("extend", False)),
        leave_alone=bool(options.get("leave_alone", False)),
    )
    lock = CountedLock(
        Path(str(options["log"])),
        run.lease_s,
        lost_after_s=float(options.get("lost_after", 1000)),
        extends=bool(options.get("extends", False)),
    )
    supervisor = Supervisor(run, environment=os.environ)
    relay = SignalRelay(asyncio.get_running_loop(), supervisor.signals, supervisor.on_signal)
    try:
        if "stopped_by" in options:
            supervisor.on_signal(int(options["stopped_by"]), False)
        return await supervisor.run(lock, relay)
    except Exception as error:
        return tell(error)
    finally:
        relay.close()


if __name__ == "__main__":
    sys.exit(asyncio.run(main(json.loads(sys.argv[1]), sys.argv[2:])))
