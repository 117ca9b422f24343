"""The node's log: one line an event on stderr, as text on a terminal and as JSON elsewhere.

A line never blocks the loop: a thread writes, and what it cannot keep up with is dropped and counted. Each
event has a rate of its own, so that a flood of one kind hides nothing else; audit lines and errors are
never held back. Facts are written as they are given: secrets are not to be given.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TextIO

import msgspec

LEVELS = ("debug", "info", "warning", "error", "audit")
BURST = 20
"""Lines of one event that may come at once; one more every second after that."""
EVENTS_MAX = 1_000
"""Different events whose rate is remembered."""
BACKLOG_MAX = 10_000
"""Lines that wait to be written."""

_RANK = {level: rank for rank, level in enumerate(LEVELS)}
_UNLIMITED = frozenset(("error", "audit"))


class _Rate:
    """A bucket of lines for one event."""

    __slots__ = ("held_back", "left", "seen_s")

    def __init__(self, now_s: float) -> None:
        self.left = float(BURST)
        self.seen_s = now_s
        self.held_back = 0

    def take(self, now_s: float) -> bool:
        self.left = min(BURST, self.left + now_s - self.seen_s)
        self.seen_s = now_s
        if self.left < 1:
            self.held_back += 1
            return False
        self.left -= 1
        return True


class Log:
    """Writes `log(level, event, **facts)`. Callable from the loop's thread."""

    def __init__(
        self,
        stream: TextIO,
        *,
        form: str = "auto",
        level: str = "info",
        place: str = "",
        clock_s: Callable[[], float] = time.monotonic,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        assert form in ("auto", "text", "json"), form
        assert level in _RANK, level
        self._json = form == "json" or (form == "auto" and not stream.isatty())
        self._least = _RANK[level]
        self._place = place
        self._clock_s = clock_s
        self._wall_s = wall_s
        self._rates: dict[str, _Rate] = {}
        self._writer = _Writer(stream)
        self.audited: Callable[[str, dict[str, object]], None] | None = None
        """Gets each audit line's event and facts, ready for JSON."""

    def __call__(self, level: str, event: str, **facts: object) -> None:
        """One line; `level` is one of `LEVELS`."""
        if level == "audit" and self.audited is not None:
            self.audited(event, {name: _json_value(value) for name, value in facts.items()})
        if _RANK[level] < self._least:
            return
        if level not in _UNLIMITED:
            now_s = self._clock_s()
            rate = self._rates.get(event)
            if rate is None:
                if len(self._rates) >= EVENTS_MAX:
                    self._rates.clear()
                rate = self._rates[event] = _Rate(now_s)
            if not rate.take(now_s):
                return
            if rate.held_back:
                facts["held_back"] = rate.held_back
                rate.held_back = 0
        self._writer.put(self._format(level, event, facts))

    def flush(self, within_s: float = 1.0) -> None:
        """Waits until what was logged is written, bounded."""
        self._writer.flush(within_s)

    def close(self) -> None:
        """Writes what is left and ends the thread."""
        self._writer.close()

    def _format(self, level: str, event: str, facts: dict[str, object]) -> str:
        moment = datetime.fromtimestamp(self._wall_s(), UTC).isoformat(timespec="milliseconds")
        moment = moment.replace("+00:00", "Z")
        if self._json:
            line: dict[str, object] = {"time": moment, "level": level, "place": self._place, "event": event}
            for name, value in facts.items():
                # A fact about another place must not take the place of who says it.
                own = line.get(name, value) == value
                line[name if own else f"of_{name}"] = _json_value(value)
            return msgspec.json.encode(line).decode() + "\n"
        words = " ".join(f"{name}={_word(value)}" for name, value in facts.items())
        return f"{moment} {level:7} {_printable(event)}{' ' if words else ''}{words}\n"


def _json_value(value: object) -> object:
    """64-bit numbers are strings (`docs/admin.md`); what JSON does not know is text."""
    if value is None or isinstance(value, bool | float | str):
        return value
    if isinstance(value, int):
        return value if -(2**53) < value < 2**53 else str(value)
    if isinstance(value, list | tuple):
        return [_json_value(item) for item in value]
    return str(value)


def _word(value: object) -> str:
    text = _printable(value if isinstance(value, str) else str(value))
    return (
        text
        if text and not any(letter in ' "=' for letter in text)
        else f'"{text.replace(chr(34), chr(39))}"'
    )


def _printable(text: str) -> str:
    """Text that cannot move the cursor or begin a line of its own."""
    return text if text.isprintable() else text.encode("unicode_escape").decode()


class _Writer:
    """The thread behind a log."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lines: deque[str] = deque()
        self._dropped = 0
        self._changed = threading.Condition()
        self._writing = False
        self._closed = False
        self._thread: threading.Thread | None = None

    def put(self, line: str) -> None:
        with self._changed:
            if self._closed:
                return
            if len(self._lines) >= BACKLOG_MAX:
                self._dropped += 1
                return
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="log", daemon=True)
                self._thread.start()
            self._lines.append(line)
            self._changed.notify_all()

    def flush(self, within_s: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._lines and not self._writing, within_s)

    def close(self) -> None:
        self.flush(1.0)
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(1.0)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._writing = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._lines or self._closed)
                if not self._lines:
                    return
                text = "".join(self._lines)
                self._lines.clear()
                if self._dropped:
                    text += f"({self._dropped} log lines were dropped: stderr did not take them)\n"
                    self._dropped = 0
                self._writing = True
            try:
                self._stream.write(text)
                self._stream.flush()
            except (OSError, ValueError):
                continue  # stderr is gone; a node serves on without its log
