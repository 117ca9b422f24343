"""What programs write down becomes a history, and the checker finds in it what must not be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.chaos.record import Line, Recorder, Witness, read_lines, witness
from tests.sim.history import LOST
from tests.sim.world import S, Violation


class Told:
    """The lines of one process, told in seconds."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lines: list[Line] = []

    def say(self, at: float, what: str, n: int = 1, **facts: Any) -> None:
        self.lines.append(Line(what, _ns(at), n, **facts))

    def holds(
        self, n: int, asked: float, granted: float, token: int, until: float, key: str = "seat", way: int = 0
    ) -> None:
        """One acquire that is granted."""
        self.say(asked, "asked", n, key=key, wait=10, lease=5, way=way)
        self.say(granted, "granted", n, key=key, token=token, until=_ns(until), way=way)

    def gives_back(self, n: int, at: float, held: bool | None, took: float = 0.1) -> None:
        self.say(at, "releasing", n)
        self.say(at + took, "released", n, held=held)


def _ns(at: float) -> int:
    return int(at * S)


def seen(*told: Told) -> Witness:
    found = Witness()
    for one in told:
        found.add(one.name, one.lines)
    found.finish()
    return found


def breaks(rule: str, *told: Told) -> None:
    with pytest.raises(Violation) as caught:
        seen(*told).history.check()
    assert caught.value.rule == rule


@pytest.fixture
def one() -> Told:
    return Told("c1-1")


@pytest.fixture
def other() -> Told:
    return Told("c2-1")


def test_turns_one_after_the_other_are_fine(one: Told, other: Told) -> None:
    one.holds(1, 1, 2, 100, 6)
    one.gives_back(1, 3, held=True)
    other.holds(1, 1.5, 3.2, 101, 7)
    other.gives_back(1, 4, held=True)
    found = seen(one, other)
    found.history.check()
    assert found.faults == []
    assert found.outcomes == {"acquire: granted": 2, "release: done": 2}
    assert found.owners == {100: ("seat", "c1-1"), 101: ("seat", "c2-1")}
    assert found.grants_ns == [_ns(2), _ns(3.2)]


def test_a_key_is_held_by_two(one: Told, other: Told) -> None:
    one.holds(1, 1, 2, 100, 6)
    other.holds(1, 1.5, 5.5, 101, 9)
    breaks("one holder", one, other)


def test_an_extension_that_was_answered_counts(one: Told, other: Told) -> None:
    one.holds(1, 1, 2, 100, 6)
    one.say(4, "extending", lease=5)
    one.say(4.1, "extended", held=True, until=_ns(9))
    other.holds(1, 1.5, 8, 101, 12)
    breaks("one holder", one, other)


def test_a_process_that_was_killed_holds_to_its_end(one: Told, other: Told) -> None:
    one.holds(1, 1, 2, 100, 6)
    one.say(3, "asked", 2, key="other", wait=5, lease=5)
    other.holds(1, 2, 6.5, 101, 9)
    found = seen(one, other)
    found.history.check()
    assert found.history.requests[1].answer == LOST
    assert found.outcomes["acquire: process killed"] == 1


def test_tokens_fall(one: Told, other: Told) -> None:
    one.holds(1, 1, 2, 100, 3)
    other.holds(1, 4, 5, 99, 7)
    breaks("tokens rise", one, other)


def test_what_was_granted_is_lost(one: Told) -> None:
    one.holds(1, 1, 2, 100, 6)
    one.gives_back(1, 3, held=False)
    breaks("N although held", one)


@pytest.mark.parametrize("changed", ["way", "time"])
def test_no_answer_to_an_earlier_try_may_be_why_nothing_is_held(one: Told, changed: str) -> None:
    one.holds(1, 1, 2, 100, 6)
    one.say(3, "releasing")
    if changed == "way":
        one.say(3.1, "released", held=False, way=1)
    else:
        one.say(4.6, "released", held=False)
    seen(one).history.check()


def test_a_release_that_failed_may_have_released(one: Told) -> None:
    one.holds(1, 1, 2, 100, 6)
    one.gives_back(1, 2.1, held=None, took=1)
    one.gives_back(1, 3.2, held=False)
    seen(one).history.check()


def test_the_later_one_is_served_first(one: Told) -> None:
    one.holds(1, 1, 4, 101, 8)
    one.gives_back(1, 4.1, held=True)
    one.holds(2, 2, 3, 100, 3.5)
    breaks("first come, first served", one)


def test_nothing_is_known_of_the_order_where_the_way_changed(one: Told) -> None:
    one.say(1, "asked", 1, key="seat", wait=10, lease=5, way=0)
    one.say(4, "granted", 1, key="seat", token=101, until=_ns(8), way=1)
    one.holds(2, 2, 3, 100, 3.5)
    seen(one).history.check()


def test_a_wait_ends_too_early(one: Told) -> None:
    one.say(1, "asked", key="seat", wait=3, lease=5)
    one.say(2, "refused", kind="timeout")
    breaks("T too early", one)


def test_a_free_key_is_not_had(one: Told) -> None:
    one.say(100, "asked", key="seat", wait=0, lease=5)
    one.say(100.1, "refused", kind="timeout")
    breaks("T without a holder", one)


def test_a_valid_holder_is_refused_by_the_fence(one: Told) -> None:
    one.holds(1, 1, 2, 100, 6)
    one.say(3, "stale", left=2.5)
    one.holds(2, 7, 8, 101, 9)
    one.say(10, "stale", 2, left=0.0)
    found = seen(one)
    assert len(found.faults) == 1
    assert "2.500 s left" in found.faults[0]
    assert found.outcomes["write refused as stale"] == 2


def test_errors_that_must_not_come_are_faults(one: Told) -> None:
    one.say(1, "asked", key="seat", wait=3, lease=5)
    one.say(2, "refused", kind="protocol")
    one.say(3, "fault", kind="turn: it broke")
    assert len(seen(one).faults) == 2


def test_a_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "c1-1.jsonl"
    record = Recorder(file)
    record.write("asked", n=1, key="seat", wait=3, lease=5)
    record.close()
    with file.open("ab") as lines:
        lines.write(msgspec.json.encode(Line("refused", 5, 1))[:-3])
    assert [line.what for line in read_lines(file)] == ["asked"]
    assert witness([file]).outcomes == {"acquire: process killed": 1}
