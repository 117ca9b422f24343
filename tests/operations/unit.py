"""A systemd unit's rules about starting again (systemd.service(5)), as far as the shipped unit uses them."""

from __future__ import annotations

import configparser
import re
import shlex
import signal
from pathlib import Path
from typing import NamedTuple

_CLEAN_SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGPIPE)
_RESTARTS = ("no", "always", "on-failure", "on-success")


class Unit(NamedTuple):
    """What `systemctl start`, `stop` and the end of the process lead to."""

    start: list[str]
    restart: str
    restart_s: float
    never: frozenset[int]
    """`RestartPreventExitStatus`."""
    always: frozenset[int]
    """`RestartForceExitStatus`; a signal is negative."""
    success: frozenset[int]
    """`SuccessExitStatus`, beside 0."""
    stop_s: float

    def starts_again(self, status: int) -> bool:
        """Whether a process that ended by itself is started again. `status`: negative for a signal."""
        if status in self.always:
            return True
        if status in self.never:
            return False
        clean = status == 0 or status in self.success or -status in _CLEAN_SIGNALS
        return {
            "no": False,
            "always": True,
            "on-failure": not clean,
            "on-success": clean,
        }[self.restart]


def read_unit(path: Path, instance: str) -> Unit:
    """The unit of one instance (`%i`)."""
    parser = configparser.ConfigParser(strict=True, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(path.read_text())
    service = parser["Service"]
    assert service["Restart"] in _RESTARTS

    def statuses(key: str) -> frozenset[int]:
        words = service.get(key, "").split()
        return frozenset(int(word) if word.isdigit() else -signal.Signals[word] for word in words)

    return Unit(
        shlex.split(service["ExecStart"].replace("%i", instance)),
        service["Restart"],
        _seconds(service["RestartSec"]),
        statuses("RestartPreventExitStatus"),
        statuses("RestartForceExitStatus"),
        statuses("SuccessExitStatus"),
        _seconds(service["TimeoutStopSec"]),
    )


def _seconds(text: str) -> float:
    assert re.fullmatch(r"\d+(\.\d+)?", text), f"{text!r}: plain seconds are read here"
    return float(text)
