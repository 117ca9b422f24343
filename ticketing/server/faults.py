"""What no code caught: a broken invariant of ours stops the process, anything else is a line in the log."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from typing import Any

from ticketing.server.log import Log

STATUS = 1
_ADMIN = "ticketing.server.admin"
_READING = frozenset(("ticketing.node.reports", "ticketing.node.status"))
"""What they call changes nothing: a fault there spoils an answer, not the node."""


class Faults:
    """A loop's exception handler.

    An exception out of our own code means that the node's state cannot be trusted: peers and clients are
    better off without it, at once and without a farewell. The admin plane's own code and the reports that it
    reads are excepted: it answers 500.
    """

    def __init__(self, log: Log, die: Callable[[int], None] = os._exit) -> None:
        self._log = log
        self._die = die

    def __call__(self, _loop: object, context: dict[str, Any]) -> None:
        """For `loop.set_exception_handler`."""
        self.report(context.get("exception"), str(context.get("message", "")))

    def report(self, error: BaseException | None, message: str) -> None:
        """Logs an exception that nobody expected and, where it is out of our own code, ends the process."""
        text = "" if error is None else "".join(traceback.format_exception(error))
        self._log("error", "internal fault", message=message, traceback=text)
        if error is not None and from_our_code(error):
            self._log("error", "stopped", status=STATUS, reason=f"internal fault: {error!r}")
            self._log.close()
            self._die(STATUS)


def from_our_code(error: BaseException) -> bool:
    """Whether an exception came through this program's own modules, admin plane and reports excepted."""
    step = error.__traceback__
    while step is not None:
        name = str(step.tb_frame.f_globals.get("__name__", ""))
        if name in _READING:
            return False
        if name.startswith("ticketing.") and not name.startswith(_ADMIN):
            return True
        step = step.tb_next
    return False
