"""The log: forms, rates, and what must not get through."""

from __future__ import annotations

import io
import json
from collections.abc import Callable

from ticketing.server.log import BURST, Log


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def written(log: Log, stream: io.StringIO) -> list[str]:
    log.close()
    return stream.getvalue().splitlines()


def log_to(stream: io.StringIO, clock_s: Callable[[], float] = lambda: 0.0, level: str = "info") -> Log:
    return Log(stream, level=level, place="node-1", clock_s=clock_s, wall_s=lambda: 1.5)


def test_a_terminal_gets_text_and_anything_else_json() -> None:
    terminal, pipe = Terminal(), io.StringIO()
    for stream in (terminal, pipe):
        log = log_to(stream)
        log("warning", "bad frame", remote="10.0.0.1:5", reason="too long a key")
        log.close()
    assert terminal.getvalue() == (
        '1970-01-01T00:00:01.500Z warning bad frame remote=10.0.0.1:5 reason="too long a key"\n'
    )
    assert json.loads(pipe.getvalue()) == {
        "time": "1970-01-01T00:00:01.500Z",
        "level": "warning",
        "place": "node-1",
        "event": "bad frame",
        "remote": "10.0.0.1:5",
        "reason": "too long a key",
    }


def test_large_numbers_are_strings_in_json_and_odd_values_text() -> None:
    stream = io.StringIO()
    log = log_to(stream)
    log("info", "x", token=2**60, small=7, places=("a", 2**60), error=ValueError("no"), nothing=None)
    facts = json.loads(written(log, stream)[0])
    assert facts["token"] == str(2**60)
    assert facts["small"] == 7
    assert facts["places"] == ["a", str(2**60)]
    assert facts["error"] == "no"
    assert facts["nothing"] is None


def test_a_fact_about_another_place_does_not_hide_who_says_it() -> None:
    pipe = io.StringIO()
    log = log_to(pipe)
    log("warning", "peer link refused", place="node-2")
    log("info", "ready", place="node-1")
    first, second = (json.loads(line) for line in written(log, pipe))
    assert (first["place"], first["of_place"]) == ("node-1", "node-2")
    assert (second["place"], "of_place" in second) == ("node-1", False)


def test_nobody_can_forge_a_line_or_move_the_cursor() -> None:
    stream = Terminal()
    log = log_to(stream)
    log("info", "hello", name='x\n1970 audit forged \x1b[2J"')
    lines = written(log, stream)
    assert len(lines) == 1
    assert "\x1b" not in lines[0]


def test_a_flood_of_one_event_is_held_back_counted_and_hides_no_other() -> None:
    stream = io.StringIO()
    now = [0.0]
    log = log_to(stream, lambda: now[0])
    for _ in range(BURST + 500):
        log("warning", "flood")
    log("warning", "other")
    now[0] = 1.0
    log("warning", "flood")
    lines = [json.loads(line) for line in written(log, stream)]
    assert [line["event"] for line in lines] == ["flood"] * BURST + ["other", "flood"]
    assert lines[-1]["held_back"] == 500


def test_audit_lines_and_errors_are_never_held_back() -> None:
    stream = io.StringIO()
    log = log_to(stream)
    for number in range(BURST * 3):
        log("audit", "transfer", number=number)
        log("error", "fault", number=number)
    assert len(written(log, stream)) == BURST * 6


def test_levels_below_the_least_are_not_written_and_audit_always_is() -> None:
    stream = io.StringIO()
    log = log_to(stream, level="error")
    for level in ("debug", "info", "warning", "error", "audit"):
        log(level, level)
    assert [json.loads(line)["level"] for line in written(log, stream)] == ["error", "audit"]


def test_a_broken_stream_does_not_stop_the_node() -> None:
    class Broken(io.StringIO):
        def write(self, _text: str) -> int:
            raise BrokenPipeError

    log = log_to(Broken())
    log("info", "one")
    log.flush()
    log("info", "two")
    log.close()
